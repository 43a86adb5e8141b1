"""The plots of a report as plotly's JSON, each with the table that says the same.

Colours are names of the page's own (``@weights``): its script fills them in, light or dark. Labels of plotly are markup of
its own kind, so that every text of the user is escaped here, and again as JSON by the page.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Any

from autotune.report.page.tables import Table, memory_table, step_table, times_table, trade_table
from autotune.report.page.view import MemoryBySize, MemoryInStep, Role, StepTimes, Trade, Verdict, View
from autotune.report.explanation import PHASES, USES
from autotune.report.words import format_rate
from autotune.units import GIB, MIB, format_bytes

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
}
_UNUSED = "@unused"
_ROLES: Mapping[Role, tuple[str, str, str, int]] = {
    Role.RECOMMENDED: ("recommended", "star", "@accent", 15),
    Role.YOURS: ("your settings", "square", "@yours", 10),
    Role.OTHER: ("others that were tried", "circle", "@other", 8),
    Role.REJECTED: ("rejected: train something else", "x-thin-open", "@bad", 10),
}
_VERDICTS: Mapping[Verdict, tuple[str, str, str, int]] = {
    Verdict.CERTIFIED: ("certified", "circle", "@good", 12),
    Verdict.RAN: ("ran, in a shorter probe", "circle-open", "@text", 8),
    Verdict.REFUTED: ("refuted", "x", "@bad", 11),
}
Spec = dict[str, Any]
"""A figure as plotly reads it: ``data`` and ``layout``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A plot and what stands around it."""

    name: str
    """Of its element in the page."""
    title: str
    summary: str
    """What it shows in a sentence, for those who do not see it."""
    caption: str
    """How to read it."""
    spec: Spec
    table: Table


def trade_figure(view: View) -> Figure | None:
    """Memory against throughput."""
    if not view.trades:
        return None
    found, budget = view.trades, _budget(view)
    factor, unit = _unit([one.peak_bytes for one in found] + [budget])
    front = [one for one in found if one.on_front]
    data: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "Pareto front",
            "x": [one.peak_bytes / factor for one in front],
            "y": [one.samples_per_second for one in front],
            "line": {"color": "@accent", "width": 1.5, "dash": "dot", "shape": "hv"},
            "hoverinfo": "skip",
        }
    ]
    for role, (name, symbol, colour, size) in reversed(_ROLES.items()):
        here = [one for one in found if one.role is role]
        if here:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [one.peak_bytes / factor for one in here],
                    "y": [one.samples_per_second for one in here],
                    "text": [_trade_words(one) for one in here],
                    "hovertemplate": "%{text}<extra></extra>",
                    "marker": {"symbol": symbol, "color": colour, "size": size, "line": {"width": 1.5, "color": colour}},
                }
            )
    best = max(front or found, key=lambda one: one.samples_per_second)
    layout = _layout(f"peak of device memory, {unit}", "samples per second")
    layout["xaxis"]["rangemode"] = layout["yaxis"]["rangemode"] = "tozero"
    _line(layout, "x", budget / factor, f"budget {format_bytes(budget)}")
    return Figure(
        name="trade",
        title="Memory against speed",
        summary=f"Scatter plot of {len(found)} measured points. The fastest reaches {format_rate(best.samples_per_second)} "
        f"samples per second with {format_bytes(best.peak_bytes)}; the budget is {format_bytes(budget)}.",
        caption="Each point is a batch size under one set of settings. On the dotted line (Pareto front) nothing else is "
        "faster with as little memory.",
        spec={"data": data, "layout": layout},
        table=trade_table(found),
    )


def memory_figures(view: View) -> Iterator[Figure]:
    """Memory by kind over the batch size, one for each set of settings."""
    for number, memory in enumerate(view.memory):
        yield _memory_figure(memory, number)


def _memory_figure(memory: MemoryBySize, number: int) -> Figure:
    marked = [one for one in memory.marks if one.peak_bytes is not None]
    highest = [one.peak_bytes or 0 for one in marked] + [sum(one.by_kind) for one in memory.parts]
    factor, unit = _unit([*highest, memory.budget_bytes])
    sizes = [one.batch_size for one in memory.parts]
    data = [
        {
            "type": "scatter" if len(sizes) > 2 else "bar",
            "name": kind,
            "x": sizes,
            "y": [one.by_kind[at] / factor for one in memory.parts],
            "hovertemplate": f"{kind}: %{{y:.3g}} {unit}<extra>batch %{{x}}</extra>",
            **(_area if len(sizes) > 2 else _bar)(_COLOURS.get(kind, _UNUSED)),
        }
        for at, kind in enumerate(memory.kinds)
    ]
    for verdict, (name, symbol, colour, size) in reversed(_VERDICTS.items()):
        here = [one for one in marked if one.verdict is verdict]
        if here:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [one.batch_size for one in here],
                    "y": [(one.peak_bytes or 0) / factor for one in here],
                    "text": [f"batch {one.batch_size}: {escape(one.words)}" for one in here],
                    "hovertemplate": f"%{{text}}<br>peak %{{y:.4g}} {unit}<extra></extra>",
                    "marker": {"symbol": symbol, "color": colour, "size": size, "line": {"width": 2, "color": "@surface"}},
                }
            )
    for trace in data:
        if trace.get("marker", {}).get("symbol", "").endswith("-open"):
            trace["marker"]["line"] = {"width": 2, "color": trace["marker"]["color"]}
    layout = _layout("batch size", f"device memory, {unit}")
    layout |= {"barmode": "stack", "bargap": 0.6}
    layout["xaxis"]["rangemode"] = layout["yaxis"]["rangemode"] = "tozero"
    if len(sizes) <= 2:
        layout["xaxis"] |= {"tickmode": "array", "tickvals": sorted({*sizes, *(one.batch_size for one in marked)})}
    _line(layout, "y", memory.budget_bytes / factor, f"budget {format_bytes(memory.budget_bytes)}")
    source = (
        "Areas are foretold from the allocator's record of small sizes, cache and fragments left out; points are measured."
        if memory.foretold
        else "As the most thorough probe of each size measured it. A refuted size is drawn at what it held when it failed."
    )
    certified = [one.batch_size for one in memory.marks if one.verdict is Verdict.CERTIFIED]
    refuted = [one.batch_size for one in memory.marks if one.verdict is Verdict.REFUTED]
    said = [f"certified: {_sizes(certified)}" if certified else "", f"refuted: {_sizes(refuted)}" if refuted else ""]
    left = f" {memory.left_out} sizes are left out." if memory.left_out else ""
    return Figure(
        name=f"memory-{number}",
        title=f"Memory by batch size, settings {memory.settings}",
        summary=f"Stacked areas of memory by kind over {len(memory.marks)} batch sizes under a budget of "
        f"{format_bytes(memory.budget_bytes)}; {'; '.join(part for part in said if part) or 'none certified'}.",
        caption=source + left,
        spec={"data": data, "layout": layout},
        table=memory_table(memory),
    )


def step_figure(view: View) -> Figure | None:
    """Memory over one step, or the peaks of its phases."""
    step = view.step
    if step is None:
        return None
    return _timeline_figure(step) if step.timeline is not None else _phases_figure(step)


def _timeline_figure(step: MemoryInStep) -> Figure:
    timeline = step.timeline
    assert timeline is not None
    top = max(timeline.moments, key=lambda moment: sum(moment.by_use))
    factor, unit = _unit([sum(top.by_use)])
    data = [
        {
            "type": "scatter",
            "name": USES[use],
            "x": [moment.event for moment in timeline.moments],
            "y": [moment.by_use[at] / factor for moment in timeline.moments],
            "hovertemplate": f"{USES[use]}: %{{y:.3g}} {unit}<extra></extra>",
            **_area(_COLOURS.get(USES[use], _UNUSED)),
        }
        for at, use in enumerate(timeline.uses)
    ]
    layout = _layout("allocations and frees, in their order", f"allocated, {unit}")
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
                _note(span.phase.value, x=middle, y=1.035, xref="x", yref="paper", yanchor="middle")
            )
    peak_in = next(span.phase for span in timeline.spans if span.first_event <= top.event <= span.last_event)
    how = (
        f"Foretold for batch {timeline.batch_size} from the allocator's record of smaller ones"
        if step.foretold
        else f"As the allocator recorded it at batch {timeline.batch_size}"
    )
    return Figure(
        name="step",
        title="Memory over one step",
        summary=f"Stacked areas of allocated memory over {timeline.num_events} allocator events of step {timeline.step}; "
        f"the peak of {format_bytes(sum(top.by_use))} comes in {PHASES[peak_in]}.",
        caption=f"{how}, settings {step.settings}, step {timeline.step}. The axis counts events, not time.",
        spec={"data": data, "layout": layout},
        table=step_table(step),
    )


def _phases_figure(step: MemoryInStep) -> Figure:
    factor, unit = _unit([one.allocated_bytes for one in step.phases])
    names = [PHASES[one.phase].removeprefix("the ") for one in step.phases]
    peak = max(step.phases, key=lambda one: one.allocated_bytes)
    layout = _layout(f"highest peak, {unit}", "")
    layout["yaxis"] |= {"autorange": "reversed", "automargin": True}
    layout["xaxis"]["rangemode"] = "tozero"
    return Figure(
        name="step",
        title="Memory over one step",
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
                    "marker": {"color": "@activations"},
                    "showlegend": False,
                }
            ],
            "layout": layout,
        },
        table=step_table(step),
    )


def times_figure(view: View) -> Figure | None:
    """Distributions of step times."""
    rows = [row for row in view.times if row.seconds]
    if not rows:
        return None
    layout = _layout("milliseconds per sample", "")
    layout["yaxis"] |= {"showticklabels": False, "showgrid": False, "range": [len(rows) - 0.5, -0.8]}
    layout["xaxis"]["rangemode"] = "tozero"
    data = []
    for at, row in enumerate(rows):
        each = [1000 * seconds / row.samples for seconds in row.seconds]
        data.append(
            {
                "type": "box",
                "orientation": "h",
                "name": "",
                "x": each,
                "y": [at] * len(each),
                "boxpoints": "all",
                "jitter": 0.4,
                "pointpos": 0,
                "width": 0.4,
                "marker": {"color": _ROLES[row.role][2], "size": 5},
                "line": {"color": _ROLES[row.role][2], "width": 1.5},
                "fillcolor": "@surface",
                "hovertemplate": "%{x:.4g} ms<extra></extra>",
                "showlegend": False,
            }
        )
        label = f"{escape(_shortened(row.settings, 60))}, batch {row.batch_size}"
        layout["annotations"].append(
            _note(label, x=0, y=at - 0.36, xref="paper", yref="y", xanchor="left", yanchor="bottom")
        )
    layout["height"] = 120 + 64 * len(rows)
    fastest = rows[0]
    return Figure(
        name="times",
        title="Step times",
        summary=f"Box plots of step times of {len(rows)} probes, per sample. The fastest has a median of "
        f"{1000 * median(fastest.seconds) / fastest.samples:.3g} milliseconds.",
        caption="Time of each measured step divided by its samples, so that batch sizes compare; warm-up steps are left "
        "out. Further left is faster.",
        spec={"data": data, "layout": layout},
        table=times_table(rows),
    )


def figures(view: View) -> tuple[Figure, ...]:
    """All there is to plot, in the order of the page."""
    return tuple(
        figure
        for figure in (trade_figure(view), *memory_figures(view), step_figure(view), times_figure(view))
        if figure is not None
    )


def _budget(view: View) -> int:
    return view.memory[0].budget_bytes if view.memory else view.answer.budget_bytes if view.answer else 0


def _unit(sizes: Sequence[int]) -> tuple[int, str]:
    return (GIB, "GiB") if max(sizes, default=0) >= GIB else (MIB, "MiB")


def _trade_words(one: Trade) -> str:
    return (
        f"{escape(_shortened(one.settings, 90))}<br>batch {one.batch_size}: {format_rate(one.samples_per_second)} "
        f"samples/s, {format_bytes(one.peak_bytes)}"
    )


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _sizes(sizes: Sequence[int]) -> str:
    shown = ", ".join(map(str, sizes[:6]))
    return f"{shown} and {len(sizes) - 6} more" if len(sizes) > 6 else shown


def _area(colour: str) -> Spec:
    return {
        "mode": "lines",
        "stackgroup": "all",
        "line": {"width": 0.5, "color": colour, "shape": "linear"},
        "fillcolor": colour,
    }


def _bar(colour: str) -> Spec:
    return {"marker": {"color": colour}}


def _layout(x: str, y: str) -> Spec:
    return {
        "paper_bgcolor": "@surface",
        "plot_bgcolor": "@surface",
        "font": {"color": "@text", "size": 13},
        "margin": {"l": 56 if y else 16, "r": 16, "t": 34, "b": 48},
        "xaxis": _axis(x),
        "yaxis": _axis(y),
        "legend": {"orientation": "h", "x": 0, "y": -0.22, "yanchor": "top", "bgcolor": "@surface"},
        "hoverlabel": {"bgcolor": "@raised", "bordercolor": "@line", "font": {"color": "@text"}, "align": "left"},
        "hovermode": "closest",
        "dragmode": False,
        "shapes": [],
        "annotations": [],
    }


def _axis(title: str) -> Spec:
    return {
        "title": {"text": title, "standoff": 10},
        "gridcolor": "@line",
        "linecolor": "@line",
        "zerolinecolor": "@line",
        "fixedrange": True,
    }


def _line(layout: Spec, axis: str, at: float, words: str) -> None:
    """The budget, across the plot."""
    along = "y" if axis == "x" else "x"
    layout["shapes"].append(
        {
            "type": "line",
            f"{axis}ref": axis,
            f"{along}ref": "paper",
            f"{axis}0": at,
            f"{axis}1": at,
            f"{along}0": 0,
            f"{along}1": 1,
            "line": {"color": "@bad", "width": 1.5, "dash": "dash"},
        }
    )
    place = (
        {"x": at, "y": 1, "xref": "x", "yref": "paper", "xanchor": "right", "yanchor": "bottom"}
        if axis == "x"
        else {"x": 0, "y": at, "xref": "paper", "yref": "y", "xanchor": "left", "yanchor": "bottom"}
    )
    layout["annotations"].append(_note(words, color="@bad", **place))


def _note(words: str, *, color: str = "@muted", **place: object) -> Spec:
    return {"text": words, "showarrow": False, "font": {"size": 12, "color": color}, **place}
