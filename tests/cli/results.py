"""A finished search to show, write and take apart: GPT-2 on a large card held to 40 GiB, figures made up but plausible."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from autotune.model import (
    Answer,
    Budget,
    Cause,
    Composition,
    Failure,
    Form,
    Machine,
    Measurement,
    Outcome,
    Phase,
    Plan,
    ProbeResult,
    Reason,
    Recognised,
    SearchRecord,
    SearchResult,
    SearchState,
    SearchSummary,
    Settings,
    Source,
    WorkloadInfo,
)
from autotune.units import GIB, MIB

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
PLAN = Plan(source=Source(ref="model.py"), memory_limit_bytes=40 * GIB)
WORKLOAD = WorkloadInfo(
    ref="model.py",
    fingerprint="f00d",
    recognised=(
        Recognised(what="model", found="make_model()", why="a function of that name"),
        Recognised(what="loss", found="model(**batch).loss", why="no loss(model, batch) in the file"),
    ),
    parameters=124_439_808,
    trainable_parameters=124_439_808,
    parameters_bytes=475 * MIB,
    trainable_bytes=475 * MIB,
    optimizer="AdamW",
    batch="input_ids int64 (B, 1024), labels int64 (B, 1024)",
    data_set_size=None,
    evaluates=True,
)
MACHINE = Machine(
    device="cuda",
    device_name="NVIDIA H200",
    device_uuid="GPU-1234",
    device_index=0,
    capacity_bytes=140 * GIB,
    driver_version="570.1",
    torch_version="2.11.0",
    cuda_version="12.8",
    python_version="3.12.3",
    platform="Linux-x86_64",
)
BUDGET = Budget(
    limit_bytes=40 * GIB, source="--memory-limit", capacity_bytes=140 * GIB, others_bytes=0, headroom_bytes=0
)
COMPOSITION = Composition(
    parameters_bytes=475 * MIB,
    buffers_bytes=12 * MIB,
    gradients_bytes=475 * MIB,
    optimizer_bytes=950 * MIB,
    batch_bytes=MIB,
)


def fitting(
    batch_size: int,
    form: Form = Form.SHORT,
    reason: Reason = Reason.GROW,
    *,
    step_seconds: tuple[float, ...] = (0.25, 0.25, 0.25),
) -> ProbeResult:
    """A safe probe: 1.4 GiB a sample on top of 1 GiB outside the allocator, four samples a second and sample."""
    allocated_bytes = batch_size * 14 * GIB // 10
    return ProbeResult(
        batch_size=batch_size,
        form=form,
        reason=reason,
        outcome=Outcome.FITS,
        failure=None,
        measurement=Measurement(
            steps_asked=8 if form is Form.LONG else 3,
            steps_executed=8 if form is Form.LONG else 3,
            observed_batch=batch_size,
            step_seconds=step_seconds,
            peak_allocated_bytes=allocated_bytes,
            peak_reserved_bytes=allocated_bytes,
            non_pytorch_bytes=GIB,
            peak_device_bytes=allocated_bytes + GIB,
            composition=COMPOSITION,
        ),
        budget_bytes=40 * GIB,
        launcher="fork",
        started_at=NOON,
        seconds=2.5,
    )


def failing(
    batch_size: int,
    outcome: Outcome = Outcome.OUT_OF_MEMORY,
    cause: Cause = Cause.DEVICE_MEMORY,
    *,
    phase: Phase | None = Phase.FORWARD,
    message: str = "CUDA out of memory. Tried to allocate 2.30 GiB.",
    error_type: str = "torch.OutOfMemoryError",
    step: int | None = 1,
    form: Form = Form.SHORT,
    reason: Reason = Reason.GROW,
    signal: str = "",
) -> ProbeResult:
    """A probe that failed after its batch was made."""
    return ProbeResult(
        batch_size=batch_size,
        form=form,
        reason=reason,
        outcome=outcome,
        failure=Failure(cause=cause, message=message, phase=phase, step=step, error_type=error_type, signal=signal),
        measurement=Measurement(
            steps_asked=3,
            peak_allocated_bytes=38 * GIB,
            peak_reserved_bytes=39 * GIB,
            non_pytorch_bytes=GIB,
            peak_device_bytes=40 * GIB,
            composition=Composition(parameters_bytes=475 * MIB, buffers_bytes=12 * MIB, batch_bytes=MIB),
        ),
        budget_bytes=40 * GIB,
        launcher="fork",
        started_at=NOON,
        seconds=1.5,
    )


PROBES = (
    fitting(4, reason=Reason.START),
    fitting(16, step_seconds=(0.125, 0.125, 0.125)),
    failing(32),
    fitting(24, reason=Reason.BISECT, step_seconds=(0.15, 0.16, 0.17)),
    failing(28, reason=Reason.BISECT, step=2, phase=Phase.BACKWARD),
    fitting(27, Form.LONG, Reason.CERTIFY, step_seconds=(0.18, 0.18, 0.18)),
    fitting(24, Form.LONG, Reason.RECOMMEND, step_seconds=(0.15, 0.16, 0.17)),
)
ANSWER = Answer(max_batch=27, refuted_at=28, recommended_batch=24, limited_by="device_memory", step=1)
RESULT = SearchResult(
    search_id="ab12cd34ef56",
    plan=PLAN,
    workload=WORKLOAD,
    machine=MACHINE,
    budget=BUDGET,
    answer=ANSWER,
    probes=PROBES,
    new_probes=7,
    seconds=17.0,
    created=NOON,
)
RECORD = SearchRecord(
    id="ab12cd34ef56",
    key="k1",
    state=SearchState.ANSWERED,
    created=NOON,
    finished=NOON + timedelta(seconds=17),
    owner="host:1:2",
    version="0.1.0",
    plan=PLAN,
    workload=WORKLOAD,
    machine=MACHINE,
    budget=BUDGET,
    answer=ANSWER,
    message="Batch 27 is certified and 28 is refuted.",
)


def later(search_id: str, minutes: int, **changes: object) -> SearchRecord:
    """Another search like that, begun so much later."""
    return replace(RECORD, id=search_id, created=NOON + timedelta(minutes=minutes), **changes)  # type: ignore[arg-type]


def with_settings(settings: Settings) -> SearchResult:
    """The same search under other settings."""
    probes = tuple(replace(probe, settings=settings) for probe in PROBES)
    return replace(RESULT, plan=replace(PLAN, settings=settings), probes=probes)


def with_answer(*probes: ProbeResult, **changes: object) -> SearchResult:
    """The same search with another answer; probes given here come on top."""
    return replace(RESULT, answer=replace(ANSWER, **changes), probes=(*PROBES, *probes))  # type: ignore[arg-type]


SUMMARY = SearchSummary(
    id=RECORD.id,
    state=RECORD.state,
    created=RECORD.created,
    finished=RECORD.finished,
    message=RECORD.message,
    owner=RECORD.owner,
    based_on=None,
    workload_ref="model.py",
    device_name=MACHINE.device_name,
    budget_bytes=BUDGET.limit_bytes,
    max_batch=27,
    recommended_batch=24,
    probes=len(PROBES),
)
