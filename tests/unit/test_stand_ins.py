"""Collectives of one rank among others that are not there: each gives what all others would if they held the same."""

import pytest
import torch

from autotune.apply.parallel import fullest_rank
from autotune.probe.stand_ins import Held, StandIns

RANKS = 3
GROUP = StandIns(1, RANKS)
MINE = torch.tensor([1.0, 2.0])


def test_a_reduction_and_a_broadcast_leave_what_is_there() -> None:
    for collective in (GROUP.allreduce, GROUP.broadcast):
        held = MINE.clone()
        collective([held]).wait()
        assert torch.equal(held, MINE)


def test_what_is_gathered_is_this_rank_s_part_once_for_each() -> None:
    whole = torch.full((6,), torch.nan)
    GROUP.all_gather_single(whole, MINE).wait()
    assert torch.equal(whole, MINE.repeat(RANKS))
    parts = [torch.full((2,), torch.nan) for _ in range(RANKS)]
    GROUP.allgather([parts], [MINE]).wait()
    assert all(torch.equal(part, MINE) for part in parts)


def test_a_part_that_lies_in_the_whole_already_is_gathered_without_a_copy_of_it() -> None:
    whole = torch.tensor([0.0, 0.0, 1.0, 2.0, 0.0, 0.0])
    GROUP._allgather_base(whole, whole[2:4]).wait()
    assert torch.equal(whole, MINE.repeat(RANKS))


def test_what_is_scattered_is_this_rank_s_part_of_the_whole() -> None:
    mine = torch.empty(2)
    GROUP.reduce_scatter_single(mine, torch.arange(6.0)).wait()
    assert mine.tolist() == [2.0, 3.0]
    GROUP.reduce_scatter([mine], [list(torch.arange(6.0).chunk(RANKS))]).wait()
    assert mine.tolist() == [2.0, 3.0]


def test_what_others_would_send_is_zero() -> None:
    held = MINE.clone()
    GROUP.recv([held], 0).wait()
    assert held.tolist() == [0.0, 0.0]


def test_buckets_are_held_until_those_that_came_after_them_come_again() -> None:
    held, (old, other, new) = Held(), (torch.empty(1) for _ in range(3))
    for step in ([old, other], [new]):  # made anew for the second step
        for bucket in step:
            held.add([bucket])
    assert len(held) == 3
    held.add([new])
    assert len(held) == 1
    for bucket in (old, new, old, new):  # the same ones in each step
        held.add([bucket])
    assert len(held) == 2


def test_what_never_comes_again_is_not_held_for_ever() -> None:
    held, kept = Held(), [torch.empty(1) for _ in range(300)]
    for one in kept:
        held.add([one])
    assert len(held) == 256


@pytest.mark.parametrize("name", ["all_gather_single", "reduce_scatter_single"])
def test_older_names_of_pytorch_are_there_too(name: str) -> None:
    older = {"all_gather_single": "_allgather_base", "reduce_scatter_single": "_reduce_scatter_base"}[name]
    assert getattr(StandIns, older) is getattr(StandIns, name)


@pytest.mark.parametrize(
    ("groups", "ranks", "fullest"),
    [
        ([[5, 4, 4]], 2, 1),  # the largest alone, the others together
        ([[3, 3, 2, 2, 2]], 2, 0),
        ([[1], [4, 4]], 2, 0),  # groups go on from where the one before left it
        ([[7]], 1, 0),
    ],
)
def test_the_fullest_rank_is_that_of_zero_s_own_partition(groups: list[list[int]], ranks: int, fullest: int) -> None:
    assert fullest_rank([{"params": [torch.empty(size) for size in group]} for group in groups], ranks) == fullest
