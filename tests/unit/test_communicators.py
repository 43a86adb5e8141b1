"""What communicators hold of a device: as measured on this kind of machine, else a figure on the safe side."""

from dataclasses import replace
from typing import Any, cast

import pytest

from autotune.front.communicators import UNMEASURED_BYTES, communicators
from autotune.model import ProbeResult, SearchRecord
from autotune.units import MIB
from tests.cli.results import MACHINE, PLAN, RECORD, RESULT

ALONE = replace(RECORD, id="a10e", plan=PLAN)
TOGETHER = replace(RECORD, id="7090", plan=replace(PLAN, ranks=2, world=2))


class Ledger:
    """Searches, newest first, each with one probe that held so much outside of PyTorch's allocator."""

    def __init__(self, *held: tuple[SearchRecord, int]) -> None:
        self._held = {record.id: (record, size) for record, size in held}

    def searches(self, limit: int) -> tuple[SearchRecord, ...]:
        return tuple(record for record, _ in self._held.values())[:limit]

    def probes(self, search_id: str) -> tuple[ProbeResult, ...]:
        proof, size = RESULT.certificate, self._held[search_id][1]
        return (replace(proof, measurement=replace(proof.measurement, non_pytorch_bytes=size)),)


def size(ranks: int, *held: tuple[SearchRecord, int]) -> int:
    return communicators(cast(Any, Ledger(*held)), MACHINE, ranks).size_bytes


def test_it_is_what_ranks_held_beyond_one_process() -> None:
    found = communicators(cast(Any, Ledger((TOGETHER, 900 * MIB), (ALONE, 700 * MIB))), MACHINE, 2)
    assert found.size_bytes == 200 * MIB
    assert found.told_by == "measured with 2 ranks by search 7090"


def test_without_both_figures_it_is_assumed() -> None:
    for held in ((), ((TOGETHER, 900 * MIB),), ((ALONE, 700 * MIB),)):
        assert size(2, *held) == UNMEASURED_BYTES


@pytest.mark.parametrize(("together", "expected"), [(900, UNMEASURED_BYTES), (1700, 1000 * MIB)])
def test_fewer_ranks_than_asked_about_count_where_they_hold_more_than_is_assumed(together: int, expected: int) -> None:
    assert size(8, (TOGETHER, together * MIB), (ALONE, 700 * MIB)) == expected


def test_a_prediction_is_one_process_and_what_it_assumed_is_taken_off() -> None:
    marked = replace(
        ALONE, id="9ed1", plan=replace(PLAN, ranks=8, world=8, predicted=True, communicators_bytes=512 * MIB)
    )
    assert size(2, (marked, 1212 * MIB), (TOGETHER, 900 * MIB)) == 200 * MIB


def test_another_kind_of_machine_says_nothing() -> None:
    other = replace(TOGETHER, machine=replace(MACHINE, torch_version="2.6.0"))
    assert size(2, (other, 900 * MIB), (ALONE, 700 * MIB)) == UNMEASURED_BYTES


def test_a_training_command_may_have_ranks_of_its_own_and_says_nothing() -> None:
    command = replace(ALONE, plan=replace(PLAN, source=replace(PLAN.source, command=("torchrun", "train.py"))))
    assert size(2, (TOGETHER, 900 * MIB), (command, 900 * MIB)) == UNMEASURED_BYTES


def test_on_the_cpu_there_are_none() -> None:
    found = communicators(cast(Any, Ledger()), replace(MACHINE, device="cpu"), 8)
    assert found.size_bytes == 0
