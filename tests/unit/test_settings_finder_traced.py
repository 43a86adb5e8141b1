"""The settings finder where the allocator is recorded: one recording foretells where to compare, another the winner's limit."""

from dataclasses import dataclass, field, replace

from autotune.model import (
    Answer,
    Budget,
    Comparison,
    Form,
    Measurement,
    Precision,
    ProbeResult,
    Question,
    Reason,
    Settings,
)
from autotune.search.batch import BatchFinder
from autotune.search.settings import SettingsFinder
from autotune.units import MIB
from tests.fakes import drive
from tests.unit.planted_device import PlantedDevice
from tests.unit.planted_searches import NET
from tests.unit.planted_settings import space_of

BF16 = Settings(precision=Precision.BF16)


@dataclass
class Recorder:
    """Memory of a planted device, the same for all settings; bf16 is faster or slower."""

    bf16: float
    device: PlantedDevice = field(default_factory=lambda: PlantedDevice(workload=NET, limit_bytes=1500 * MIB))
    half: float = 1.0

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        answer = self.device.probe(question, budget, reserve_bytes)
        factor = self.bf16 if question.settings.precision is Precision.BF16 else 1.0
        timed = answer.fits and question.trace_unit is None and question.form is not Form.COMPARE
        seconds = (question.batch_size + self.half) / 100 / factor
        measured: Measurement = replace(
            answer.measurement,
            step_seconds=(seconds,) * (question.form.steps - question.form.warm_up) if timed else (),
            comparison=Comparison() if question.form is Form.COMPARE else None,
        )
        return replace(answer, measurement=measured)


def searched(machine: Recorder) -> tuple[Answer, list[ProbeResult]]:
    finder = SettingsFinder(finder=BatchFinder(trace=True), space=space_of(allow=("precision=bf16",)))
    stop, history = drive(finder, machine, machine.device.budget)
    assert stop.answer is not None, stop.reason
    return stop.answer, history


def limit(machine: Recorder) -> int:
    (found,) = machine.device.limits(200)
    return found


def test_the_users_own_settings_are_compared_near_the_foretold_limit_after_two_probes() -> None:
    machine = Recorder(bf16=2.0)
    _, history = searched(machine)
    opening = [p for p in history if p.settings == Settings()]
    assert [(p.reason, p.form) for p in opening[:2]] == [(Reason.TRACE, Form.SHORT), (Reason.BASELINE, Form.LONG)]
    assert 0.8 * limit(machine) <= opening[1].batch_size <= 0.9 * limit(machine)
    assert len(opening) <= 3, "their limit is not looked for: they are not the answer"
    known = next(p for p in history if p.settings == BF16)
    assert (known.reason, known.form, known.batch_size) == (Reason.KNOWN, Form.TIMED, opening[1].batch_size)


def test_the_winners_limit_is_foretold_from_a_recording_of_its_own() -> None:
    machine = Recorder(bf16=2.0)
    answer, history = searched(machine)
    assert answer.settings == BF16
    assert answer.max_batch == limit(machine)
    assert answer.refuted_at == limit(machine) + 1
    own = [p.reason for p in history if p.settings == BF16 and p.reason is not Reason.RECOMMEND]
    assert own == [Reason.KNOWN, Reason.COMPARE, Reason.TRACE, Reason.PREDICTED, Reason.REFUTE]
    assert len(history) <= 11


def test_the_users_own_recording_serves_again_where_they_are_the_answer() -> None:
    machine = Recorder(bf16=0.5)
    answer, history = searched(machine)
    assert answer.settings == Settings()
    assert answer.max_batch == limit(machine)
    assert [p.reason for p in history].count(Reason.TRACE) == 1
    assert sum(not p.fits for p in history) == 1


def test_where_a_smaller_batch_is_as_fast_settings_are_compared_at_it() -> None:
    machine = Recorder(bf16=2.0, half=0.0)
    _, history = searched(machine)
    known = next(p for p in history if p.settings == BF16)
    assert known.batch_size <= limit(machine) / 4
