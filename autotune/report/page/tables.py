"""The figures of each plot as a table: the same for those who do not see it, and for pages without script."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from autotune.memory.timeline import StepTimeline
from autotune.model import Phase
from autotune.report.explanation import PHASES, USES
from autotune.report.page.view import Answer, ByRank, MemoryBySize, MemoryInStep, NoAnswer, Role, Trade, View
from autotune.report.setting_words import OWN
from autotune.report.words import format_rate, format_share
from autotune.units import format_bytes, format_seconds

ROLES = {
    Role.RECOMMENDED: "recommended",
    Role.YOURS: "yours",
    Role.OTHER: "",
    Role.REJECTED: "rejected",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under headings; the first cell of a row names it."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int]
    """Columns of numbers, which are aligned to the right."""


def with_settings(words: str) -> str:
    """``with your own settings``, ``with precision=bf16``."""
    return "with your own settings" if words == OWN else f"with {words}"


def step_words(answer: Answer) -> str:
    """What an optimizer step sees, ``8 × 2 accumulated × 4 devices = 64 samples a step``; empty where that is one batch."""
    factors = [f"{answer.accumulate} accumulated"] if answer.accumulate > 1 else []
    factors += [f"{answer.world} devices"] if answer.world > 1 else []
    product = " \N{MULTIPLICATION SIGN} ".join([str(answer.batch_size), *factors])
    return f"{product} = {answer.effective} samples a step" if factors else ""


def parts_table(ended: NoAnswer, budget_bytes: int) -> Table:
    """Where the memory went of the probe that shows that nothing fits."""
    rows = [
        (
            part.kind,
            format_bytes(part.size_bytes),
            "expected" if part.expected else "not reached" if part.size_bytes is None else "",
        )
        for part in ended.parts
    ]
    if ended.requested_bytes is not None:
        rows.append(("the request that failed", format_bytes(ended.requested_bytes), ""))
    return Table(
        caption=f"Where the memory went at batch {ended.at_batch}, of a budget of {format_bytes(budget_bytes)}",
        headings=("part", "memory", "remark"),
        rows=tuple(rows),
        numbers=frozenset({1}),
    )


def trade_table(found: Sequence[Trade], recommended: int | None) -> Table:
    """Memory and throughput; ``recommended``: the batch size that is, of the recommended settings."""
    return Table(
        caption="Memory and speed of what was timed",
        headings=("settings", "batch", "peak", "samples/s", "front", "role"),
        rows=tuple(
            (
                one.settings,
                str(one.batch_size),
                format_bytes(one.peak_bytes),
                format_rate(one.samples_per_second),
                "yes" if one.on_front else "",
                _role(one.role, one.batch_size, recommended),
            )
            for one in found
        ),
        numbers=frozenset({1, 2, 3}),
    )


def memory_table(memory: MemoryBySize) -> Table:
    """One row for each size that ran or was foretold."""
    marks = {one.batch_size: one for one in memory.marks}
    parts = {one.batch_size: one for one in memory.parts}
    rows = []
    for size in sorted({*marks, *parts}):
        mark, part = marks.get(size), parts.get(size)
        rows.append(
            (
                str(size),
                mark.words if mark else "foretold",
                format_bytes(mark.peak_bytes) if mark else "-",
                *(format_bytes(held) if held else "-" for held in (part.by_kind if part else [0] * len(memory.kinds))),
            )
        )
    return Table(
        caption=f"Memory by batch size, {with_settings(memory.settings)}; budget {format_bytes(memory.budget_bytes)}",
        headings=("batch", "what happened", "peak", *memory.kinds),
        rows=tuple(rows),
        numbers=frozenset({0, *range(2, 3 + len(memory.kinds))}),
    )


def rank_table(probe: ByRank) -> Table:
    """One row for each rank."""
    first = f", rank {probe.failed_first} first" if probe.failed_first is not None else ""
    end = "all of them fit" if probe.fits else f"it failed{first}"
    return Table(
        caption=f"Ranks of probe {probe.probe}, batch {probe.batch_size} in each, {with_settings(probe.settings)}: {end}",
        headings=("rank", "peak", "of that outside the allocator", "steps", "what became of it"),
        rows=tuple(
            (
                str(one.rank),
                "-" if one.peak_bytes is None else format_share(one.peak_bytes, probe.budget_bytes),
                format_bytes(one.outside_bytes),
                str(one.steps),
                one.what,
            )
            for one in probe.ranks
        ),
        numbers=frozenset({0, 1, 2, 3}),
    )


def ranks_note(view: View) -> str:
    """How to read the figures of a search in which several processes trained together, or one stood in for them."""
    if view.predicted:
        return (
            f"One process stood in for {view.ranks} ranks in each probe, and nothing was exchanged. Memory is that of one rank,"
            " and the budget that of each; speed is not known."
        )
    return (
        f"{view.ranks} ranks trained together in each probe. Samples/s are those of one rank, by the steps of the slowest; memory is"
        " that of the rank that holds the most, and the budget that of each."
    )


def phase_name(phase: Phase) -> str:
    """As a label, without an article."""
    return PHASES[phase].removeprefix("the ")


def phases_table(step: MemoryInStep) -> Table | None:
    """The measured peak of each phase; None where none was measured."""
    if not step.phases:
        return None
    columns = ("phase", "allocated", "reserved")
    reserves = any(one.reserved_bytes is not None for one in step.phases)
    peaks = [
        (phase_name(one.phase), *map(format_bytes, (one.allocated_bytes, one.reserved_bytes))) for one in step.phases
    ]
    return Table(
        caption=f"Highest peak of each phase at batch {step.phases_batch}, as measured",
        headings=columns if reserves else columns[:2],
        rows=tuple(row if reserves else row[:2] for row in peaks),
        numbers=frozenset({1, 2}),
    )


def timeline_table(timeline: StepTimeline) -> Table:
    """The highest moment of each phase."""
    rows = []
    for span in timeline.spans:
        inside = [moment for moment in timeline.moments if span.first_event <= moment.event <= span.last_event]
        if inside:
            top = max(inside, key=lambda moment: sum(moment.by_use))
            rows.append((phase_name(span.phase), format_bytes(sum(top.by_use)), *map(format_bytes, top.by_use)))
    return Table(
        caption=f"The highest moment of each phase of step {timeline.step} at batch {timeline.batch_size}",
        headings=("phase", "allocated", *(USES[use] for use in timeline.uses)),
        rows=tuple(rows),
        numbers=frozenset(range(1, 2 + len(timeline.uses))),
    )


def times_table(view: View) -> Table:
    """Median and range of step times."""
    recommended = view.answer.batch_size if view.answer else None
    return Table(
        caption="Step times, warm-up left out",
        headings=("settings", "batch", "steps", "median", "fastest", "slowest", "ms per sample", "role"),
        rows=tuple(
            (
                row.settings,
                str(row.batch_size),
                str(len(row.seconds)),
                format_seconds(median(row.seconds)),
                format_seconds(min(row.seconds)),
                format_seconds(max(row.seconds)),
                f"{1000 * median(row.seconds) / row.samples:.3g}",
                _role(row.role, row.batch_size, recommended),
            )
            for row in view.times
            if row.seconds
        ),
        numbers=frozenset(range(1, 7)),
    )


def _role(role: Role, batch_size: int, recommended: int | None) -> str:
    """Only one of the sizes of the recommended settings is the answer."""
    return "same settings" if role is Role.RECOMMENDED and batch_size != recommended else ROLES[role]
