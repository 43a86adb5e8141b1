"""How a workload is trained."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from autotune.errors import UsageError

ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Both names are set: releases differ in which one they read (2.9 ignored the new one for CUDA, PyTorch #183387)."""
_ALLOCATOR_OPTION = r"[a-z_0-9]+:(?:[A-Za-z0-9_.]+|\[[A-Za-z0-9_.:,]+\])"
_ALLOCATOR = re.compile(rf"{_ALLOCATOR_OPTION}(?:,{_ALLOCATOR_OPTION})*")


class Precision(StrEnum):
    """Number formats of a training step. Parameters stay as the user made them."""

    DEFAULT = "default"
    """What the user's script gets from PyTorch without asking."""
    FP32 = "fp32"
    """Strict: no tf32 anywhere."""
    TF32 = "tf32"
    """tf32 allowed in matrix products and convolutions."""
    BF16 = "bf16"
    """bf16 autocast."""
    FP16 = "fp16"
    """fp16 autocast with a gradient scaler."""


class Checkpointing(StrEnum):
    """Activation checkpointing: what the forward pass does not keep, the backward pass computes again."""

    OFF = "off"
    """None beside what the user's model does itself."""
    OWN = "own"
    """The model's own switch (transformers, timm)."""
    BLOCKS = "blocks"
    """Every one of the model's repeated blocks."""
    ALTERNATE = "alternate"
    """Every second of them."""


class Compile(StrEnum):
    """``torch.compile`` of the whole model with static shapes, by its modes."""

    OFF = "off"
    DEFAULT = "default"
    REDUCE_OVERHEAD = "reduce-overhead"
    """CUDA graphs."""
    MAX_AUTOTUNE = "max-autotune"


class OptimizerKind(StrEnum):
    """Implementation of the optimizer's step; the mathematics are the same."""

    DEFAULT = "default"
    """As the user made it."""
    FOR_LOOP = "for-loop"
    FOREACH = "foreach"
    FUSED = "fused"


class MemoryFormat(StrEnum):
    """Order of the dimensions of four-dimensional tensors in memory."""

    DEFAULT = "default"
    CHANNELS_LAST = "channels_last"


class Attention(StrEnum):
    """Backend of ``scaled_dot_product_attention``."""

    DEFAULT = "default"
    """PyTorch's choice."""
    MATH = "math"
    EFFICIENT = "efficient"
    FLASH = "flash"
    CUDNN = "cudnn"


class Parallel(StrEnum):
    """How the ranks of one training share its work."""

    DEFAULT = "default"
    """autotune joins no ranks: there is one, or the training does it itself."""
    DDP = "ddp"
    """DistributedDataParallel: a whole model on each rank, gradients averaged."""
    FSDP = "fsdp"
    """FSDP2 (``fully_shard``): parameters, gradients and optimizer state in shards, block by block."""
    ZERO = "zero"
    """DDP whose optimizer state is in shards (``ZeroRedundancyOptimizer``)."""
    TENSOR = "tensor"
    """Tensor parallel (``parallelize_module``), by the plan that the model or the workload has: all ranks see one batch."""

    def replicas(self, ranks: int) -> int:
        """How many of so many ranks train on a batch of their own."""
        return 1 if self is Parallel.TENSOR else ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the workload is trained, as far as autotune applies it. The defaults change nothing of the user's training.

    Raises:
        UsageError: a value makes no sense.
    """

    precision: Precision = Precision.DEFAULT
    init_scale: float = 65536.0
    """Of the gradient scaler (fp16): a power of two, PyTorch's default."""
    checkpointing: Checkpointing = Checkpointing.OFF
    compile: Compile = Compile.OFF
    activation_budget: float = 1.0
    """With compile: share of the activations that may be kept for the backward pass, in (0, 1]."""
    optimizer: OptimizerKind = OptimizerKind.DEFAULT
    memory_format: MemoryFormat = MemoryFormat.DEFAULT
    attention: Attention = Attention.DEFAULT
    cudnn_benchmark: bool = False
    """Let cuDNN time its convolution algorithms and keep the fastest."""
    set_to_none: bool = True
    """``zero_grad`` lets go of gradients instead of filling them with zeros."""
    loader_workers: int | None = None
    """Processes of the data loader; None = as the user has it, or no data set."""
    pin_memory: bool = False
    """The data loader hands out page-locked batches."""
    allocator: str = ""
    """Allocator configuration in PyTorch's own syntax (``expandable_segments:True``); empty = the default."""
    parallel: Parallel = Parallel.DEFAULT
    """With several ranks: how they train together. With one it changes nothing."""
    bucket_mb: int = 25
    """With ddp and zero: MiB of gradients that are averaged at once, PyTorch's default."""
    bucket_view: bool = False
    """With ddp and zero: gradients lie in the buckets they are averaged in, and not beside them."""
    static_graph: bool = False
    """With ddp and zero: every step uses the same parameters, seen in the first."""
    reshard: bool = True
    """With fsdp: gathered parameters of a block are let go after its forward pass, and gathered again for its backward."""
    offload: bool = False
    """With fsdp: shards wait in host memory, and the optimizer steps there."""
    accumulate: int = 1
    """Micro-batches per optimizer step."""

    def __post_init__(self) -> None:
        if self.accumulate < 1:
            raise UsageError(f"accumulate is {self.accumulate}; it counts micro-batches", hint="give 1 or more")
        if not (0 < self.activation_budget <= 1):
            raise UsageError(
                f"activation budget is {self.activation_budget}; it is a share of the activations",
                hint="give a number above 0 and up to 1",
            )
        if not (self.init_scale > 0 and math.isfinite(self.init_scale)):
            raise UsageError(f"the gradient scaler cannot begin at {self.init_scale}", hint="give a power of two")
        if self.loader_workers is not None and self.loader_workers < 0:
            raise UsageError(f"{self.loader_workers} data loader workers", hint="give 0 or more")
        if isinstance(self.bucket_mb, bool) or not isinstance(self.bucket_mb, int) or self.bucket_mb < 1:
            raise UsageError(f"buckets of {self.bucket_mb!r} MiB", hint="give a whole number of MiB from 1 on")
        if self.allocator and not _ALLOCATOR.fullmatch(self.allocator):
            raise UsageError(
                f"allocator setting {self.allocator!r} is not in PyTorch's form option:value,option:value",
                hint="for example --allocator expandable_segments:True,max_split_size_mb:128",
            )

    @property
    def environment(self) -> dict[str, str]:
        """Variables to set before the accelerator starts; empty for the default allocator."""
        return dict.fromkeys(ALLOCATOR_VARIABLES, self.allocator) if self.allocator else {}

    def changes(self, other: "Settings") -> dict[str, Any]:
        """Fields in which this differs from ``other``, with this one's values, in the order they are declared."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        }

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        """Settings from what ``dataclasses.asdict`` and JSON made of them.

        Raises:
            ValueError: a value is none of those that a field takes.
        """
        made: dict[str, Any] = {
            name: _ENUMS[name](value) if name in _ENUMS else value for name, value in values.items()
        }
        return cls(**made)


_ENUMS: dict[str, type[StrEnum]] = {
    "precision": Precision,
    "checkpointing": Checkpointing,
    "compile": Compile,
    "optimizer": OptimizerKind,
    "memory_format": MemoryFormat,
    "attention": Attention,
    "parallel": Parallel,
}
