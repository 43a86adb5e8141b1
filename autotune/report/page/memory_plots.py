"""Plots of memory: by kind over the batch size, and over one training step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

from autotune.memory.timeline import StepTimeline
from autotune.report.explanation import PHASES, USES
from autotune.report.page.drawing import Figure, Spec, area, bar, byte_unit, draw_line, layout_with, note
from autotune.report.page.memory import OUTSIDE
from autotune.report.page.tables import Table, memory_table, phase_name, phases_table, timeline_table, with_settings
from autotune.report.page.view import MemoryBySize, MemoryInStep, SizeMark, Verdict, View
from autotune.units import format_bytes

_COLOURS = {
    "weights": "@weights",
    "weights and buffers": "@weights",
    "buffers": "@buffers",
    "gradients": "@gradients",
    "optimizer state": "@optimizer",
    "batch": "@batch",
    "activations": "@activations",
    "activations and temporaries": "@activations",
    "temporaries and workspaces": "@workspace",
    "other": "@buffers",
    "process and libraries": "@process",
    OUTSIDE: "@process",
}
_UNUSED = "@unused"


_VERDICTS: Mapping[Verdict, tuple[str, str, str, int]] = {
    Verdict.CERTIFIED: ("certified", "circle", "@good", 12),
    Verdict.PREDICTED: ("predicted, not run by all ranks", "circle", "@text", 12),
    Verdict.RAN: ("ran, in a shorter probe", "circle-open", "@text", 8),
    Verdict.REFUTED: ("refuted", "x", "@bad", 11),
}


def memory_figures(view: View) -> Iterator[Figure]:
    """Memory by kind over the batch size, one for each set of settings."""
    for number, memory in enumerate(view.memory):
        if memory.parts:  # sizes that all failed before anything could be taken apart are told in words
            yield _memory_figure(memory, number)


def _memory_figure(memory: MemoryBySize, number: int) -> Figure:
    marked = [one for one in memory.marks if one.peak_bytes is not None]
    highest = [one.peak_bytes or 0 for one in marked] + [sum(one.by_kind) for one in memory.parts]
    factor, unit = byte_unit([*highest, memory.budget_bytes])
    scaled = len(memory.parts) > 2
    place: Callable[[int], int | str] = int if scaled else "batch {}".format
    data = [
        {
            "type": "scatter" if scaled else "bar",
            "name": kind,
            "x": [place(one.batch_size) for one in memory.parts],
            "y": [one.by_kind[at] / factor for one in memory.parts],
            "hovertemplate": f"{kind}: %{{y:.3g}} {unit}<extra></extra>",
            **(area if scaled else bar)(_COLOURS.get(kind, _UNUSED)),
        }
        for at, kind in enumerate(memory.kinds)
    ]
    data += _marks(marked, place, factor, unit)
    layout = layout_with("batch size", f"device memory, {unit}")
    layout |= {"barmode": "stack", "bargap": 0.75}
    layout["xaxis"]["rangemode"] = layout["yaxis"]["rangemode"] = "tozero"
    if not scaled:
        everything = sorted({one.batch_size for one in memory.parts} | {one.batch_size for one in marked})
        layout["xaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": [*map(place, everything)]}
    draw_line(layout, "y", memory.budget_bytes / factor, f"budget {format_bytes(memory.budget_bytes)}")
    source = (
        "Areas are foretold from the allocator's record of small sizes, cache and fragments left out; points are measured."
        if memory.foretold
        else "As the most thorough probe of each size measured it. A refuted size is drawn at what it held when it failed."
    )
    told = {
        verdict: [one.batch_size for one in memory.marks if one.verdict is verdict]
        for verdict in (Verdict.CERTIFIED, Verdict.PREDICTED, Verdict.REFUTED)
    }
    said = [f"{verdict.value}: {_sizes(sizes)}" for verdict, sizes in told.items() if sizes]
    left = f" {memory.left_out} sizes are left out." if memory.left_out else ""
    return Figure(
        name=f"memory-{number}",
        title=f"By batch size, {with_settings(memory.settings)}",
        summary=f"Stacked areas of memory by kind over {len(memory.marks)} batch sizes under a budget of "
        f"{format_bytes(memory.budget_bytes)}; {'; '.join(said) or 'none certified'}.",
        caption=source + left,
        spec={"data": data, "layout": layout},
        table=memory_table(memory),
    )


def _marks(marked: Sequence[SizeMark], place: Callable[[int], int | str], factor: int, unit: str) -> Iterator[Spec]:
    """What ran, by what is known of it, the best known on top."""
    for verdict, (name, symbol, colour, size) in reversed(tuple(_VERDICTS.items())):
        here = [one for one in marked if one.verdict is verdict]
        if here:
            edge = colour if symbol.endswith("-open") else "@surface"
            yield {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [place(one.batch_size) for one in here],
                "y": [(one.peak_bytes or 0) / factor for one in here],
                "text": [f"batch {one.batch_size}: {escape(one.words)}" for one in here],
                "hovertemplate": f"%{{text}}<br>peak %{{y:.4g}} {unit}<extra></extra>",
                "marker": {"symbol": symbol, "color": colour, "size": size, "line": {"width": 2, "color": edge}},
            }


def step_figure(view: View) -> Figure | None:
    """Memory over one step, or the peaks of its phases."""
    step = view.step
    if step is None:
        return None
    table = phases_table(step)
    if step.timeline is not None:
        return _timeline_figure(step, step.timeline)
    return _phases_figure(step, table) if table is not None else None


def _timeline_figure(step: MemoryInStep, timeline: StepTimeline) -> Figure:
    top = max(timeline.moments, key=lambda moment: sum(moment.by_use))
    factor, unit = byte_unit([sum(top.by_use)])
    data = [
        {
            "type": "scatter",
            "name": USES[use],
            "x": [moment.event for moment in timeline.moments],
            "y": [moment.by_use[at] / factor for moment in timeline.moments],
            "hovertemplate": f"{USES[use]}: %{{y:.3g}} {unit}<extra></extra>",
            **area(_COLOURS.get(USES[use], _UNUSED)),
        }
        for at, use in enumerate(timeline.uses)
    ]
    layout = layout_with("allocations and frees, in their order", f"allocated, {unit}")
    layout["xaxis"]["range"] = [0, max(1, timeline.num_events - 1)]
    layout["hovermode"] = "x unified"
    for number, span in enumerate(timeline.spans):
        layout["shapes"].append(
            {
                "type": "rect",
                "xref": "x",
                "yref": "paper",
                "x0": span.first_event,
                "x1": span.last_event,
                "y0": 1.0,
                "y1": 1.07,
                "line": {"width": 0},
                "fillcolor": "@band-a" if number % 2 else "@band-b",
            }
        )
        if span.last_event - span.first_event > 0.08 * timeline.num_events:
            middle = (span.first_event + span.last_event) / 2
            layout["annotations"].append(
                note(span.phase.value, x=middle, y=1.035, xref="x", yref="paper", yanchor="middle")
            )
    peak_in = next(span.phase for span in timeline.spans if span.first_event <= top.event <= span.last_event)
    how = (
        f"Foretold for batch {timeline.batch_size} from the allocator's record of smaller ones"
        if step.foretold
        else f"As the allocator recorded it at batch {timeline.batch_size}"
    )
    return Figure(
        name="step",
        title="Over one step",
        summary=f"Stacked areas of allocated memory over {timeline.num_events} allocator events of step {timeline.step}; "
        f"the peak of {format_bytes(sum(top.by_use))} comes in {PHASES[peak_in]}.",
        caption=f"{how}, {with_settings(step.settings)}, step {timeline.step}. The axis counts events, not time.",
        spec={"data": data, "layout": layout},
        table=timeline_table(timeline),
        more=phases_table(step),
    )


def _phases_figure(step: MemoryInStep, table: Table) -> Figure:
    factor, unit = byte_unit([one.allocated_bytes for one in step.phases])
    names = [phase_name(one.phase) for one in step.phases]
    peak = max(step.phases, key=lambda one: one.allocated_bytes)
    layout = layout_with(f"highest peak, {unit}", "")
    layout["yaxis"] |= {"autorange": "reversed", "automargin": True}
    layout["xaxis"]["rangemode"] = "tozero"
    return Figure(
        name="step",
        title="Over one step",
        summary=f"Bars of the highest peak of each phase at batch {step.phases_batch}; the highest, "
        f"{format_bytes(peak.allocated_bytes)}, is that of {PHASES[peak.phase]}.",
        caption=f"The highest peak of each phase at batch {step.phases_batch}. Nothing recorded single allocations here.",
        spec={
            "data": [
                {
                    "type": "bar",
                    "orientation": "h",
                    "y": names,
                    "x": [one.allocated_bytes / factor for one in step.phases],
                    "text": [format_bytes(one.allocated_bytes) for one in step.phases],
                    "textposition": "auto",
                    "hovertemplate": "%{y}: %{text}<extra></extra>",
                    "insidetextfont": {"color": "@ink"},
                    "marker": {"color": "@activations"},
                    "showlegend": False,
                }
            ],
            "layout": layout,
        },
        table=table,
    )


def _sizes(sizes: Sequence[int]) -> str:
    shown = ", ".join(map(str, sizes[:6]))
    return f"{shown} and {len(sizes) - 6} more" if len(sizes) > 6 else shown
