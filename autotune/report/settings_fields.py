"""The settings of ``autotune.json``: those that are recommended, and what the search was asked for."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from autotune.errors import UsageError
from autotune.model import (
    Attention,
    Checkpointing,
    Compile,
    MemoryFormat,
    Objective,
    OptimizerKind,
    Parallel,
    Precision,
)
from autotune.model import Settings as ModelSettings


class Fields(BaseModel):
    """What every part of a document is: checked, frozen, without a field that is not known."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class Settings(Fields):
    """How it is trained, as far as autotune applied it. The defaults change nothing of the user's own training."""

    precision: Precision
    """Number formats: default (what the script gets without asking), fp32 (strict), tf32, bf16 or fp16 (autocast)."""
    init_scale: float = Field(default=65536.0, gt=0, allow_inf_nan=False)
    """Where the gradient scaler begins (fp16)."""
    checkpointing: Checkpointing = Checkpointing.OFF
    """Activation checkpointing: off, own (the model's switch), blocks (every repeated block), alternate (every second)."""
    compile: Compile = Compile.OFF
    """Mode of torch.compile of the whole model."""
    activation_budget: float = Field(default=1.0, gt=0, le=1)
    """With compile: share of the activations that may be kept for the backward pass."""
    optimizer: OptimizerKind = OptimizerKind.DEFAULT
    """Implementation of the optimizer's step; default = as the user made it."""
    memory_format: MemoryFormat = MemoryFormat.DEFAULT
    """Order of the dimensions of four-dimensional tensors in memory."""
    attention: Attention = Attention.DEFAULT
    """Backend of scaled_dot_product_attention; default = PyTorch's choice."""
    cudnn_benchmark: bool = False
    """Whether cuDNN times its convolution algorithms and keeps the fastest."""
    set_to_none: bool = True
    """Whether zero_grad lets go of gradients instead of filling them with zeros."""
    loader_workers: int | None = Field(default=None, ge=0)
    """Processes of the data loader; null = as the user has it, or no data set."""
    pin_memory: bool = False
    """Whether the data loader hands out page-locked batches."""
    allocator: str
    """Allocator configuration in PyTorch's syntax; empty = the default."""
    parallel: Parallel = Parallel.DEFAULT
    """How ranks train together: default (autotune joins none), ddp, fsdp (FSDP2), zero (DDP with sharded optimizer), tensor."""
    bucket_mb: int = Field(default=25, ge=1)
    """With ddp and zero: MiB of gradients that are averaged at once."""
    bucket_view: bool = False
    """With ddp and zero: whether gradients lie in the buckets they are averaged in."""
    static_graph: bool = False
    """With ddp and zero: whether every step is known to use the same parameters."""
    reshard: bool = True
    """With fsdp: whether gathered parameters are let go between forward and backward pass."""
    offload: bool = False
    """With fsdp: whether shards wait in host memory."""

    @field_validator("allocator")
    @classmethod
    def _is_a_configuration(cls, value: str) -> str:
        try:
            ModelSettings(allocator=value)
        except UsageError as error:
            raise ValueError(error.message) from error
        return value


class Asked(Fields):
    """What the search was asked for beside the workload, so that it can be asked again."""

    device: str
    """auto, or as PyTorch names it."""
    settings: Settings
    """Those given by hand; the defaults are the user's own."""
    accumulate: int = Field(ge=1)
    """Micro-batches per optimizer step, as given by hand."""
    memory_limit_bytes: int | None = Field(ge=1)
    """Null: what is free, less a little headroom."""
    multiple_of: int = Field(ge=1)
    start_batch: int | None = Field(ge=1)
    max_batch: int | None = Field(ge=1)
    eval_batch: int | None = Field(ge=1)
    timeout_s: float = Field(gt=0, allow_inf_nan=False)
    """Time limit of one probe."""
    time_budget_s: float | None = Field(gt=0, allow_inf_nan=False)
    """Time limit of the search; null: none."""
    seed: int = Field(ge=0, lt=1 << 32)
    recommend: bool
    """Whether the smallest batch was looked for that is as fast as the largest."""
    other_allocators: tuple[str, ...]
    """Allocator configurations that were tried as well."""
    space: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]]
    """Settings that might be changed, and to what."""
    objective: Objective
    effective_batch: int | None = Field(ge=1)
    """Samples an optimizer step was to see; null: as accumulate makes it."""
    world: int = Field(ge=1)
    ranks: int = Field(default=1, ge=1)
    """Processes that trained together in each probe; 1 also in files of older versions."""
    trials: int = Field(ge=0)
    script_args: tuple[str, ...]
    """Of the workload's file."""
    command: tuple[str, ...]
    """Words of the training command, with placeholders; empty for a workload file."""
    templates: dict[str, str]
    """How the command is told settings."""
    length_bucket: int | None = Field(default=None, ge=1)
    """Only samples at most so long were trained on; null: all, also in files of older versions."""
