"""Advice rests on probes: what saves memory at which cost, what is refused, what is only an estimate."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from autotune.diagnose.advising import change_of, changes, estimates, judge_change, of_fragmentation, ranked
from autotune.errors import EnvironmentTrouble, UsageError, WorkloadError
from autotune.model import (
    Advice,
    Advised,
    Cause,
    Checkpointing,
    Failure,
    Form,
    Fragmentation,
    FragmentEvidence,
    KindBytes,
    MemoryKind,
    Outcome,
    Peak,
    Phase,
    Precision,
    ProbeResult,
    Question,
    Remedy,
    Settings,
    Traits,
)
from autotune.probe.launcher import Examined, Launcher
from autotune.units import GIB, MIB
from autotune.verifying import Adviser, verify_remedies
from tests.cli.results import MACHINE, WORKLOAD
from tests.fakes import BUDGET, BUG, LEAKS, OUT_OF_MEMORY, Fault, result

TRAITS = Traits(blocks="Block", num_blocks=4, optimizer_kinds=("for-loop", "fused"))
ROOMY = replace(BUDGET, limit_bytes=100 * GIB)
Need = Callable[[Question], tuple[int, float] | Fault]


@dataclass
class Prober:
    """Answers with the peak and step seconds that the question needs, or with a failure."""

    need: Need
    compared: Outcome = Outcome.FITS
    asked: list[Question] = field(default_factory=list)

    def probe(self, question: Question, budget: object, reserve_bytes: int) -> ProbeResult:
        self.asked.append(question)
        if question.form is Form.COMPARE:
            fine = self.compared is Outcome.FITS
            failure = None if fine else Failure(cause=Cause.GRADIENTS_LOST, message="no gradient: body.weight")
            return replace(result(question.batch_size, Form.COMPARE), outcome=self.compared, failure=failure)
        need = self.need(question)
        if isinstance(need, Fault):
            return result(question.batch_size, question.form, need)
        peak, seconds = need
        return result(
            question.batch_size,
            question.form,
            need_bytes=peak,
            budget_bytes=ROOMY.limit_bytes,
            step_seconds=seconds,
            settings=question.settings,
        )


def usual(question: Question) -> tuple[int, float]:
    """Activations of 1 GiB a sample at 0.1 s; checkpointing keeps half of them for a third more time, bf16 half of both."""
    settings, size = question.settings, question.batch_size
    activations, seconds = size * GIB, 0.1 * size
    if settings.checkpointing is not Checkpointing.OFF:
        activations, seconds = activations // 2, seconds * 4 / 3
    if settings.precision is Precision.BF16:
        activations, seconds = activations // 2, seconds / 2
    return GIB + activations, seconds


def advise(prober: Prober, settings: Settings | None = None, batch_size: int = 8, peak: Peak | None = None) -> Advised:
    workload = replace(WORKLOAD, traits=TRAITS)
    machine = replace(MACHINE, device="cuda")
    adviser = Adviser(prober, workload, machine, ROOMY, lambda text: None)
    return adviser.advise(batch_size, settings or Settings(), peak)


def measured(advised: Advised) -> dict[str, Advice]:
    return {one.change: one for one in advised.advice if one.measured}


def test_each_change_has_the_bytes_it_saves_and_its_cost_in_time_from_a_probe() -> None:
    advised = advise(Prober(usual))
    found = measured(advised)
    assert advised.peak_bytes == 9 * GIB
    assert found["checkpointing=blocks"].saved_bytes == 4 * GIB
    assert found["checkpointing=blocks"].time_ratio == pytest.approx(4 / 3)
    assert found["precision=bf16"].saved_bytes == 4 * GIB
    assert found["precision=bf16"].time_ratio == pytest.approx(0.5)
    assert found["batch 4 instead of 8"].saved_bytes == 4 * GIB
    assert found["batch 4 instead of 8"].time_ratio == pytest.approx(1.0)
    assert "trains the same" in found["precision=bf16"].source


def test_what_saves_nothing_is_named_and_no_advice() -> None:
    advised = advise(Prober(usual))
    assert "optimizer=fused" not in measured(advised)
    assert "optimizer=fused: it saves nothing here" in advised.without
    assert any(why.startswith("attention: ") for why in advised.without)


def test_what_changes_the_training_is_no_advice() -> None:
    prober = Prober(usual, compared=Outcome.CHANGES_TRAINING)
    advised = advise(prober)
    assert list(measured(advised)) == ["batch 4 instead of 8"]
    assert "precision=bf16: it changes the training (no gradient: body.weight)" in advised.without
    assert all(q.reference == Settings() for q in prober.asked if q.form is Form.COMPARE)


@pytest.mark.parametrize(("batch_size", "compared"), [(512, 8), (500, 5), (12, 6), (503, 8), (3, 3)])
def test_a_change_is_compared_on_few_samples_whatever_the_batch(batch_size: int, compared: int) -> None:
    prober = Prober(lambda question: (usual(question)[0] // batch_size, 0.1))
    advise(prober, batch_size=batch_size)
    assert {question.batch_size for question in prober.asked if question.form is Form.COMPARE} == {compared}


def test_what_cannot_be_compared_is_no_advice_either() -> None:
    advised = advise(Prober(usual, compared=Outcome.OUT_OF_MEMORY))
    assert list(measured(advised)) == ["batch 4 instead of 8"]


def test_what_makes_a_dying_training_survive_comes_first() -> None:
    def need(question: Question) -> tuple[int, float] | Fault:
        peak, seconds = usual(question)
        return OUT_OF_MEMORY if peak > 6 * GIB else (peak, seconds)

    advised = advise(Prober(need))
    assert advised.peak_bytes is None
    assert {one.change for one in advised.advice if one.survives} == {
        "checkpointing=blocks",
        "checkpointing=alternate",
        "precision=bf16",
        "batch 4 instead of 8",
    }
    assert all(one.saved_bytes is None for one in advised.advice if one.survives)


def test_what_was_measured_stands_where_no_more_probes_can_be_run() -> None:
    def need(question: Question) -> tuple[int, float]:
        if question.batch_size == 4:
            raise EnvironmentTrouble("others hold the device")
        return usual(question)

    advised = advise(Prober(need))
    assert {"checkpointing=blocks", "checkpointing=alternate", "precision=bf16"} == set(measured(advised))
    assert "nothing further was tried: others hold the device" in advised.without


@pytest.mark.parametrize(
    ("outcome", "kind"), [(Outcome.CRASHED, EnvironmentTrouble), (Outcome.UNSUPPORTED, UsageError)]
)
def test_a_training_that_ends_otherwise_than_by_itself_is_an_error_of_that_kind(
    outcome: Outcome, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match="batch 8 fails"):
        advise(Prober(lambda question: Fault(outcome=outcome, cause=Cause.SIGNAL)))


def test_a_training_that_fails_by_itself_is_an_error() -> None:
    with pytest.raises(WorkloadError, match="batch 8 fails"):
        advise(Prober(lambda question: BUG))


def test_of_a_leak_no_setting_is_tried() -> None:
    prober = Prober(lambda question: LEAKS)
    advised = advise(prober)
    assert not advised.advice and "memory grows" in advised.without[0] and len(prober.asked) == 1


def test_a_single_sample_cannot_be_halved() -> None:
    prober = Prober(usual)
    advise(prober, batch_size=1)
    assert {question.batch_size for question in prober.asked} == {1}


def test_changes_start_from_the_settings_that_are_there() -> None:
    base = Settings(checkpointing=Checkpointing.BLOCKS, set_to_none=False)
    found, _ = changes(base, TRAITS, "cuda")
    assert {change_of(settings, base)[0] for settings in found} == {
        "precision=bf16",
        "checkpointing=off",
        "checkpointing=alternate",
        "optimizer=for-loop",
        "optimizer=fused",
        "set_to_none=true",
        "allocator=expandable_segments:True",
    }


def test_a_small_difference_is_a_saving_on_cuda_and_luck_on_the_cpu() -> None:
    base, less = (result(8, need_bytes=size, budget_bytes=1 << 40) for size in (1000 * MIB, 970 * MIB))
    assert isinstance(judge_change("x=1", "", base, less, "cuda"), Advice)
    assert judge_change("x=1", "", base, less, "cpu") == "x=1: it saves nothing here"


def test_estimates_are_marked_with_what_they_rest_on_and_come_last() -> None:
    kinds = (
        KindBytes(kind=MemoryKind.OPTIMIZER, size_bytes=400 * MIB, count=2),
        KindBytes(kind=MemoryKind.WEIGHTS, size_bytes=200 * MIB, count=1),
    )
    peak = Peak(
        batch_size=8,
        phase=Phase.BACKWARD,
        measured_bytes=GIB,
        watched_bytes=GIB,
        kinds=kinds,
        modules=(),
        makers=(),
    )
    workload = replace(WORKLOAD, optimizer="torch.optim.AdamW", traits=TRAITS)
    found = estimates(workload, peak)
    assert [one.saved_bytes for one in found] == [200 * MIB, 300 * MIB]
    assert not any(one.measured for one in found)
    assert estimates(replace(workload, optimizer="torch.optim.SGD", trainable_bytes=GIB), None) == ()
    probed = replace(found[0], measured=True, saved_bytes=MIB)
    assert ranked([*found, probed])[0] is probed


def test_an_allocator_is_judged_by_what_is_reserved() -> None:
    base, less = (
        replace(one, measurement=replace(one.measurement, peak_reserved_bytes=reserved))
        for one, reserved in ((result(8, need_bytes=900), 900 * MIB), (result(8, need_bytes=900), 600 * MIB))
    )
    said = judge_change("allocator=expandable_segments:True", "", base, less, "cuda")
    assert isinstance(said, Advice) and said.saved_bytes == 300 * MIB


def test_the_setting_that_cured_fragmentation_is_advice_as_well() -> None:
    assert of_fragmentation(None) == of_fragmentation(FLAGGED) == ()
    cured = Remedy(
        allocator="a:1", helps=True, outcome=Outcome.FITS, steady_retries=0, peak_reserved_bytes=GIB, step_seconds=0.5
    )
    (rescue,) = of_fragmentation(replace(FLAGGED, remedies=(cured,)))
    assert rescue.survives and rescue.saved_bytes is None and rescue.change == "PYTORCH_CUDA_ALLOC_CONF=a:1"
    slow = replace(GOOD, peak_reserved_bytes=3 * GIB)
    (saving,) = of_fragmentation(replace(FLAGGED, outcome=Outcome.FITS, evidence=slow, remedies=(cured,)))
    assert saving.saved_bytes == 2 * GIB and saving.time_ratio == 1.0


FLAGGED = Fragmentation(
    flagged=True,
    why="",
    outcome=Outcome.OUT_OF_MEMORY,
    failed_at_step=3,
    evidence=FragmentEvidence(requested_bytes=256 * MIB),
)
GOOD = FragmentEvidence(steps=4, retries_per_step=(0, 0, 0, 0), step_seconds=(1.0, 1.0, 0.5, 0.5))


class Rerun:
    """Runs the training again: expandable segments are refused, a split size helps, the rest dies."""

    def __init__(self) -> None:
        self.tried: list[str] = []

    def examine(
        self, section: object, batch_size: int, settings: Settings, budget: object, **details: object
    ) -> Examined:
        self.tried.append(settings.allocator)
        if "expandable" in settings.allocator:
            raise EnvironmentTrouble("expandable_segments is not supported on this platform")
        if "max_split" in settings.allocator:
            return Examined(seen=GOOD)
        return Examined(seen=None, outcome=Outcome.OUT_OF_MEMORY)


def remedies(found: Fragmentation, settings: Settings | None = None) -> tuple[Fragmentation, list[str]]:
    rerun = Rerun()
    verified = verify_remedies(
        cast(Launcher, rerun), found, 8, settings or Settings(), BUDGET, steps=None, say=lambda text: None
    )
    return verified, rerun.tried


def test_c27_a_setting_is_said_to_help_only_if_a_rerun_went_better(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    verified, tried = remedies(FLAGGED)
    assert len(tried) == 4
    assert verified.best is not None and verified.best.allocator == "max_split_size_mb:128"
    assert verified.best.step_seconds == 0.5
    assert [one.helps for one in verified.remedies] == [True, False, False, False]
    (refused,) = (one for one in verified.remedies if one.why_not)
    assert refused.allocator == "expandable_segments:True" and "not supported" in refused.why_not


def test_c27_what_the_environment_sets_already_is_not_proposed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    _, tried = remedies(FLAGGED)
    assert tried == ["expandable_segments:True,roundup_power2_divisions:8"]
    _, tried = remedies(FLAGGED, Settings(allocator="expandable_segments:True,roundup_power2_divisions:8"))
    assert tried == []


def test_a_platform_without_expandable_segments_is_no_end_of_the_advice() -> None:
    def need(question: Question) -> tuple[int, float] | Fault:
        if question.settings.allocator:
            raise EnvironmentTrouble("expandable_segments is not in force")
        return usual(question)

    assert "allocator=expandable_segments:True: expandable_segments is not in force" in advise(Prober(need)).without


def test_an_allocator_that_the_environment_configures_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    prober = Prober(usual)
    advised = advise(prober)
    assert "allocator=expandable_segments:True: the environment configures the allocator" in advised.without
    assert not any(question.settings.allocator for question in prober.asked)


def test_c27_nothing_is_run_again_where_nothing_is_wrong() -> None:
    unflagged = replace(FLAGGED, flagged=False)
    verified, tried = remedies(unflagged)
    assert verified == unflagged and tried == []
