"""Real failures of other tuners (C29 to C33, and a search that finds nothing to begin with), on planted machines."""

import pytest

from autotune.errors import UsageError
from autotune.model import Cause, Checkpointing, Compile, Form, Outcome, Precision, Reason, Settings
from autotune.units import MIB
from tests.fakes import NOT_FINITE, SEGFAULT, Fault
from tests.unit.planted_settings import CHANGES_TRAINING, UNSUPPORTED, PlantedMachine, Worth, space_of
from tests.unit.planted_settings_searches import finder_for, search, searched

GRADIENTS_LOST = Fault(outcome=Outcome.CHANGES_TRAINING, cause=Cause.GRADIENTS_LOST)
NO_COMPILER = Fault(outcome=Outcome.UNSUPPORTED, cause=Cause.NOT_SUPPORTED)


def slower_above_48(size: int) -> float:
    """A step whose cost grows faster than the batch above 48."""
    return (10 + size + 0.05 * max(0, size - 48) ** 2) / (10 + size)


def peaked(*knobs: str, speed: Worth) -> PlantedMachine:
    """Throughput peaks at 48; memory ends at 496."""
    return PlantedMachine(
        space=space_of(allow=knobs),
        speed=speed,
        half=10,
        sample_bytes=80 * MIB,
        limit_bytes=(500 + 496 * 80) * MIB,
        slower=slower_above_48,
    )


def test_c29_the_fastest_precision_gives_nan_and_the_next_is_taken() -> None:
    machine = PlantedMachine(
        space=space_of(forbid=("compile",)),
        speed={("precision", "fp16"): 0.9, ("precision", "bf16"): 0.5},
        fails=lambda s, n, form: NOT_FINITE if s.precision is Precision.FP16 else None,
    )
    answer, history = searched(machine)
    assert answer.settings is not None and answer.settings.precision is Precision.BF16
    unstable = [p for p in history if p.settings.precision is Precision.FP16]
    assert [p.outcome for p in unstable] == [Outcome.UNSTABLE], "tried, seen, and blamed on the one value"


def test_c29_nan_that_only_comparing_shows_is_as_good_a_reason() -> None:
    machine = PlantedMachine(
        space=space_of(forbid=("compile",)),
        speed={("precision", "fp16"): 0.9, ("precision", "bf16"): 0.5},
        compares=lambda s: NOT_FINITE if s.precision is Precision.FP16 else None,
    )
    answer, _ = searched(machine)
    assert answer.settings is not None and answer.settings.precision is Precision.BF16


def test_c29_bf16_that_is_emulated_and_slower_is_not_recommended() -> None:
    machine = PlantedMachine(
        space=space_of(),
        speed={("precision", "bf16"): -1.1, ("precision", "tf32"): 0.3, ("precision", "fp16"): 0.5},
    )
    answer, _ = searched(machine)
    assert answer.settings is not None and answer.settings.precision is Precision.FP16
    assert machine.throughput(answer.settings, answer.recommended_batch) >= 0.97 * machine.best


def test_c30_checkpointing_that_stops_gradients_is_rejected_though_it_is_smaller_and_faster() -> None:
    machine = PlantedMachine(
        space=space_of(allow=("checkpointing", "precision")),
        speed={("checkpointing", "own"): 0.3, ("precision", "bf16"): 0.4},
        memory={("checkpointing", "own"): -1.2},
        half=30,
        compares=lambda s: GRADIENTS_LOST if s.checkpointing is Checkpointing.OWN else None,
    )
    answer, _ = searched(machine)
    assert answer.settings is not None
    assert (answer.settings.checkpointing, answer.settings.precision) != (Checkpointing.OWN, Precision.DEFAULT)
    assert answer.settings.checkpointing is not Checkpointing.OWN


@pytest.mark.parametrize("fault", [NO_COMPILER, SEGFAULT], ids=["no_compiler", "segfault"])
def test_c31_where_compiling_fails_late_the_eager_answer_is_delivered(fault: Fault) -> None:
    machine = PlantedMachine(
        space=space_of(),
        speed={("precision", "bf16"): 0.5},
        fails=lambda s, n, form: fault if s.compile is not Compile.OFF else None,
    )
    answer, history = searched(machine)
    assert answer.settings is not None
    assert (answer.settings.compile, answer.settings.precision) == (Compile.OFF, Precision.BF16)
    assert sum(p.settings.compile is not Compile.OFF for p in history) == 1


def test_c31_compiling_that_makes_it_slower_is_not_recommended() -> None:
    machine = PlantedMachine(
        space=space_of(allow=("precision", "compile")),
        speed={("precision", "bf16"): 0.5, ("compile", "default"): -0.2, ("compile", "reduce-overhead"): -0.2},
    )
    answer, history = searched(machine)
    assert answer.settings is not None and answer.settings.compile is Compile.OFF
    assert sum(p.settings.compile is not Compile.OFF for p in history) == 1


def test_c32_the_peak_is_recommended_and_the_largest_batch_kept_apart() -> None:
    machine = peaked("precision", speed={("precision", "bf16"): 0.5})
    answer, _ = searched(machine, batch={"trace": True})
    assert answer.settings == Settings(precision=Precision.BF16)
    assert answer.max_batch == 496
    assert abs(answer.recommended_batch - 48) <= 4


def test_c32_the_same_where_the_users_own_settings_stay() -> None:
    machine = peaked("optimizer", speed={("optimizer", "fused"): -0.1})
    answer, _ = searched(machine)
    assert (answer.settings, answer.max_batch, answer.refuted_at) == (Settings(), 496, 497)
    assert abs(answer.recommended_batch - 48) <= 4


def test_c32_compiled_settings_are_compiled_at_the_peak() -> None:
    machine = peaked("precision", "compile", speed={("precision", "bf16"): 0.5, ("compile", "default"): 0.5})
    answer, _ = searched(machine)
    assert answer.settings is not None and answer.settings.compile is Compile.DEFAULT
    assert abs(answer.recommended_batch - 48) <= 8
    assert machine.throughput(answer.settings, answer.recommended_batch) >= 0.97 * machine.best


def test_c33_96_with_a_limit_of_40_is_three_times_32_and_never_40() -> None:
    machine = PlantedMachine(space=space_of(allow=("optimizer",)), limit_bytes=40_500 * MIB)
    assert machine.limit(Settings()) == 40
    answer, history = searched(machine, effective_batch=96)
    assert (answer.recommended_batch, answer.settings) == (32, Settings(accumulate=3))
    certificate = next(p for p in history if p.form is Form.LONG and p.settings == answer.settings)
    assert certificate.batch_size * certificate.settings.accumulate == 96


def limited_to(size: int) -> PlantedMachine:
    """Where the user's own settings fit up to this size, and throughput still grows a little there."""
    machine = PlantedMachine(
        space=space_of(allow=("optimizer",)),
        half=3.0,
        fixed_bytes=500 * MIB,
        sample_bytes=100 * MIB,
        limit_bytes=(500 + 100 * size) * MIB,
    )
    assert machine.limit(Settings()) == size
    return machine


@pytest.mark.parametrize(("limit", "micro_batch"), [(95, 48), (96, 96), (97, 96), (100, 96), (110, 96), (130, 96)])
def test_c33_the_largest_micro_batch_that_divides_is_tried_however_near_it_is_to_the_limit(
    limit: int, micro_batch: int
) -> None:
    answer, _ = searched(limited_to(limit), effective_batch=96)
    assert answer.settings is not None
    assert (answer.recommended_batch, answer.settings.accumulate) == (micro_batch, 96 // micro_batch)


@pytest.mark.parametrize(("effective", "world", "unit"), [(96, 1, 1), (192, 2, 8), (60, 1, 2), (4096, 4, 1)])
def test_c33_micro_batch_accumulation_and_world_make_the_effective_batch(effective: int, world: int, unit: int) -> None:
    machine = PlantedMachine(
        space=space_of(),
        speed={("precision", "bf16"): 0.5, ("compile", "default"): 0.4},
        memory={("precision", "bf16"): -0.5},
    )
    answer, history = searched(machine, effective_batch=effective, world=world, batch={"multiple_of": unit})
    assert answer.settings is not None
    assert answer.recommended_batch % unit == 0
    assert answer.recommended_batch * answer.settings.accumulate * world == effective
    for probe in history:
        if probe.form is Form.LONG:
            assert probe.batch_size * probe.settings.accumulate * world == effective


def test_c33_that_micro_batches_add_up_differently_is_said_and_does_not_end_the_search() -> None:
    machine = PlantedMachine(
        space=space_of(allow=("precision",)),
        speed={("precision", "bf16"): 0.5},
        compares=lambda s: CHANGES_TRAINING if s.accumulate > 1 else None,
    )
    stop, _ = search(machine, effective_batch=96)
    assert stop.answer is not None and stop.answer.settings is not None
    assert (stop.answer.settings.precision, stop.answer.settings.accumulate) == (Precision.BF16, 3)
    assert "do not add up" in stop.reason
    asked = [q for q in machine.asked if q.form is Form.COMPARE and q.settings.accumulate > 1]
    assert [(q.settings, q.reference) for q in asked] == [(Settings(accumulate=2), Settings())]


def test_c33_no_comparison_of_accumulation_where_the_user_accumulates_already() -> None:
    machine = PlantedMachine(space=space_of(base=Settings(accumulate=4)), speed={("precision", "bf16"): 0.5})
    answer, _ = searched(machine)
    assert answer.settings is not None and answer.settings.accumulate == 4
    assert all(q.settings.accumulate == 1 for q in machine.asked if q.form is Form.COMPARE)


def test_c33_an_effective_batch_that_cannot_be_held_is_refused_at_once() -> None:
    machine = PlantedMachine(space=space_of())
    with pytest.raises(UsageError, match="97"):
        finder_for(machine, effective_batch=97, world=2)


def test_c33_sizes_that_the_workload_rejects_leave_no_micro_batch() -> None:
    """An odd share cannot be cut into even micro-batches, which only probes can tell that the workload demands."""
    odd = Fault(outcome=Outcome.WORKLOAD_ERROR, cause=Cause.USER_CODE)
    machine = PlantedMachine(space=space_of(), fails=lambda s, n, form: odd if n % 2 else None)
    stop, _ = search(machine, effective_batch=15)
    assert stop.answer is None
    assert "15" in stop.reason


def heavy(**memory: float) -> PlantedMachine:
    """Not even one sample fits under the user's own settings."""
    worth: Worth = {("precision", "bf16"): memory.get("bf16", 0.0), ("checkpointing", "own"): memory.get("own", 0.0)}
    return PlantedMachine(space=space_of(), sample_bytes=60_000 * MIB, memory=worth, speed={("precision", "bf16"): 0.5})


def test_where_nothing_fits_in_the_users_precision_bf16_is_tried_before_giving_up() -> None:
    machine = heavy(bf16=-0.6)
    assert machine.limit(Settings()) == 0
    answer, history = searched(machine)
    assert answer.settings == Settings(precision=Precision.BF16)
    assert history[1].reason is Reason.KNOWN and history[1].batch_size == 1


def test_where_only_both_savings_together_fit_both_are_recommended() -> None:
    machine = heavy(bf16=-0.3, own=-0.3)
    answer, _ = searched(machine)
    assert answer.settings is not None
    assert (answer.settings.precision, answer.settings.checkpointing) == (Precision.BF16, Checkpointing.OWN)


def test_where_nothing_can_be_made_to_fit_that_is_the_answer() -> None:
    machine = heavy(bf16=-0.1, own=-0.1)
    stop, history = search(machine)
    assert stop.answer is None and "smallest size" in stop.reason
    assert {p.outcome for p in history} == {Outcome.OUT_OF_MEMORY}
    assert len(history) <= 3, "others save less than what did not fit"


def test_settings_that_stand_in_for_the_users_own_are_not_taken_if_they_train_something_else() -> None:
    machine = heavy(bf16=-0.6, own=-0.6)
    machine.compares = lambda s: GRADIENTS_LOST if s.checkpointing is Checkpointing.OWN else None
    machine.comparing_bytes = 70_000 * MIB
    answer, history = searched(machine)
    assert answer.settings == Settings(precision=Precision.BF16)
    assert history[1].settings.checkpointing is Checkpointing.OWN and history[1].fits
    assert history[2].outcome is Outcome.CHANGES_TRAINING


def test_settings_whose_limit_is_lower_in_the_long_form_are_certified_at_a_smaller_size() -> None:
    oom = Fault(outcome=Outcome.OUT_OF_MEMORY, cause=Cause.DEVICE_MEMORY)
    machine = PlantedMachine(
        space=space_of(),
        speed={("precision", "bf16"): 0.5, ("compile", "default"): 0.5},
        fails=lambda s, n, form: oom if s.compile is not Compile.OFF and form is Form.LONG and n > 20 else None,
    )
    answer, _ = searched(machine)
    assert answer.settings is not None and answer.settings.compile is Compile.DEFAULT
    assert answer.recommended_batch <= 20
    assert answer.refuted_at is not None and answer.limited_by == "device_memory"


def test_settings_that_never_pass_the_long_form_give_way_to_the_next() -> None:
    machine = PlantedMachine(
        space=space_of(),
        speed={("precision", "bf16"): 0.5, ("compile", "default"): 0.5},
        fails=lambda s, n, form: UNSUPPORTED if s.compile is not Compile.OFF and form is Form.LONG else None,
    )
    answer, _ = searched(machine)
    assert answer.settings is not None
    assert (answer.settings.compile, answer.settings.precision) == (Compile.OFF, Precision.BF16)
