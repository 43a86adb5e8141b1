"""A loader over the workload's data set gives whole batches, as many as asked for where the data can be read again."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from autotune.errors import WorkloadError
from autotune.workload.opening import open_data
from autotune.workload.parts import Parts
from autotune.workload.task import Workload


class Plain:
    """Can only be iterated over."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


def load(data: object, collate: Callable[[list[Any]], object] | None, batch_size: int, batches: int) -> list[Any]:
    return list(open_data(lambda: data, collate).load(batch_size, batches, workers=0, pin_memory=False))


def sizes(data: object, batch_size: int, batches: int) -> list[int]:
    return [len(batch) for batch in load(data, None, batch_size, batches)]


def test_a_small_data_set_is_read_over_and_over() -> None:
    assert sizes([1, 2, 3], batch_size=4, batches=5) == [4] * 5


def test_samples_come_in_random_order() -> None:
    torch.manual_seed(0)
    (batch,) = load(list(range(100)), None, 50, 1)
    assert set(batch.tolist()) < set(range(100))
    assert sorted(batch.tolist()) != batch.tolist()


@pytest.mark.parametrize("data", [Plain(), Stream()])
def test_a_stream_gives_the_whole_batches_it_has(data: object) -> None:
    assert sizes(data, batch_size=3, batches=5) == [3, 3]
    first = load(data, None, 3, 5)[0]
    assert first.tolist() == [0, 1, 2]


def test_samples_are_put_together_as_the_user_does() -> None:
    assert load(["a"], "".join, 3, 2) == ["aaa", "aaa"]


def test_an_empty_data_set_is_the_users_error() -> None:
    with pytest.raises(WorkloadError, match="empty data set"):
        load([], None, 1, 1)


def test_workers_and_pinning_are_handed_on() -> None:
    loader = open_data(lambda: [1], None).load(1, 1, workers=1, pin_memory=True)
    assert isinstance(loader, DataLoader)
    assert (loader.num_workers, loader.pin_memory) == (1, True)


def workload(**parts: object) -> Workload:
    return Workload("task.py", Parts(make_model=lambda: nn.Linear(1, 1), **parts), ())  # type: ignore[arg-type]


@pytest.mark.parametrize("beside", [{}, {"make_batch": lambda n: torch.ones(n)}])
def test_the_data_set_is_loaded_from_also_where_batches_are_made_otherwise(beside: dict[str, object]) -> None:
    loader = workload(make_dataset=lambda: [7, 7], **beside).load(2, 3, workers=0, pin_memory=False)
    assert loader is not None
    assert [batch.tolist() for batch in loader] == [[7, 7]] * 3


def test_a_workload_without_a_data_set_has_no_loader() -> None:
    assert workload(make_batch=lambda n: torch.ones(n)).load(2, 3, workers=0, pin_memory=False) is None
