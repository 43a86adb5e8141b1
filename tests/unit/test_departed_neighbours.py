"""Others that held the device when a probe got its limit and were gone by its end: planted meters, planted answers."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from autotune.model import Budget, Cause, Form, Measurement, Outcome, ProbeResult, Question, Reason, Section, Settings
from autotune.probe.answers import probe_result
from autotune.probe.ended import Ended
from autotune.probe.launcher import Launcher
from autotune.probe.meter import CpuMeter, CudaMeter
from autotune.probe.ranks import verdict
from autotune.probe.tenants import departure, gone_bytes
from autotune.tuner import non_pytorch_bytes
from autotune.units import GIB, MIB
from tests.unit.classify_samples import raised
from tests.unit.test_budget import machine
from tests.unit.test_ranks import ended

LIMIT, OWN, THEIRS = 2 * GIB, 512 * MIB, 3 * GIB
FULL = raised("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 MiB.")
BUG = raised("NameError", "name 'lable' is not defined")


class Planted:
    """A device of 80 GiB on which this process holds 512 MiB outside of its allocator, and others what they like."""

    def __init__(self, patch: pytest.MonkeyPatch, *, unified: bool = False) -> None:
        self.theirs, self.fraction = 0, 0.0
        properties = SimpleNamespace(is_integrated=int(unified))
        patch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        patch.setattr(torch.cuda, "mem_get_info", lambda device=None: (80 * GIB - OWN - self.theirs - GIB, 80 * GIB))
        patch.setattr(torch.cuda, "memory_reserved", lambda device=None: GIB)
        patch.setattr(torch.cuda, "memory_allocated", lambda device=None: GIB)
        patch.setattr(torch.cuda.memory, "set_per_process_memory_fraction", self._limit)
        patch.setattr("autotune.probe.meter.available_bytes", lambda: 80 * GIB - OWN - self.theirs - GIB)

    def _limit(self, fraction: float, device: object) -> None:
        self.fraction = fraction

    def state(self, *, reserve: int, then: int, now: int, known: int = 0) -> dict[str, int | None]:
        """What the meter says at the end, where others hold ``then`` when it gets the limit, ``known`` of it by NVML."""
        meter = CudaMeter(torch.device("cuda:0"))
        meter.leave_out(known, 80 * GIB)
        self.theirs = then
        meter.limit(LIMIT, reserve)
        assert meter.cap_bytes == max(0, LIMIT - max(reserve, OWN + then - known)) == self.fraction * 80 * GIB
        self.theirs = now
        return meter.state()


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Planted:
    """A device with memory of its own."""
    return Planted(monkeypatch)


def answered(state: dict[str, int | None] | None, *errors: Any, outside: int = OWN, **fields: Any) -> Ended:
    """The end of a probe whose meter said this of memory."""
    losses = () if errors else (1.0,) * Form.SHORT.steps
    seen = Measurement(
        steps_executed=len(losses),
        losses=losses,
        non_pytorch_bytes=outside,
        peak_reserved_bytes=GIB,
        peak_device_bytes=GIB + outside,
    )
    answer = {"kind": "answer", "measurement": asdict(seen), "raised": list(map(asdict, errors)), "memory": state}
    return ended(answer={**answer, "phase": "build" if errors else None, **fields})


def judged(end: Ended, *_: Path, gone: int = 0) -> ProbeResult:
    nowhere = Path("/nonexistent")
    return probe_result(
        Question(batch_size=4, form=Form.SHORT, reason=Reason.GROW),
        end,
        machine=machine(),
        budget_bytes=LIMIT,
        others_gone_bytes=gone,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        launcher="fork",
        stdout=nowhere,
        stderr=nowhere,
    )


def test_c26_a_limit_of_nothing_for_neighbours_that_then_left_refutes_no_batch(planted: Planted) -> None:
    probe = judged(answered(planted.state(reserve=0, then=THEIRS, now=0), FULL, outside=OWN + THEIRS))
    assert (probe.outcome, planted.fraction) == (Outcome.UNRELIABLE, 0)
    assert probe.failure is not None and probe.failure.cause is Cause.OTHERS
    assert probe.failure.message.startswith("other processes held 3 GiB of the device when this probe got its limit")
    assert "3.5 GiB outside of its own allocator were taken off the budget of 2 GiB, 512 MiB" in probe.failure.message
    assert "run the same command again" in probe.failure.hint
    assert non_pytorch_bytes([probe]) == 0, "and what it counted is no reserve for those to come"


def test_c26_a_batch_that_fits_beside_them_proves_nothing_either_since_it_counted_them(planted: Planted) -> None:
    probe = judged(answered(planted.state(reserve=0, then=GIB, now=0), outside=OWN + GIB))
    assert (probe.outcome, probe.measurement.non_pytorch_bytes) == (Outcome.UNRELIABLE, None)
    assert probe.measurement.peak_device_bytes is None


@pytest.mark.parametrize(
    ("reserve", "then", "now"),
    [
        (0, 0, 0),
        (0, THEIRS, THEIRS),  # steady; all that is known is that it may be this process's own
        (0, 0, THEIRS),
        (0, 256 * MIB, 0),  # about one context
        (OWN + THEIRS, THEIRS, 0),  # what was known before had been taken off anyway
        (OWN + THEIRS - 256 * MIB, THEIRS, 0),
    ],
)
def test_a_limit_that_was_right_or_nearly_so_is_left_alone(planted: Planted, reserve: int, then: int, now: int) -> None:
    state = planted.state(reserve=reserve, then=then, now=now)
    assert judged(answered(state)).fits
    assert judged(answered(state, FULL)).outcome is Outcome.OUT_OF_MEMORY


def test_a_neighbour_that_was_never_counted_may_leave(planted: Planted) -> None:
    state = planted.state(reserve=0, then=GIB, now=0, known=GIB)
    assert (state["outside_at_cap_bytes"], state["outside_bytes"]) == (OWN, 0), (
        "from within, half a gigabyte is missing"
    )
    assert judged(answered(state, FULL), gone=GIB).outcome is Outcome.OUT_OF_MEMORY
    assert judged(answered(state), gone=GIB).fits
    both = planted.state(reserve=0, then=GIB + THEIRS, now=0, known=GIB)
    assert judged(answered(both, FULL), gone=GIB).outcome is Outcome.UNRELIABLE, "another one was counted, and left too"


def test_gone_is_what_others_held_before_and_do_not_after() -> None:
    assert (gone_bytes(GIB, 0), gone_bytes(0, GIB)) == (GIB, 0)
    assert (gone_bytes(None, 0), gone_bytes(GIB, None)) == (0, 0)


def test_an_error_of_the_users_own_stays_one_whoever_was_there(planted: Planted) -> None:
    assert judged(answered(planted.state(reserve=0, then=THEIRS, now=0), BUG)).outcome is Outcome.WORKLOAD_ERROR


def test_nothing_is_concluded_where_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Planted(monkeypatch, unified=True).state(reserve=0, then=THEIRS, now=0)
    assert (shared["outside_at_cap_bytes"], shared["outside_bytes"]) == (None, None), "a model made on the CPU goes too"
    older: dict[str, int | None] = {"allocated_bytes": 1, "reserved_bytes": 1, "free_bytes": 1, "cap_bytes": 1}
    for state in (None, older, shared, CpuMeter().state()):
        assert judged(answered(state)).fits
    assert departure(LIMIT, THEIRS, None) is None and departure(LIMIT, None, 0) is None


def test_of_a_large_budget_as_small_a_share_is_tolerated_as_elsewhere() -> None:
    assert departure(100 * GIB, GIB + OWN, OWN) is None
    assert departure(100 * GIB, GIB + OWN + 1, OWN) is not None


@pytest.mark.parametrize("errors", [(FULL,), ()], ids=["failed", "fitted"])
def test_c26_of_ranks_one_whose_neighbours_left_makes_the_probe_unreliable(planted: Planted, errors: Any) -> None:
    quiet, visited = planted.state(reserve=0, then=0, now=0), planted.state(reserve=0, then=THEIRS, now=0)
    second = answered(visited, *errors, outside=OWN + THEIRS, failed_at=5.0 if errors else None)
    first = ended(stopped=True) if errors else answered(quiet)
    probe = verdict(replace(first, peers=(second,)), [(Path("out"), Path("err"))] * 2, judged)
    assert probe.outcome is Outcome.UNRELIABLE and probe.failure is not None
    assert probe.failure.rank == 1 and probe.failure.message.startswith("rank 1 of 2")
    assert probe.measurement.non_pytorch_bytes is None
    assert [one.outcome for one in probe.ranks] == [None if errors else Outcome.FITS, Outcome.UNRELIABLE]


def test_c26_a_diagnosis_does_not_call_the_training_too_large_and_keeps_no_reserve_of_it(planted: Planted) -> None:
    ends = [
        answered(planted.state(reserve=0, then=THEIRS, now=0), FULL, outside=OWN + THEIRS),
        answered(planted.state(reserve=0, then=0, now=0), FULL),
    ]
    reserves: list[int] = []

    def run(*_: object, reserve_bytes: int, **details: object) -> tuple[Ended, Path, Path, str]:
        reserves.append(reserve_bytes)
        return ends[len(reserves) - 1], Path("/nonexistent"), Path("/nonexistent"), "fork"

    launcher = object.__new__(Launcher)
    launcher.machine, launcher._turns, launcher._outside_bytes = machine(), None, 0
    launcher._nvml_uuids = ("",)
    launcher._run = run  # type: ignore[method-assign, assignment]
    budget = Budget(
        limit_bytes=LIMIT, source="--memory-limit", capacity_bytes=80 * GIB, others_bytes=0, headroom_bytes=0
    )
    first, second = (cast(Any, launcher).examine(Section.LEAKS, 4, Settings(), budget) for _ in range(2))
    assert (first.outcome, first.failure.cause) == (Outcome.UNRELIABLE, Cause.OTHERS)
    assert (second.outcome, reserves, launcher._outside_bytes) == (Outcome.OUT_OF_MEMORY, [0, 0], OWN)
