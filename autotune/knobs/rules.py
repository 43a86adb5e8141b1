"""Which values of different knobs do not go together, each with the reason."""

from collections.abc import Callable
from dataclasses import dataclass

from autotune.knobs.registry import KNOBS
from autotune.model import Attention, Checkpointing, Compile, MemoryFormat, Parallel, Precision, Settings, Traits


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a rule looks at."""

    settings: Settings
    base: Settings
    """The user's own settings."""
    traits: Traits
    device: str
    """Kind of device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One sort of combination that is never tried."""

    name: str
    why: str
    """A sentence without its full stop."""
    broken_by: Callable[[Situation], bool]


_WRAPPED = (Checkpointing.BLOCKS, Checkpointing.ALTERNATE)
_GRAPHED = (Compile.REDUCE_OVERHEAD, Compile.MAX_AUTOTUNE)
"""Modes of torch.compile that record CUDA graphs."""
_HALF = (Precision.BF16, Precision.FP16)


def _graphed(at: Situation) -> bool:
    return at.device == "cuda" and at.settings.compile in _GRAPHED


def _of_no_use(*ways: Parallel) -> Callable[[Situation], bool]:
    """Whether options of these ways of sharing are changed beside another one, where they do nothing."""
    knobs = [knob for knob in KNOBS if knob.sharing == ways]
    return lambda at: any(not k.has_use(at.settings) and k.of(at.settings) != k.of(at.base) for k in knobs)


RULES: tuple[Rule, ...] = (
    Rule(
        name="budget without compile",
        why="activation_budget works through torch.compile, which is off",
        broken_by=lambda at: at.settings.activation_budget < 1 and at.settings.compile is Compile.OFF,
    ),
    Rule(
        name="budget and checkpointing",
        why="activation_budget and checkpointing decide over the same activations, and one of them is enough",
        broken_by=lambda at: at.settings.activation_budget < 1 and at.settings.checkpointing is not Checkpointing.OFF,
    ),
    Rule(
        name="compiled batch norm in checkpoints",
        why="torch.compile cannot keep the running statistics of batch norm in checkpointed blocks from being updated twice",
        broken_by=lambda at: (
            at.settings.checkpointing in _WRAPPED
            and at.settings.compile is not Compile.OFF
            and at.traits.batch_norm_in_blocks
        ),
    ),
    Rule(
        name="attention in full precision",
        why="flash and cudnn attention calculate in bf16 and fp16 only",
        broken_by=lambda at: (
            at.device == "cuda"
            and at.settings.attention in (Attention.FLASH, Attention.CUDNN)
            and at.settings.precision not in _HALF
            and not at.traits.lower_parameters
        ),
    ),
    Rule(
        name="scale without fp16",
        why="init_scale is of the gradient scaler, which only fp16 has",
        broken_by=lambda at: (
            at.settings.init_scale != at.base.init_scale and at.settings.precision is not Precision.FP16
        ),
    ),
    # What a graph returned as a gradient is overwritten by its next run: sums over micro-batches fail, or come out wrong
    # without a word (PyTorch #169545, and four micro-batches in #96693 that count as one).
    Rule(
        name="graphs and accumulation",
        why="CUDA graphs overwrite the gradients that micro-batches are to be added to",
        broken_by=lambda at: _graphed(at) and at.settings.accumulate > 1,
    ),
    Rule(
        name="graphs and kept gradients",
        why="CUDA graphs overwrite gradients that are kept from step to step, as set_to_none=false does",
        broken_by=lambda at: _graphed(at) and not at.settings.set_to_none,
    ),
    Rule(
        name="ranks apart",
        why="ranks that nobody joins would each train a model of their own",
        broken_by=lambda at: (
            at.traits.ranks > 1
            and at.settings.parallel is Parallel.DEFAULT
            and at.base.parallel is not Parallel.DEFAULT
        ),
    ),
    Rule(
        name="buckets without DDP",
        why="bucket_mb, bucket_view and static_graph are of DDP, which ddp and zero use",
        broken_by=_of_no_use(Parallel.DDP, Parallel.ZERO),
    ),
    Rule(
        name="shards without FSDP",
        why="reshard and offload are of fsdp",
        broken_by=_of_no_use(Parallel.FSDP),
    ),
    Rule(
        name="shards and channels_last",
        why="FSDP2 shards no parameters in channels_last order",
        broken_by=lambda at: (
            at.settings.parallel is Parallel.FSDP and at.settings.memory_format is MemoryFormat.CHANNELS_LAST
        ),
    ),
    Rule(
        name="shards and graphs",
        why="CUDA graphs would hold the gathered parameters that FSDP2 lets go",
        broken_by=lambda at: at.settings.parallel is Parallel.FSDP and _graphed(at),
    ),
)
"""CUDA graphs under expandable segments are no rule: PyTorch tests them together (its faults there were mended up to
2.10), and a probe that dies of them is an answer like any other."""


def standing(base: Settings, traits: Traits, device: str) -> tuple[Rule, ...]:
    """The rules to hold others to: those that the user's own settings keep themselves. One that they break is not known
    to be right for this workload; a model may turn to bf16 by itself."""
    own = Situation(settings=base, base=base, traits=traits, device=device)
    return tuple(rule for rule in RULES if not rule.broken_by(own))
