"""Functions of a workload that ask for their rank are told it; others are called as ever."""

from typing import Any

import pytest
import torch
from torch import nn

from autotune.errors import WorkloadError
from autotune.workload.assemble import from_parts
from autotune.workload.task import Workload


def workload(**members: Any) -> Workload:
    """As it is loaded where nothing is said of ranks."""
    found = from_parts({"make_model": nn.Linear(2, 2), **members}, "test")
    return Workload("test", found.parts, found.recognised)


def rows(batch: object) -> list[float]:
    assert isinstance(batch, torch.Tensor)
    return batch.flatten().tolist()


def test_rank_and_world_size_are_told_and_one_process_is_rank_0_of_1() -> None:
    def make_batch(batch_size: int, rank: int, world_size: int) -> torch.Tensor:
        return torch.tensor([[batch_size, rank, world_size]])

    alone = workload(make_batch=make_batch)
    assert rows(alone.make_batch(3)) == [3, 0, 1]
    assert rows(alone.of_rank(1, 4).make_batch(3)) == [3, 1, 4]
    assert rows(alone.make_batch(3)) == [3, 0, 1]
    assert alone.of_rank(0, 1) is alone


def test_only_what_is_taken_is_told_also_by_keyword() -> None:
    def make_batch(*, batch_size: int, world_size: int) -> torch.Tensor:
        return torch.tensor([[batch_size, world_size]])

    assert rows(workload(make_batch=make_batch).of_rank(1, 2).make_batch(5)) == [5, 2]


def test_a_rank_by_itself_may_be_that_of_a_matrix_and_is_left_alone() -> None:
    def make_model(rank: int = 8) -> nn.Module:
        return nn.Linear(rank, 1)

    made = workload(make_model=make_model, make_batch=torch.ones).of_rank(1, 2)
    assert made.make_model().in_features == 8
    assert made.same_model

    def without_default(rank: int) -> nn.Module:
        return nn.Linear(rank, 1)

    with pytest.raises(WorkloadError, match="make_model in test takes"):
        workload(make_model=without_default, make_batch=torch.ones)


def test_a_model_of_its_own_in_each_rank_is_not_made_ahead() -> None:
    def make_model(rank: int, world_size: int) -> nn.Module:
        return nn.Linear(rank + 1, world_size)

    alone = workload(make_model=make_model, make_batch=torch.ones)
    assert not alone.same_model
    model = alone.of_rank(1, 3).make_model()
    assert isinstance(model, nn.Linear)
    assert (model.in_features, model.out_features) == (2, 3)


def test_data_of_its_own_in_each_rank_is_opened_there() -> None:
    data = [torch.tensor([float(number)]) for number in range(10)]
    opened: list[tuple[int, int]] = []

    def make_dataset(rank: int, world_size: int) -> list[torch.Tensor]:
        opened.append((rank, world_size))
        return data[rank::world_size]

    alone = workload(make_dataset=make_dataset)
    second = alone.of_rank(1, 2)
    assert opened == [(0, 1), (1, 2)]
    assert (alone.data_set_size, second.data_set_size) == (10, 5)
    assert set(rows(second.make_batch(5))) == {1.0, 3.0, 5.0, 7.0, 9.0}
