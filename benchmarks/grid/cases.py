"""The workloads, the combinations of settings that are tried exhaustively, and the batch sizes of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import NamedTuple

from autotune.knobs import Value, knob_of
from autotune.model import Checkpointing, Compile, MemoryFormat, OptimizerKind, Precision, Settings
from autotune.units import GIB
from benchmarks.comparison.cases import Case

CAP_BYTES = 40 * GIB
"""Of PyTorch's allocator; the sizes below are meant for it."""
_WORKLOADS = Path("benchmarks", "workloads")
_HALF = (Precision.BF16, Precision.FP16)


class Need(NamedTuple):
    """What decides roughly how many samples fit."""

    half: bool
    """bf16 or fp16."""
    checkpointed: bool
    compiled: bool

    @classmethod
    def of(cls, settings: Settings) -> "Need":
        """That of these settings."""
        return cls(
            half=settings.precision in _HALF,
            checkpointed=settings.checkpointing is not Checkpointing.OFF,
            compiled=settings.compile is not Compile.OFF,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCase:
    """One workload with its grid."""

    name: str
    title: str
    file: Path
    """Relative to the checkout."""
    knobs: Mapping[str, tuple[Value, ...]]
    """Knob -> values, the default first. What is not here keeps its default."""
    sizes: Mapping[Need, tuple[int, ...]] = field(default_factory=dict)
    """Batch sizes, smallest first, up to about the limit. Where something is compiled: the size near the limit, one of
    about half, and one between them that takes the second's place if the first does not fit."""
    compare_batch: int = 8
    """At which the winner is compared with the user's own settings."""

    @property
    def allow(self) -> tuple[str, ...]:
        """What ``autotune search --allow`` takes to search the same combinations."""
        texts = {name: [knob_of(name).text(value) for value in values[1:]] for name, values in self.knobs.items()}
        return tuple(f"{name}={','.join(values)}" for name, values in texts.items())

    @property
    def plain(self) -> Case:
        """The workload by itself, as the comparison of batch finders has it."""
        return Case(name=self.name, title=self.title, file=self.file, precision="default")

    def combinations(self) -> list[Settings]:
        """All of them: what compiles last, and next to each other what differs in the optimizer's step alone, so that the
        second finds the first one's kernels in the compiler's cache."""
        order = sorted(self.knobs, key=lambda name: (name != "compile", name == "optimizer"))
        made = product(*(self.knobs[name] for name in order))
        return [Settings.from_fields(dict(zip(order, values, strict=True))) for values in made]


_COMMON: dict[str, tuple[Value, ...]] = {
    "precision": (Precision.DEFAULT, Precision.TF32, Precision.BF16, Precision.FP16),
    "optimizer": (OptimizerKind.DEFAULT, OptimizerKind.FUSED),
    "compile": (Compile.OFF, Compile.DEFAULT),
}
"""The default implementation of the optimizers is foreach on CUDA devices."""
_CHECKPOINTED: dict[str, tuple[Value, ...]] = {"checkpointing": (Checkpointing.OFF, Checkpointing.OWN)}
_FORMATS: dict[str, tuple[Value, ...]] = {"memory_format": (MemoryFormat.DEFAULT, MemoryFormat.CHANNELS_LAST)}

CASES = {
    case.name: case
    for case in (
        # Limits known from an H200 under 40 GiB: tf32 below 24, bf16 27, checkpointed 56 and more; compiled bf16 holds
        # 22 GiB at 32, tf32 20 GiB at 16.
        GridCase(
            name="gpt2",
            title="GPT-2 124M, packed to 1024 tokens, AdamW",
            file=_WORKLOADS / "gpt2_packed.py",
            knobs=_COMMON | _CHECKPOINTED,
            sizes={
                Need(half=False, checkpointed=False, compiled=False): (6, 12, 18, 22),
                Need(half=True, checkpointed=False, compiled=False): (8, 16, 24, 27),
                Need(half=False, checkpointed=True, compiled=False): (16, 32, 48, 56),
                Need(half=True, checkpointed=True, compiled=False): (16, 32, 48, 56),
                Need(half=False, checkpointed=False, compiled=True): (28, 16, 22),
                Need(half=True, checkpointed=False, compiled=True): (56, 32, 44),
                Need(half=False, checkpointed=True, compiled=True): (64, 32, 48),
                Need(half=True, checkpointed=True, compiled=True): (96, 48, 64),
            },
        ),
        # Limit of the defaults 484; bf16 holds 19 GiB at 448, compiled 11 GiB at 256.
        GridCase(
            name="resnet50",
            title="ResNet-50, 224x224, SGD with momentum",
            file=_WORKLOADS / "resnet50.py",
            knobs=_COMMON | _FORMATS,
            sizes={
                Need(half=False, checkpointed=False, compiled=False): (128, 256, 384, 480),
                Need(half=True, checkpointed=False, compiled=False): (224, 448, 672, 896),
                Need(half=False, checkpointed=False, compiled=True): (448, 224, 352),
                Need(half=True, checkpointed=False, compiled=True): (832, 416, 640),
            },
        ),
        # Limit of bf16 589; the others are reckoned from it.
        GridCase(
            name="vit",
            title="ViT-B/16, 224x224, AdamW",
            file=_WORKLOADS / "vit.py",
            knobs=_COMMON | _CHECKPOINTED,
            sizes={
                Need(half=False, checkpointed=False, compiled=False): (80, 160, 240, 320),
                Need(half=True, checkpointed=False, compiled=False): (144, 288, 432, 576),
                Need(half=False, checkpointed=True, compiled=False): (256, 512, 768, 1024),
                Need(half=True, checkpointed=True, compiled=False): (256, 512, 768, 1024),
                Need(half=False, checkpointed=False, compiled=True): (320, 160, 240),
                Need(half=True, checkpointed=False, compiled=True): (576, 288, 432),
                Need(half=False, checkpointed=True, compiled=True): (1024, 512, 768),
                Need(half=True, checkpointed=True, compiled=True): (1024, 512, 768),
            },
        ),
    )
}
"""What the table compares."""
TRIAL_CASES = CASES | {
    "tiny": GridCase(
        name="tiny",
        title="a small network with a made-up limit",
        file=_WORKLOADS / "tiny.py",
        knobs={
            "precision": (Precision.DEFAULT, Precision.BF16),
            "optimizer": (OptimizerKind.DEFAULT, OptimizerKind.FUSED),
        },
        sizes={
            Need(half=False, checkpointed=False, compiled=False): (32, 64),
            Need(half=True, checkpointed=False, compiled=False): (32, 64),
        },
    )
}
"""... and what only tries the benchmark itself, without a GPU."""
