"""Which probe of a grid comes next, and whether one is left. Pure: a function of the rows there are.

First what compiles nothing, at all sizes; then what compiles, at the size near the limit; then at a second one. At last the
fastest settings are compared with the user's own, and the next ones where that fails.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from autotune.model import Form, Settings
from benchmarks.grid.cases import GridCase, Need
from benchmarks.grid.recording import Row, by_speed


@dataclass(frozen=True, slots=True)
class Cell:
    """One probe of the grid."""

    settings: Settings
    batch: int
    form: Form = Form.TIMED


def next_cell(case: GridCase, rows: Sequence[Row], skipped: AbstractSet[Cell] = frozenset()) -> Cell | None:
    """The next probe; None if the grid is complete.

    Args:
        case: what the grid consists of.
        rows: those that were run.
        skipped: cells that are not to be tried now.
    """
    known = {Cell(row.chosen, row.batch, row.form): row for row in rows}
    timed = (cell for cell in _timed(case, known) if cell not in known and cell not in skipped)
    return next(timed, None) or _comparison(case, rows, skipped)


def is_complete(case: GridCase, rows: Sequence[Row]) -> bool:
    """Whether nothing is left to run."""
    return next_cell(case, rows) is None


def _timed(case: GridCase, known: dict[Cell, Row]) -> Iterator[Cell]:
    made = case.combinations()
    eager = [settings for settings in made if not Need.of(settings).compiled]
    compiled = [settings for settings in made if Need.of(settings).compiled]
    for group in _alike(eager):
        for number in range(len(case.sizes[Need.of(group[0])])):
            for settings in group:
                sizes = case.sizes[Need.of(settings)]
                if not any(_settles(known.get(Cell(settings, size))) for size in sizes[:number]):
                    yield Cell(settings, sizes[number])
    for settings in compiled:
        yield Cell(settings, case.sizes[Need.of(settings)][0])
    for settings in compiled:
        large, small, between = case.sizes[Need.of(settings)]
        first = known.get(Cell(settings, large))
        if first is None or first.fits:
            yield Cell(settings, small)
        elif first.outcome.is_ceiling:
            yield Cell(settings, between)


def _alike(settings: Sequence[Settings]) -> list[list[Settings]]:
    """Neighbours that differ in the optimizer alone."""
    groups: list[list[Settings]] = []
    for one in settings:
        if groups and one.changes(groups[-1][0]).keys() <= {"optimizer"}:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _settles(row: Row | None) -> bool:
    """Whether a smaller size failed, so that nothing new comes from a larger one."""
    return row is not None and not row.fits


def _comparison(case: GridCase, rows: Sequence[Row], skipped: AbstractSet[Cell]) -> Cell | None:
    """For the fastest settings that are not rejected, unless that was done."""
    fastest = next(iter(by_speed(rows)), None)
    if fastest is None or not fastest.settings:
        return None
    if any(row.form is Form.COMPARE and row.settings == fastest.settings for row in rows):
        return None
    cell = Cell(fastest.chosen, case.compare_batch, Form.COMPARE)
    return None if cell in skipped else cell
