from dataclasses import replace

import pytest

from autotune.model import Cause, Form, LoaderInfo, Loading, Outcome, Phase, ProbeResult, Reason, SearchResult, Traits
from autotune.report.advice import advice
from autotune.units import GIB
from tests.cli.results import MACHINE, PROBES, RESULT, WORKLOAD, failing, fitting, with_answer


def _with_data(samples: int | None, result: SearchResult = RESULT) -> SearchResult:
    return replace(result, workload=replace(WORKLOAD, data_set_size=samples, traits=Traits(batch_norm=True)))


def test_an_ordinary_result_needs_no_advice() -> None:
    assert advice(RESULT) == ()


def test_what_was_found_on_the_way_comes_first_and_once() -> None:
    result = replace(
        RESULT, warnings=("others grew", "others grew"), workload=replace(WORKLOAD, notes=("data only sampled",))
    )
    assert advice(result) == ("others grew", "data only sampled")


def test_advice_that_is_already_among_the_warnings_is_not_repeated() -> None:
    result = replace(RESULT, workload=replace(WORKLOAD, evaluates=False))
    assert advice(replace(result, warnings=advice(result))) == advice(result)


def test_a_hole_is_named_with_its_reason() -> None:
    result = with_answer(failing(20, Outcome.CRASHED, Cause.LIBRARY_STATUS, phase=Phase.BACKWARD), holes=(20,))
    assert advice(result) == (
        "do not train at batch 20: crashed in backward (a library returned an error status), although larger batches run",
    )


def test_c11_an_evaluation_that_was_not_probed_is_said() -> None:
    result = replace(RESULT, workload=replace(WORKLOAD, evaluates=False))
    assert advice(result) == ("evaluation was not probed: the workload has no evaluate(model, batch)",)


@pytest.mark.parametrize(
    ("evaluated", "said"),
    [
        (False, "evaluation was not probed: a command is ended after a few training steps"),
        (
            True,
            "the command evaluated within the few steps it was given, which the probe includes; a later one may need more",
        ),
    ],
)
def test_c11_of_a_command_it_is_said_whether_it_evaluated(evaluated: bool, said: str) -> None:
    probes = tuple(replace(p, measurement=replace(p.measurement, evaluated=evaluated)) for p in PROBES)
    plan = replace(RESULT.plan, source=replace(RESULT.plan.source, command=("python", "train.py")))
    assert said in advice(replace(RESULT, plan=plan, probes=probes))


def test_c15_the_legal_step_is_named_with_its_witnesses() -> None:
    refused = [
        failing(size, Outcome.WORKLOAD_ERROR, Cause.USER_CODE, error_type="builtins.AssertionError") for size in (3, 1)
    ]
    assert advice(with_answer(*refused, step=2)) == (
        "sizes must be multiples of 2: 1 and 3 failed with AssertionError",
    )


def test_a_step_that_the_user_asked_for_is_no_news() -> None:
    plan = replace(RESULT.plan, multiple_of=2)
    assert advice(replace(with_answer(step=2), plan=plan)) == ()


def test_c16_a_last_batch_of_one_is_warned_of_with_another_certified_size() -> None:
    result = _with_data(65, with_answer(fitting(32, Form.LONG), fitting(40, Form.SHORT)))
    result = replace(result, answer=replace(result.answer, recommended_batch=64))
    (text,) = advice(result)
    assert text.startswith(
        "65 samples in batches of 64 leave a last batch of 1 (65 % 64 == 1), on which BatchNorm fails in training"
    )
    assert "drop_last=True, or train at batch 27, which is certified too" in text


def test_a_last_batch_of_one_offers_no_size_that_was_never_certified() -> None:
    result = replace(_with_data(25), probes=tuple(p for p in PROBES if p.batch_size >= 24))
    (text,) = advice(result)
    assert text.endswith("give the data loader drop_last=True")


def test_c16_a_last_batch_of_one_is_fine_where_nothing_says_that_one_sample_is_too_few() -> None:
    result = _with_data(25)
    assert advice(replace(result, workload=replace(result.workload, traits=Traits()))) == ()
    refused = failing(1, Outcome.WORKLOAD_ERROR, Cause.USER_CODE, message="more than 1 value", error_type="ValueError")
    without = replace(result, workload=replace(result.workload, traits=Traits()), probes=(*PROBES, refused))
    assert any("on which training fails here" in text for text in advice(without))


def test_c16_a_loader_that_drops_its_last_batch_needs_no_advice() -> None:
    result, loader = _with_data(25), LoaderInfo(workers=0, pin_memory=False, drop_last=True)
    assert advice(replace(result, workload=replace(result.workload, loader=loader))) == ()


def _loaded(workers: int, probe: ProbeResult, **measured: object) -> ProbeResult:
    settings = replace(probe.settings, loader_workers=workers)
    measurement = replace(probe.measurement, **measured)  # type: ignore[arg-type]
    return replace(probe, form=Form.LOADING, reason=Reason.LOADING, settings=settings, measurement=measurement)


RAN = Loading(workers=1, pin_memory=False, samples_per_second=400.0, training_samples_per_second=150.0)


def test_c22_workers_that_have_no_room_in_shared_memory_are_told_apart_from_the_limit() -> None:
    text = "worker died\nthe shared-memory mount /dev/shm has 64 MiB in all"
    failed = failing(24, Outcome.HOST_OUT_OF_MEMORY, Cause.SHARED_MEMORY, message=text, phase=Phase.DATA)
    result = with_answer(_loaded(4, failed), _loaded(2, failed), _loaded(1, fitting(24)), loading=RAN)
    (warning,) = advice(result)
    assert warning.startswith(
        "at batch 24 the data loader does not run with 4 or 2 workers, but with 1: no room in shared memory: "
        "the shared-memory mount /dev/shm has 64 MiB in all; "
    )
    assert warning.endswith("the limit 27 is that of the device, found without workers")


def test_c23_workers_that_take_more_than_the_budget_leaves_beside_the_training_are_named() -> None:
    on_cpu = replace(MACHINE, device="cpu")
    probes = (_loaded(2, fitting(24), workers_bytes=8 * GIB), _loaded(1, fitting(24), workers_bytes=GIB))
    result = with_answer(*probes, loading=RAN)
    (warning,) = advice(replace(result, machine=on_cpu))
    assert "with 2 workers, but with 1: more host memory than the budget leaves beside the training" in warning
    assert advice(result) == (), "a GPU's memory is another"


@pytest.mark.parametrize("samples", [None, 24, 26, 48])
def test_other_last_batches_are_fine(samples: int | None) -> None:
    assert advice(_with_data(samples)) == ()


def test_c20_a_limit_of_time_names_the_option() -> None:
    result = with_answer(failing(29, Outcome.TIMED_OUT, Cause.TIMEOUT), refuted_at=29, limited_by="timeout")
    assert advice(result) == (
        "batch 29 was stopped after 5 min 0 s, not by memory: a larger --timeout may give a larger batch",
    )


def test_a_limit_of_the_workloads_own_code_quotes_it() -> None:
    error = failing(
        29,
        Outcome.WORKLOAD_ERROR,
        Cause.USER_CODE,
        message="batch must stay under 29\nsecond line",
        error_type="my.module.TooLarge",
    )
    assert advice(with_answer(error, refuted_at=29, limited_by="user_code")) == (
        "batch 29 failed in the workload's own code, not by memory: TooLarge: batch must stay under 29",
    )


def test_c19_a_crash_that_limits_the_batch_is_not_called_memory() -> None:
    crash = failing(29, Outcome.CRASHED, Cause.SIGNAL, phase=None, step=None, signal="SIGSEGV")
    assert advice(with_answer(crash, refuted_at=29, limited_by="signal")) == (
        "the limit 27 is not one of memory: batch 29 crashed (SIGSEGV)",
    )


def test_c08_skipped_steps_are_counted() -> None:
    probe = fitting(24, Form.LONG, Reason.RECOMMEND)
    probe = replace(probe, measurement=replace(probe.measurement, steps_skipped=3))
    assert advice(with_answer(probe)) == (
        "the gradient scaler skipped 3 of 11 steps at batch 24; the executed ones are what certifies it",
    )


@pytest.mark.parametrize(("slowest", "number"), [(0.119, 0), (0.131, 1)])
def test_step_times_are_doubted_beyond_a_fifth(slowest: float, number: int) -> None:
    result = with_answer(fitting(24, Form.LONG, step_seconds=(0.1, 0.1, slowest, slowest)))
    assert len(advice(result)) == number
    assert all("differ by 27 %" in text for text in advice(result))


def test_spawned_probes_are_mentioned_unless_somebody_did() -> None:
    spawned = replace(RESULT, probes=tuple(replace(p, launcher="spawn") for p in PROBES))
    assert advice(spawned) == (
        "probes ran in fresh interpreters (spawn) instead of forks, which costs the start of torch each time",
    )
    told = replace(spawned, warnings=("fork is unsafe: threads; using spawn",))
    assert advice(told) == told.warnings


@pytest.mark.parametrize(
    ("device", "evaluates", "varies", "said"),
    [
        ("cpu", False, False, True),
        ("cuda", False, False, False),
        ("cpu", True, False, False),
        ("cpu", False, True, False),
    ],
)
def test_a_size_that_fits_by_the_luck_of_the_heap_is_said(
    device: str, evaluates: bool, varies: bool, said: bool
) -> None:
    result = replace(
        with_answer(fitting(28), failing(28, form=Form.LONG)),
        machine=replace(MACHINE, device=device),
        workload=replace(WORKLOAD, evaluates=evaluates, traits=Traits(varies=varies)),
    )
    told = [text for text in advice(result) if "fitted in one probe and ran out of memory in another" in text]
    assert [text.partition(" fitted")[0] for text in told] == (["batch 28"] if said else [])


@pytest.mark.parametrize(("share", "said"), [(0.97, True), (0.99, False)])
def test_a_size_that_fits_by_a_hair_is_no_luck_of_the_heap(share: float, said: bool) -> None:
    """Within 2 % of the limit: the long form needs so much more than the short one."""
    fitted = fitting(28)
    measured = replace(fitted.measurement, peak_allocated_bytes=int(share * fitted.budget_bytes))
    result = replace(
        with_answer(replace(fitted, measurement=measured), failing(28, form=Form.LONG)),
        machine=replace(MACHINE, device="cpu"),
        workload=replace(WORKLOAD, evaluates=False),
    )
    assert any("chance cuts up the heap" in text for text in advice(result)) == said
