"""Plots of speed: memory against throughput with the Pareto front, and the distributions of step times."""

from collections.abc import Mapping
from html import escape
from statistics import median

from autotune.report.columns import shortened
from autotune.report.page.drawing import Figure, Spec, byte_unit, draw_line, layout_with, note
from autotune.report.page.tables import times_table, trade_table
from autotune.report.page.view import Role, Trade, View
from autotune.report.words import format_rate
from autotune.units import format_bytes

_SAME = "the same at other sizes"
_ROLES: Mapping[Role | str, tuple[str, str, str, int]] = {
    Role.RECOMMENDED: ("recommended", "star", "@accent", 16),
    _SAME: ("the same settings at other sizes", "circle", "@accent", 8),
    Role.YOURS: ("your settings", "square", "@yours", 10),
    Role.OTHER: ("others that were tried", "circle", "@other", 8),
    Role.REJECTED: ("rejected: train something else", "x-thin-open", "@bad", 10),
}


def trade_figure(view: View) -> Figure | None:
    """Memory against throughput."""
    if not view.trades:
        return None
    found, budget = view.trades, view.budget_bytes
    factor, unit = byte_unit([one.peak_bytes for one in found] + [budget])
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
    recommended = view.answer.batch_size if view.answer else None
    for role, (name, symbol, colour, size) in reversed(tuple(_ROLES.items())):
        here = [one for one in found if _drawn(one, recommended) is role]
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
                    "marker": {
                        "symbol": symbol,
                        "color": colour,
                        "size": size,
                        "line": {"width": 1.5, "color": colour},
                    },
                }
            )
    best = max(front or found, key=lambda one: one.samples_per_second)
    layout = layout_with(f"peak of device memory, {unit}", "samples per second")
    layout["xaxis"]["rangemode"] = layout["yaxis"]["rangemode"] = "tozero"
    draw_line(layout, "x", budget / factor, f"budget {format_bytes(budget)}")
    return Figure(
        name="trade",
        title="Memory against speed",
        summary=f"Scatter plot of {len(found)} measured points. The fastest reaches {format_rate(best.samples_per_second)} "
        f"samples per second with {format_bytes(best.peak_bytes)}; the budget is {format_bytes(budget)}.",
        caption="Each point is a batch size under one set of settings. On the dotted line (Pareto front) nothing else is "
        "faster with as little memory.",
        spec={"data": data, "layout": layout},
        table=trade_table(found, recommended),
    )


def times_figure(view: View) -> Figure | None:
    """Distributions of step times."""
    rows = [row for row in view.times if row.seconds]
    if not rows:
        return None
    layout = layout_with("milliseconds per sample", "")
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
        label = f"{escape(shortened(row.settings, 60))}, batch {row.batch_size}"
        layout["annotations"].append(
            note(label, x=0, y=at - 0.36, xref="paper", yref="y", xanchor="left", yanchor="bottom")
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
        table=times_table(view),
    )


def _drawn(one: Trade, recommended: int | None) -> Role | str:
    """Only one of the sizes of the recommended settings is the answer."""
    return _SAME if one.role is Role.RECOMMENDED and one.batch_size != recommended else one.role


def _trade_words(one: Trade) -> str:
    return (
        f"{escape(shortened(one.settings, 90))}<br>batch {one.batch_size}: {format_rate(one.samples_per_second)} "
        f"samples/s, {format_bytes(one.peak_bytes)}"
    )
