"""Recorded grids and what was compared with them as Markdown. Pure."""

from collections.abc import Iterator, Sequence

from autotune.knobs import knob_of
from autotune.model import Outcome, Settings
from autotune.units import GIB
from benchmarks.comparison.table import described, in_a_cell, markdown
from benchmarks.grid.cases import TRIAL_CASES
from benchmarks.grid.cells import is_complete
from benchmarks.grid.recording import Recording, Row, by_speed
from benchmarks.grid.results import DEFAULT_SPACE, GRID_SPACE, NO_CONFIG, Check, Entry, Peer, Results, Search

_HEADER = ("workload", "", "settings", "batch", "samples/s", "regret", "cost", "of the grid's cost", "{} steps")
_NAMES = {GRID_SPACE: "autotune, the grid's knobs", DEFAULT_SPACE: "autotune, all knobs"}
_OWN = "as it is"
Line = tuple[str, ...]


def render(grids: Sequence[Recording], results: Results | None) -> str:
    """The comparison, and where it was measured, as Markdown with a line break at its end."""
    by_name = {grid.workload: grid for grid in grids}
    known = results.workloads if results is not None else {}
    names = [name for name in TRIAL_CASES if name in by_name or name in known]
    steps = str(results.check_steps) if results is not None else "50"
    rows = [row for name in names for row in _workload(name, by_name.get(name), known.get(name, Entry()))]
    header = [title.format(steps) for title in _HEADER]
    return "\n\n".join([_where(grids, results), markdown(header, rows)]) + "\n"


def _where(grids: Sequence[Recording], results: Results | None) -> str:
    caps = {document.cap_bytes for document in (*grids, results) if document is not None}
    lines = [f"PyTorch's allocator is capped at {' and '.join(f'{cap / GIB:g}' for cap in sorted(caps))} GiB."]
    for grid in grids:
        failed = sum(not row.fits for row in grid.rows)
        memory = sum(row.outcome is Outcome.OUT_OF_MEMORY for row in grid.rows)
        state = "complete" if is_complete(TRIAL_CASES[grid.workload], grid.rows) else "not complete"
        lines.append(
            f"Grid of {grid.workload}: {len(grid.rows)} probes in {grid.cost_s:.0f} s, {failed} of them failed,"
            f" {memory} for memory; {state}."
        )
    runs = [run for grid in grids for run in grid.runs] + list(results.runs if results is not None else ())
    lines += map(described, runs)
    return "\n".join(f"- {line}" for line in lines)


def _workload(name: str, grid: Recording | None, entry: Entry) -> Iterator[Line]:
    best = grid.best if grid is not None else None
    top = best.samples_per_second if best is not None else None
    cost = grid.cost_s if grid is not None else None
    lines: list[Line] = []
    own = _baseline(entry, grid)
    if own is not None:
        batch, rate = own
        check = _check(entry.checks.get(NO_CONFIG))
        lines.append(("the user's own", _OWN, batch, _rate(rate), _regret(rate, top), "", "", check))
    if best is not None:
        rate = best.samples_per_second
        seconds = f"{cost:.0f} s" if cost is not None else ""
        lines.append(("grid's best", _settings(best), str(best.batch), _rate(rate), "", seconds, "", ""))
    for space, title in _NAMES.items():
        if (search := entry.searches.get(space)) is not None:
            lines.append((title, *_search(search, top, cost, entry.checks.get(space))))
    if entry.peer is not None:
        lines.append((f"pytorch-autotune, budget {entry.peer.budget}", *_peer(entry.peer, top, cost)))
    title = TRIAL_CASES[name].title
    for line in lines:
        yield title, *line
        title = ""


def _baseline(entry: Entry, grid: Recording | None) -> tuple[str, float | None] | None:
    """Batch and samples per second of the user's own settings: as the search measured them, else as the grid did."""
    search = entry.best_search()
    if search is not None:
        rate = search.baseline_samples_per_second
        sizes = [t.batch for t in search.trials if not t.settings and t.samples_per_second == rate]
        return str(sizes[-1]) if sizes else "", rate
    rows = by_speed(grid.rows) if grid is not None else []
    own = next((row for row in rows if not row.settings), None)
    return None if own is None else (str(own.batch), own.samples_per_second)


def _search(search: Search, top: float | None, cost: float | None, check: Check | None) -> Line:
    if not search.done:
        return _failed(search.status, search.message)
    words = " ".join(f"{name}={value}" for name, value in search.settings.items()) or _OWN
    batch = f"{search.batch} x {search.accumulate}" if search.accumulate > 1 else str(search.batch)
    seconds = search.seconds
    spent = f"{seconds:.0f} s, {len(search.trials)} probes" if seconds is not None else ""
    rate = search.samples_per_second
    return words, batch, _rate(rate), _regret(rate, top), spent, _share(seconds, cost), _check(check)


def _peer(peer: Peer, top: float | None, cost: float | None) -> Line:
    if not peer.done:
        return _failed(peer.status, peer.message)
    seconds = peer.search_seconds
    spent = f"{seconds:.0f} s" if seconds is not None else ""
    rate = peer.samples_per_second
    return peer.pick, str(peer.batch), _rate(rate), _regret(rate, top), spent, _share(seconds, cost), ""


def _failed(status: str, message: str) -> Line:
    reason = f"{status}: {message}" if message else str(status)
    return (in_a_cell(reason), "", "", "", "", "", "")


def _check(check: Check | None) -> str:
    """Whether training survives, how fast it is, and how that compares with what was promised."""
    if check is None:
        return ""
    if not check.done or not check.survived:
        return in_a_cell(f"no: {check.message}")
    words = f"yes, {_rate(check.samples_per_second)}/s"
    if check.deviation is not None:
        words += f" ({100 * check.deviation:+.1f} %)"
    return words + (f", {check.retries} retries" if check.retries else "")


def _settings(row: Row) -> str:
    chosen = row.chosen
    changes = chosen.changes(Settings())
    return " ".join(f"{name}={knob_of(name).text(value)}" for name, value in changes.items()) or _OWN


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}" if rate < 1000 else f"{rate:,.0f}"


def _regret(rate: float | None, top: float | None) -> str:
    """How much slower than the grid's best; below zero where faster, at a size the grid does not have."""
    return f"{100 * (1 - rate / top):.1f} %" if rate is not None and top else ""


def _share(part: float | None, whole: float | None) -> str:
    return f"{100 * part / whole:.0f} %" if part is not None and whole else ""
