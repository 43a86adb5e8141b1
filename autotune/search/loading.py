"""After the limit or the settings: can the data loader keep up with them, and with how many workers?

What is loaded changes no training step, so it is measured apart: batches of the recommended size are taken from the data
as fast as they come. Where workers may be chosen, with no worker first and with more while that helps and training is
still faster; else with those of the user's own loader, and with fewer while they do not run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from autotune.model import Answer, Form, Loading, ProbeResult, Question, Reason, Stop

ENOUGH = 1.1
"""Loading that is faster than training by this factor keeps up: both differ from step to step."""
_GAIN = 1.05
"""More workers that load faster by less than this are not worth their memory."""


class Finder(Protocol):
    """What finds the batch, or the settings."""

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        """Return the next probe or stop."""
        ...

    def conclude(self, history: Sequence[ProbeResult]) -> Stop | None:
        """The best answer that stands."""
        ...


@dataclass(frozen=True, kw_only=True)
class LoadingFinder:
    """A strategy: what ``finder`` concludes, and then the data loader's workers for it. A pure function of the history."""

    finder: Finder
    workers: tuple[int, ...]
    """Numbers of worker processes to try, ascending."""
    pin_memory: bool
    host_bytes: int | None = None
    """What training and workers may take of the host's memory together; None = they have no limit in common."""

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        """Return the next probe or stop; depends on nothing but the history."""
        reply = self.finder.ask([p for p in history if p.form is not Form.LOADING])
        if isinstance(reply, Question) or reply.answer is None:
            return reply
        return self._load(reply, reply.answer, history)

    def conclude(self, history: Sequence[ProbeResult]) -> Stop | None:
        """The best answer that stands, with what is known of loading by then."""
        stop = self.finder.conclude([p for p in history if p.form is not Form.LOADING])
        if stop is None or stop.answer is None:
            return stop
        return replace(stop, answer=replace(stop.answer, loading=self._loading(stop.answer, history)))

    def _load(self, stop: Stop, answer: Answer, history: Sequence[ProbeResult]) -> Question | Stop:
        training = _training(answer, history)
        if training is None or answer.settings is None:
            return stop
        known = self._known(answer, history)
        speeds = [speed for _, speed in known]
        enough = bool(speeds) and speeds[-1] >= ENOUGH * training
        stalled = len(speeds) > 1 and speeds[-1] < _GAIN * max(speeds[:-1])
        if not enough and not stalled and len(known) < len(self.workers) and not self._failed(answer, history):
            settings = replace(
                answer.settings, loader_workers=self.workers[len(known)], pin_memory=self.pin_memory, accumulate=1
            )
            return Question(
                batch_size=answer.recommended_batch, form=Form.LOADING, reason=Reason.LOADING, settings=settings
            )
        return replace(stop, answer=replace(answer, loading=self._loading(answer, history)))

    def _loading(self, answer: Answer, history: Sequence[ProbeResult]) -> Loading | None:
        training, known = _training(answer, history), self._known(answer, history)
        if training is None or not known:
            return None
        best = max(speed for _, speed in known)
        workers, speed = next((w, s) for w, s in known if s >= ENOUGH * training or _GAIN * s >= best)
        return Loading(
            workers=workers,
            pin_memory=self.pin_memory,
            samples_per_second=speed,
            training_samples_per_second=training,
        )

    def _known(self, answer: Answer, history: Sequence[ProbeResult]) -> list[tuple[int, float]]:
        """(workers, samples/s), as far as they were measured in a row."""
        room = _room(answer, history, self.host_bytes)
        speeds = {
            p.settings.loader_workers: speed
            for p in _loaded(answer, history)
            if (speed := _speed(p)) and has_room(p, room)
        }
        known: list[tuple[int, float]] = []
        for workers in self.workers:
            if workers not in speeds:
                break
            known.append((workers, speeds[workers]))
        return known

    def _failed(self, answer: Answer, history: Sequence[ProbeResult]) -> bool:
        """Whether a loading probe failed: it says nothing against the settings, and is not repeated."""
        room = _room(answer, history, self.host_bytes)
        return any(not p.fits or not has_room(p, room) for p in _loaded(answer, history))


@dataclass(frozen=True, kw_only=True)
class OwnLoaderFinder:
    """A strategy: what ``finder`` concludes, and whether the user's own loader runs at that batch with its workers."""

    finder: Finder
    workers: int
    """Processes of the user's loader; where they do not run, half of them are tried, and so on down to none."""
    pin_memory: bool
    host_bytes: int | None = None
    """What training and workers may take of the host's memory together; None = they have no limit in common."""

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        """Return the next probe or stop; depends on nothing but the history."""
        reply = self.finder.ask([p for p in history if p.form is not Form.LOADING])
        if isinstance(reply, Question) or reply.answer is None:
            return reply
        answer, training = reply.answer, _training(reply.answer, history)
        if training is None or answer.settings is None:
            return reply
        room = _room(answer, history, self.host_bytes)
        for workers in halvings(self.workers):
            probes = [p for p in _loaded(answer, history) if p.settings.loader_workers == workers]
            if not probes:
                settings = replace(answer.settings, loader_workers=workers, pin_memory=self.pin_memory, accumulate=1)
                return Question(
                    batch_size=answer.recommended_batch, form=Form.LOADING, reason=Reason.LOADING, settings=settings
                )
            speed = _speed(probes[-1])
            if speed and has_room(probes[-1], room):
                loading = Loading(
                    workers=workers,
                    pin_memory=self.pin_memory,
                    samples_per_second=speed,
                    training_samples_per_second=training,
                )
                return replace(reply, answer=replace(answer, loading=loading))
        return reply

    def conclude(self, history: Sequence[ProbeResult]) -> Stop | None:
        """The best answer that stands, whatever is known of its loader."""
        return self.finder.conclude([p for p in history if p.form is not Form.LOADING])


def halvings(workers: int) -> list[int]:
    """``8, 4, 2, 1, 0``."""
    found = [workers]
    while found[-1]:
        found.append(found[-1] // 2)
    return found


def has_room(probe: ProbeResult, room_bytes: int | None) -> bool:
    """Whether the host has memory for the workers beside the training; True where that is no common limit."""
    return room_bytes is None or (probe.measurement.workers_bytes or 0) <= room_bytes


def _room(answer: Answer, history: Sequence[ProbeResult], host_bytes: int | None) -> int | None:
    """What the training leaves of the host's memory at the recommended batch."""
    if host_bytes is None:
        return None
    peaks = [p.measurement.peak_device_bytes or 0 for p in _trained(answer, history)]
    return host_bytes - max(peaks, default=0)


def _loaded(answer: Answer, history: Sequence[ProbeResult]) -> list[ProbeResult]:
    return [p for p in history if p.form is Form.LOADING and p.batch_size == answer.recommended_batch]


def _speed(probe: ProbeResult) -> float | None:
    """Samples per second of a loading probe; None where it failed."""
    seconds = probe.measurement.median_step_seconds
    return probe.batch_size / seconds if probe.fits and seconds else None


def _trained(answer: Answer, history: Sequence[ProbeResult]) -> list[ProbeResult]:
    """Probes that trained at the recommended batch, safely and in a form whose times count."""
    return [
        p
        for p in history
        if p.batch_size == answer.recommended_batch
        and p.settings == answer.settings
        and p.fits
        and p.form in (Form.LONG, Form.TIMED)
    ]


def _training(answer: Answer, history: Sequence[ProbeResult]) -> float | None:
    """Samples per second the settings train at the recommended batch; None if that was not timed."""
    speeds = [p.samples_per_second for p in _trained(answer, history) if p.samples_per_second is not None]
    return max(speeds, default=None)
