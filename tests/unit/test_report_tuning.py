"""What a search of settings tried, as people read it: the table, what does not apply here, what to mind."""

from dataclasses import replace

from autotune.knobs import choices
from autotune.model import (
    Answer,
    Cause,
    Compile,
    Form,
    Loading,
    OptimizerKind,
    Outcome,
    Precision,
    ProbeResult,
    Reason,
    SearchResult,
    Settings,
    Traits,
)
from autotune.report.advice import advice
from autotune.report.setting_words import settings_words
from autotune.report.table import render, report
from autotune.report.tuning import left_out, settings_table
from tests.cli.results import PLAN, RESULT, WORKLOAD, failing, fitting

OWN = Settings()
BF16 = Settings(precision=Precision.BF16, optimizer=OptimizerKind.FUSED)
FAST = replace(BF16, compile=Compile.DEFAULT)
FP16 = Settings(precision=Precision.FP16)
TRAITS = Traits(optimizer_kinds=("for-loop", "foreach", "fused"), attention_backends=("flash", "cudnn"))


def of(settings: Settings, probe: ProbeResult, **facts: object) -> ProbeResult:
    return replace(probe, settings=settings, measurement=replace(probe.measurement, **facts))  # type: ignore[arg-type]


def timed(settings: Settings, seconds: float, batch_size: int = 24) -> ProbeResult:
    return of(settings, fitting(batch_size, Form.TIMED, Reason.KNOWN, step_seconds=(seconds,) * 8))


REJECTED = replace(
    failing(
        8,
        Outcome.CHANGES_TRAINING,
        Cause.GRADIENTS_DIFFER,
        message="the gradient points elsewhere: cosine 0.31\nand more",
        form=Form.COMPARE,
        reason=Reason.COMPARE,
    ),
    settings=FP16,
)
TRIED = (
    of(OWN, fitting(24, Form.LONG, Reason.BASELINE, step_seconds=(0.24,))),
    timed(OWN, 0.24),
    timed(BF16, 0.12),
    timed(FP16, 0.06),
    REJECTED,
    of(FAST, timed(FAST, 0.08), first_step_seconds=27.4, graph_breaks=1, recompiles=0),
    of(FAST, fitting(8, Form.COMPARE, Reason.COMPARE, step_seconds=())),
    of(FAST, fitting(24, Form.LONG, Reason.CERTIFY, step_seconds=(0.08,))),
    replace(failing(24, form=Form.TIMED), settings=replace(OWN, compile=Compile.REDUCE_OVERHEAD)),
)
TUNED: SearchResult = replace(
    RESULT,
    plan=replace(PLAN, space=choices((), (), (), OWN)),
    workload=replace(WORKLOAD, traits=TRAITS),
    probes=TRIED,
    answer=Answer(
        max_batch=24, refuted_at=None, recommended_batch=24, limited_by="not_searched", step=1, settings=FAST
    ),
)
GOLDEN = """\
settings                                           batch  samples/s   gain      peak
as you have it                                        24        100  1.00x  34.6 GiB  certified
precision=bf16 compile=default optimizer=fused        24        300  3.00x  34.6 GiB  recommended; trains the same, \
certified, first step 27 s, 1 graph break
precision=bf16 optimizer=fused                        24        200  2.00x  34.6 GiB
precision=fp16                                        24        400  4.00x  34.6 GiB  rejected: trains something else: \
the gradient points elsewhere: cosine 0.31
compile=reduce-overhead                               24          -           40 GiB  out of memory"""


def test_the_table_shows_the_users_own_settings_first_then_the_fastest_and_what_was_rejected_last() -> None:
    lines = [" ".join(line.split()) for line in settings_table(TUNED)]
    assert lines == [" ".join(line.split()) for line in GOLDEN.split("\n")]


def test_a_search_of_the_batch_alone_has_no_such_table() -> None:
    assert settings_table(RESULT) == left_out(RESULT) == ()


def test_the_headline_figures_say_what_is_recommended_and_by_how_much_it_is_faster() -> None:
    text = render(report(TUNED, output="autotune.json"))
    assert "precision=bf16 compile=default optimizer=fused - 3.00 times as fast as yours" in text
    assert 'tuned = autotune.load("autotune.json")' in text
    own = replace(TUNED, answer=replace(TUNED.answer, settings=OWN))
    assert "as you have it - nothing that was tried is faster and trains the same" in render(report(own))
    alone = replace(own, probes=tuple(probe for probe in own.probes if probe.settings == OWN))
    assert "as you have it - no others were tried" in render(report(alone))


def test_what_does_not_apply_here_is_said_with_the_reason() -> None:
    lines = left_out(TUNED)
    assert "memory_format: the model has no two-dimensional convolutions" in lines
    assert "loader_workers: the workload has no data set" in lines
    assert not any(line.startswith(("precision:", "compile:")) for line in lines), "these apply"


def test_changes_are_told_with_the_texts_of_the_command_line() -> None:
    assert settings_words(OWN, OWN) == settings_words(Settings(accumulate=4), OWN) == "as you have it"
    assert settings_words(Settings(cudnn_benchmark=True, activation_budget=0.5), OWN) == (
        "activation_budget=0.5 cudnn_benchmark=true"
    )


def test_accumulation_that_is_not_equivalent_is_warned_of() -> None:
    held = replace(FAST, accumulate=4)
    answer = replace(TUNED.answer, settings=held)
    proof = of(held, fitting(24, Form.LONG, Reason.CERTIFY, step_seconds=(0.3,)))
    summed = replace(TUNED, answer=answer, probes=(*TRIED, proof))
    assert not any("accumulation" in text for text in advice(summed))
    normed = replace(summed, workload=replace(WORKLOAD, traits=replace(TRAITS, batch_norm=True)))
    assert any("accumulation is not equivalent: batch norm takes its statistics of 24" in t for t in advice(normed))
    differs = replace(REJECTED, settings=held)
    contrastive = replace(summed, probes=(*TRIED, proof, differs))
    assert any("accumulation is not equivalent here: 4 micro-batches" in text for text in advice(contrastive))


def test_the_learning_rate_is_the_users_business_and_is_mentioned_where_the_step_may_see_other_samples() -> None:
    assert any(text.startswith("an optimizer step sees 24 samples") for text in advice(TUNED))
    held = replace(TUNED, plan=replace(TUNED.plan, effective_batch=24))
    assert not any("optimizer step sees" in text for text in advice(held))
    assert not any("optimizer step sees" in text for text in advice(RESULT))


def test_loading_that_cannot_keep_up_is_called_data_bound() -> None:
    slow = Loading(workers=2, pin_memory=True, samples_per_second=150, training_samples_per_second=300)
    bound = replace(TUNED, answer=replace(TUNED.answer, loading=slow))
    assert any(text.startswith("data-bound: the data set gives 150 samples/s with 2 workers") for text in advice(bound))
    assert "150 samples/s with 2 workers - data-bound: training waits for data" in render(report(bound))
    quick = replace(TUNED, answer=replace(TUNED.answer, loading=replace(slow, workers=1, samples_per_second=900)))
    assert not any("data-bound" in text for text in advice(quick))
    assert "900 samples/s with 1 worker - fast enough" in render(report(quick))


def test_an_answer_of_a_search_that_was_cut_short_says_so() -> None:
    short = replace(TUNED, answer=replace(TUNED.answer, complete=False))
    assert advice(short)[0].startswith("time ran out before the search was complete")
