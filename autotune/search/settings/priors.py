"""What is known of knobs before anything is measured: which effects settings have, and what each may be worth.

Means and doubts are logarithms (0.25 is 28 % more samples a second). Where no source is named they are judgement; a doubt is
wide wherever hardware differs, and one probe outweighs it.
"""

from dataclasses import fields

from autotune.model import Checkpointing, Compile, Parallel, Precision, Settings
from autotune.search.settings.effects import Effect, Expectation, Features

HALF = (Precision.BF16, Precision.FP16)
_PLAIN = Settings()
_ALIKE = Expectation(0.0, 0.02)
"""A value nothing is known of."""
_ELSEWHERE = frozenset({"precision", "compile", "checkpointing", "accumulate"})
"""Fields with effects of their own."""

TF32: Effect = ("precision", "tf32")
HALVED: Effect = ("precision", "half")
"""bf16 or fp16, beyond tf32."""
FP16: Effect = ("precision", "fp16")
"""fp16 instead of bf16."""
FP16_COMPILED: Effect = ("compile", "fp16")
"""The same when compiled."""
COMPILED: Effect = ("compile", "on")
COMPILED_HALF: Effect = ("compile", "half")
CHECKPOINTED: Effect = ("checkpointing", "on")
FSDP: Effect = ("parallel", Parallel.FSDP)
ZERO: Effect = ("parallel", Parallel.ZERO)

_SPEED: dict[Effect, Expectation] = {
    # ResNet-50 and GPT-2 on an H200: tf32 0 to 0.8, half another 0.1 to 0.4
    TF32: Expectation(0.3, 0.3),
    HALVED: Expectation(0.35, 0.2),
    # GPT-2 -0.03, ResNet-50 0.24: kernels of normalisation differ
    FP16: Expectation(0.0, 0.15),
    # -0.01 and -0.03: compiled, those kernels are the compiler's own, and what is left is the gradient scaler. Matrix units
    # are as fast in either format.
    FP16_COMPILED: Expectation(-0.01, 0.02),
    ("precision", "fp32"): Expectation(-0.2, 0.1),
    # 0.05 under tf32; under bf16 0.4 (ResNet-50) and 0.8 (GPT-2)
    COMPILED: Expectation(0.15, 0.2),
    COMPILED_HALF: Expectation(0.2, 0.25),
    ("compile", Compile.REDUCE_OVERHEAD): Expectation(0.0, 0.03),
    ("compile", Compile.MAX_AUTOTUNE): Expectation(0.0, 0.03),
    # GPT-2 -0.19 to -0.22
    CHECKPOINTED: Expectation(-0.25, 0.08),
    ("activation_budget", "0.5"): Expectation(-0.15, 0.1),
    ("memory_format", "channels_last"): Expectation(0.25, 0.3),
    ("cudnn_benchmark", "True"): Expectation(0.03, 0.05),
    # 0.003 to 0.04
    ("optimizer", "fused"): Expectation(0.02, 0.03),
    ("optimizer", "foreach"): Expectation(0.01, 0.02),
    ("optimizer", "for-loop"): Expectation(-0.1, 0.1),
    ("attention", "cudnn"): Expectation(0.01, 0.04),
    ("attention", "flash"): Expectation(0.0, 0.03),
    ("attention", "efficient"): Expectation(-0.03, 0.04),
    ("attention", "math"): Expectation(-0.5, 0.3),
    ("set_to_none", "False"): Expectation(-0.01, 0.01),
    ("init_scale", ""): Expectation(0.0, 0.001),
    # Shards are gathered while others calculate, or are waited for: by the link between the devices
    FSDP: Expectation(-0.05, 0.15),
    # Each rank steps a share of the optimizer, and sends it
    ZERO: Expectation(0.0, 0.05),
    ("bucket_view", "True"): Expectation(0.01, 0.02),
    ("static_graph", "True"): Expectation(0.01, 0.02),
    ("reshard", "False"): Expectation(0.05, 0.08),
    ("offload", "True"): Expectation(-0.7, 0.4),
}
_SPEED_CPU: dict[Effect, Expectation] = {
    # Only some CPUs have units for bf16; emulated it is far slower.
    HALVED: Expectation(0.1, 0.5),
    FP16: Expectation(-0.3, 0.4),
    FP16_COMPILED: Expectation(-0.3, 0.4),
    COMPILED: Expectation(0.15, 0.25),
    COMPILED_HALF: Expectation(0.0, 0.2),
    ("memory_format", "channels_last"): Expectation(0.1, 0.2),
    ("optimizer", "foreach"): Expectation(0.0, 0.02),
}
_ROOM: dict[Effect, Expectation] = {
    # Of the batch that fits: ResNet-50 on an H200 holds 1.9 times as much in bf16, GPT-2 1.2; checkpointing 2 to 4 times
    TF32: Expectation(0.0, 0.05),
    HALVED: Expectation(0.35, 0.25),
    FP16: Expectation(0.0, 0.02),
    FP16_COMPILED: Expectation(0.0, 0.02),
    # ResNet-50 0.04, GPT-2 0.65
    COMPILED: Expectation(0.15, 0.2),
    COMPILED_HALF: Expectation(0.15, 0.2),
    CHECKPOINTED: Expectation(1.0, 0.5),
    ("compile", Compile.REDUCE_OVERHEAD): Expectation(-0.05, 0.1),
    ("activation_budget", "0.5"): Expectation(0.4, 0.3),
    ("attention", "math"): Expectation(-0.3, 0.3),
    ("set_to_none", "False"): Expectation(-0.05, 0.05),
    FSDP: Expectation(0.3, 0.3),
    ZERO: Expectation(0.15, 0.2),
    ("bucket_view", "True"): Expectation(0.08, 0.1),
    ("reshard", "False"): Expectation(-0.1, 0.1),
    ("offload", "True"): Expectation(0.2, 0.2),
}
_SAVES_MEMORY = frozenset(
    {HALVED, CHECKPOINTED, ("activation_budget", "0.5"), FSDP, ZERO, ("bucket_view", "True"), ("offload", "True")}
)
_NO_MEMORY = frozenset({TF32, FP16, FP16_COMPILED})
"""Effects that surely make no difference to it; nor does the kind of checkpointing, beside how much of it there is."""


def needs_no_less(one: Features, other: Features) -> bool:
    """Whether settings with the first features surely need as much memory as those with the others."""
    for effect in {*one, *other}:
        here, there = one.get(effect, 0.0), other.get(effect, 0.0)
        if effect in _NO_MEMORY or (effect[0] == "checkpointing" and effect != CHECKPOINTED):
            continue
        if effect[0] == "compile" and here != there:
            return False
        if here > there if effect in _SAVES_MEMORY else here < there:
            return False
    return True


def features(settings: Settings) -> Features:
    """The effects that settings have, and how much of each."""
    had: dict[Effect, float] = {}
    half, compiled = settings.precision in HALF, settings.compile is not Compile.OFF
    if settings.precision is Precision.TF32 or half:
        had[TF32] = 1.0
    if half:
        had[HALVED] = 1.0
    if settings.precision is Precision.FP16:
        had[FP16_COMPILED if compiled else FP16] = 1.0
    if settings.precision is Precision.FP32:
        had["precision", "fp32"] = 1.0
    if compiled:
        had[COMPILED] = 1.0
        if half:
            had[COMPILED_HALF] = 1.0
        if settings.compile is not Compile.DEFAULT:
            had["compile", settings.compile] = 1.0
    if settings.checkpointing is not Checkpointing.OFF:
        had[CHECKPOINTED] = 0.5 if settings.checkpointing is Checkpointing.ALTERNATE else 1.0
        had["checkpointing", settings.checkpointing] = 1.0
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name not in _ELSEWHERE and value != getattr(_PLAIN, field.name):
            had[field.name, str(value)] = 1.0
    return had


class Beforehand(dict[Effect, Expectation]):
    """Expectations by effect; one that is not listed is believed to be small."""

    def __missing__(self, effect: Effect) -> Expectation:
        return self.get((effect[0], ""), _ALIKE)


def of_speed(device: str, launching: float) -> Beforehand:
    """What effects are worth in samples per second.

    Args:
        device: kind of device.
        launching: share of a step that does not depend on the batch. Some of it is launching kernels, which CUDA graphs save.
    """
    known = {**_SPEED, **(_SPEED_CPU if device == "cpu" else {})}
    known["compile", Compile.REDUCE_OVERHEAD] = Expectation(0.15 * launching, 0.02 + 0.15 * launching)
    return Beforehand(known)


def of_room() -> Beforehand:
    """What effects are worth in the size of the largest batch, or in memory saved at one size."""
    return Beforehand(_ROOM)
