"""Memory of the device that lay in the host's: recognised by what was held, and by steps that take too long."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.model import Cause, Form, Measurement, Outcome, ProbeResult, Question, Reason, Settings
from autotune.probe.spill import SpillWatch, judged, may_spill
from autotune.reuse import still_valid
from autotune.search.batch import BatchFinder
from autotune.units import GIB
from tests.fakes import BUDGET, FakeProber, drive, result
from tests.unit.test_budget import machine

WSL = "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1) (gcc (GCC) 11.2.0, GNU ld 2.37) #1 SMP\n"
LINUX = "Linux version 6.8.0-45-generic (buildd@lcy02-amd64-075) (x86_64-linux-gnu-gcc-13) #45-Ubuntu SMP\n"


def version(folder: Path, text: str) -> Path:
    path = folder / "version"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "system", "device", "unified", "may"),
    [
        (WSL, "Linux", "cuda", False, True),
        (WSL.upper(), "Linux", "cuda", False, True),
        (LINUX, "Linux", "cuda", False, False),
        (LINUX, "Windows", "cuda", False, True),
        (WSL, "Linux", "cpu", False, False),
        (WSL, "Linux", "cuda", True, False),
    ],
)
def test_memory_may_spill_under_windows_and_its_subsystem_for_linux(
    tmp_path: Path, text: str, system: str, device: str, unified: bool, may: bool
) -> None:
    here = replace(machine(device), unified=unified)
    assert may_spill(here, version(tmp_path, text), system) is may
    assert not may_spill(here, tmp_path / "missing", "Darwin")


def held(batch: int, reserved: int, *, outside: int | None = 0, others: int | None = 0) -> ProbeResult:
    """A probe that fits and held so much."""
    measurement = Measurement(peak_reserved_bytes=reserved, non_pytorch_bytes=outside, others_bytes=others)
    return replace(result(batch), measurement=measurement)


@pytest.mark.parametrize(
    ("reserved", "outside", "others", "spilled"),
    [
        (7 * GIB, GIB, 0, False),
        (7 * GIB, GIB + 1, 0, True),
        (9 * GIB, None, None, True),
        (5 * GIB, GIB, 2 * GIB, False),
        (5 * GIB, GIB, 2 * GIB + 1, True),
    ],
)
def test_more_than_the_device_has_beside_others_lay_elsewhere(
    reserved: int, outside: int | None, others: int | None, spilled: bool
) -> None:
    found = judged(held(4, reserved, outside=outside, others=others), (), 8 * GIB)
    assert (found.outcome is Outcome.UNSAFE) is spilled
    if spilled:
        assert found.failure is not None and found.failure.cause is Cause.SPILLED
        assert "the device has 8 GiB" in found.failure.message


def timed(batch: int, step_seconds: float, form: Form = Form.SHORT, settings: Settings | None = None) -> ProbeResult:
    return result(batch, form, step_seconds=step_seconds, settings=settings)


SMALLER = (timed(8, 0.16), timed(16, 0.24))  # 20 and 15 ms a sample


@pytest.mark.parametrize(
    ("step_seconds", "spilled"),
    [(0.4, False), (32 * 0.045, False), (32 * 0.0451, True), (10.0, True)],
)
def test_a_step_out_of_proportion_to_smaller_ones_is_unsafe(step_seconds: float, spilled: bool) -> None:
    found = judged(timed(32, step_seconds), SMALLER, 8 * GIB)
    assert (found.outcome is Outcome.UNSAFE) is spilled
    assert found.measurement == timed(32, step_seconds).measurement
    if spilled:
        assert found.failure is not None and found.failure.cause is Cause.SPILLED
        assert "times as long as at batch 16" in found.failure.message


@pytest.mark.parametrize(
    "earlier",
    [
        (),
        (timed(64, 0.1),),  # larger: no smaller size was faster
        (timed(16, 0.01, settings=Settings(accumulate=2)),),
        (timed(16, 0.01, Form.LOADING),),
        (timed(16, 0.01, Form.COMPARE),),
        (result(16),),
        (replace(timed(16, 0.01), outcome=Outcome.UNRELIABLE),),
    ],
)
def test_only_probes_that_can_be_compared_make_a_cliff(earlier: Sequence[ProbeResult]) -> None:
    assert judged(timed(32, 10.0), earlier, 8 * GIB).fits


def test_what_failed_by_itself_stays_what_it_is() -> None:
    failed = replace(timed(32, 10.0), outcome=Outcome.OUT_OF_MEMORY)
    assert judged(failed, SMALLER, 0) is failed


def test_a_search_stops_below_the_cliff_instead_of_taking_what_the_host_lends() -> None:
    prober = FakeProber(per_sample_bytes=1, step_seconds=lambda size: size * (0.01 if size <= 37 else 0.12))
    watch = SpillWatch(prober, machine(), ())
    stop, history = drive(BatchFinder(max_batch=200), watch)
    assert stop.answer is not None
    assert (stop.answer.max_batch, stop.answer.refuted_at, stop.answer.limited_by) == (37, 38, "spilled")
    unwatched, _ = drive(BatchFinder(max_batch=200), replace(prober, asked=[]))
    assert unwatched.answer is not None and unwatched.answer.max_batch == 200
    assert still_valid(history, BUDGET.limit_bytes) == tuple(history)
    grown = still_valid(history, 2 * BUDGET.limit_bytes)
    assert all(probe.fits for probe in grown), "with more memory it may not spill"


def test_a_resumed_search_still_knows_how_fast_smaller_sizes_were() -> None:
    prober = FakeProber(step_seconds=lambda size: 10.0)
    question = Question(batch_size=32, form=Form.SHORT, reason=Reason.GROW)
    assert SpillWatch(prober, machine(), ()).probe(question, BUDGET, 0).fits
    assert not SpillWatch(prober, machine(), SMALLER).probe(question, BUDGET, 0).fits
