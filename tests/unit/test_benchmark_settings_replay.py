"""Recorded grids as a machine: what a replay answers, and what a search on it reaches. No processes, no device."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from autotune.model import (
    Cause,
    Checkpointing,
    Compile,
    Composition,
    Form,
    OptimizerKind,
    Outcome,
    Precision,
    Question,
    Reason,
    Settings,
    Traits,
)
from autotune.search.batch import BatchFinder
from autotune.search.settings import SettingsFinder, spent
from benchmarks.common.documents import read
from benchmarks.grid.cases import CASES, GridCase, Need
from benchmarks.grid.cells import next_cell
from benchmarks.grid.recording import Recording, Row
from benchmarks.grid.replay import Replay, allowed
from tests.fakes import drive

CAP = 40 << 30
GIVEN = Settings()
FUSED = Settings(optimizer=OptimizerKind.FUSED)
BF16 = Settings(precision=Precision.BF16)
COMPILED = Settings(compile=Compile.DEFAULT)
RECORDINGS = sorted((Path(__file__).parents[2] / "benchmarks" / "recordings").glob("*-grid.json"))
MOST_REGRET = 0.02
MOST_COST = 0.25
"""Of the whole grid's."""


def row(
    settings: Settings,
    batch: int,
    step_s: float = 1.0,
    *,
    first_s: float = 1.5,
    seconds: float = 20.0,
    gib: float | None = None,
    outcome: Outcome = Outcome.FITS,
    cause: Cause | None = None,
    form: Form = Form.TIMED,
) -> Row:
    fits = outcome is Outcome.FITS and form is Form.TIMED
    held = int((batch if gib is None else gib) * (1 << 30))
    return Row(
        form=form,
        settings={name: getattr(value, "value", value) for name, value in settings.changes(Settings()).items()},
        batch=batch,
        outcome=outcome,
        cause=cause,
        samples_per_second=batch / step_s if fits else None,
        step_seconds=(step_s,) * 8 if fits else (),
        first_step_seconds=first_s if fits else None,
        allocated_bytes=held if fits else None,
        reserved_bytes=held if fits else None,
        composition=Composition(parameters_bytes=1 << 29),
        seconds=seconds,
    )


def recorded(*rows: Row, traits: Traits | None = None) -> Recording:
    return Recording(
        workload="gpt2",
        parameters=100,
        traits=traits or Traits(optimizer_kinds=("for-loop", "foreach", "fused")),
        device="cuda",
        device_name="NVIDIA H200",
        cap_bytes=CAP,
        rows=rows,
    )


def question(settings: Settings, batch: int, form: Form = Form.TIMED) -> Question:
    reference = GIVEN if form is Form.COMPARE else None
    return Question(batch_size=batch, form=form, reason=Reason.KNOWN, settings=settings, reference=reference)


def no_memory(settings: Settings, batch: int, seconds: float = 3.0) -> Row:
    return row(settings, batch, outcome=Outcome.OUT_OF_MEMORY, cause=Cause.DEVICE_MEMORY, seconds=seconds)


SMALL = recorded(row(GIVEN, 10, 1.0), row(GIVEN, 20, 1.8), no_memory(GIVEN, 30), row(FUSED, 10, 0.5))


class Seen(NamedTuple):
    """What matters of a probe."""

    outcome: Outcome
    step_s: float
    seconds: float


def asked(replay: Replay, settings: Settings, batch: int, form: Form = Form.TIMED) -> Seen:
    probe = replay.probe(question(settings, batch, form), replay.budget, 0)
    return Seen(probe.outcome, probe.measurement.median_step_seconds or 0.0, probe.seconds)


def test_a_recorded_size_is_answered_as_it_was_recorded_and_costs_what_it_did() -> None:
    assert asked(Replay(SMALL), GIVEN, 10) == (Outcome.FITS, 1.0, 20.0)
    assert asked(Replay(SMALL), GIVEN, 30) == (Outcome.OUT_OF_MEMORY, 0.0, 3.0)


def test_sizes_between_and_beyond_recorded_ones_are_on_the_line_through_the_nearest_two() -> None:
    probe = Replay(SMALL).probe(question(GIVEN, 15), Replay(SMALL).budget, 0)
    assert probe.measurement.median_step_seconds == pytest.approx(1.4)
    assert probe.measurement.peak_allocated_bytes == 15 << 30
    beyond = asked(Replay(SMALL), GIVEN, 25)
    assert beyond.outcome is Outcome.FITS and beyond.step_s == pytest.approx(2.2)
    assert asked(Replay(SMALL), GIVEN, 5).step_s == pytest.approx(0.6)


def test_from_the_smallest_failing_size_on_everything_fails() -> None:
    replay = Replay(SMALL)
    assert [asked(replay, GIVEN, size).outcome for size in (29, 30, 31)] == [Outcome.FITS, *[Outcome.OUT_OF_MEMORY] * 2]
    probe = replay.probe(question(GIVEN, 31, Form.LONG), replay.budget, 0)
    assert probe.failure is not None and probe.failure.cause is Cause.DEVICE_MEMORY


def test_beyond_what_was_recorded_memory_decides_by_its_line() -> None:
    replay = Replay(recorded(row(GIVEN, 10), row(GIVEN, 20)))
    assert [asked(replay, GIVEN, size).outcome for size in (40, 41)] == [Outcome.FITS, Outcome.OUT_OF_MEMORY]


def test_one_recorded_size_goes_over_sizes_as_the_nearest_settings_with_several_do() -> None:
    seen = asked(Replay(SMALL), FUSED, 20)
    assert seen.outcome is Outcome.FITS and seen.step_s == pytest.approx(0.5 * 1.8)


def test_every_form_that_trains_is_answered_from_timed_rows_at_the_cost_of_its_steps() -> None:
    replay = Replay(SMALL)  # 20 s: 9.5 s beside the steps, the first of 1.5 s, nine more
    certified = asked(replay, GIVEN, 10, Form.LONG)
    assert certified.step_s == 1.0 and certified.seconds == pytest.approx(9.5 + 1.5 + 7)
    assert asked(replay, GIVEN, 10, Form.SHORT).seconds == pytest.approx(9.5 + 1.5 + 2)
    twice = replay.probe(question(replace(GIVEN, accumulate=2), 10), replay.budget, 0)
    assert twice.measurement.median_step_seconds == 2.0 and twice.samples_per_second == 10.0


def test_a_comparison_fits_unless_another_outcome_was_recorded_and_costs_both_trainings() -> None:
    replay = Replay(SMALL)
    each = 9.5 + 1.5 + 2 * 1.0, 20 - 9 * 0.5 + 2 * 0.5
    seen = asked(replay, FUSED, 10, Form.COMPARE)
    assert seen.outcome is Outcome.FITS and seen.seconds == pytest.approx(sum(each))
    told = row(FUSED, 8, outcome=Outcome.CHANGES_TRAINING, cause=Cause.LOSS_DIFFERS, form=Form.COMPARE, seconds=7.0)
    other = Replay(recorded(*SMALL.rows, told))
    assert asked(other, FUSED, 4, Form.COMPARE) == (Outcome.CHANGES_TRAINING, 0.0, 7.0)
    assert other.best == 20 / 1.8  # the user's own: the fused one is faster and something else


def test_settings_outside_the_grid_are_the_nearest_ones_and_compiling_stays_compiling() -> None:
    both = Settings(compile=Compile.DEFAULT, optimizer=OptimizerKind.FUSED)
    replay = Replay(recorded(*SMALL.rows, row(both, 10, 0.2)))
    assert asked(replay, replace(GIVEN, allocator="expandable_segments:True"), 10).step_s == 1.0
    assert asked(replay, COMPILED, 10).step_s == 0.2
    assert asked(replay, BF16, 10).step_s == 1.0


def test_what_is_not_supported_fails_at_every_size_and_too_large_settings_fit_below_as_their_nearest() -> None:
    unsupported = row(COMPILED, 16, outcome=Outcome.UNSUPPORTED, cause=Cause.NOT_SUPPORTED)
    replay = Replay(recorded(*SMALL.rows, unsupported, no_memory(BF16, 20)))
    assert {
        asked(replay, COMPILED, size, form).outcome for size in (1, 16, 40) for form in (Form.TIMED, Form.COMPARE)
    } == {Outcome.UNSUPPORTED}
    assert asked(replay, BF16, 20).outcome is Outcome.OUT_OF_MEMORY
    assert asked(replay, BF16, 10)[:2] == (Outcome.FITS, 1.0)


def test_a_compile_costs_most_the_first_time_whichever_row_found_its_kernels_cached() -> None:
    both = replace(COMPILED, optimizer=OptimizerKind.FUSED)
    cold, warm = row(COMPILED, 8, first_s=31, seconds=45), row(both, 8, first_s=6, seconds=20)
    replay = Replay(recorded(*SMALL.rows, cold, warm))
    other = 45 - 31 - 9  # and as much for the warm one
    assert asked(replay, both, 8).seconds == pytest.approx(other + 31 + 9)
    assert asked(replay, both, 8).seconds == pytest.approx(other + 6 + 9)
    assert asked(replay, COMPILED, 8).seconds == pytest.approx(other + 6 + 9)


def test_the_same_questions_in_the_same_order_get_the_same_answers() -> None:
    uneven = recorded(row(GIVEN, 10).model_copy(update={"step_seconds": (1.0, 1.1, 0.9, 1.2) * 2}))
    one, other, seeded = (
        [replay.probe(question(GIVEN, 10), replay.budget, 0).measurement.step_seconds for _ in range(2)]
        for replay in (Replay(uneven), Replay(uneven), Replay(uneven, seed=1))
    )
    assert one == other != seeded and one[0] != one[1]


def test_an_answer_is_judged_by_what_was_recorded() -> None:
    replay = Replay(SMALL)
    assert replay.best == 20.0
    assert replay.throughput(GIVEN, 20) == pytest.approx(20 / 1.8)
    assert replay.throughput(GIVEN, 25) == replay.throughput(GIVEN, 20)  # no more than was measured anywhere
    assert replay.throughput(GIVEN, 30) == 0.0


def test_a_recording_in_which_nothing_fits_is_no_machine() -> None:
    with pytest.raises(ValueError, match="no row of gpt2 fits"):
        asked(Replay(recorded(no_memory(GIVEN, 1))), GIVEN, 1)


def made_up(case: GridCase) -> Recording:
    """The whole grid of a case with plausible times: half precision and compiling pay, and pay most together."""
    rows: list[Row] = []
    compiled: set[tuple[Settings, int]] = set()
    while (cell := next_cell(case, rows)) is not None:
        rate, gib = worth(cell.settings)
        step, held = (cell.batch + 2) / rate, 1 + gib * cell.batch
        if cell.form is Form.COMPARE:
            rows.append(row(cell.settings, cell.batch, form=cell.form, seconds=40.0))
        elif held > 40:
            rows.append(no_memory(cell.settings, cell.batch))
        else:
            work = replace(cell.settings, optimizer=OptimizerKind.DEFAULT), cell.batch
            first = step if cell.settings.compile is Compile.OFF else step + (5.0 if work in compiled else 35.0)
            compiled.add(work)
            total = 1.5 + first + 9 * step
            rows.append(row(cell.settings, cell.batch, step, first_s=first, seconds=total, gib=held))
    return recorded(*rows, traits=Traits(own_checkpointing="transformers", optimizer_kinds=("foreach", "fused")))


def worth(settings: Settings) -> tuple[float, float]:
    """Samples per second at a large batch, and GiB of a sample."""
    half, compiled = settings.precision in (Precision.BF16, Precision.FP16), settings.compile is not Compile.OFF
    rate = {Precision.DEFAULT: 50.0, Precision.TF32: 100.0, Precision.BF16: 150.0}.get(settings.precision, 145.0)
    rate *= (2.2 if half else 1.1) if compiled else 1.0
    rate *= 1.02 if settings.optimizer is OptimizerKind.FUSED else 1.0
    gib = 1.6 * (0.8 if half else 1.0) * (0.5 if compiled else 1.0)
    return (rate, gib) if settings.checkpointing is Checkpointing.OFF else (0.8 * rate, 0.4 * gib)


def regret_and_cost(recording: Recording, seed: int) -> tuple[float, float]:
    """Of a search over the grid's combinations: share lost to the grid's best, share of the grid's cost."""
    replay = Replay(recording, seed=seed)
    finder = BatchFinder(recommend=True, settings=GIVEN)
    stop, history = drive(SettingsFinder(finder=finder, space=replay.space, seed=seed), replay, replay.budget)
    assert stop.answer is not None and stop.answer.settings is not None, stop.reason
    reached = replay.throughput(stop.answer.settings, stop.answer.recommended_batch)
    return 1 - reached / replay.best, spent(history) / recording.cost_s


@pytest.mark.parametrize("seed", range(3))
def test_a_search_on_a_made_up_grid_loses_little_at_a_fraction_of_its_cost(seed: int) -> None:
    recording = made_up(CASES["gpt2"])
    assert allowed(recording.rows) == (
        "precision=bf16,fp16,tf32",
        "checkpointing=own",
        "compile=default",
        "optimizer=fused",
    )
    assert set(Replay(recording).space.all()) == set(CASES["gpt2"].combinations())
    regret, cost = regret_and_cost(recording, seed)
    assert regret <= MOST_REGRET and cost <= MOST_COST


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_search_on_a_recorded_grid_loses_little_at_a_fraction_of_its_cost(path: Path, seed: int) -> None:
    regret, cost = regret_and_cost(read(path, Recording), seed)
    assert regret <= MOST_REGRET and cost <= MOST_COST


def test_sizes_of_a_case_differ_by_what_settings_need() -> None:
    needs = {Need.of(settings) for settings in CASES["gpt2"].combinations()}
    assert needs == set(CASES["gpt2"].sizes)
