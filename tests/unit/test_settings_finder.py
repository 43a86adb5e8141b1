"""The settings finder on planted machines: how near it comes to the truth, at what cost, and never below what the user has."""

from functools import cache
from statistics import mean

import pytest

from autotune.model import Compile, Form, MemoryFormat, Objective, OptimizerKind, Precision, Reason, Settings
from autotune.search.apart import plain
from autotune.search.settings import spent
from tests.unit.planted_settings import CHANGES_TRAINING, UNSUPPORTED, PlantedMachine, space_of
from tests.unit.planted_settings_searches import checked, found, random_machine, search, searched

BUNDLE = Settings(precision=Precision.BF16, optimizer=OptimizerKind.FUSED, memory_format=MemoryFormat.CHANNELS_LAST)


def hurting(worth: float = -0.1) -> PlantedMachine:
    """Every change of every knob slows training down."""
    space = space_of()
    return PlantedMachine(space=space, speed={(k, v): worth for k in space.knobs for v in space.values(k)[1:]})


@cache
def best_there_is(seed: int) -> float:
    """The truth of a random machine, worked out once: what is measured is noisy, not the machine."""
    return random_machine(seed).best


@pytest.mark.parametrize("noise", [0.0, 0.01], ids=["exact", "noisy"])
def test_little_is_lost_against_the_truth_at_a_small_part_of_the_cost(noise: float) -> None:
    """Each change below 1 % is left out on purpose, and a size within 2 % of the best is good enough."""
    of_settings, of_answer, seconds = [], [], []
    for seed in range(30):
        search_made = found(seed, noise)
        machine, history, best = search_made.machine, search_made.history, best_there_is(seed)
        answer = checked(machine, search_made.stop, history)
        assert answer.settings is not None
        of_settings.append(1 - machine.best_of(plain(answer.settings)) / best)
        of_answer.append(1 - machine.throughput(answer.settings, answer.recommended_batch) / best)
        seconds.append(spent(history))
        assert machine.throughput(answer.settings, answer.recommended_batch) >= machine.best_of(machine.space.base)
        assert len(history) <= 35
        tried = {(plain(p.settings), p.batch_size) for p in history if p.form in (Form.TIMED, Form.SHORT)}
        assert sum(settings.compile is not Compile.OFF for settings, _ in tried) <= 3
    assert mean(of_settings) <= 0.01 and max(of_settings) <= 0.025
    assert mean(of_answer) <= 0.02 and max(of_answer) <= 0.045
    assert max(seconds) <= 250, "1,408 combinations would take ten hours"


def test_what_is_known_to_pay_comes_first_and_the_users_own_settings_before_it() -> None:
    history = found(2).history
    changed = [p for p in history if plain(p.settings) != Settings()]
    first = history.index(changed[0])
    assert all(p.settings == Settings() for p in history[:first])
    assert [p for p in history[:first] if p.form is Form.LONG and p.fits], "an answer stands before anything is tried"
    assert (changed[0].settings, changed[0].reason, changed[0].form) == (BUNDLE, Reason.KNOWN, Form.TIMED)
    assert (changed[1].settings, changed[1].form) == (BUNDLE, Form.COMPARE)


def test_single_changes_are_found_before_anything_is_compiled_so_that_it_is_compiled_once() -> None:
    machine = PlantedMachine(
        space=space_of(),
        speed={("precision", "bf16"): 0.5, ("cudnn_benchmark", True): 0.08, ("compile", "default"): 0.4},
    )
    answer, history = searched(machine)
    assert answer.settings is not None
    assert (answer.settings.cudnn_benchmark, answer.settings.compile) == (True, Compile.DEFAULT)
    compiled = [p for p in history if p.settings.compile is not Compile.OFF]
    assert [p.form for p in compiled] == [Form.TIMED, Form.COMPARE, Form.LONG]


def test_in_bf16_even_where_fp16_was_the_fastest_before_compiling() -> None:
    machine = PlantedMachine(
        space=space_of(allow=("precision", "compile")),
        speed={("precision", "bf16"): 0.5, ("precision", "fp16"): 0.75, ("compile", "default"): 0.1},
        pairs={
            (("compile", "default"), ("precision", "bf16")): 0.4,
            (("compile", "default"), ("precision", "fp16")): 0.12,
        },
    )
    answer, history = searched(machine)
    assert answer.settings is not None
    assert (answer.settings.precision, answer.settings.compile) == (Precision.BF16, Compile.DEFAULT)
    assert machine.best_of(plain(answer.settings)) == machine.best
    assert all(p.settings.precision is Precision.BF16 for p in history if p.settings.compile is not Compile.OFF)


def test_where_compiling_is_not_to_be_had_fp16_is_found_by_changing_one_knob() -> None:
    machine = PlantedMachine(
        space=space_of(forbid=("compile",)), speed={("precision", "bf16"): 0.5, ("precision", "fp16"): 0.75}
    )
    answer, history = searched(machine)
    assert answer.settings is not None and answer.settings.precision is Precision.FP16
    assert any(p.settings.precision is Precision.FP16 and p.reason is Reason.CHANGE for p in history)


def test_the_users_own_settings_are_the_answer_where_every_change_hurts() -> None:
    machine = hurting()
    answer, history = searched(machine)
    assert answer.settings == Settings()
    assert machine.throughput(Settings(), answer.recommended_batch) >= 0.98 * machine.best
    assert answer.refuted_at == machine.limit(Settings()) + 1, "and their limit is looked for, as it is the answer"
    assert len(history) <= 20


def test_a_gain_of_less_than_one_percent_is_not_worth_a_change() -> None:
    answer, _ = searched(PlantedMachine(space=space_of(), speed={("optimizer", "fused"): 0.008}))
    assert answer.settings == Settings()


def test_of_two_that_are_as_fast_the_one_with_fewer_changes_is_recommended() -> None:
    machine = PlantedMachine(space=space_of(allow=("precision", "cudnn_benchmark")), speed={("precision", "bf16"): 0.5})
    answer, history = searched(machine)
    assert answer.settings == Settings(precision=Precision.BF16)
    assert any(p.settings.cudnn_benchmark for p in history)


def test_close_rivals_are_measured_again_and_not_chosen_by_noise() -> None:
    again = 0
    for seed in range(10):
        space = space_of(allow=("precision", "cudnn_benchmark"))
        speed: dict[tuple[str, object], float] = {("precision", "bf16"): 0.5, ("cudnn_benchmark", True): 0.013}
        machine = PlantedMachine(space=space, speed=speed, noise=0.03, seed=seed)
        answer, history = searched(machine)
        assert answer.settings is not None and answer.settings.precision is Precision.BF16
        repeated = [p for p in history if p.reason is Reason.RETRY]
        again += len(repeated)
        assert len(repeated) <= 6 and all(p.form is Form.TIMED for p in repeated)
    assert again > 0


def test_the_fastest_that_changes_the_training_is_not_recommended_nor_built_upon() -> None:
    machine = PlantedMachine(
        space=space_of(),
        speed={("precision", "bf16"): 0.5, ("memory_format", "channels_last"): 0.9, ("compile", "default"): 0.3},
        compares=lambda s: CHANGES_TRAINING if s.memory_format is MemoryFormat.CHANNELS_LAST else None,
    )
    answer, history = searched(machine)
    assert answer.settings is not None
    assert (answer.settings.memory_format, answer.settings.compile) == (MemoryFormat.DEFAULT, Compile.DEFAULT)
    assert machine.throughput(answer.settings, answer.recommended_batch) >= 0.96 * machine.best
    assert not [
        p
        for p in history
        if p.settings.memory_format is MemoryFormat.CHANNELS_LAST and p.settings.compile is not Compile.OFF
    ]


def test_a_compiled_model_that_trains_something_else_leaves_the_answer_to_the_others() -> None:
    machine = PlantedMachine(
        space=space_of(),
        speed={("precision", "bf16"): 0.5, ("compile", "default"): 0.6, ("compile", "reduce-overhead"): 0.7},
        compares=lambda s: CHANGES_TRAINING if s.compile is not Compile.OFF else None,
    )
    answer, history = searched(machine)
    assert answer.settings is not None
    assert (answer.settings.precision, answer.settings.compile) == (Precision.BF16, Compile.OFF)
    assert {p.settings.compile for p in history} == {Compile.OFF, Compile.DEFAULT}, "its other modes share the blame"


@pytest.mark.parametrize("objective", list(Objective))
def test_where_nothing_else_is_supported_the_users_own_settings_are_the_answer(objective: Objective) -> None:
    machine = PlantedMachine(space=space_of(), fails=lambda s, n, f: UNSUPPORTED if s != Settings() else None)
    answer, _ = searched(machine, objective=objective)
    assert answer.settings == Settings()


def test_unsupported_values_are_not_tried_again_once_they_are_known() -> None:
    machine = PlantedMachine(
        space=space_of(),
        speed={("precision", "bf16"): 0.5, ("memory_format", "channels_last"): 0.5},
        fails=lambda s, n, f: UNSUPPORTED if s.optimizer is OptimizerKind.FUSED else None,
    )
    answer, history = searched(machine)
    assert answer.settings is not None
    assert (answer.settings.precision, answer.settings.memory_format) == ("bf16", "channels_last")
    assert sum(not p.fits for p in history if p.settings.optimizer is OptimizerKind.FUSED) <= 2


def test_settings_that_need_more_memory_than_the_users_are_timed_at_a_smaller_batch() -> None:
    machine = PlantedMachine(
        space=space_of(allow=("precision",)),
        speed={("precision", "bf16"): 0.6},
        memory={("precision", "bf16"): 0.5},
    )
    answer, history = searched(machine)
    assert answer.settings == Settings(precision=Precision.BF16)
    assert answer.recommended_batch <= machine.limit(answer.settings) < machine.limit(Settings())
    assert sum(not p.fits for p in history if p.form is Form.TIMED) <= 3


def test_checkpointing_is_worth_it_where_only_few_samples_fit_without() -> None:
    machine = PlantedMachine(
        space=space_of(allow=("checkpointing",)),
        speed={("checkpointing", "own"): -0.2, ("checkpointing", "alternate"): -0.1},
        memory={("checkpointing", "own"): -1.5, ("checkpointing", "alternate"): -0.6},
        sample_bytes=18_000 << 20,
        half=4,
    )
    answer, _ = searched(machine)
    assert machine.limit(Settings()) == 2
    assert answer.settings is not None and answer.settings.checkpointing == "own"
    assert machine.throughput(answer.settings, answer.recommended_batch) >= 0.97 * machine.best


def test_what_the_user_demands_is_in_every_answer() -> None:
    machine = random_machine(3)
    machine.space = space_of(fix=("precision=fp16", "optimizer=fused"))
    answer, history = searched(machine)
    assert answer.settings is not None
    assert (answer.settings.precision, answer.settings.optimizer) == (Precision.FP16, OptimizerKind.FUSED)
    assert history[0].settings == Settings(), "the user's own are measured all the same"


def test_what_the_user_demands_gives_way_where_it_trains_something_else() -> None:
    machine = random_machine(3)
    machine.space = space_of(fix=("precision=fp16",))
    machine.compares = lambda s: CHANGES_TRAINING if s.precision is Precision.FP16 else None
    answer, _ = searched(machine)
    assert answer.settings == Settings()


def test_the_baselines_own_trouble_ends_the_search() -> None:
    machine = PlantedMachine(space=space_of(), fails=lambda s, n, f: UNSUPPORTED)
    stop, history = search(machine)
    assert stop.answer is None
    assert all(p.settings == Settings() for p in history)
