"""Finished searches of a workload that evaluates: in smaller batches than it trains in, in none, in as large ones."""

from dataclasses import replace

from autotune.model import Evaluation, Form, Phase, ProbeResult, Reason
from tests.cli.results import RESULT, WORKLOAD, failing, fitting, with_answer


def evaluating(size: int, *, fails: bool = False) -> ProbeResult:
    """An evaluation of this size beside one sample of training."""
    if fails:
        return replace(failing(1, phase=Phase.EVALUATE, form=Form.EVALUATE, step=None), evaluate_at=size)
    probe = fitting(1, Form.EVALUATE, Reason.BISECT, step_seconds=())
    return replace(probe, evaluate_at=size, measurement=replace(probe.measurement, evaluated=True))


def paired(size: int) -> ProbeResult:
    probe = fitting(27, Form.LONG, Reason.CERTIFY, step_seconds=(0.18, 0.18, 0.18))
    return replace(probe, evaluate_at=size, measurement=replace(probe.measurement, evaluated=True))


NARROWER = with_answer(
    evaluating(16, fails=True),
    evaluating(15),
    paired(15),
    evaluation=Evaluation(max_batch=15, refuted_at=16, limited_by="device_memory"),
)
NOTHING = with_answer(
    evaluating(1, fails=True), evaluation=Evaluation(max_batch=None, refuted_at=1, limited_by="device_memory")
)
AS_MUCH = with_answer(paired(27), evaluation=Evaluation(max_batch=27, refuted_at=None, limited_by="not_searched"))
AS_ASKED = replace(
    with_answer(paired(48), evaluation=Evaluation(max_batch=48, refuted_at=None, limited_by="eval_batch")),
    plan=replace(RESULT.plan, eval_batch=48),
)
NONE = replace(RESULT, workload=replace(WORKLOAD, evaluates=False))
