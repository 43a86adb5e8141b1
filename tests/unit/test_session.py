"""Which earlier probes count under another budget."""

from dataclasses import replace

from autotune.model import Cause, Form, ProbeResult
from autotune.session import still_valid
from tests.fakes import OUT_OF_MEMORY, SEGFAULT, result

LIMIT = 1000


def measured(probe: ProbeResult, *, reserved_bytes: int | None, peak_bytes: int) -> ProbeResult:
    figures = replace(probe.measurement, peak_reserved_bytes=reserved_bytes, peak_device_bytes=peak_bytes)
    return replace(probe, measurement=figures)


def kept(probe: ProbeResult, limit_bytes: int) -> bool:
    return still_valid([probe], limit_bytes) == (probe,)


def test_a_fit_counts_under_a_larger_budget() -> None:
    assert kept(result(4, Form.LONG, budget_bytes=LIMIT), LIMIT + 1)


def test_a_fit_counts_under_a_smaller_budget_only_if_the_allocator_says_it_held_less() -> None:
    fit = result(4, Form.LONG, budget_bytes=LIMIT)
    assert kept(measured(fit, reserved_bytes=800, peak_bytes=900), 900)
    assert not kept(measured(fit, reserved_bytes=800, peak_bytes=901), 900)
    assert not kept(measured(fit, reserved_bytes=None, peak_bytes=500), 900), "resident memory is less than mapped"


def test_an_out_of_memory_counts_under_a_smaller_budget_only() -> None:
    failed = result(8, fault=OUT_OF_MEMORY, budget_bytes=LIMIT)
    assert failed.failure is not None and failed.failure.cause is Cause.DEVICE_MEMORY
    assert kept(failed, LIMIT) and kept(failed, LIMIT - 1)
    assert not kept(failed, LIMIT + 1)


def test_other_failures_count_under_any_budget() -> None:
    assert kept(result(8, fault=SEGFAULT, budget_bytes=LIMIT), 10 * LIMIT)
