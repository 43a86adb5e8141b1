"""How a workload is trained."""

import re
from dataclasses import dataclass
from enum import StrEnum

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the workload is trained, as far as autotune applies it."""

    precision: Precision = Precision.DEFAULT
    allocator: str = ""
    """Allocator configuration in PyTorch's own syntax (``expandable_segments:True``); empty = the default."""
    accumulate: int = 1
    """Micro-batches per optimizer step."""

    def __post_init__(self) -> None:
        if self.accumulate < 1:
            raise UsageError(f"accumulate is {self.accumulate}; it counts micro-batches", hint="give 1 or more")
        if self.allocator and not _ALLOCATOR.fullmatch(self.allocator):
            raise UsageError(
                f"allocator setting {self.allocator!r} is not in PyTorch's form option:value,option:value",
                hint="for example --allocator expandable_segments:True,max_split_size_mb:128",
            )

    @property
    def environment(self) -> dict[str, str]:
        """Variables to set before the accelerator starts; empty for the default allocator."""
        return dict.fromkeys(ALLOCATOR_VARIABLES, self.allocator) if self.allocator else {}
