"""Workers without processes: probes take planted time on a clock that only counts, and workers die when they are told to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autotune.executors.bench import Finished, Lost
from autotune.model import Budget, ProbeResult, Question
from autotune.ports import Prober

LOST = Lost(worker="worker 1", why="planted")


@dataclass
class _Job:
    ticket: int
    ends: float
    end: ProbeResult | Lost | Exception


@dataclass
class PlantedBench:
    """Asks a prober, in the order that probes are handed out."""

    prober: Prober
    width: int = 2
    takes: Callable[[Question], float] = lambda question: 1.0
    """Time of a probe; every probe takes one round."""
    dies: Callable[[Question, int], bool] = lambda question, ticket: False
    """Whether the worker of a probe dies of it."""
    clock: float = 0.0
    """Rounds that went by."""
    handed_out: list[Question] = field(default_factory=list)
    dropped: set[int] = field(default_factory=set)
    spans: list[tuple[float, float, Question]] = field(default_factory=list)
    """When each probe began and ended, on the clock, in the order that they began."""
    _running: list[_Job] = field(default_factory=list)
    _waiting: list[tuple[int, Question, Budget, int]] = field(default_factory=list)

    @property
    def idle(self) -> int:
        return self.width - len(self._running)

    def submit(self, question: Question, budget: Budget, reserve_bytes: int) -> int:
        ticket = len(self.handed_out)
        self.handed_out.append(question)
        self._waiting.append((ticket, question, budget, reserve_bytes))
        self._start()
        return ticket

    def wait(self, timeout_s: float) -> Sequence[Finished]:
        assert self._running, "waiting for nothing"
        self.clock = min(job.ends for job in self._running)
        over = [job for job in self._running if job.ends == self.clock]
        self._running = [job for job in self._running if job.ends > self.clock]
        self._start()
        return [Finished(job.ticket, job.end) for job in over if job.ticket not in self.dropped]

    def drop(self, ticket: int) -> None:
        self.dropped.add(ticket)

    def _start(self) -> None:
        while self._waiting and self.idle:
            ticket, question, budget, reserve_bytes = self._waiting.pop(0)
            end: ProbeResult | Lost | Exception
            if self.dies(question, ticket):
                end = LOST
            else:
                try:
                    end = self.prober.probe(question, budget, reserve_bytes)
                except Exception as error:  # noqa: BLE001  whatever it is, it is handed on as a worker would
                    end = error
            ends = self.clock + self.takes(question)
            self.spans.append((self.clock, ends, question))
            self._running.append(_Job(ticket, ends, end))
