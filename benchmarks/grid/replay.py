"""A recorded grid as a machine: it answers a search's questions from the rows, at once and at the recorded cost.

How sizes and settings that were not recorded are answered stands in ``curves``. Beyond that: every form that trains is
answered from timed rows; a comparison says ``fits`` unless another outcome was recorded for those settings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from random import Random

from autotune.knobs import KNOBS, Space, choices, make_space
from autotune.model import (
    Budget,
    Cause,
    Comparison,
    Failure,
    Form,
    Measurement,
    Outcome,
    Phase,
    PhaseMemory,
    ProbeResult,
    Question,
    Settings,
)
from benchmarks.grid.curves import Curves, Point, family_of
from benchmarks.grid.recording import Recording, Row

_STARTED = datetime(2000, 1, 1, tzinfo=UTC)
_UNCAPPED = 1 << 50


def allowed(rows: Sequence[Row]) -> tuple[str, ...]:
    """What ``--allow`` takes to search the combinations of the rows."""
    found = []
    for knob in KNOBS:
        values = {knob.text(knob.of(row.chosen)) for row in rows} - {knob.text(knob.default)}
        if values:
            found.append(f"{knob.name}={','.join(text for text in map(knob.text, knob.values) if text in values)}")
    return tuple(found)


@dataclass
class Replay:
    """A prober (see ``autotune.ports``) that needs neither processes nor a device.

    Raises:
        ValueError: at the first question, where nothing in the recording fits.
    """

    recording: Recording
    seed: int = 0
    """Of the order in which recorded step times come."""
    asked: list[Question] = field(default_factory=list)
    """Everything asked so far, oldest first."""

    @property
    def budget(self) -> Budget:
        """The cap of the recording; on the CPU, which has none, more than anything needs."""
        limit = _UNCAPPED if self.recording.device == "cpu" else self.recording.cap_bytes
        return Budget(limit_bytes=limit, source="recording", capacity_bytes=limit, others_bytes=0, headroom_bytes=0)

    @cached_property
    def space(self) -> Space:
        """The combinations of the grid."""
        base = Settings()
        allow = allowed(self.recording.rows)
        return make_space(base, choices((), allow, (), base), self.recording.traits, self.recording.device)[0]

    @property
    def best(self) -> float:
        """Samples per second of the fastest row."""
        row = self.recording.best
        return 0.0 if row is None or row.samples_per_second is None else row.samples_per_second

    def throughput(self, settings: Settings, size: int) -> float:
        """Samples per second, for judging an answer: 0 where the settings do not fit, and beyond the largest size that was
        recorded no more than there."""
        known = self._known(settings)
        if not self._curves.fits(known, size):
            return 0.0
        judged = min(size, self._curves.largest(known) or size)
        return judged / self._curves.at(known, judged).step_s

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        """Answer at once; the budget is the recording's, and nothing is reserved."""
        known, size = self._known(question.settings), question.batch_size
        again = any(_compiles_alike(question, other) for other in self.asked)
        self.asked.append(question)
        failed = self._curves.failure(known, size)
        told = self._told(known) if question.form is Form.COMPARE else None
        if told is not None or failed is not None:
            row = told or failed
            assert row is not None
            return self._repeated(question, row)
        point = self._curves.at(known, size)
        if not self._curves.fits(known, size):
            return self._too_large(question, point)
        seconds, first = self._cost_s(question, known, again=again)
        if question.form is Form.COMPARE:
            reference = self._known(question.reference or Settings())
            return self._answer(question, _ALIKE, seconds + self._cost_s(question, reference, again=False)[0])
        return self._answer(question, self._measured(question, point, first), seconds)

    @cached_property
    def _curves(self) -> Curves:
        return Curves(self.recording)

    def _known(self, settings: Settings) -> Settings:
        return self._curves.nearest(replace(settings, accumulate=1))

    def _told(self, known: Settings) -> Row | None:
        """The recorded comparison of these settings."""
        rows = (row for row in self.recording.rows if row.form is Form.COMPARE and row.chosen == known)
        return next(rows, None)

    def _cost_s(self, question: Question, known: Settings, *, again: bool) -> tuple[float, float]:
        """Of a probe, and of its first step."""
        point = self._curves.at(known, question.batch_size)
        first = self._curves.first_step_s(known, question.batch_size, again=again)
        micro = question.settings.accumulate
        return point.other_s + first + (question.form.steps * micro - 1) * point.step_s, first

    def _measured(self, question: Question, point: Point, first_step_s: float) -> Measurement:
        form, random = question.form, Random(f"{self.seed} {len(self.asked)}")
        step, held = point.step_s * question.settings.accumulate, int(point.allocated_bytes)
        reserved = max(held, min(int(point.reserved_bytes), self.budget.limit_bytes))
        fitting = next(row for row in self.recording.rows if row.fits and row.form is Form.TIMED)
        return Measurement(
            steps_asked=form.steps,
            steps_executed=form.steps,
            observed_batch=question.batch_size,
            step_seconds=tuple(step * random.choice(point.spread) for _ in range(form.steps - form.warm_up)),
            phases=(PhaseMemory(phase=Phase.FORWARD, peak_allocated_bytes=held, peak_reserved_bytes=reserved),),
            peak_allocated_bytes=held,
            peak_reserved_bytes=reserved,
            peak_device_bytes=reserved,
            allocator_cap_bytes=self.budget.limit_bytes,
            composition=fitting.composition,
            first_step_seconds=first_step_s,
        )

    def _repeated(self, question: Question, row: Row) -> ProbeResult:
        """What was recorded: a failure, or a comparison."""
        if row.cause is None:
            return self._answer(question, _ALIKE, row.seconds)
        return self._answer(
            question, Measurement(), row.seconds, row.outcome, Failure(cause=row.cause, message=row.message)
        )

    def _too_large(self, question: Question, point: Point) -> ProbeResult:
        """A size larger than any that was recorded; it takes what the first recorded out-of-memory took."""
        recorded = (row.seconds for row in self.recording.rows if row.outcome is Outcome.OUT_OF_MEMORY)
        seconds = next(recorded, point.other_s + point.first_step_s)
        failure = Failure(cause=Cause.DEVICE_MEMORY, message="more than the cap, by the sizes that were recorded")
        return self._answer(question, Measurement(), seconds, Outcome.OUT_OF_MEMORY, failure)

    def _answer(
        self,
        question: Question,
        measurement: Measurement,
        seconds: float,
        outcome: Outcome = Outcome.FITS,
        failure: Failure | None = None,
    ) -> ProbeResult:
        return ProbeResult(
            batch_size=question.batch_size,
            form=question.form,
            reason=question.reason,
            outcome=outcome,
            failure=failure,
            measurement=measurement,
            budget_bytes=self.budget.limit_bytes,
            launcher="replay",
            started_at=_STARTED,
            seconds=seconds,
            settings=question.settings,
        )


_ALIKE = Measurement(comparison=Comparison())


def _compiles_alike(question: Question, other: Question) -> bool:
    """Whether the compiler had done the same work before: in a probe that trains, at the same size."""
    same = family_of(question.settings) == family_of(other.settings)
    return same and question.batch_size == other.batch_size and other.form is not Form.COMPARE
