"""The search of settings on planted machines, where brute force over all settings and sizes tells the truth."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

import pytest

from autotune.errors import UsageError
from autotune.model import (
    Answer,
    Checkpointing,
    Compile,
    Form,
    Objective,
    Outcome,
    Precision,
    ProbeResult,
    Question,
    Reason,
    Settings,
    Stop,
)
from autotune.search.batch import BatchFinder
from autotune.search.settings import SettingsFinder
from autotune.search.settings.rows import plain
from autotune.units import MIB
from tests.fakes import Fault, drive
from tests.unit.planted_settings import CHANGES_TRAINING, UNSUPPORTED, PlantedMachine, random_machine, space_of

SEEDS = range(12)


def finder_for(machine: PlantedMachine, **options: object) -> SettingsFinder:
    finder = BatchFinder(settings=machine.space.base)
    return SettingsFinder(finder=finder, space=machine.space, **options)  # type: ignore[arg-type]


def search(
    machine: PlantedMachine, *, at_most: int = 60, **options: object
) -> tuple[Answer, list[ProbeResult], SettingsFinder]:
    """Search to the end, and check what holds of every answer."""
    finder = finder_for(machine, **options)
    stop, history = drive(finder, machine, machine.budget, at_most=at_most)
    answer = stop.answer
    assert answer is not None and answer.settings is not None, stop.reason
    certified = [p for p in history if p.form is Form.LONG and p.fits and p.settings == answer.settings]
    assert answer.recommended_batch in {p.batch_size for p in certified}
    assert machine.safe(plain(answer.settings), answer.recommended_batch)
    if plain(answer.settings) != plain(machine.space.base) and machine.limit(machine.space.base):
        compared = [p for p in history if p.form is Form.COMPARE and plain(p.settings) == plain(answer.settings)]
        assert compared and compared[-1].fits, "nothing is recommended that was not shown to train the same"
    return answer, history, finder


def regret(machine: PlantedMachine, answer: Answer) -> float:
    assert answer.settings is not None
    return 1 - machine.throughput(answer.settings, answer.recommended_batch) / machine.best


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_on_random_machines_it_comes_within_two_percent_of_the_best_on_average(noise: float) -> None:
    """384 combinations and more; the counts are what it needs today."""
    regrets = []
    for seed in SEEDS:
        machine = random_machine(seed, noise=noise)
        answer, history, _ = search(machine, seed=seed)
        regrets.append(regret(machine, answer))
        own = machine.best_of(machine.space.base)
        assert answer.settings is not None
        assert machine.throughput(answer.settings, answer.recommended_batch) >= own, "never slower than the user's own"
        assert len(history) <= 24
        compiled = {(plain(p.settings), p.batch_size) for p in history if p.settings.compile is not Compile.OFF}
        assert len({pair for pair in compiled if pair[1] != 8}) <= 3
    assert max(regrets) < 0.04
    assert mean(regrets) < 0.02


def test_the_users_own_settings_are_the_answer_where_every_change_hurts() -> None:
    speed: dict[tuple[str, object], float] = {
        (knob, value): -0.2 for knob in space_of().knobs for value in space_of().values(knob)[1:]
    }
    machine = PlantedMachine(space=space_of(), speed=speed)
    answer, history, _ = search(machine)
    assert answer.settings == Settings()
    assert sum(p.settings.compile is not Compile.OFF for p in history) <= 2


def test_the_baseline_is_always_measured_first() -> None:
    machine = random_machine(3)
    _, history, _ = search(machine)
    first = next(i for i, p in enumerate(history) if p.settings != Settings())
    assert any(p.form is Form.LONG and p.fits for p in history[:first])


def bf16_is_fast(**facts: object) -> PlantedMachine:
    space = space_of(allow=("precision", "optimizer"))
    speed = {("precision", "bf16"): 0.9, ("precision", "tf32"): 0.5, ("precision", "fp16"): 0.7}
    return PlantedMachine(space=space, speed=speed, **facts)  # type: ignore[arg-type]


def test_c29_settings_that_train_something_else_are_rejected_and_the_next_best_is_found() -> None:
    def compares(settings: Settings) -> Fault | None:
        return CHANGES_TRAINING if settings.precision is Precision.BF16 else None

    machine = bf16_is_fast(compares=compares)
    answer, history, _ = search(machine)
    assert answer.settings is not None and answer.settings.precision is Precision.FP16
    assert regret(machine, answer) < 0.01
    rejected = [p for p in history if p.outcome is Outcome.CHANGES_TRAINING]
    assert len(rejected) == 2, "with another change, and alone: then the value that is to blame is known"
    last = history.index(rejected[-1])
    assert all(p.settings.precision is not Precision.BF16 for p in history[last + 1 :])


def test_settings_that_are_not_supported_end_nothing() -> None:
    def fails(settings: Settings, size: int, form: Form) -> Fault | None:
        return UNSUPPORTED if plain(settings) != Settings() else None

    machine = bf16_is_fast(fails=fails)
    answer, history, _ = search(machine)
    assert answer.settings == Settings()
    assert any(p.outcome is Outcome.UNSUPPORTED for p in history)


def test_where_the_users_own_settings_fit_at_no_size_others_are_tried() -> None:
    space = space_of(allow=("checkpointing", "precision"))
    memory: dict[tuple[str, object], float] = {("checkpointing", "own"): -1.0, ("checkpointing", "alternate"): -0.2}
    machine = PlantedMachine(space=space, memory=memory, sample_bytes=60_000 * MIB, limit_bytes=40_000 * MIB)
    assert machine.limit(Settings()) == 0
    answer, _, _ = search(machine)
    assert answer.settings is not None and answer.settings.checkpointing is Checkpointing.OWN


def test_c32_the_fastest_batch_is_recommended_apart_from_the_largest() -> None:
    def slower(size: int) -> float:
        return 1 + (max(0, size - 48) / 48) ** 2

    space = space_of(allow=("precision=tf32",))
    machine = PlantedMachine(space=space, slower=slower, sample_bytes=80 * MIB, limit_bytes=40_180 * MIB, half=8)
    assert machine.limit(Settings()) == 496
    answer, _, _ = search(machine)
    assert answer.settings is not None
    assert machine.throughput(answer.settings, answer.recommended_batch) > 0.97 * machine.best
    assert 24 <= answer.recommended_batch <= 72 < answer.max_batch


@pytest.mark.parametrize(
    ("limit", "world", "expected"), [(40, 1, (32, 3)), (40, 2, (24, 2)), (110, 1, (96, 1)), (5, 1, (4, 24))]
)
def test_c33_the_effective_batch_is_held_exactly(limit: int, world: int, expected: tuple[int, int]) -> None:
    space = space_of(allow=("precision=tf32",))
    machine = PlantedMachine(space=space, limit_bytes=500 * MIB + limit * 1000 * MIB, half=20)
    answer, history, _ = search(machine, effective_batch=96, world=world)
    assert answer.settings is not None
    micro, accumulate = answer.recommended_batch, answer.settings.accumulate
    assert micro * accumulate * world == 96
    assert (micro, accumulate) == expected
    proof = [p for p in history if p.form is Form.LONG and p.fits and p.batch_size == micro]
    assert any(p.settings.accumulate == accumulate for p in proof), "certified with the accumulation it is trained with"


def test_an_effective_batch_that_cannot_be_held_is_refused_at_once() -> None:
    machine = PlantedMachine(space=space_of(allow=("precision=tf32",)))
    with pytest.raises(UsageError) as refused:
        finder_for(machine, effective_batch=97, world=2)
    assert "97" in refused.value.message and refused.value.hint


def test_the_objective_may_be_the_batch_or_the_memory() -> None:
    space = space_of(allow=("checkpointing", "precision"))
    memory: dict[tuple[str, object], float] = {
        ("checkpointing", "own"): -1.0,
        ("checkpointing", "alternate"): -0.5,
        ("precision", "bf16"): -0.3,
    }
    speed: dict[tuple[str, object], float] = {
        ("checkpointing", "own"): -0.3,
        ("checkpointing", "alternate"): -0.15,
        ("precision", "bf16"): 0.5,
    }
    for objective in (Objective.BATCH, Objective.MEMORY):
        machine = PlantedMachine(space=space, memory=memory, speed=speed)
        answer, _, _ = search(machine, objective=objective)
        assert answer.settings is not None
        assert (answer.settings.checkpointing, answer.settings.precision) == (Checkpointing.OWN, Precision.BF16)
        if objective is Objective.BATCH:
            assert answer.max_batch == machine.limit(answer.settings)
            assert answer.refuted_at == answer.max_batch + 1


@pytest.mark.parametrize("seed", [0, 5, 9])
def test_it_goes_on_from_every_prefix_of_its_history_as_if_never_interrupted(seed: int) -> None:
    machine = random_machine(seed, noise=0.01)
    answer, history, finder = search(machine, seed=seed)
    for length, asked in enumerate(machine.asked):
        reply = finder_for(machine, seed=seed).ask(tuple(history[:length]))
        assert reply == asked
    stop = finder_for(machine, seed=seed).ask(tuple(history))
    assert isinstance(stop, Stop) and stop.answer == answer
    assert finder.ask(tuple(history)) == stop


@pytest.mark.parametrize("seed", [0, 5, 9])
def test_when_time_is_out_the_best_that_is_certified_stands(seed: int) -> None:
    machine = random_machine(seed)
    _, history, finder = search(machine, seed=seed)
    stood = False
    for length in range(len(history) + 1):
        known = history[:length]
        stop = finder.conclude(tuple(known))
        certified = [p for p in known if p.form is Form.LONG and p.fits]
        assert (stop is not None) == bool(certified)
        if stop is not None:
            assert stop.answer is not None and stop.answer.settings is not None and not stop.answer.complete
            assert any(
                p.settings == stop.answer.settings and p.batch_size == stop.answer.recommended_batch for p in certified
            )
            stood = True
    assert stood


def test_a_time_budget_keeps_enough_for_the_answer() -> None:
    machine = random_machine(1)
    spent_s = sum(p.seconds for p in search(machine, seed=1)[1])
    short = random_machine(1)
    _, history, _ = search(short, seed=1, time_budget_s=spent_s / 3)
    assert sum(p.seconds for p in history) < spent_s / 2


def test_compiling_is_left_out_where_its_share_is_spent_and_the_reason_says_so() -> None:
    machine = random_machine(0)
    stop, history = drive(finder_for(machine, compile_share=0.0, time_budget_s=1000.0), machine, machine.budget)
    assert all(p.settings.compile is Compile.OFF for p in history)
    assert "torch.compile was left out" in stop.reason


def test_a_history_of_another_search_does_not_confuse_it() -> None:
    machine = random_machine(4)
    _, history, _ = search(machine, seed=4)
    narrow = replace_space(machine)
    reply: Question | Stop = finder_for(narrow).ask(tuple(history))
    if isinstance(reply, Question):
        assert reply.settings.compile is Compile.OFF
    else:
        assert reply.answer is not None and reply.answer.settings is not None
        assert reply.answer.settings.compile is Compile.OFF


def replace_space(machine: PlantedMachine) -> PlantedMachine:
    return replace(machine, space=space_of(forbid=("compile",)), asked=[])


def reasons(history: Sequence[ProbeResult]) -> set[Reason]:
    return {p.reason for p in history}


def test_every_proposal_says_why() -> None:
    seen: set[Reason] = set()
    for seed in SEEDS:
        seen |= reasons(search(random_machine(seed), seed=seed)[1])
    assert {Reason.BASELINE, Reason.KNOWN, Reason.CHANGE, Reason.COMPARE, Reason.CERTIFY} <= seen
