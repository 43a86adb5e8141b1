"""The results as Markdown. Pure."""

from autotune.units import GIB
from benchmarks.common.documents import Answer
from benchmarks.comparison.table import described, in_a_cell, markdown
from benchmarks.ranked.cases import RANKS, TRIAL_CASES, RankedCase
from benchmarks.ranked.results import CLOSE, Alone, Found, Limit, Rank, Results, Row, Trained, close, nothing_fits

_HEADER = (
    "workload",
    "ranks",
    "limit of each",
    "answer",
    "brute force",
    "within 1 %",
    "probes",
    "wall time",
    "peak of each rank",
    "{} steps by torchrun",
    "one process, same limit",
)
Line = tuple[str, ...]


def render(results: Results) -> str:
    """The rows, what brute force tried and where it was measured, as Markdown with a line break at its end."""
    names = [name for name in TRIAL_CASES if name in results.rows]
    header = [title.format(results.survival_steps) for title in _HEADER]
    rows = [_line(TRIAL_CASES[name], results.rows[name]) for name in names]
    notes = [*map(described, results.runs), *(note for name in names for note in _notes(name, results.rows[name]))]
    return "\n\n".join(["\n".join(f"- {note}" for note in notes), markdown(header, rows)]) + "\n"


def _line(case: RankedCase, row: Row) -> Line:
    return (
        case.case.title,
        f"{RANKS}, {case.parallel}",
        f"{row.limit_bytes / GIB:g} GiB",
        *_answer(row.found, row.limit),
        "" if row.found is None or not row.found.done else str(len(row.found.trials)),
        "" if row.found is None or row.found.seconds is None else f"{row.found.seconds:.0f} s",
        "" if row.found is None else _gib(row.found.ranks),
        _training(row.trained),
        _alone(row.alone),
    )


def _answer(found: Found | None, limit: Limit | None) -> Line:
    """The answer, the true limit, and whether they agree."""
    if found is None or found.answer is None:
        return _why(found), "", ""
    if limit is None or limit.answer is None:
        return str(found.answer), _why(limit), ""
    truth = str(limit.answer) if limit.exact else f"at least {limit.answer}"
    return str(found.answer), truth, _agreement(found.answer, limit)


def _agreement(answer: int, limit: Limit) -> str:
    assert limit.answer is not None
    if not close(answer, limit.answer):
        return f"no: {100 * (answer / limit.answer - 1):+.1f} %"
    if not limit.exact:
        return "as far as it was tried"
    if answer != limit.answer:
        return f"yes: {100 * (answer / limit.answer - 1):+.2f} %"
    return "equal" if limit.answer * CLOSE >= 1 else "equal (1 % is less than one sample)"


def _training(trained: Trained | None) -> str:
    if trained is None or not trained.done:
        return _why(trained)
    if not trained.survived:
        return in_a_cell(f"no, ends in step {trained.steps + 1}: {trained.message}")
    retries = max((rank.retries or 0 for rank in trained.ranks), default=0)
    return "yes" if not retries else f"yes, {retries} {'retry' if retries == 1 else 'retries'}"


def _alone(alone: Alone | None) -> str:
    if alone is None or not alone.done:
        return _why(alone)
    return f"nothing fits (exit code {alone.exit_code})" if nothing_fits(alone) else in_a_cell(f"no: {alone.message}")


def _notes(name: str, row: Row) -> list[str]:
    """What brute force tried, and what the training reserved."""
    notes = []
    if row.found is not None and row.limit is not None and row.limit.trials:
        tried = ", ".join(f"{trial.size} {trial.outcome}" for trial in row.limit.trials)
        notes.append(
            f"{name}: brute force under {(row.found.cap_bytes or 0) / GIB:.2f} GiB for the allocator: {tried}."
        )
    if row.trained is not None and any(rank.peak_bytes is not None for rank in row.trained.ranks):
        nccl = f", NCCL {row.trained.nccl}" if row.trained.nccl else ""
        notes.append(f"{name}: the training reserved {_gib(row.trained.ranks)}{nccl}.")
    return notes


def _gib(ranks: tuple[Rank, ...]) -> str:
    peaks = [rank.peak_bytes for rank in ranks if rank.peak_bytes is not None]
    return f"{', '.join(f'{peak / GIB:.2f}' for peak in peaks)} GiB" if peaks else ""


def _why(answer: Answer | None) -> str:
    """Why there is no answer; empty where it was not asked for."""
    if answer is None or answer.done:
        return ""
    return in_a_cell(f"{answer.status}: {answer.message}" if answer.message else str(answer.status))
