"""What a search found out of the workload's evaluation, in words: its limit, what refuted it, what to do about it."""

from collections.abc import Iterator

from autotune.model import Form, Phase, ProbeResult, SearchResult
from autotune.report.words import failure_words, limit_words

NOT_PROBED = "not probed"
_EVALUATED_ITSELF = (
    "the command evaluated within the few steps it was given, which the probe includes; a later one may need more"
)
_CURES = "give the evaluation smaller batches, run it under torch.no_grad(), and move outputs to the CPU as they come"


def evaluation_refutation(result: SearchResult) -> ProbeResult | None:
    """The probe whose evaluation failed at the size that ``Evaluation.refuted_at`` names; None where there is none."""
    evaluation = result.answer.evaluation
    if evaluation is None or evaluation.refuted_at is None:
        return None
    failed = [
        probe
        for probe in result.probes
        if not probe.fits
        and (probe.form is Form.EVALUATE or (probe.failure is not None and probe.failure.phase is Phase.EVALUATE))
        and (probe.batch_size if probe.evaluate_at is None else probe.evaluate_at) == evaluation.refuted_at
    ]
    of_answer = [probe for probe in failed if probe.settings == result.settings]
    return next(reversed(of_answer or failed), None)


def evaluation_words(result: SearchResult) -> str:
    """The line of a report: ``max batch 15 - 16 refuted: out of memory in evaluate``; empty where nothing could be probed,
    which ``evaluation_advice`` says with its reason."""
    if result.plan.source.command or not result.workload.evaluates:
        return ""
    evaluation = result.answer.evaluation
    if evaluation is None:
        return NOT_PROBED
    why = _why(result)
    if evaluation.max_batch is None:
        return f"fits at no batch - {evaluation.refuted_at} failed: {why}" if evaluation.fits_nothing else NOT_PROBED
    end = f"{evaluation.refuted_at} refuted: {why}" if evaluation.refuted_at else limit_words(evaluation.limited_by)
    return f"max batch {evaluation.max_batch} - {end}"


def evaluation_failure(result: SearchResult) -> str | None:
    """What refuted it, with the words of whoever raised it; None where nothing did."""
    probe = evaluation_refutation(result)
    if probe is None or probe.failure is None:
        return None
    return f"{failure_words(probe)}: {probe.failure.message}"


def evaluation_advice(result: SearchResult) -> Iterator[str]:
    """What to mind: that it was not probed, that it fits nowhere, or that it is the narrower one."""
    if result.plan.source.command:
        ran = result.certificate.measurement.evaluated
        yield _EVALUATED_ITSELF if ran else "evaluation was not probed: a command is ended after a few training steps"
        return
    if not result.workload.evaluates:
        yield "evaluation was not probed: the workload has no evaluate(model, batch)"
        return
    evaluation, trains, asked = result.answer.evaluation, result.answer.max_batch, result.plan.eval_batch
    if evaluation is None or evaluation.refuted_at is None:
        return
    why = _why(result)
    if evaluation.max_batch is None:
        yield (
            f"training is safe at batch {trains}, its evaluation at no batch: {why} at batch {evaluation.refuted_at}, "
            f"and a training that evaluates ends there: {_CURES}"
        )
    elif asked is not None and evaluation.max_batch < asked:
        yield (
            f"evaluation at batch {asked}, as --eval-batch asks, does not fit; {evaluation.max_batch} is the most "
            f"({why} at {evaluation.refuted_at}), and training is not to blame: {_CURES}"
        )
    elif evaluation.max_batch < trains:
        yield (
            f"evaluation takes less than training: {evaluation.max_batch}, where {trains} train "
            f"({why} at {evaluation.refuted_at}): {_CURES}"
        )


def _why(result: SearchResult) -> str:
    probe, evaluation = evaluation_refutation(result), result.answer.evaluation
    if probe is not None:
        return failure_words(probe)
    return limit_words(evaluation.limited_by) if evaluation else ""
