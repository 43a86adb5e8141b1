"""The loop: what it hands to the prober, and how it ends when time is out."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autotune.model import Answer, Budget, Form, ProbeResult, Question, Reason, Stop
from autotune.tuner import tune
from tests.fakes import BUDGET, result

ANSWER = Answer(max_batch=1, refuted_at=None, recommended_batch=1, limited_by="not_searched", step=1, complete=False)


@dataclass
class Machine:
    """Answers anything; each probe holds so many bytes outside the allocator."""

    outside_bytes: list[int]
    reserved: list[int] = field(default_factory=list)

    def probe(self, question: Question, budget: Budget, reserve_bytes: int) -> ProbeResult:
        self.reserved.append(reserve_bytes)
        seen = result(question.batch_size, question.form)
        outside_bytes = self.outside_bytes.pop(0)
        return replace(seen, measurement=replace(seen.measurement, non_pytorch_bytes=outside_bytes))


class Nobody:
    """Keeps and tells nothing."""

    def add(self, result: ProbeResult) -> None:
        pass

    def asked(self, question: Question, number: int) -> None:
        pass

    def answered(self, result: ProbeResult, number: int) -> None:
        pass


@dataclass
class Upwards:
    """Asks 1, 2, 3 and stops."""

    def ask(self, history: Sequence[ProbeResult]) -> Question | Stop:
        if len(history) == 3:
            return Stop(reason="done", answer=None)
        return Question(batch_size=len(history) + 1, form=Form.SHORT, reason=Reason.GROW)


def test_a_probe_reserves_the_most_that_any_before_it_was_seen_to_hold() -> None:
    machine = Machine([5, 9, 7])
    tune(Upwards(), machine, Nobody(), Nobody(), BUDGET)
    assert machine.reserved == [0, 5, 9]


def test_what_is_known_from_elsewhere_is_reserved_from_the_first_probe_on() -> None:
    machine = Machine([5, 9, 7])
    tune(Upwards(), machine, Nobody(), Nobody(), BUDGET, reserve_bytes=6)
    assert machine.reserved == [6, 6, 9]


def test_when_time_is_out_what_stands_by_then_is_concluded_from_all_that_was_probed() -> None:
    machine, seen = Machine([0, 0, 0]), list[int]()

    def conclude(history: Sequence[ProbeResult]) -> Stop:
        seen.extend(probe.batch_size for probe in history)
        return Stop(reason="time", answer=ANSWER)

    stop, probes = tune(
        Upwards(), machine, Nobody(), Nobody(), BUDGET, (), lambda: len(machine.reserved) == 2, conclude
    )
    assert stop is not None and stop.answer == ANSWER
    assert seen == [probe.batch_size for probe in probes] == [1, 2]


def test_without_anything_to_conclude_there_is_no_stop() -> None:
    stop, probes = tune(Upwards(), Machine([]), Nobody(), Nobody(), BUDGET, (), lambda: True)
    assert (stop, probes) == (None, ())
