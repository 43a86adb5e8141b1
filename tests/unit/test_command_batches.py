"""What a command trains on, as its loader and its models show it."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from autotune.probe.command.batches import Batches


class Loading:
    """Stands for a data loader's iterator."""

    def __init__(self, samples: int) -> None:
        self._dataset = range(samples)


def rows(number: int) -> list[torch.Tensor]:
    return [torch.zeros(number, 3), torch.zeros(number, dtype=torch.int64)]


def test_the_largest_batch_that_was_trained_on_counts() -> None:
    batches, loading = Batches(8), Loading(100)
    for number in (8, 8, 4):
        batches.fetched(loading, rows(number))
        batches.trained()
    assert (batches.observed, batches.data_set_size, batches.take()) == (8, 100, 3)
    assert batches.bytes == 4 * (12 + 8), "of the last one"
    assert batches.words == "list(float32[8, 3], int64[8])"
    assert batches.take() == 0


def test_a_batch_that_was_only_fetched_does_not_count() -> None:
    batches = Batches(8)
    batches.fetched(Loading(100), rows(8))
    assert (batches.observed, batches.data_set_size) == (None, None)


def test_batches_for_evaluation_do_not_count() -> None:
    batches = Batches(8)
    with torch.no_grad():
        batches.fetched(Loading(50), rows(64))
    batches.trained()
    assert (batches.observed, batches.take()) == (None, 0)
    batches.fetched(Loading(100), rows(8))
    batches.trained()
    assert (batches.observed, batches.data_set_size) == (8, 100)


def test_a_loader_that_is_empty_from_the_start_says_how_large_its_data_set_is() -> None:
    batches = Batches(8)
    batches.fetched(Loading(5), None)
    assert (batches.observed, batches.data_set_size) == (None, 5)


def test_the_end_of_a_loader_does_not_change_what_was_seen() -> None:
    batches = Batches(8)
    batches.fetched(Loading(100), rows(8))
    batches.trained()
    batches.fetched(Loading(7), None)
    assert batches.data_set_size == 100


def test_a_data_set_without_a_length_leaves_it_unknown() -> None:
    batches = Batches(8)
    batches.fetched(object(), rows(8))
    batches.trained()
    assert (batches.observed, batches.data_set_size) == (8, None)


def test_without_a_loader_models_show_what_they_are_called_with() -> None:
    batches, model = Batches(4), nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    batches.look_at_models(model.parameters())
    batches.look_at_models(model.parameters())  # of a second optimizer
    for _ in range(2):
        model(torch.zeros(4, 3)).sum().backward()
        batches.trained()
    assert (batches.observed, batches.take()) == (4, 2)
    with torch.no_grad():
        model(torch.zeros(64, 3))
    assert (batches.observed, batches.take()) == (4, 0)


def test_two_models_that_are_called_for_one_batch_make_one_batch() -> None:
    batches, one, other = Batches(4), nn.Linear(3, 1), nn.Linear(3, 1)
    batches.look_at_models([*one.parameters(), *other.parameters()])
    (one(torch.zeros(4, 3)) + other(torch.zeros(4, 3))).sum().backward()
    batches.trained()
    assert batches.take() == 1


def test_what_a_model_raises_is_seen_though_somebody_catches_it() -> None:
    raised: list[BaseException] = []
    batches, model = Batches(4, failed=raised.append), nn.Linear(3, 1)
    batches.look_at_models(model.parameters())
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.zeros(4, 5))
    (error,) = raised
    assert "shapes cannot be multiplied" in str(error)
    model(torch.zeros(4, 3))
    assert len(raised) == 1


def test_copies_of_a_model_and_what_is_saved_of_it_are_not_looked_at() -> None:
    batches, model = Batches(4), nn.Linear(3, 1)
    batches.look_at_models(model.parameters())
    batches.called(model, (torch.zeros(4, 3, requires_grad=True) * 2,), {})  # what cannot be copied
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        other(torch.zeros(9, 3))
    batches.trained()
    assert (batches.observed, batches.take()) == (4, 1)


def test_a_real_loader_has_what_is_looked_for() -> None:
    data = TensorDataset(*rows(10))
    batches, loading = Batches(4), iter(DataLoader(data, batch_size=4))
    batches.fetched(loading, next(loading))
    batches.trained()
    assert (batches.observed, batches.data_set_size) == (4, 10)


@pytest.mark.parametrize(
    ("asked", "rows_before", "rows_now", "seen"),
    [
        pytest.param(1, 32, 32, 32, id="ignores what it is told"),
        pytest.param(16, 32, 32, 32, id="ignores it, though the size divides what it takes"),
        pytest.param(1, 2, 1, 1, id="follows"),
        pytest.param(64, 2, 50, 50, id="follows, and the data ends"),
    ],
)
def test_a_batch_is_what_follows_the_size_that_is_told(asked: int, rows_before: int, rows_now: int, seen: int) -> None:
    batches = Batches(asked, (2, [[], [rows_before, 3], [rows_before]]))
    batches.fetched(Loading(1000), rows(rows_now))
    batches.trained()
    assert batches.observed == seen


def test_samples_packed_into_one_dimension_and_time_before_batch_are_seen_to_follow() -> None:
    packed = Batches(8, (2, [[], [2 * 17]]))
    packed.fetched(Loading(1000), [torch.zeros(8 * 17)])
    packed.trained()
    assert packed.observed == 8
    time_first = Batches(8, (2, [[], [17, 2]]))
    time_first.fetched(Loading(1000), (torch.zeros(17, 8),))
    time_first.trained()
    assert time_first.observed == 8


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchScript itself, in newer PyTorch
def test_scripted_models_are_left_alone() -> None:
    batches, model = Batches(4), nn.Sequential(nn.Linear(3, 1))
    batches.look_at_models(model.parameters())
    assert batches.knows(model.parameters())
    assert not batches.knows(nn.Linear(3, 1).parameters())
    batches.look_away(model)
    assert not model._forward_pre_hooks and not model._forward_hooks
    traced = torch.jit.trace(model, torch.zeros(2, 3))  # type: ignore[no-untyped-call]
    batches.look_at_models(traced.parameters())
    assert traced(torch.zeros(2, 3)).shape == (2, 1)
