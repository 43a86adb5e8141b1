"""Time: the budget is kept, compiling keeps within its share, and an answer stands at every moment."""

from dataclasses import replace

import pytest

from autotune.errors import UsageError
from autotune.model import Cause, Compile, Form, Measurement, Outcome, Precision, ProbeResult, Question, Settings, Stop
from autotune.search.apart import plain
from autotune.search.settings import spent
from autotune.search.settings.certify import answer_at
from autotune.search.settings.spending import Spending, compile_seconds
from autotune.search.settings.view import View
from tests.fakes import Fault, result
from tests.unit.planted_settings import PlantedMachine, space_of
from tests.unit.planted_settings_searches import finder_for, found, random_machine, search, searched

COMPILED = Settings(compile=Compile.DEFAULT)


def fast_compiled() -> PlantedMachine:
    return PlantedMachine(space=space_of(), speed={("precision", "bf16"): 0.5, ("compile", "default"): 0.6})


@pytest.mark.parametrize("seed", range(5))
def test_at_every_moment_the_best_that_is_certified_and_compared_stands(seed: int) -> None:
    machine, stop, history = found(seed).machine, found(seed).stop, found(seed).history
    finder = finder_for(machine)
    for end in range(len(history) + 1):
        known = history[:end]
        standing = finder.conclude(known)
        certified = [
            p
            for p in known
            if p.form is Form.LONG
            and p.fits
            and (p.settings == Settings() or any(c.form is Form.COMPARE and c.settings == p.settings for c in known))
        ]
        assert (standing is None) == (not certified)
        if standing is None:
            continue
        answer = standing.answer
        assert answer is not None and answer.settings is not None and not answer.complete
        best = max(p.samples_per_second or 0.0 for p in certified)
        assert machine.throughput(answer.settings, answer.recommended_batch) >= 0.97 * best
    assert stop.answer is not None and standing is not None and standing.answer is not None
    assert standing.answer.settings == stop.answer.settings


@pytest.mark.parametrize("budget_s", [12.0, 20.0, 30.0, 60.0, 120.0, 240.0])
def test_a_time_budget_is_kept_within_one_probe_and_what_was_found_is_certified_in_time(budget_s: float) -> None:
    complete = 0
    for seed in range(6):
        machine = random_machine(seed)
        history: list[ProbeResult] = []
        finder = finder_for(machine, time_budget_s=budget_s)
        while isinstance(reply := finder.ask(history), Question) and spent(history) < budget_s:
            history.append(machine.probe(reply, machine.budget, 0))
        stop = finder.conclude(history) if isinstance(reply, Question) else reply
        complete += isinstance(reply, Stop)
        assert spent(history[:-1]) < budget_s
        assert stop is not None and stop.answer is not None and stop.answer.settings is not None
        own = max(p.samples_per_second or 0.0 for p in history if p.settings == Settings())
        assert machine.throughput(stop.answer.settings, stop.answer.recommended_batch) >= 0.98 * own
    assert complete == 6 or budget_s <= 20, "from half a minute on it ends by itself"


def test_an_answer_that_more_time_would_have_improved_says_so() -> None:
    complete = {}
    for budget_s in (12.0, 60.0, 240.0, 1000.0, None):
        stop, history = search(random_machine(3), time_budget_s=budget_s)
        assert stop.answer is not None
        complete[budget_s] = stop.answer.complete
        assert ("Time ran out" in stop.reason) is not stop.answer.complete
        assert any(p.settings.compile is not Compile.OFF for p in history) == (budget_s is None or budget_s > 60)
    assert complete == {12.0: False, 60.0: False, 240.0: True, 1000.0: True, None: True}, (
        "60 s are too short to compile"
    )


def test_the_largest_batch_is_the_largest_certified_one_however_small_the_recommended_one_is() -> None:
    """As where a machine was busy while the larger one was certified, so that the smaller one seems faster."""
    oom = Fault(outcome=Outcome.OUT_OF_MEMORY, cause=Cause.DEVICE_MEMORY)
    history = [result(32, Form.LONG), result(40, Form.SHORT, oom), result(8, Form.LONG)]
    view = View.of(finder_for(fast_compiled()).asked, history)
    answer = answer_at(view, view.row_of(Settings()), 8)
    assert (answer.recommended_batch, answer.max_batch, answer.refuted_at) == (8, 32, 40)


def test_more_time_is_never_worse_spent() -> None:
    machine, reached = fast_compiled(), []
    for budget_s in (12.0, 40.0, 300.0):
        answer, _ = searched(machine, time_budget_s=budget_s)
        assert answer.settings is not None
        reached.append(machine.throughput(answer.settings, answer.recommended_batch))
    assert reached[0] <= reached[1] < reached[2]


def test_compiling_takes_at_most_its_share_of_the_time_and_it_is_said_what_was_left_out() -> None:
    machine = fast_compiled()
    stop, history = search(machine, time_budget_s=100.0)
    assert stop.answer is not None and stop.answer.settings is not None
    assert stop.answer.settings.compile is Compile.OFF
    assert not [p for p in history if p.settings.compile is not Compile.OFF]
    assert "torch.compile was left out" in stop.reason

    stop, history = search(fast_compiled(), time_budget_s=200.0)
    assert stop.answer is not None and stop.answer.settings is not None
    assert stop.answer.settings.compile is Compile.DEFAULT
    assert sum(map(compile_seconds, history)) <= 100.0

    stop, history = search(fast_compiled(), time_budget_s=200.0, compile_share=0.0)
    assert not [p for p in history if p.settings.compile is not Compile.OFF]


def test_without_a_time_budget_three_pairs_of_settings_and_size_are_compiled_at_most() -> None:
    for seed in range(10):
        history = found(seed).history
        pairs = {
            (plain(p.settings), p.batch_size)
            for p in history
            if p.settings.compile is not Compile.OFF and p.form is not Form.COMPARE
        }
        assert len(pairs) <= 3


def test_settings_of_the_user_that_compile_already_do_not_count() -> None:
    machine = PlantedMachine(space=space_of(base=COMPILED), speed={("precision", "bf16"): 0.5})
    answer, history = searched(machine)
    assert answer.settings is not None and answer.settings.precision is Precision.BF16
    assert spent(history) < 600


def test_compile_seconds_are_those_of_the_first_step_beyond_a_usual_one() -> None:
    probe = result(8, Form.TIMED, step_seconds=2.0, settings=COMPILED)
    assert compile_seconds(probe) == 1.0, "not measured: the whole probe"
    assert compile_seconds(result(8, step_seconds=2.0)) == 0.0
    measured = Measurement(step_seconds=(2.0, 2.0), first_step_seconds=33.0)
    assert compile_seconds(replace(probe, measurement=measured)) == 31.0


def test_the_account_of_an_empty_history_expects_what_is_usual() -> None:
    account = Spending((), Settings(), 100.0, 0.5)
    assert (account.total_s, account.compile_s) == (0.0, 0.0)
    assert account.compile_once_s >= 10 * account.eager_s > 0


@pytest.mark.parametrize("options", [{"trials": -1}, {"compile_share": 1.5}])
def test_options_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        finder_for(fast_compiled(), **options)
