"""What all plots of a report have in common, as plotly's JSON, and each with the table that says the same.

Colours are names of the page's own (``@weights``): its script fills them in, light or dark. Labels of plotly are markup of
its own kind, so that every text of the user is escaped where it becomes one, and again as JSON by the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.report.page.tables import Table
from autotune.units import GIB, MIB

Spec = dict[str, Any]
"""A figure as plotly reads it, ``data`` and ``layout``, or a part of it."""


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
    """What the plot shows."""
    more: Table | None = None
    """What stands beside it."""


def byte_unit(sizes: Sequence[int]) -> tuple[int, str]:
    """Bytes of the unit that suits the largest, and its name."""
    return (GIB, "GiB") if max(sizes, default=0) >= GIB else (MIB, "MiB")


def area(colour: str) -> Spec:
    """Part of a stacked area."""
    return {
        "mode": "lines",
        "stackgroup": "all",
        "line": {"width": 0.5, "color": colour, "shape": "linear"},
        "fillcolor": colour,
    }


def bar(colour: str) -> Spec:
    """Part of a stacked bar."""
    return {"marker": {"color": colour}}


def layout_with(x: str, y: str) -> Spec:
    """A layout with two titled axes."""
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


def draw_line(layout: Spec, axis: str, at: float, words: str) -> None:
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
    layout["annotations"].append(note(words, color="@bad", **place))


def note(words: str, *, color: str = "@muted", **place: object) -> Spec:
    """Words within a plot."""
    return {"text": words, "showarrow": False, "font": {"size": 12, "color": color}, **place}
