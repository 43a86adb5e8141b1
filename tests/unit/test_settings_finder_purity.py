"""Whatever the probes say, the settings finder ends, answers only what was certified, and depends on the history alone."""

from dataclasses import replace
from random import Random

import pytest

from autotune.model import Form, Objective, Outcome, Precision, ProbeResult, Reason, Settings, Stop
from autotune.search.allocators import BestAllocator
from autotune.search.apart import plain
from autotune.search.batch import BatchFinder
from autotune.search.settings import SettingsFinder
from tests.fakes import BUDGET, FAULTS, Fault, drive, result
from tests.unit.planted_settings import CHANGES_TRAINING, UNSUPPORTED, PlantedMachine, space_of
from tests.unit.planted_settings_searches import finder_for, found, random_machine, search

EXPANDABLE = "expandable_segments:True"


def troubled(seed: int) -> PlantedMachine:
    """Fails at random, in ways of its own choice, and says something else each time it is asked."""
    machine = random_machine(seed, noise=0.02)
    random = Random(seed)
    faults, rate = random.sample((*FAULTS, UNSUPPORTED), 4), random.choice([0.05, 0.2, 0.5])
    quiet = random.choice([0, 3, 8])

    def fails(settings: Settings, size: int, form: Form) -> Fault | None:
        if settings == Settings() and len(machine.asked) <= quiet:
            return None
        return random.choice(faults) if random.random() < rate else None

    machine.fails = fails
    machine.compares = lambda settings: CHANGES_TRAINING if random.random() < rate else None
    return machine


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(12))
def test_under_trouble_it_ends_and_answers_only_what_was_certified_and_compared(
    seed: int, objective: Objective
) -> None:
    options: dict[str, object] = {"objective": objective}
    if seed % 3 == 1:
        options["effective_batch"] = 96
    if seed % 4 == 2:
        options["time_budget_s"] = 120.0
    machine = troubled(seed)
    stop, history = search(machine, **options)
    assert stop.reason.endswith(".") and any(letter.isdigit() for letter in stop.reason)
    answer = stop.answer
    if answer is None:
        return
    assert answer.settings is not None
    for size in (answer.max_batch, answer.recommended_batch):
        assert any(
            p.batch_size == size and p.form is Form.LONG and p.fits and p.settings == answer.settings for p in history
        )
    if plain(answer.settings) != Settings():
        compared = [p for p in history if p.form is Form.COMPARE and plain(p.settings) == plain(answer.settings)]
        own = [p for p in history if plain(p.settings) == Settings() and p.fits]
        assert any(p.fits for p in compared) or not own
    if seed % 3 == 1:
        assert answer.recommended_batch * answer.settings.accumulate == 96


@pytest.mark.parametrize("seed", range(6))
def test_every_prefix_of_a_history_leads_to_the_same_next_probe(seed: int) -> None:
    """So an interrupted search goes on exactly where it stopped."""
    machine = troubled(seed) if seed % 2 else random_machine(seed, noise=0.01)
    stop, history = search(machine)
    replayed = [finder_for(machine).ask(tuple(history[:end])) for end in range(len(history) + 1)]
    assert replayed == [*machine.asked, stop]


def test_asking_does_not_touch_the_history() -> None:
    machine = random_machine(1)
    _, history = search(machine)
    before = tuple(history)
    finder = finder_for(machine)
    assert finder.ask(history) == finder.ask(history)
    assert finder.conclude(history) == finder.conclude(history)
    assert tuple(history) == before


def test_probes_of_another_space_or_of_other_bounds_make_no_difference() -> None:
    machine = random_machine(2)
    machine.space = space_of(forbid=("precision=fp16", "attention"))
    stop, history = search(machine, batch={"multiple_of": 2, "max_batch": 64})
    others = [
        result(8, Form.TIMED, reason=Reason.CHANGE, step_seconds=1e-6, settings=Settings(precision=Precision.FP16)),
        result(3, Form.TIMED, reason=Reason.BASELINE, step_seconds=1e-6),
        result(128, Form.LONG, reason=Reason.CERTIFY, step_seconds=1e-6),
        result(8, Form.COMPARE, reason=Reason.COMPARE, settings=Settings(attention="cudnn")),  # type: ignore[arg-type]
    ]
    finder = finder_for(machine, batch={"multiple_of": 2, "max_batch": 64})
    for end in range(len(history) + 1):
        mixed: list[ProbeResult] = [*others[:2], *history[:end], *others[2:]]
        reply = finder.ask(mixed)
        assert reply == (stop if end == len(history) else machine.asked[end])


@pytest.mark.parametrize("lost", range(12))
def test_a_history_that_lost_probes_still_leads_to_an_answer(lost: int) -> None:
    """What no longer holds under another budget is not handed to a resumed search."""
    stop, history = found(4).stop, found(4).history
    machine = random_machine(4)
    assert stop.answer is not None
    rest = [p for n, p in enumerate(history) if n != lost and n != lost + 1]

    class Resumed:
        def ask(self, more: tuple[ProbeResult, ...]) -> object:
            return finder_for(machine).ask([*rest, *more])

    again, _ = drive(Resumed(), machine, machine.budget, at_most=60)  # type: ignore[arg-type]
    assert again.answer is not None and again.answer.settings is not None
    assert machine.throughput(again.answer.settings, again.answer.recommended_batch) >= 0.9 * machine.best


def test_a_device_that_others_use_too_unsteadily_is_not_probed_for_ever() -> None:
    machine = random_machine(1)
    others = Fault(outcome=Outcome.UNRELIABLE, cause=CHANGES_TRAINING.cause)
    machine.fails = lambda s, n, form: others if len(machine.asked) > 6 else None
    stop, history = search(machine)
    assert stop.answer is not None and stop.answer.settings == Settings()
    assert len(history) < 25


def test_another_allocator_is_only_part_of_the_search_for_the_limit() -> None:
    """Where the user left it open, and no knob of the space varies it."""
    machine = PlantedMachine(space=space_of(allow=("precision",)), memory={("allocator", EXPANDABLE): -0.1})
    original = machine.probe

    def probe(question: object, budget: object, reserve_bytes: int) -> ProbeResult:
        answer = original(question, budget, reserve_bytes)  # type: ignore[arg-type]
        if answer.failure is not None and not answer.settings.allocator:
            answer = replace(answer, failure=replace(answer.failure, fragmented=True))
        return answer

    machine.probe = probe  # type: ignore[method-assign]
    finder = SettingsFinder(finder=BestAllocator(BatchFinder(), (EXPANDABLE,)), space=machine.space)
    stop, history = drive(finder, machine, machine.budget)
    assert isinstance(stop, Stop) and stop.answer is not None and stop.answer.settings is not None
    assert stop.answer.settings == Settings(allocator=EXPANDABLE)
    assert stop.answer.max_batch == machine.limit(stop.answer.settings) > machine.limit(Settings())
    assert BUDGET and all(p.reason is not Reason.SAMPLED for p in history)
