"""A search and its probes become the explanation of one batch size: foretold where there is a recording, else measured."""

from collections.abc import Sequence
from dataclasses import replace

from autotune.errors import UsageError
from autotune.memory.explain import explain as explain_foretold
from autotune.memory.forecast import Forecast, forecast
from autotune.model import Explanation, Foretold, Form, ProbeResult, Reason, SearchRecord, Settings
from autotune.search.apart import Apart, plain
from autotune.search.guide import recorded

FARTHEST = 16
"""Sizes up to this many times the largest recorded one are foretold; beyond, kernels and with them workspaces are others.
The search itself relies on a few times."""


def explain(record: SearchRecord, probes: Sequence[ProbeResult], batch_size: int | None = None) -> Explanation:
    """Say where the memory of one size goes.

    Args:
        record: the search.
        probes: all its answer rests on, oldest first.
        batch_size: None = the largest certified one.

    Raises:
        UsageError: there is no answer and no size was named; or the size makes no sense, never ran and cannot be
            foretold.
    """
    if batch_size is None:
        if record.answer is None:
            raise UsageError(
                f"search {record.id} has no answer to explain",
                hint=f"name a batch size: autotune explain {record.id} --batch 1",
            )
        batch_size = record.answer.max_batch
    if batch_size < 1:
        raise UsageError(f"{batch_size} is not a batch size", hint="name one from 1 on: --batch 1")
    won = (record.answer.settings if record.answer else None) or record.plan.settings
    probes = [probe for probe in probes if of_memory(probe.settings) == of_memory(won)]
    foretold, why_not = _foretold(record, probes, batch_size)
    measured = _measured(probes, batch_size)
    if foretold is None and measured is None:
        ran = sorted({probe.batch_size for probe in probes if _tells(probe)})
        raise UsageError(
            f"search {record.id} did not run batch {batch_size}, and cannot foretell it: {why_not}",
            hint=f"sizes that ran: {', '.join(map(str, ran))}" if ran else f"autotune runs show {record.id}",
        )
    return Explanation(
        search=record,
        batch_size=batch_size,
        foretold=foretold,
        why_not=why_not,
        measured=measured,
        smaller=_smaller(probes, measured) if measured else None,
    )


def of_memory(settings: Settings) -> Settings:
    """What allocations depend on: other settings make others. A recording tells of any configuration of the allocator."""
    return replace(plain(settings), allocator="")


def _foretold(record: SearchRecord, probes: Sequence[ProbeResult], batch_size: int) -> tuple[Foretold | None, str]:
    """The peak, or why it cannot be told."""
    won = record.answer.settings if record.answer else None
    allocator = (won or record.plan.settings).allocator
    training = Apart.of(probes).training  # once evaluation had a size of its own, its memory is foretold with none
    learned = recorded(training, allocator, varies=record.workload.varies) if training else None
    if learned is None:
        return None, _no_forecast(record, probes, allocator)
    largest = FARTHEST * learned.program.skeleton_batch
    if batch_size > largest:
        recorded_up_to = learned.program.skeleton_batch
        return None, f"batches up to {recorded_up_to} were recorded, and tell of sizes up to {largest}"
    answer = record.answer
    certified = answer.max_batch if answer else 0
    predicted = answer.prediction.limit if answer and answer.prediction else 0
    step = answer.step if answer else record.plan.multiple_of
    limit = max(certified, predicted, batch_size)
    return explain_foretold(learned, batch_size, limit=limit, step=step), ""


def _no_forecast(record: SearchRecord, probes: Sequence[ProbeResult], allocator: str) -> str:
    traces = [probe.trace for probe in probes if probe.trace is not None]
    if not traces:
        on_cpu = record.machine.device == "cpu"
        return "the CPU keeps no record of its allocations" if on_cpu else "it holds no record of the allocations"
    reason = forecast(traces[-1], allocator, probes[-1].budget_bytes)
    assert not isinstance(reason, Forecast)
    return f"its record of the allocations is of no use: {reason}"


def _tells(probe: ProbeResult) -> bool:
    """Whether it says something of its size; a recording's figures are those of its last pass, those of an evaluation
    apart those of another size."""
    of_its_size = probe.reason is not Reason.TRACE and probe.form is not Form.EVALUATE
    return of_its_size and probe.measurement.peak_allocated_bytes is not None


def _measured(probes: Sequence[ProbeResult], batch_size: int) -> ProbeResult | None:
    here = [probe for probe in reversed(probes) if probe.batch_size == batch_size and _tells(probe)]
    return max(here, key=lambda probe: (probe.fits, probe.form is Form.LONG), default=None)


def _smaller(probes: Sequence[ProbeResult], measured: ProbeResult) -> ProbeResult | None:
    """The largest that is at most half as large, so that noise counts little, of the same form if there is one, since each
    form holds more or less of its own; else the smallest."""
    size = measured.batch_size
    fitted = [p for p in probes if p.fits and p.batch_size < size and p.measurement.phases and _tells(p)]
    fitted.sort(key=lambda probe: probe.batch_size)
    far = [probe for probe in fitted if 2 * probe.batch_size <= size]
    alike = [probe for probe in far if probe.form is measured.form]
    return next((of[at] for of, at in ((alike, -1), (far, -1), (fitted, 0)) if of), None)
