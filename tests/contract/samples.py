"""Records for the contract tests, with every field away from its default: a field that gets lost is noticed."""

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta, timezone

from autotune.model import (
    Answer,
    Attention,
    Budget,
    Cause,
    Checkpointing,
    Choice,
    Comparison,
    Compile,
    Composition,
    Evaluation,
    Failure,
    Form,
    LengthBucket,
    LoaderInfo,
    Loading,
    Machine,
    Mark,
    Measurement,
    MemoryFormat,
    Objective,
    OptimizerKind,
    Outcome,
    PassPeaks,
    Phase,
    PhaseMemory,
    Plan,
    Precision,
    Prediction,
    ProbeResult,
    Reason,
    Recognised,
    SearchRecord,
    SearchState,
    Settings,
    Source,
    Trace,
    Traits,
    WorkloadInfo,
)

GIB = 1 << 30
NOON = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
LEASED_UNTIL = datetime.now(UTC) + timedelta(days=1)
"""Beyond the end of all tests."""

SETTINGS = Settings(
    precision=Precision.FP16,
    init_scale=1024.0,
    checkpointing=Checkpointing.BLOCKS,
    compile=Compile.REDUCE_OVERHEAD,
    activation_budget=0.5,
    optimizer=OptimizerKind.FOREACH,
    memory_format=MemoryFormat.CHANNELS_LAST,
    attention=Attention.EFFICIENT,
    cudnn_benchmark=True,
    set_to_none=False,
    loader_workers=0,
    pin_memory=True,
    allocator="expandable_segments:True",
    accumulate=3,
)
TRAITS = Traits(
    blocks="Block",
    num_blocks=12,
    own_checkpointing="timm",
    convolutions=True,
    attention=True,
    batch_norm=True,
    batch_norm_in_blocks=True,
    dropout=True,
    lower_parameters=True,
    frozen=True,
    optimizer_kinds=("for-loop", "foreach"),
    data_set=True,
    varies=True,
    tf32_trouble="none here",
    bf16_trouble="emulated",
    fp16_trouble="no",
    compile_trouble="no compiler",
    attention_backends=("math",),
    cpu_cores=7,
)
COMPARISON = Comparison(
    lost=("body.0.weight",),
    gained=("head.bias",),
    cosine=0.5,
    norm_ratio=1.25,
    loss_difference=0.125,
    buffers=("norm.running_mean",),
    losses=(1.5, None),
    reference_losses=(1.25, 1.0),
    skipped=2,
)

TRIED = replace(SETTINGS, precision=Precision.BF16, allocator="max_split_size_mb:128", accumulate=4)
"""What the probes ran with and the answer holds for: not what the plan says first."""

ANSWER = Answer(
    max_batch=27,
    refuted_at=28,
    recommended_batch=24,
    limited_by="device_memory",
    step=3,
    holes=(9, 12),
    settings=TRIED,
    complete=False,
    loading=Loading(workers=4, pin_memory=True, samples_per_second=900.5, training_samples_per_second=1000.25),
    evaluation=Evaluation(max_batch=6, refuted_at=7, limited_by="host_memory"),
    prediction=Prediction(limit=26, recorded_up_to=9, allocated_bytes=38 * GIB, reserved_bytes=39 * GIB),
)

SEARCH = SearchRecord(
    id="5ea4c0ffee",
    key="0123456789abcdef" * 4,
    state=SearchState.ANSWERED,
    created=NOON,
    finished=NOON + timedelta(seconds=12.5),
    owner="host:4711:1738324800.25",
    version="0.1.0",
    plan=Plan(
        source=Source(
            ref="train.py:net",
            pickle_path="/home/me/live.pkl",
            fingerprint="f00d",
            script_args=("--width", "64"),
            command=("python", "train.py", "--batch-size", "{batch}"),
            templates=(("precision", "--amp {value}"),),
            directory="/home/me",
            search_path=("/home/me/lib", "/opt/lib"),
        ),
        settings=SETTINGS,
        space=(Choice(knob="precision", values=("bf16", "fp16")), Choice(knob="compile", values=())),
        objective=Objective.MEMORY,
        effective_batch=96,
        world=8,
        trials=3,
        eval_batch=6,
        length_bucket=512,
        other_allocators=(TRIED.allocator, "garbage_collection_threshold:0.8"),
        device="cuda:1",
        memory_limit_bytes=40 * GIB,
        multiple_of=8,
        start_batch=16,
        max_batch=4096,
        timeout_s=12.25,
        time_budget_s=3600.5,
        device_wait_s=90.5,
        seed=17,
        recommend=False,
    ),
    workload=WorkloadInfo(
        ref="train.py:net",
        fingerprint="feed",
        recognised=(
            Recognised(what="model", found="make_model", why="a function of this name"),
            Recognised(what="loss", found="", why="none; the model returns one"),
        ),
        parameters=124_439_808,
        trainable_parameters=124_000_000,
        parameters_bytes=497_759_232,
        trainable_bytes=496_000_000,
        optimizer="AdamW",
        batch="int64 [B, 1024]",
        data_set_size=60_000,
        evaluates=True,
        process_bytes=8192,
        step_imports_bytes=2048,
        varies=True,
        own=SETTINGS,
        device_used_bytes=3 << 30,
        loader=LoaderInfo(workers=2, pin_memory=True, drop_last=True),
        sized=False,
        traits=TRAITS,
        notes=("data sampled", "größer — 大"),
        parts=(("code of train.py", "0123456789abcdef"), ("size of the data set", "fedcba9876543210")),
        buckets=(
            LengthBucket(
                max_length=512,
                longest=511,
                samples=412,
                longer=9,
                batch="int64 [B, 511]",
                data_set_size=412,
                varies=True,
                sized=False,
                loader=LoaderInfo(workers=2, pin_memory=True, drop_last=True),
                notes=("characters",),
            ),
        ),
    ),
    machine=Machine(
        device="cuda",
        device_name="NVIDIA H200",
        device_uuid="GPU-1234",
        device_index=1,
        capacity_bytes=141 * GIB,
        driver_version="570.1",
        torch_version="2.13.0",
        cuda_version="13.0",
        python_version="3.11.7",
        platform="Linux-6.1-x86_64",
        unified=True,
    ),
    budget=Budget(
        limit_bytes=40 * GIB,
        source="--memory-limit",
        capacity_bytes=141 * GIB,
        others_bytes=3 * GIB,
        headroom_bytes=GIB // 4,
        caller_bytes=4096,
    ),
    answer=ANSWER,
    message="28 runs out of memory",
    based_on="0ldsearch",
    lease_until=NOON + timedelta(minutes=7),
)

PROBE = ProbeResult(
    batch_size=28,
    form=Form.LONG,
    reason=Reason.CERTIFY,
    outcome=Outcome.OUT_OF_MEMORY,
    failure=Failure(
        cause=Cause.DEVICE_MEMORY,
        message="CUDA out of memory.\nTried to allocate 20 MiB",
        phase=Phase.BACKWARD,
        step=3,
        confirm=True,
        error_type="torch.OutOfMemoryError",
        signal="SIGSEGV",
        exit_code=-11,
        requested_bytes=20 << 20,
        free_bytes=1 << 20,
        fragmented=True,
        traceback='  File "train.py", line 9\n',
        hint="a smaller batch",
    ),
    measurement=Measurement(
        steps_asked=5,
        steps_executed=2,
        steps_skipped=1,
        observed_batch=28,
        worst_batch="dict(ids: int64[28, 1024])",
        candidates=3,
        losses=(10.8, 0.1 + 0.2, float("inf"), float("-inf")),
        step_seconds=(0.25, 0.5, 0.75),
        phases=(
            PhaseMemory(phase=Phase.FORWARD, peak_allocated_bytes=30 * GIB, peak_reserved_bytes=32 * GIB),
            PhaseMemory(phase=Phase.EVALUATE, peak_allocated_bytes=10 * GIB),
        ),
        peak_allocated_bytes=38 * GIB,
        peak_reserved_bytes=39 * GIB,
        non_pytorch_bytes=GIB // 2,
        peak_device_bytes=39 * GIB + GIB // 2,
        others_bytes=7,
        allocator_cap_bytes=39 * GIB + GIB // 4,
        retries_per_step=(0, 2, 1),
        allocated_after_step=(GIB, GIB + 1),
        composition=Composition(
            parameters_bytes=1, buffers_bytes=2, gradients_bytes=3, optimizer_bytes=4, batch_bytes=5
        ),
        evaluated=True,
        evaluated_batch=6,
        evaluated_after=4,
        build_seconds=1.5,
        loop_seconds=6.5,
        worker_seconds=7.125,
        first_step_seconds=12.5,
        recompiles=2,
        graph_breaks=1,
        graphs_kept=2,
        micro_batches=3,
        data_set_size=512,
        comparison=COMPARISON,
        workers_bytes=6,
    ),
    budget_bytes=40 * GIB,
    launcher="fork",
    started_at=NOON.astimezone(timezone(timedelta(hours=5, minutes=30))),
    seconds=7.5,
    settings=TRIED,
    evaluate_at=6,
    stdout_tail="step 1\n",
    stderr_tail="warning: 'quoted' \"text\" \\ ü\n",
)

FITTING_PROBE = replace(PROBE, batch_size=27, outcome=Outcome.FITS, failure=None)

TRACE = Trace(
    sizes=(512, 40 * GIB, 0, 2048, 4096),
    streams=(0, 0, 1, 0, 2),
    events=(1, 2, 3, -2, 4, -4, -3, 5),
    marks=(
        Mark(position=0, phase=Phase.BUILD, step=0, batch_size=0),
        Mark(position=1, phase=Phase.DATA, step=1, batch_size=2),
        Mark(position=1, phase=Phase.FORWARD, step=1, batch_size=2),
        Mark(position=7, phase=Phase.OPTIMIZER, step=2, batch_size=3),
        Mark(position=8, phase=Phase.EXIT, step=2, batch_size=3),
    ),
    passes=(
        PassPeaks(batch_size=2, steps=2, allocated_bytes=40 * GIB + 512, reserved_bytes=41 * GIB),
        PassPeaks(batch_size=3, steps=1, allocated_bytes=4608, reserved_bytes=2 << 20),
    ),
)

TRACED_PROBE = replace(FITTING_PROBE, reason=Reason.TRACE, trace=TRACE)


def facts(*probes: ProbeResult) -> list[object]:
    """What of probes can be compared: a trace equals only itself."""
    return [(replace(probe, trace=None), probe.trace and asdict(probe.trace)) for probe in probes]


def search(search_id: str, **changes: object) -> SearchRecord:
    """A running search of another id, otherwise as ``SEARCH``; nobody sees its process, and it has a lease."""
    running: dict[str, object] = {
        "id": search_id,
        "state": SearchState.RUNNING,
        "finished": None,
        "answer": None,
        "lease_until": LEASED_UNTIL,
    }
    return replace(SEARCH, **(running | changes))  # type: ignore[arg-type]
