"""The whole benchmark, part by part: each finished one is written at once, and none is run twice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import WorkloadError
from autotune.model import Machine
from autotune.units import GIB, MIB
from benchmarks.common.clock import Clock
from benchmarks.common.documents import Answer, BadResults, Run, write
from benchmarks.comparison.reference import Reference
from benchmarks.ranked import parts
from benchmarks.ranked.cases import RANKS, RankedCase
from benchmarks.ranked.parts import How
from benchmarks.ranked.results import Limit, Results, Row

REPEATS = 3
"""Probes of a size by brute force. How ranks come to their memory is not the same each time: NCCL lets go of the buckets that
DDP sorts anew when its watchdog has looked, and where the allocator puts the new ones hangs on that."""


@dataclass(kw_only=True)
class Running:
    """Runs what is missing in the results."""

    results: Results
    """What is finished already; parts that are not ``done`` are tried again."""
    out: Path
    how: How
    clock: Clock
    describe: Callable[[Machine], Run]
    """Notes this call of the command in the file."""
    _noted: bool = False

    def run(self, cases: Sequence[RankedCase], limit_bytes: int | None = None) -> None:
        """Run every missing part of these rows.

        Args:
            cases: the rows.
            limit_bytes: instead of their own limits.

        Raises:
            OutOfTime: some are left.
            BadResults: a row was begun under another limit.
            EnvironmentTrouble: there are no such devices.
        """
        for case in cases:
            wanted = limit_bytes or case.limit_bytes
            row = self.results.rows.get(case.name, Row(limit_bytes=wanted))
            if row.limit_bytes != wanted:
                raise BadResults(f"{self.out}: {case.name} was begun under {row.limit_bytes} bytes, and not {wanted}")
            if _missing(case, row):
                self._row(case, row)

    def _row(self, case: RankedCase, row: Row) -> None:
        """What is missing of one row; the workload stays loaded for brute force."""
        self.clock.check()
        self.clock.say(f"{case.name}: loading")
        with Reference(
            case.case,
            self.how.device,
            row.limit_bytes,
            ranks=RANKS,
            parallel=case.parallel,
            timeout_s=self.how.probe_timeout_s,
            repeats=REPEATS,
        ) as reference:
            try:
                machine = reference.machine()
            except WorkloadError as error:
                self.clock.say(f"{case.name}: {error.message}\n{error.detail}")
                return
            if not self._noted:
                self._noted = True
                self.results = self.results.model_copy(update={"runs": (*self.results.runs, self.describe(machine))})
            self._parts(case, row, reference)

    def _parts(self, case: RankedCase, row: Row, reference: Reference) -> None:
        if case.too_large and not _done(row.alone):
            self.clock.check()
            one = parts.alone(case, row.limit_bytes, self.how)
            row = self._keep(case, row, "alone", one, f"exit code {one.exit_code}: {one.message}")
        if not _done(row.found):
            self.clock.check()
            found = parts.find(case, row.limit_bytes, self.how)
            told = (
                f"{found.answer} in {len(found.trials)} probes, {found.outside_bytes / MIB:.0f} MiB outside PyTorch,"
                f" allocator of {(found.cap_bytes or 0) / GIB:.2f} GiB"
            )
            row = self._keep(case, row, "found", found, told)
        if not _done(row.found):
            return
        if not _done(row.limit):
            self.clock.check()
            limit = parts.brute_force(reference, row)
            told = f"{limit.answer}; {_outcomes(limit)}"
            row = self._keep(case, row, "limit", limit, told)
        if not _done(row.trained):
            self.clock.check()
            trained = parts.train(case, row, self.results.survival_steps, self.how)
            told = f"{trained.steps} steps at {trained.batch} {trained.message or 'survived'}"
            self._keep(case, row, "trained", trained, told)

    def _keep(self, case: RankedCase, row: Row, part: str, answer: Answer, told: str) -> Row:
        """Write it down, and say what it was."""
        row = row.model_copy(update={part: answer})
        self.results = self.results.with_row(case.name, row)
        write(self.out, self.results)
        what = told if answer.done else f"{answer.status}: {answer.message}"
        self.clock.say(f"{case.name}: {part}: {what} ({answer.seconds} s)")
        return row


def _done(answer: Answer | None) -> bool:
    return answer is not None and answer.done


def _missing(case: RankedCase, row: Row) -> bool:
    wanted = [row.found, row.limit, row.trained, *([row.alone] if case.too_large else [])]
    return not all(map(_done, wanted))


def _outcomes(limit: Limit) -> str:
    return ", ".join(f"{trial.size} {trial.outcome}" for trial in limit.trials)
