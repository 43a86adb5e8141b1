"""Recommendations to export."""

from autotune.export import Recommendation
from autotune.model import Attention, Checkpointing, Compile, MemoryFormat, OptimizerKind, Parallel, Precision, Settings

CHANGES: tuple[Settings, ...] = (
    *(Settings(precision=value) for value in Precision if value is not Precision.DEFAULT),
    Settings(precision=Precision.FP16, init_scale=1024.0),
    Settings(init_scale=1024.0),
    *(Settings(checkpointing=value) for value in Checkpointing if value is not Checkpointing.OFF),
    *(Settings(compile=value) for value in Compile if value is not Compile.OFF),
    Settings(compile=Compile.DEFAULT, activation_budget=0.5),
    Settings(activation_budget=0.5),
    *(Settings(optimizer=value) for value in OptimizerKind if value is not OptimizerKind.DEFAULT),
    Settings(memory_format=MemoryFormat.CHANNELS_LAST),
    *(Settings(attention=value) for value in Attention if value is not Attention.DEFAULT),
    Settings(cudnn_benchmark=True),
    Settings(set_to_none=False),
    Settings(loader_workers=0),
    Settings(loader_workers=4),
    Settings(pin_memory=True),
    Settings(allocator="expandable_segments:True,max_split_size_mb:128"),
    *(Settings(parallel=value) for value in Parallel if value is not Parallel.DEFAULT),
    *(
        Settings(parallel=value, bucket_mb=50, bucket_view=True, static_graph=True)
        for value in (Parallel.DEFAULT, Parallel.DDP, Parallel.ZERO)
    ),
    *(Settings(parallel=value, reshard=False, offload=True) for value in (Parallel.DEFAULT, Parallel.FSDP)),
    Settings(accumulate=3),
)
"""Every value that any setting can have, each with as few others as it needs."""
ALL = Settings(
    precision=Precision.FP16,
    init_scale=1024.0,
    checkpointing=Checkpointing.OWN,
    compile=Compile.MAX_AUTOTUNE,
    activation_budget=0.5,
    optimizer=OptimizerKind.FUSED,
    memory_format=MemoryFormat.CHANNELS_LAST,
    attention=Attention.FLASH,
    cudnn_benchmark=True,
    set_to_none=False,
    loader_workers=4,
    pin_memory=True,
    allocator="expandable_segments:True,max_split_size_mb:128",
    parallel=Parallel.FSDP,
    bucket_mb=50,
    bucket_view=True,
    static_graph=True,
    reshard=False,
    offload=True,
    accumulate=3,
)


def recommend(settings: Settings, *, world: int = 1, device: str = "cuda") -> Recommendation:
    """Batch 24 under these settings."""
    return Recommendation(
        settings=settings,
        micro_batch=24,
        world=world,
        device=device,
        environment=settings.environment,
    )


def named(settings: Settings) -> str:
    """What a sample changes, for the name of a test."""
    return ",".join(f"{name}={value}" for name, value in settings.changes(Settings()).items()) or "defaults"
