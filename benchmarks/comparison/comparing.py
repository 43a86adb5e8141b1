"""The whole comparison, cell by cell: each finished one is written at once, and none is run twice."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import WorkloadError
from autotune.model import Machine
from autotune.units import MIB
from benchmarks.common.clock import Clock
from benchmarks.common.documents import Run, Status, write
from benchmarks.comparison.cases import AUTOTUNE, BRUTE_FORCE, PEERS, Case
from benchmarks.comparison.finding import autotune_cell, peer_cell, survive, warm_up
from benchmarks.comparison.reference import Reference
from benchmarks.comparison.results import Cell, Results
from benchmarks.comparison.survivors import Wanted, sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to run, and how."""

    cases: tuple[Case, ...]
    finders: tuple[str, ...]
    device: str
    outside_bytes: int | None
    """Known memory outside PyTorch; None = measure it for each workload."""
    survival: Wanted
    out: Path
    clock: Clock
    cell_timeout_s: float
    describe: Callable[[Machine], Run]
    """Notes this call in the file."""


class Comparison:
    """Runs what is missing in the results."""

    def __init__(self, asked: Asked, results: Results) -> None:
        """``results``: what is finished already; cells that are not ``done`` are tried again."""
        self.results = results
        self._asked = asked
        self._noted = False
        self._warm: set[str] = set()

    def run(self) -> None:
        """Run every missing cell.

        Raises:
            OutOfTime: some are left.
            EnvironmentTrouble: there is no such device.
        """
        for case in self._asked.cases:
            if self._missing(case):
                self._find(case)
            self._train(case)

    def _missing(self, case: Case) -> list[str]:
        known = self.results.entry(case.name).finders
        return [name for name in self._asked.finders if name not in known or known[name].status is not Status.DONE]

    def _find(self, case: Case) -> None:
        """Every finder that is missing; the workload stays loaded for the probes of brute force."""
        self._asked.clock.check()
        self._asked.clock.say(f"{case.name}: loading")
        with Reference(case, self._asked.device, self.results.cap_bytes) as reference:
            try:
                machine = reference.machine()
            except WorkloadError as error:
                for finder in self._missing(case):
                    self._keep(case, finder, Cell(status=Status.FAILED, message=error.message))
                return
            if not self._noted:
                self._noted = True
                self._write(self.results.with_run(self._asked.describe(machine)))
            for finder in self._missing(case):
                self._asked.clock.check()
                if finder == BRUTE_FORCE:
                    cell = reference.limit(self._start(case))
                elif finder == AUTOTUNE:
                    cell = self._autotune(case, reference)
                else:
                    self._warm_up(finder)
                    cell = peer_cell(
                        finder,
                        case,
                        device=self._asked.device,
                        cap_bytes=self.results.cap_bytes,
                        timeout_s=self._asked.cell_timeout_s,
                    )
                self._keep(case, finder, cell)

    def _autotune(self, case: Case, reference: Reference) -> Cell:
        """Autotune under the cap plus what is outside PyTorch, which the device-wide limit has to hold as well."""
        entry = self.results.entry(case.name)
        outside = self._asked.outside_bytes if self._asked.outside_bytes is not None else entry.outside_bytes
        if outside is None:
            outside = reference.outside_bytes()
            self._asked.clock.say(f"{case.name}: {outside / MIB:.0f} MiB outside PyTorch")
        self._write(self.results.with_entry(case.name, entry.model_copy(update={"outside_bytes": outside})))
        self._warm_up(AUTOTUNE)
        limit = None if self._asked.device == "cpu" else self.results.cap_bytes + outside
        return autotune_cell(case, device=self._asked.device, limit_bytes=limit, timeout_s=self._asked.cell_timeout_s)

    def _warm_up(self, finder: str) -> None:
        kind = PEERS[finder].package if finder in PEERS else finder
        if kind not in self._warm:
            self._warm.add(kind)
            warm_up(finder)

    def _start(self, case: Case) -> int:
        """Where brute force begins: autotune's answer, else the largest of the peers', else 1."""
        answers = self._answers(case)
        return answers.get(AUTOTUNE) or max(answers.values(), default=1)

    def _answers(self, case: Case) -> dict[str, int]:
        """Answers of the finders that gave one; not brute force's."""
        found = self.results.entry(case.name).finders
        return {name: cell.answer for name, cell in found.items() if cell.answer and name != BRUTE_FORCE}

    def _train(self, case: Case) -> None:
        """The survival runs that are missing."""
        for batch in sizes(self._answers(case), self._asked.survival):
            if batch in self.results.entry(case.name).survival:
                continue
            self._asked.clock.check()
            run = survive(
                case,
                batch,
                self.results.survival_steps,
                device=self._asked.device,
                cap_bytes=self.results.cap_bytes,
                timeout_s=self._asked.cell_timeout_s,
            )
            if isinstance(run, str):
                self._asked.clock.say(f"{case.name}: training at {batch} cannot be judged: {run}")
                continue
            self._write(self.results.with_survival(case.name, run))
            what = "survives" if run.survived else f"ends ({run.message})"
            self._asked.clock.say(
                f"{case.name}: training at {batch} {what} after {run.steps} steps in {run.seconds:.0f} s"
            )

    def _keep(self, case: Case, finder: str, cell: Cell) -> None:
        self._write(self.results.with_cell(case.name, finder, cell))
        told = f"{cell.answer}, {len(cell.trials)} trials, {cell.out_of_memory} out of memory"
        told = told if cell.status is Status.DONE else f"{cell.status}: {cell.message}"
        took = "" if cell.seconds is None else f" in {cell.seconds:.0f} s"
        self._asked.clock.say(f"{case.name}: {finder}: {told}{took}")

    def _write(self, results: Results) -> None:
        self.results = results
        write(self._asked.out, results)
