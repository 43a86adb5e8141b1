"""make_loader(batch_size): what its batches are at worst, what their number counts, and where they grow no more."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch
from torch.utils.data import DataLoader

from autotune.apply import Unsupported
from autotune.errors import WorkloadError
from autotune.model import LoaderInfo
from autotune.workload.opening import open_loader
from tests.unit.loaders import Stream, Texts, TokenBudget, pad

LENGTHS = [10] * 300 + [90] * 20 + [2000]


def budgeted(budget: int) -> DataLoader[Any]:
    return DataLoader(
        Texts(LENGTHS), batch_sampler=TokenBudget(LENGTHS, budget), collate_fn=pad, num_workers=2, prefetch_factor=3
    )


def shapes(make: Callable[[int], object], size: int) -> list[tuple[int, ...]]:
    source = open_loader(make)
    found = []
    for candidate in range(source.candidates(size)):
        batch, _ = source.batch(size, candidate)
        assert isinstance(batch, torch.Tensor)
        found.append(tuple(batch.shape))
    return found


def test_c10_under_a_token_budget_the_longest_sample_and_the_most_samples_are_candidates() -> None:
    assert shapes(budgeted, 1000) == [(1, 2000), (100, 10)]
    assert shapes(budgeted, 4000) == [(1, 2000), (300, 10)]


def test_a_token_budget_is_no_number_of_samples_and_says_so() -> None:
    source = open_loader(budgeted)
    assert source.size is None and not source.sized
    assert source.varies
    assert source.loader == LoaderInfo(workers=2, pin_memory=False, drop_last=False)
    assert source.batch(1000)[1] is None
    assert "a token budget, they count tokens" in source.notes[-1]


def test_a_token_budget_beyond_the_whole_data_set_is_its_end() -> None:
    everything = 2000 * len(LENGTHS)
    batch, samples = open_loader(budgeted).batch(everything + 5000)
    assert isinstance(batch, torch.Tensor) and batch.shape == (len(LENGTHS), 2000)
    assert samples == everything
    assert open_loader(budgeted).batch(everything)[1] is None


def test_a_shorter_batch_is_one_of_the_samplers_own() -> None:
    batch, _ = open_loader(budgeted).shorter(4000, 0.5)
    assert isinstance(batch, torch.Tensor) and batch.shape == (20, 90)


def test_a_plain_loader_has_as_many_samples_as_asked_for() -> None:
    source = open_loader(lambda n: DataLoader(Texts([3, 8, 5]), batch_size=n, collate_fn=pad))
    assert source.size == 3
    assert source.loader is not None and source.sized
    batch, samples = source.batch(2)
    assert isinstance(batch, torch.Tensor) and (batch.shape, samples) == ((2, 8), 2)


@pytest.mark.parametrize("drop_last", [False, True])
def test_c02_a_plain_loader_over_too_few_samples_has_what_there_is(drop_last: bool) -> None:
    source = open_loader(lambda n: DataLoader(Texts([3] * 10), batch_size=n, drop_last=drop_last))
    assert source.size == 10
    assert source.batch(16)[1] == 10


def test_a_loader_that_does_not_take_the_size_is_named() -> None:
    with pytest.raises(WorkloadError, match=r"make_loader\(64\) returned a DataLoader with batches of 32") as raised:
        open_loader(lambda n: DataLoader(Texts([3] * 10), batch_size=32))
    assert "batch_size=batch_size" in raised.value.hint


def test_a_loader_that_does_something_with_the_size_is_taken_as_it_is() -> None:
    source = open_loader(lambda n: DataLoader(Texts([3] * 100), batch_size=2 * n))
    batch, samples = source.batch(5)
    assert isinstance(batch, torch.Tensor) and (len(batch), samples) == (10, None)
    assert source.batch(64)[1] == 50, "where one batch is the whole data set"


def test_c36_a_stream_without_length_in_a_plain_loader_is_counted() -> None:
    source = open_loader(lambda n: DataLoader(Stream([3] * 10), batch_size=n))
    assert source.batch(4)[1] == 4
    assert source.batch(16)[1] == 10


def ready(samples: int, drop_last: bool = False) -> Callable[[int], Iterator[torch.Tensor]]:
    def make(n: int) -> Iterator[torch.Tensor]:
        for start in range(0, samples, n):
            size = min(n, samples - start)
            if size == n or not drop_last:
                yield torch.zeros(size, 3 + start)

    return make


@dataclass
class Batch:
    tokens: torch.Tensor
    names: list[str]


def test_the_largest_of_ready_batches_are_candidates_and_made_anew_each_time() -> None:
    def make(n: int) -> Iterator[Batch]:
        yield Batch(torch.zeros(n, 5), ["a"] * n)
        yield Batch(torch.zeros(1, 40 * n), ["b"])
        yield Batch(torch.zeros(2 * n, 2), ["c"] * n)

    source = open_loader(make)
    assert source.candidates(4) == 2
    first, second = (source.batch(4)[0] for _ in range(2))
    assert isinstance(first, Batch) and isinstance(second, Batch)
    assert first.tokens.shape == (1, 160) and first.tokens.data_ptr() != second.tokens.data_ptr()
    most, _ = source.batch(4, 1)
    assert isinstance(most, Batch) and most.tokens.shape == (8, 2)


def test_batches_that_cannot_be_written_are_copied() -> None:
    @dataclass
    class Local:
        tokens: torch.Tensor

    source = open_loader(lambda n: [Local(torch.ones(n, 2))] * 3)
    first, second = (source.batch(4)[0] for _ in range(2))
    assert isinstance(first, Local) and isinstance(second, Local)
    assert first.tokens.data_ptr() != second.tokens.data_ptr()


@pytest.mark.parametrize("drop_last", [False, True])
def test_c02_ready_batches_end_where_one_is_the_whole_data_set(drop_last: bool) -> None:
    source = open_loader(ready(100, drop_last))
    assert source.batch(100)[1] is None
    assert source.batch(128)[1] == 100
    assert source.batch(5000)[1] == 100


def test_c02_a_loader_that_never_gives_a_batch_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"make_loader\(8\) gave no batch"):
        open_loader(lambda n: []).batch(8)


def test_an_endless_loader_is_looked_at_in_part() -> None:
    def make(n: int) -> Iterator[torch.Tensor]:
        while True:
            yield torch.zeros(n, 3)

    source = open_loader(make)
    assert source.batch(7)[1] is None
    assert source.notes[0] == "looked at the loader's first 16 batches for the worst ones; worse may come later"


def test_a_loader_that_refuses_small_sizes_is_opened_with_a_larger_one() -> None:
    def make(n: int) -> DataLoader[Any]:
        if n < 2000:
            raise ValueError("the budget is smaller than the longest text")
        return budgeted(n)

    source = open_loader(make)
    assert source.loader is not None and source.loader.workers == 2
    with pytest.raises(ValueError, match="smaller than the longest text"):
        source.batch(10)
    assert source.batch(4000)[1] is None


def test_a_loader_that_fails_at_every_size_fails_when_a_batch_is_made() -> None:
    def make(n: int) -> object:
        raise KeyError("train")

    source = open_loader(make)
    assert (source.size, source.varies) == (None, False)
    with pytest.raises(KeyError):
        source.batch(4)


@pytest.mark.parametrize(
    ("made", "message", "hint"),
    [
        (None, "make_loader(64) returned None", "return loader"),
        (Texts([1]), "returned a Texts, a data set", "DataLoader(data, batch_size=batch_size)"),
        (torch.zeros(3), "returned a Tensor, which is no iterable of batches", "a list of batches"),
        (7, "returned an int, which is no iterable of batches", "a list of batches"),
    ],
)
def test_what_is_no_loader_is_named(made: object, message: str, hint: str) -> None:
    with pytest.raises(WorkloadError) as raised:
        open_loader(lambda n: made)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_what_the_sampler_composes_is_loaded_as_often_as_wanted_the_most_samples_first() -> None:
    made = open_loader(budgeted).load(1000, 12, workers=2, pin_memory=False)
    assert isinstance(made, DataLoader)
    assert (made.num_workers, made.prefetch_factor) == (2, 3)
    lists = list(cast(Iterable[list[int]], made.batch_sampler))
    assert len(lists) == 12
    assert [len(one) for one in lists[:2]] == [100, 100]


def test_ready_batches_are_loaded_over_and_over_and_never_by_workers() -> None:
    source = open_loader(ready(10))
    assert len(list(source.load(4, 7, workers=0, pin_memory=False))) == 7
    with pytest.raises(Unsupported, match="not a DataLoader"):
        source.load(4, 7, workers=2, pin_memory=False)


def test_a_data_set_made_anew_for_each_size_is_looked_at_once() -> None:
    reads: list[int] = []

    class Counting(Texts):
        def __getitem__(self, index: int) -> torch.Tensor:
            reads.append(index)
            return super().__getitem__(index)

    source = open_loader(lambda n: DataLoader(Counting([4] * 50 + [9]), batch_size=n, collate_fn=pad))
    assert len(reads) == 51
    reads.clear()
    source.batch(3)
    assert len(reads) <= 3 + 5
