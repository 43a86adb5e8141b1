from dataclasses import replace

import pytest

from autotune.model import Answer, Budget, Measurement, Outcome, Prediction, Settings
from autotune.report.table import headline, render, report
from autotune.report.words import OUTCOMES
from autotune.units import GIB
from tests.cli.results import PLAN, PROBES, RESULT, failing, fitting, with_answer, with_settings

GOLDEN = """\
max batch 27 - certified by 8 steps in a fresh process; 28 refuted: out of memory in backward, step 2
recommended  batch 24 - the smallest certified batch within 2 % of the best throughput
throughput   150 samples/s at batch 24, 150 samples/s at batch 27
evaluation   not probed
peak         34.6 GiB of 40 GiB (86 %) at batch 24
peak         38.8 GiB of 40 GiB (97 %) at batch 27
budget       40 GiB, set by --memory-limit (the device has 140 GiB)
memory       at batch 27: weights 475 MiB, buffers 12 MiB, gradients 475 MiB, optimizer state 950 MiB, batch 1 MiB, \
activations and temporaries 35.93 GiB, process and libraries 1 GiB
cost         7 probes, 2 failed; 17 s; search ab12cd34ef56

probes
#  batch  form   why             peak  samples/s   time  outcome
1      4  short  first size   6.6 GiB         16  2.5 s  fits
2     16  short  grow        23.4 GiB        128  2.5 s  fits
3     32  short  grow          40 GiB          -  1.5 s  out of memory in forward
4     24  short  bisect      34.6 GiB        150  2.5 s  fits
5     28  short  bisect        40 GiB          -  1.5 s  out of memory in backward, step 2
6     27  long   certify     38.8 GiB        150  2.5 s  fits
7     24  long   as fast?    34.6 GiB        150  2.5 s  fits

next
train with batch size 24 (batch.micro_batch in autotune.json)"""


def test_the_report_reads_as_written_here() -> None:
    assert render(report(RESULT, output="autotune.json")) == GOLDEN


def test_c10_the_worst_batch_of_real_data_is_shown() -> None:
    seen = replace(PROBES[5].measurement, worst_batch="int64[27, 2000]", candidates=3)
    probes = tuple(replace(p, measurement=seen) if p is PROBES[5] else p for p in PROBES)
    varying = replace(RESULT, probes=probes, workload=replace(RESULT.workload, varies=True))
    assert "worst batch  int64[27, 2000], the largest of 3 candidates" in render(report(varying))
    assert "worst batch" not in render(report(replace(RESULT, probes=probes))), "make_batch is the user's own choice"


def test_warnings_come_between_the_evidence_and_the_next_step() -> None:
    blocks = report(replace(RESULT, warnings=("the card is shared",)))
    assert [block.title for block in blocks] == ["", "probes", "mind", "next"]
    assert blocks[2].lines == ("- the card is shared",)


def test_a_verbose_report_tells_every_failure_in_full() -> None:
    text = render(report(RESULT, verbose=True))
    assert text.count("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.30 GiB.") == 2


def test_without_a_file_the_next_step_says_how_to_get_one() -> None:
    assert report(RESULT)[-1].lines == (
        "train with batch size 24",
        "to keep the answer in a file: the same command with --output autotune.json",
    )


def test_an_allocator_setting_is_to_be_set_for_the_training_too() -> None:
    blocks = report(with_settings(Settings(allocator="expandable_segments:True")), output="o.json")
    assert blocks[-1].lines[1] == "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True for the training as well"


def test_accumulation_is_part_of_the_recommendation() -> None:
    blocks = report(with_settings(Settings(accumulate=4)))
    assert "batch 24, 4 accumulated = 96 samples a step - " in blocks[0].lines[1]


def test_the_largest_batch_is_recommended_for_a_reason() -> None:
    text = render(report(with_answer(recommended_batch=27)))
    assert "recommended  batch 27 - no smaller certified batch is within 2 % of the best throughput" in text


def test_nothing_is_recommended_where_that_was_not_asked() -> None:
    assert "recommended" not in render(report(replace(RESULT, plan=replace(PLAN, recommend=False))))


def test_a_bound_is_named_where_no_failure_ended_the_search() -> None:
    assert headline(with_answer(refuted_at=None, limited_by="data_set")) == (
        "max batch 27 - certified by 8 steps in a fresh process; the data set has no more samples"
    )


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.FITS])
def test_every_outcome_can_refute(outcome: Outcome) -> None:
    result = with_answer(failing(29, outcome), refuted_at=29)
    assert f"; 29 refuted: {OUTCOMES[outcome]} in forward" in headline(result)
    assert f"  {OUTCOMES[outcome]} in forward" in render(report(result))


def test_a_budget_of_the_device_is_shown_as_a_sum() -> None:
    budget = Budget(
        limit_bytes=30 * GIB, source="device", capacity_bytes=40 * GIB, others_bytes=8 * GIB, headroom_bytes=2 * GIB
    )
    text = render(report(replace(RESULT, budget=budget)))
    assert "budget       30 GiB = 40 GiB (device) - 8 GiB held by others - 2 GiB headroom" in text


def test_reused_probes_and_confirmed_answers_are_told_apart() -> None:
    text = render(report(replace(RESULT, new_probes=1, from_ledger=True)))
    assert "7 probes, 2 failed, 6 reused from the ledger; 17 s; an earlier answer, confirmed" in text


def test_a_prediction_is_shown_beside_the_answer_with_its_error() -> None:
    peak_bytes = 27 * 14 * GIB // 10
    prediction = Prediction(
        limit=28, recorded_up_to=7, allocated_bytes=peak_bytes, reserved_bytes=peak_bytes * 101 // 100
    )
    lines = report(with_answer(prediction=prediction))[0].lines
    assert "predicted    28 from batches up to 7 (allocated +0.0 %, reserved +1.0 %)" in lines


def test_a_result_without_any_measurement_still_reads() -> None:
    bare = replace(PROBES[5], measurement=Measurement(steps_executed=1))
    result = replace(
        RESULT,
        probes=(bare,),
        answer=Answer(max_batch=27, refuted_at=None, recommended_batch=27, limited_by="max_batch", step=1),
    )
    text = render(report(result))
    assert "certified by 1 step in" in text
    assert "no step could be timed" in text
    assert "memory  " not in text


def test_the_certificate_is_the_last_long_probe() -> None:
    again = replace(fitting(27), form=PROBES[5].form, measurement=replace(PROBES[5].measurement, steps_executed=9))
    assert "certified by 9 steps" in headline(with_answer(again))
