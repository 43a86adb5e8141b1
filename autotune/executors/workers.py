"""The tool's side of several workers: a laboratory for what is to be known of the workload, and a bench for its probes.

What one worker measures has to hold for the others. So those that serve one search are of one kind of machine, that of the
first worker that is ready; others wait, with a sentence that names the difference, for a search of their own (``turn_to``).
Lost workers are started again, a few times; what they ran is told as lost, for ``ahead`` to run it elsewhere.
"""

import selectors
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from autotune.errors import AutotuneError, EnvironmentTrouble, TimeRanOut, WorkloadError
from autotune.executors.ahead import Ahead
from autotune.executors.asked import Execution, Kind
from autotune.executors.bench import Finished, Lost
from autotune.executors.documents import read_answer, read_error
from autotune.executors.kinds import difference, kind_of
from autotune.executors.link import Link
from autotune.executors.worker import Asked, Place, Worker
from autotune.model import Budget, Machine, Plan, ProbeResult, Question, WorkloadInfo
from autotune.probe.workplace import Workplace
from autotune.units import format_bytes

LOSSES = 5
"""Times in a row that a worker is lost before it is given up."""
_BACKOFF_S = 1.0
"""Before a worker that was lost is started again; twice as long each time."""
_LONGEST_BACKOFF_S = 60.0
_SLACK_S = 60.0
"""Beyond a probe's own deadlines (two, where a fork turns out not to work) before a silent worker counts as lost."""
_GATHER_S = {Kind.LOCAL: 120.0, Kind.SLURM: 20.0, Kind.RAY: 20.0}
"""How long others are waited for once one worker is ready. Of one host they are ready together; elsewhere some may come
much later, and join then."""
_TELL_AFTER_S = 15.0


class Workers:
    """A ``Laboratory`` and a ``Bench``; leaving it ends every worker."""

    def __init__(
        self,
        execution: Execution,
        plan: Plan,
        say: Callable[[str], None],
        until: float | None = None,
        *,
        start: Callable[[Execution, Path], Link] | None = None,
    ) -> None:
        """
        Args:
            execution: where they are to run.
            plan: of the search.
            say: told what people should know.
            until: instant on ``time.monotonic`` at which the search's time is over; None = never.
            start: starts a worker with this file as its log; None = as the execution says. Tests give others.
        """
        self._execution = execution
        self._plan = plan
        self._say = say
        self._until = until
        self._told: set[str] = set()
        self._folder = Workplace()
        self._buckets: tuple[int, ...] = ()
        self._kind: Place | None = None
        """What workers have to be like; None until the first is ready."""
        self._searched: list[Machine] = []
        """Kinds that were turned to."""
        self._needed_bytes: int | None = None
        """The budget of the search, once it is known."""
        self._tickets = 0
        self._waiting: deque[Asked] = deque()
        self._running: dict[int, Question] = {}
        """What is asked by the probes that run, by their tickets."""
        self._dropped: set[int] = set()
        self._finished: list[Finished] = []
        self._error: AutotuneError | None = None
        """Why the first worker that was left out could not serve."""
        devices = execution.devices or (plan.device,) * execution.workers
        self._workers = [
            Worker(number, partial(start or _start, execution, self._folder.path / f"worker-{number}.log"), device)
            for number, device in enumerate(devices, start=1)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every worker and what it runs."""
        links = [worker.link for worker in self._workers if worker.link is not None]
        for link in links:
            link.hang_up()  # all at once, and only then is any waited for
        for link in links:
            link.stop()
        for worker in self._workers:
            worker.link = None
        self._folder.remove()

    # What a laboratory does.

    def preload(self, device: str) -> None:
        """Begin to start the workers; they load the workload when they are asked to describe it."""
        for worker in self._workers:
            worker.link = worker.start()

    def describe(
        self, device: str, batch_size: int, length_buckets: Sequence[int] = ()
    ) -> tuple[WorkloadInfo, Machine]:
        """Wait for workers to be ready; what the first of them says of the workload and its kind of machine.

        Raises:
            WorkloadError, EnvironmentTrouble, UsageError: none can serve; this is why the first cannot.
            TimeRanOut: the search's time ended first.
        """
        self._buckets = tuple(length_buckets)
        for worker in self._workers:
            worker.open(self._plan, self._buckets, self._left_s())
        began = time.monotonic()
        gathered: float | None = None
        while any(worker.place is None and not worker.out for worker in self._workers):
            now = time.monotonic()
            if gathered is not None and now >= gathered:
                break
            if gathered is None and self._kind is not None:
                gathered = now + _GATHER_S[self._execution.kind]
            if self._kind is None and self._until is not None and now >= self._until:
                raise TimeRanOut(
                    "the time budget ended while there was no worker yet",
                    hint="run the same command again with a larger --time-budget",
                )
            if self._kind is None and now - began >= _TELL_AFTER_S:
                self._tell(f"waiting for a worker of --executor {self._execution.kind}")
            self._turn(1.0)
        if self._kind is None:
            raise self._error or EnvironmentTrouble("there is no worker", hint="run the same command again")
        alone = self._execution.kind is Kind.LOCAL and len(self._workers) == 1
        machine = self._kind.machine
        # What several devices measure holds for none of them in particular; nor does what one of a cluster's does.
        return self._kind.workload, machine if alone else kind_of(machine)

    def budget(self, caller_bytes: int = 0) -> Budget:
        """What a job may use on each of the workers: the least of them.

        Args:
            caller_bytes: what the calling process holds that goes on to train here; counts on the CPU.
        """
        budgets = [worker.place.budget for worker in self._workers if worker.place and self._serves(worker)]
        least = min(budgets, key=lambda budget: budget.limit_bytes)
        here = self._execution.kind is Kind.LOCAL and self._kind is not None and self._kind.machine.device == "cpu"
        if not here or least.source not in ("--memory-limit", "rlimit"):
            return least
        return replace(least, limit_bytes=max(0, least.limit_bytes - caller_bytes), caller_bytes=caller_bytes)

    @property
    def other_kinds(self) -> tuple[Machine, ...]:
        """Kinds of machines that have workers, and were not turned to."""
        ready = [worker.place.machine for worker in self._workers if worker.place and not worker.out]
        kinds = dict.fromkeys(kind_of(machine) for machine in ready)
        return tuple(kind for kind in kinds if kind not in self._searched)

    def turn_to(self, kind: Machine) -> tuple[WorkloadInfo, Machine]:
        """From now on probes run on the workers of another kind, and no others; what they say of the workload."""
        self._kind = next(
            worker.place
            for worker in self._workers
            if worker.place and not worker.out and kind_of(worker.place.machine) == kind
        )
        self._searched.append(kind)
        self._needed_bytes = None
        return self._kind.workload, kind

    def turn(self) -> AbstractContextManager[None]:
        """Nothing is read of a device from here."""
        return nullcontext()

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Run one probe, nothing ahead of it (see ``ports.Prober``)."""
        return Ahead(None, self, (), lambda question, history: None).probe(question, budget, reserve_bytes)

    # What a bench does.

    @property
    def width(self) -> int:
        """Workers of the kind in question, and those of which it is not known yet."""
        return sum(self._serves(worker) for worker in self._workers)

    @property
    def idle(self) -> int:
        """Workers that could begin a probe at once."""
        free = sum(worker.is_idle and self._serves(worker) for worker in self._workers)
        return max(0, free - len(self._waiting))

    def submit(self, question: Question, budget: Budget, reserve_bytes: int) -> int:
        """Hand out a probe (see ``bench.Bench``)."""
        self._tickets += 1
        self._needed_bytes = budget.limit_bytes
        self._waiting.append(Asked(self._tickets, question, budget, reserve_bytes))
        self._hand_out()
        return self._tickets

    def wait(self, timeout_s: float) -> Sequence[Finished]:
        """Probes that ended (see ``bench.Bench``).

        Raises:
            EnvironmentTrouble: no worker is left.
            TimeRanOut: time is out, and nothing runs.
        """
        self._turn(0.0 if self._finished else timeout_s)
        found, self._finished = self._finished, []
        if not found and self._until is not None and time.monotonic() >= self._until and not self._running:
            raise TimeRanOut(
                "the time budget ended while there was no worker for the next probe",
                hint="run the same command again to go on, with a larger --time-budget",
            )
        return found

    def drop(self, ticket: int) -> None:
        """Forget a probe (see ``bench.Bench``)."""
        self._waiting = deque(asked for asked in self._waiting if asked.ticket != ticket)
        if ticket in self._running:
            self._dropped.add(ticket)

    # What both rest on.

    def _turn(self, timeout_s: float) -> None:
        """Hear what workers say, for at most so long; look after those that are gone or silent."""
        self._restart()
        self._hand_out()
        heard = [worker for worker in self._workers if worker.link is not None]
        soonest = min((worker.restart_at for worker in self._workers if worker.restart_at), default=None)
        if soonest is not None:
            timeout_s = max(0.0, min(timeout_s, soonest - time.monotonic()))
        with selectors.DefaultSelector() as waiting:
            for worker in heard:
                assert worker.link is not None
                waiting.register(worker.link, selectors.EVENT_READ, worker)
            if heard:
                ready = [key.data for key, _ in waiting.select(timeout_s)]
            else:
                time.sleep(timeout_s)
                ready = []
        for worker in ready:
            self._hear(worker)
        for worker in heard:
            if worker.link is not None and time.monotonic() >= worker.deadline:
                self._lose(worker, "it has not answered for too long")
        self._hand_out()
        if not any(self._serves(worker) for worker in self._workers):
            raise self._error or EnvironmentTrouble(
                "no worker is left: " + "; ".join(worker.out for worker in self._workers if worker.out),
                hint="run the same command again when workers can be had: finished probes are kept",
            )

    def _restart(self) -> None:
        for worker in self._workers:
            if worker.restart_at is not None and time.monotonic() >= worker.restart_at:
                worker.restart_at = None
                worker.link = worker.start()
                worker.open(self._plan, self._buckets, self._left_s())

    def _hand_out(self) -> None:
        for worker in self._workers:
            if not self._waiting:
                return
            if worker.is_idle and self._serves(worker):
                asked = self._waiting.popleft()
                self._running[asked.ticket] = asked.question
                longest_s = 2 * self._plan.timeout_s + self._plan.device_wait_s + _SLACK_S
                worker.begin(asked, longest_s, self._left_s())

    def _hear(self, worker: Worker) -> None:
        assert worker.link is not None
        messages = worker.link.receive()
        if messages is None:
            self._lose(worker, worker.link.last_words())
            return
        for message in messages:
            if worker.link is None:
                return  # lost or left out by what came before
            match message.get("kind"):
                case "note":
                    self._tell(str(message.get("text", "")))
                case "lost":
                    self._lose(worker, str(message.get("why", "")))
                case "ready" if worker.place is None:
                    self._ready(worker, message)
                case "answer" if worker.ticket is not None:
                    self._answered(worker, worker.ticket, message)
                case "refused" if worker.ticket is not None:
                    self._end(worker, read_error(message.get("error")))
                case "refused":
                    self._leave_out(worker, read_error(message.get("error")))
                case other:
                    self._lose(worker, f"it sent {other!r:.60} out of turn")

    def _answered(self, worker: Worker, ticket: int, message: dict[str, Any]) -> None:
        try:
            result = read_answer(message.get("result"), self._running[ticket], f"the answer of {worker.name}")
        except EnvironmentTrouble as error:  # what else it said could be believed as little
            self._end(worker, Lost(worker=worker.name, why=error.message))
            self._leave_out(worker, error)
        else:
            self._end(worker, result)

    def _ready(self, worker: Worker, message: dict[str, Any]) -> None:
        try:
            place = Place.read(message, f"what worker {worker.number} says of its machine")
        except EnvironmentTrouble as error:
            self._leave_out(worker, error)
            return
        worker.place = place
        worker.deadline = float("inf")
        first = self._kind or place
        if self._kind is None:
            self._kind = first
            self._searched.append(kind_of(first.machine))
        if first.workload.fingerprint != place.workload.fingerprint:
            self._refuse(worker, f"it finds another workload at {self._plan.source.ref} than the others")
            return
        other = difference(first.machine, place.machine)
        if other:
            self._tell(
                f"{worker.name} is of another kind than {first.text}, so that its results cannot be compared with the"
                f" others': {other}"
            )
        elif self._needed_bytes is not None and place.budget.limit_bytes < self._needed_bytes:
            room, needed = format_bytes(place.budget.limit_bytes), format_bytes(self._needed_bytes)
            self._refuse(worker, f"a job may use {room} there, and the search is for {needed}")

    def _refuse(self, worker: Worker, why: str) -> None:
        error = EnvironmentTrouble(f"{worker.name} is left out: {why}", hint="make it as the others, or leave it out")
        self._leave_out(worker, error)

    def _serves(self, worker: Worker) -> bool:
        """Whether probes of the search may run there, as far as is known."""
        if worker.out:
            return False
        if worker.place is None or self._kind is None:
            return True
        return kind_of(worker.place.machine) == kind_of(self._kind.machine)

    def _end(self, worker: Worker, end: ProbeResult | Lost | AutotuneError) -> None:
        ticket, worker.ticket, worker.deadline = worker.ticket, None, float("inf")
        if not isinstance(end, Lost):
            worker.losses = 0
        if ticket is None:
            return
        del self._running[ticket]
        if ticket in self._dropped:
            self._dropped.discard(ticket)
        else:
            self._finished.append(Finished(ticket, end))

    def _lose(self, worker: Worker, why: str) -> None:
        name, ran = worker.name, worker.ticket is not None
        self._end(worker, Lost(worker=name, why=why))
        worker.lose(min(_LONGEST_BACKOFF_S, _BACKOFF_S * 2**worker.losses))
        if worker.losses >= LOSSES:
            trouble = f"{name} was lost {LOSSES} times in a row, last: {why}"
            self._leave_out(worker, EnvironmentTrouble(trouble, hint="look after its host, its limits and its log"))
            return
        again = "; what it ran is run again" if ran else ""
        self._say(f"{name} was lost: {why}{again}")

    def _leave_out(self, worker: Worker, error: AutotuneError) -> None:
        worker.leave_out(error.message)
        self._error = self._error or error
        if self._kind is None and isinstance(error, WorkloadError):
            raise error  # others would fail in the same way
        self._tell(error.message)

    def _left_s(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def _tell(self, text: str) -> None:
        if text and text not in self._told:
            self._told.add(text)
            self._say(text)


def _start(execution: Execution, log: Path) -> Link:
    return Link(execution.kind, execution.options, log)
