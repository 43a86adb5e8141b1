"""An explanation as text and as JSON."""

from collections.abc import Iterator, Sequence

from autotune.model import AllocationGroup, Explanation, Foretold, Phase, PhaseRange, ProbeResult, Use, WorkloadInfo
from autotune.report.columns import align
from autotune.report.memory_split import memory_split
from autotune.report.prediction import deviations, prediction_words
from autotune.report.words import FORMS, failure_words, format_share
from autotune.units import format_bytes

USES = {
    Use.WEIGHTS: "weights and buffers",
    Use.GRADIENTS: "gradients",
    Use.OPTIMIZER: "optimizer state",
    Use.ACTIVATIONS: "activations",
    Use.BATCH: "batch",
    Use.WORKSPACE: "temporaries and workspaces",
    Use.OTHER: "other",
    Use.SLACK: "slack of allocator blocks",
}
PHASES = {
    Phase.LOAD: "loading the file",
    Phase.BUILD: "building the model",
    Phase.DATA: "making a batch",
    Phase.FORWARD: "the forward pass",
    Phase.BACKWARD: "the backward pass",
    Phase.OPTIMIZER: "the optimizer step",
    Phase.EVALUATE: "the evaluation",
    Phase.CHECKPOINT: "the checkpoint",
    Phase.EXIT: "the end",
}

_UNUSED = "reserved beyond it (cache, fragments)"
Row = tuple[str, ...]


def explanation_text(explanation: Explanation) -> str:
    """All of it, for people."""
    foretold, probe = explanation.foretold, explanation.measured
    blocks = [align(list(_head(explanation)))]
    if foretold is not None:
        outside_bytes = max(0, explanation.search.budget.limit_bytes - foretold.cap_bytes)
        parts = [("", "memory", "share", "one more sample"), *_foretold_parts(foretold, outside_bytes)]
        groups = [_group_row(group) for group in foretold.groups]
        phases = [(f"  {PHASES[one.phase]}", format_bytes(one.peak_allocated_bytes)) for one in foretold.phases]
        blocks += [
            align(parts, right=(1, 2, 3)),
            ("largest groups of allocations at the peak", *align(groups, right=(0, 1, 2))),
            ("highest peak of each phase, slack left out", *align(phases, right=(1,)), ranges_words(foretold.ranges)),
        ]
    elif probe is not None:
        parts = [("", "memory", "share"), *_measured_parts(probe, explanation.search.workload)]
        blocks += [align(parts, right=(1, 2)), _measured_phases(probe, explanation.smaller)]
    return "\n\n".join("\n".join(block) for block in blocks)


def explanation_facts(explanation: Explanation) -> dict[str, object]:
    """All of it, for programs: plain values, and nouns of ``autotune.model`` and ``report.memory_split``."""
    search, probe = explanation.search, explanation.measured
    answer, measured = search.answer, None
    if probe is not None:
        seen = probe.measurement
        measured = {
            "form": probe.form,
            "outcome": probe.outcome,
            "peak_allocated_bytes": seen.peak_allocated_bytes,
            "peak_reserved_bytes": seen.peak_reserved_bytes,
            "peak_device_bytes": seen.peak_device_bytes,
            "non_pytorch_bytes": seen.non_pytorch_bytes,
            "phases": seen.phases,
            "composition": seen.composition,
            "parts": memory_split(probe, search.workload).shares,
        }
    return {
        "search_id": search.id,
        "batch_size": explanation.batch_size,
        "max_batch": answer.max_batch if answer else None,
        "predicted_ranks": search.plan.ranks if search.plan.predicted else None,
        "refuted_at": answer.refuted_at if answer else None,
        "prediction": answer.prediction if answer else None,
        "budget_bytes": search.budget.limit_bytes,
        "foretold": explanation.foretold,
        "why_not": explanation.why_not,
        "measured": measured,
    }


def ranges_words(ranges: Sequence[PhaseRange]) -> str:
    """Which phase has the highest peak at which sizes, in a sentence."""
    first, *others = ranges
    if not others:
        return f"{PHASES[first.phase]} has the highest peak at every batch size up to {first.last_batch}"
    words = [f"up to batch {first.last_batch} {PHASES[first.phase]} has the highest peak"]
    for one in others[:-1]:
        sizes = (
            f"from {one.first_batch} to {one.last_batch}"
            if one.last_batch > one.first_batch
            else f"at {one.last_batch}"
        )
        words.append(f"{sizes} {PHASES[one.phase]}")
    return ", ".join([*words, f"from {others[-1].first_batch} on {PHASES[others[-1].phase]}"])


def _head(explanation: Explanation) -> Iterator[Row]:
    """What is explained, where the figures come from, and how near they are."""
    search, answer, probe = explanation.search, explanation.search.answer, explanation.measured
    yield "search", f"{search.id}: {search.workload.ref} on {search.machine.device_name} ({search.machine.device})"
    if answer is not None:
        refuted = f" ({answer.refuted_at} refuted)" if answer.refuted_at is not None else ""
        what = f"predicted for {search.plan.ranks} ranks, not run" if search.plan.predicted else "certified"
        yield what, f"{answer.max_batch}{refuted}"
        if answer.prediction is not None:
            yield "predicted", prediction_words(answer.prediction)
    if explanation.foretold is not None:
        yield from _foretold_head(explanation.batch_size, explanation.foretold, probe)
    elif probe is not None:
        yield "batch", f"{explanation.batch_size}, as its {FORMS[probe.form]} probe measured it: {failure_words(probe)}"
        yield from _measured_head(probe)
        yield "foretold", f"nothing: {explanation.why_not}"


def _foretold_head(batch_size: int, foretold: Foretold, probe: ProbeResult | None) -> Iterator[Row]:
    unsafe = "" if foretold.fits else "; not expected to be safe"
    yield "batch", f"{batch_size}, foretold from a record of batches up to {foretold.recorded_up_to}{unsafe}"
    step = f", first in step {foretold.step}" if foretold.step else ""
    yield "peak", f"{format_bytes(foretold.allocated_bytes)} allocated in {PHASES[foretold.phase]}{step}"
    yield "reserved", f"{format_share(foretold.reserved_bytes, foretold.cap_bytes)} that the allocator may hold"
    if probe is not None and probe.fits:
        told = (foretold.allocated_bytes, foretold.reserved_bytes)
        shares = ", ".join(f"{name} {share}" for name, share in deviations(told, probe.measurement))
        yield "measured", f"{_peaks(probe)}; foretold against that: {shares}"
    elif probe is not None:
        yield "measured", failure_words(probe)


def _measured_head(probe: ProbeResult) -> Iterator[Row]:
    highest = max(probe.measurement.phases, key=lambda one: one.peak_allocated_bytes, default=None)
    yield "peak", _peaks(probe) + (f", in {PHASES[highest.phase]}" if highest else "")
    yield "budget", format_share(_total_bytes(probe), probe.budget_bytes)


def _peaks(probe: ProbeResult) -> str:
    seen = probe.measurement
    words = f"{format_bytes(seen.peak_allocated_bytes)} allocated"
    return words if seen.peak_reserved_bytes is None else f"{words}, {format_bytes(seen.peak_reserved_bytes)} reserved"


def _foretold_parts(foretold: Foretold, outside_bytes: int) -> Iterator[Row]:
    total, reserved = foretold.allocated_bytes, foretold.reserved_bytes
    for part in foretold.parts:
        growth = "" if part.use is Use.SLACK else _growth(part.bytes_per_sample)
        yield USES[part.use], format_bytes(part.size_bytes), _percent(part.size_bytes, total), growth
    yield "allocated at the peak", format_bytes(total), _percent(total, total), _growth(foretold.bytes_per_sample)
    yield _UNUSED, format_bytes(reserved - total), _percent(reserved - total, total)
    if outside_bytes:
        yield "outside the allocator (context, libraries)", format_bytes(outside_bytes)


def _group_row(group: AllocationGroup) -> Row:
    made = f"made in {PHASES[group.phase]}" if group.phase else "made once and kept"
    size, growth = format_bytes(group.each_bytes), _growth(group.each_bytes_per_sample)
    return f"  {group.count} x", size, growth, USES[group.use], made


def _measured_parts(probe: ProbeResult, workload: WorkloadInfo) -> Iterator[Row]:
    seen, total = probe.measurement, _total_bytes(probe)
    for share in memory_split(probe, workload).shares:
        if share.size_bytes and not share.expected:
            yield share.part.value, format_bytes(share.size_bytes), _percent(share.size_bytes, total)
    if seen.peak_reserved_bytes is not None and seen.peak_allocated_bytes is not None:
        unused_bytes = seen.peak_reserved_bytes - seen.peak_allocated_bytes
        yield _UNUSED, format_bytes(unused_bytes), _percent(unused_bytes, total)
    yield "all", format_bytes(total), _percent(total, total)


def _total_bytes(probe: ProbeResult) -> int:
    """What the budget judges; what the allocator handed out where the probe ended before that was known."""
    return probe.measurement.peak_device_bytes or probe.measurement.peak_allocated_bytes or 0


def _measured_phases(probe: ProbeResult, smaller: ProbeResult | None) -> tuple[str, ...]:
    title = "highest peak of each phase"
    before = {one.phase: one.peak_allocated_bytes for one in smaller.measurement.phases} if smaller else {}
    rows: list[Row] = []
    for one in probe.measurement.phases:
        row: Row = (f"  {PHASES[one.phase]}", format_bytes(one.peak_allocated_bytes))
        if smaller is not None and one.phase in before:
            grown_bytes = one.peak_allocated_bytes - before[one.phase]
            row += (_growth(max(0, grown_bytes) // (probe.batch_size - smaller.batch_size)),)
        rows.append(row)
    if smaller is not None:
        title += f", and what one more sample adds on the way from batch {smaller.batch_size}"
    return title, *align(rows, right=(1, 2))


def _growth(bytes_per_sample: int) -> str:
    return f"+{format_bytes(bytes_per_sample)}" if bytes_per_sample else "constant"


def _percent(part: int, total: int) -> str:
    return f"{100 * part / total:.1f} %" if total else ""
