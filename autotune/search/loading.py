"""After the settings: can the data loader keep up with them, and with how many workers?

What is loaded changes no training step, so it is measured apart: batches of the recommended size are taken from the data
set as fast as they come, with no worker first and with more while that helps and training is still faster.
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
    """What finds the settings."""

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

    def _here(self, answer: Answer, history: Sequence[ProbeResult]) -> list[ProbeResult]:
        return [p for p in history if p.form is Form.LOADING and p.batch_size == answer.recommended_batch]

    def _known(self, answer: Answer, history: Sequence[ProbeResult]) -> list[tuple[int, float]]:
        """(workers, samples/s), as far as they were measured in a row."""
        speeds = {
            p.settings.loader_workers: p.batch_size / p.measurement.median_step_seconds
            for p in self._here(answer, history)
            if p.fits and p.measurement.median_step_seconds
        }
        known: list[tuple[int, float]] = []
        for workers in self.workers:
            if workers not in speeds:
                break
            known.append((workers, speeds[workers]))
        return known

    def _failed(self, answer: Answer, history: Sequence[ProbeResult]) -> bool:
        """Whether a loading probe failed: it says nothing against the settings, and is not repeated."""
        return any(not p.fits for p in self._here(answer, history))


def _training(answer: Answer, history: Sequence[ProbeResult]) -> float | None:
    """Samples per second the settings train at the recommended batch; None if that was not timed."""
    speeds = [
        p.samples_per_second
        for p in history
        if p.batch_size == answer.recommended_batch
        and p.settings == answer.settings
        and p.fits
        and p.form in (Form.LONG, Form.TIMED)
        and p.samples_per_second is not None
    ]
    return max(speeds, default=None)
