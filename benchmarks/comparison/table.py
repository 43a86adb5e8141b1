"""The results as Markdown. Pure."""

from collections.abc import Iterator, Sequence

from autotune.units import GIB, MIB
from benchmarks.common.documents import Run, Status
from benchmarks.comparison.cases import AUTOTUNE, BRUTE_FORCE, FINDERS, TRIAL_CASES
from benchmarks.comparison.results import Cell, Entry, Results
from benchmarks.comparison.survivors import verdict


def render(results: Results) -> str:
    """The comparison, the predictions and where both were measured, as Markdown with a line break at its end."""
    order = [name for name in TRIAL_CASES if name in results.workloads]
    blocks = [_runs(results), _comparison(results, order)]
    predictions = _predictions(results, order)
    return "\n\n".join([*blocks, *([predictions] if predictions else [])]) + "\n"


def _runs(results: Results) -> str:
    lines = [f"PyTorch's allocator is capped at {results.cap_bytes / GIB:g} GiB for every finder."]
    lines += map(described, results.runs)
    return "\n".join(f"- {line}" for line in lines)


def described(run: Run) -> str:
    """Where and when one call of a command was made."""
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    driver = f" (driver {run.driver})" if run.driver else ""
    return f"`{run.command}`: {run.created[:10]}, {run.device}{driver}, Python {run.python}, {versions}."


def _comparison(results: Results, order: Sequence[str]) -> str:
    header = (
        "workload",
        "finder",
        "answer",
        "of the limit",
        "wall time",
        "trials",
        "above half the limit",
        "out of memory",
        f"{results.survival_steps} steps",
    )
    rows = [row for name in order for row in _workload(name, results.entry(name))]
    return markdown(header, rows)


def _workload(name: str, entry: Entry) -> Iterator[tuple[str, ...]]:
    title = TRIAL_CASES[name].title
    for finder in FINDERS:
        cell = entry.finders.get(finder)
        if cell is not None:
            yield title, finder, *_figures(finder, cell, entry)
            title = ""


def _figures(finder: str, cell: Cell, entry: Entry) -> tuple[str, ...]:
    limit = _limit(entry)
    if cell.status is not Status.DONE:
        return (_why(cell), "", _seconds(cell), "", "", "", "")
    answer, share, survives = "none", "", ""
    if cell.answer is not None:
        answer = str(cell.answer) if cell.exact else f"at least {cell.answer}"
        if limit and finder != BRUTE_FORCE:
            share = _percent(100 * cell.answer / limit)
            share = share if entry.finders[BRUTE_FORCE].exact else f"at most {share}"
        survives = verdict(cell.answer, entry.survival) if cell.answer else ""
    above = str(cell.above(limit / 2)) if limit else ""
    return answer, share, _seconds(cell), str(len(cell.trials)), above, str(cell.out_of_memory), survives


def _why(cell: Cell) -> str:
    reason = f": {cell.message}" if cell.message else ""
    return in_a_cell(f"{cell.status}{reason}")


def _seconds(cell: Cell) -> str:
    return "" if cell.seconds is None else f"{cell.seconds:.0f} s"


def _percent(value: float) -> str:
    """Never rounded to 100 where it is not."""
    text = f"{value:.1f}"
    return f"{text if text != '100.0' or value == 100 else f'{value:.2f}'} %"


def _limit(entry: Entry) -> int | None:
    """The true limit, None where it is not known."""
    cell = entry.finders.get(BRUTE_FORCE)
    return cell.answer if cell is not None and cell.status is Status.DONE else None


def _predictions(results: Results, order: Sequence[str]) -> str:
    """What the memory model said before any large probe; empty if it never did."""
    rows = []
    for name in order:
        entry = results.entry(name)
        cell = entry.finders.get(AUTOTUNE)
        if cell is None or cell.prediction is None:
            continue
        told, limit = cell.prediction, _limit(entry)
        rows.append(
            (
                TRIAL_CASES[name].title,
                _number(told.limit),
                _number(limit),
                _error(told.limit, limit),
                _error(told.allocated_bytes, cell.measured_allocated_bytes),
                _error(told.reserved_bytes, cell.measured_reserved_bytes),
                "" if entry.outside_bytes is None else f"{entry.outside_bytes / MIB:.0f} MiB",
            )
        )
    header = (
        "workload",
        "predicted limit",
        "true limit",
        "error",
        "allocated at the answer",
        "reserved at the answer",
        "outside PyTorch",
    )
    return markdown(header, rows) if rows else ""


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _error(told: int | None, true: int | None) -> str:
    return f"{100 * (told - true) / true:+.2f} %" if told is not None and true else ""


def in_a_cell(text: str) -> str:
    """A message, without what would end the cell."""
    return text.replace("|", "/").replace("\n", " ")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
