"""What the tuner needs from the rooms below it. Implementations fit by shape; they do not import this file."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from autotune.model import Budget, Machine, ProbeResult, Question, Stop, WorkloadInfo


class Strategy(Protocol):
    """A pure function of the history."""

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        """Return the next probe to run, or stop. Same history, same reply."""
        ...


@runtime_checkable
class Concluding(Protocol):
    """A strategy that has an answer before it is through."""

    def conclude(self, history: Sequence[ProbeResult]) -> Stop | None:
        """The best answer that stands by now, for when time is out; None if there is none yet."""
        ...


class Prober(Protocol):
    """Runs one isolated probe."""

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Run one probe to its end; a failing workload is a result, not an exception.

        Args:
            question: size and form.
            budget: what the job may use.
            reserve_bytes: non-PyTorch device memory seen so far; the allocator's cap is the budget minus this.

        Raises:
            EnvironmentTrouble: the probe process cannot be started at all, or others hold the device for too long.
            TimeRanOut: the search's time ended while others held the device.
        """
        ...


class Laboratory(Prober, Protocol):
    """Knows one workload: loads it, looks at it, and runs its probes. Leaving it ends every process."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def preload(self, device: str) -> None:
        """Begin to load the workload; returns at once.

        Raises:
            EnvironmentTrouble: no process can be started.
        """
        ...

    def describe(
        self, device: str, batch_size: int, length_buckets: Sequence[int] = ()
    ) -> tuple[WorkloadInfo, Machine]:
        """What the workload is, and the machine.

        Args:
            device: ``auto``, or a torch device.
            batch_size: a small one that the workload may be asked for.
            length_buckets: what to find out of the workload besides, shortest first.

        Raises:
            WorkloadError: the workload fails by itself.
            EnvironmentTrouble: the device is not there, or processes cannot be started.
            UsageError: the workload has no lengths to make buckets of.
        """
        ...

    def turn(self) -> AbstractContextManager[None]:
        """The described device for this search alone, as far as other searches are concerned; waits for it.

        Each probe takes a turn of its own, so this is for what is read of the device beside them.

        Raises:
            EnvironmentTrouble: others still held it when the wait ended.
            TimeRanOut: the search's time ended first.
        """
        ...


class Recorder(Protocol):
    """Keeps a finished probe for good."""

    def add(self, result: ProbeResult) -> None:
        """Commit the probe before returning.

        Raises:
            StoreError: it could not be written.
        """
        ...


class Observer(Protocol):
    """Is told what the tuner does; shows progress."""

    def asked(self, question: Question, number: int) -> None:
        """A probe is about to start."""
        ...

    def answered(self, result: ProbeResult, number: int) -> None:
        """A probe is finished and recorded."""
        ...


class SearchObserver(Observer, Protocol):
    """Is told what a whole search does: what ``api`` finds out around the tuner's loop as well."""

    def found(self, workload: WorkloadInfo, machine: Machine, budget: Budget) -> None:
        """The workload was loaded and the device looked at; probes come next."""
        ...

    def note(self, text: str) -> None:
        """Something worth knowing, said once: which launcher and why, which probes are reused."""
        ...
