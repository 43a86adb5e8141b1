"""All plots of a report."""

from autotune.report.page.drawing import Figure
from autotune.report.page.memory_plots import memory_figures, step_figure
from autotune.report.page.speed_plots import times_figure, trade_figure
from autotune.report.page.view import View


def figures(view: View) -> tuple[Figure, ...]:
    """All there is to plot, in the order of the page."""
    found = (trade_figure(view), *memory_figures(view), step_figure(view), times_figure(view))
    return tuple(figure for figure in found if figure is not None)
