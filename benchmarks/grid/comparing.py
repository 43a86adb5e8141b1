"""Running what is missing of searches, peer and trainings; each finished one is written at once, and none is run twice."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autotune.model import Machine
from autotune.units import MIB
from benchmarks.common.clock import Clock
from benchmarks.common.documents import Answer, Run, write
from benchmarks.comparison.reference import Reference
from benchmarks.grid import commands
from benchmarks.grid.cases import GridCase
from benchmarks.grid.results import GRID_SPACE, NO_CONFIG, Results

SEARCH = "search"
PEER = "peer"
CHECK = "check"
PARTS = (SEARCH, PEER, CHECK)
"""In the order they run: the later ones need a search."""


@dataclass(kw_only=True)
class Comparing:
    """One call of the command."""

    results: Results
    """What is finished already."""
    out: Path
    device: str
    spaces: tuple[str, ...]
    """Which searches."""
    peer_budget: str
    """Of time, as the peer calls it."""
    timeout_s: float
    """Wall limit of one command."""
    clock: Clock
    describe: Callable[[Machine], Run]
    """Notes this call in the file."""

    def run(self, case: GridCase, parts: tuple[str, ...]) -> None:
        """Run what is missing of these parts.

        Raises:
            OutOfTime: some is left.
            WorkloadError: the workload cannot be loaded.
            EnvironmentTrouble: there is no such device.
        """
        self._prepare(case)
        steps = {SEARCH: self._search, PEER: self._peer, CHECK: self._check}
        for part in PARTS:
            if part in parts:
                steps[part](case)

    def _prepare(self, case: GridCase) -> None:
        """Note this call, and measure what is outside PyTorch unless it is known."""
        self.clock.check()
        with Reference(case.plain, self.device, self.results.cap_bytes) as reference:
            machine = reference.machine()
            self._write(self.results.with_run(self.describe(machine)))
            if self.results.entry(case.name).outside_bytes is None:
                outside = reference.outside_bytes()
                self.clock.say(f"{case.name}: {outside / MIB:.0f} MiB outside PyTorch")
                self._write(self.results.with_entry(case.name, outside_bytes=outside))

    def _search(self, case: GridCase) -> None:
        outside = self.results.entry(case.name).outside_bytes or 0
        limit = None if self.device == "cpu" else self.results.cap_bytes + outside
        for space in self.spaces:
            known = self.results.entry(case.name).searches
            if space in known and known[space].done:
                continue
            self.clock.check()
            allow = case.allow if space == GRID_SPACE else ()
            found = commands.search(case, allow, device=self.device, limit_bytes=limit, timeout_s=self.timeout_s)
            words = " ".join(f"{name}={value}" for name, value in found.settings.items()) or "as it is"
            self._told(
                case, f"search of the {space} space", found, f"{words} at {found.batch}", found.samples_per_second
            )
            self._write(self.results.with_entry(case.name, searches={**known, space: found}))

    def _peer(self, case: GridCase) -> None:
        entry = self.results.entry(case.name)
        batch = self._baseline_batch(case, PEER)
        if batch is None or (entry.peer is not None and entry.peer.done):
            return
        self.clock.check()
        found = commands.peer(
            case,
            batch,
            budget=self.peer_budget,
            device=self.device,
            cap_bytes=self.results.cap_bytes,
            timeout_s=self.timeout_s,
        )
        self._told(case, "pytorch-autotune", found, f"{found.pick} at {batch}", found.samples_per_second)
        self._write(self.results.with_entry(case.name, peer=found))

    def _check(self, case: GridCase) -> None:
        batch = self._baseline_batch(case, CHECK)
        if batch is None:
            return
        entry = self.results.entry(case.name)
        configs = {space: found.config for space, found in entry.searches.items() if found.done}
        for name, config in {**configs, NO_CONFIG: None}.items():
            known = self.results.entry(case.name).checks
            if name in known and known[name].done:
                continue
            self.clock.check()
            found = commands.check(
                case,
                config,
                batch=batch,
                steps=self.results.check_steps,
                device=self.device,
                cap_bytes=self.results.cap_bytes,
                timeout_s=self.timeout_s,
            )
            told = f"{found.steps} steps at {found.batch}, {'survived' if found.survived else found.message}"
            self._told(case, f"training with config {name}", found, told, found.samples_per_second)
            self._write(self.results.with_entry(case.name, checks={**known, name: found}))

    def _baseline_batch(self, case: GridCase, part: str) -> int | None:
        """The batch that is safe for the user's own settings; None, and said, where no search has certified one."""
        search = self.results.entry(case.name).best_search()
        if search is None or search.baseline_batch is None:
            self.clock.say(f"{case.name}: no {part} without a finished search, which says what batch is safe")
            return None
        return search.baseline_batch

    def _told(self, case: GridCase, what: str, answer: Answer, done: str, rate: float | None) -> None:
        told = f"{done}, {rate or 0:,.1f} samples/s" if answer.done else f"{answer.status}: {answer.message}"
        self.clock.say(f"{case.name}: {what}: {told} ({answer.seconds or 0:.0f} s)")

    def _write(self, results: Results) -> None:
        self.results = results
        write(self.out, results)
