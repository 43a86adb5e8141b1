"""All knobs, one for each field of ``Settings`` but ``accumulate``, which follows from the wanted effective batch."""

import difflib

from autotune.errors import UsageError
from autotune.knobs import bars
from autotune.knobs.knob import Cost, Knob, Place
from autotune.knobs.texts import CONFIGURATION, COUNT, SCALE, SHARE, SWITCH, WORDS
from autotune.model import (
    ALLOCATOR_VARIABLES,
    Attention,
    Checkpointing,
    Compile,
    MemoryFormat,
    OptimizerKind,
    Parallel,
    Precision,
)

TARGETS = ("hf", "lightning", "accelerate", "deepspeed", "hydra", "env")
"""What ``autotune export`` writes for, and the keys of ``Knob.options``: field names of transformers'
``TrainingArguments``, arguments of Lightning's ``Trainer`` and of its data loader, keys of accelerate's and DeepSpeed's
configuration files, keys that Hydra hands over, environment variables."""

EXPANDABLE = "expandable_segments:True"
_WITH_DDP = (Parallel.DDP, Parallel.ZERO)
_WITH_FSDP = (Parallel.FSDP,)

KNOBS: tuple[Knob, ...] = (
    Knob(
        name="precision",
        values=(Precision.DEFAULT, Precision.BF16, Precision.FP16, Precision.TF32, Precision.FP32),
        by_name=(Precision.FP32,),
        reading=WORDS,
        summary="number formats of matrix products and convolutions; parameters stay as the user made them",
        risk="rounding: loss and gradients differ in their last digits; fp16 overflows, and its scaler then skips steps",
        applied="PyTorch's switches for tf32; autocast around forward pass and loss; a gradient scaler for fp16",
        place=Place.STEP,
        bar=bars.precision,
        aside=bars.slow_precision,
        options={
            "hf": ("bf16", "fp16", "tf32"),
            "lightning": ("trainer.precision",),
            "accelerate": ("mixed_precision",),
            "deepspeed": ("bf16.enabled", "fp16.enabled", "torch_autocast.enabled", "torch_autocast.dtype"),
            "hydra": ("autotune.precision",),
        },
    ),
    Knob(
        name="init_scale",
        values=(65536.0, 1024.0, 256.0),
        by_name=(1024.0, 256.0),
        reading=SCALE,
        summary="where the gradient scaler of fp16 begins",
        risk="too high: the first steps are skipped; too low: small gradients become zero",
        applied="GradScaler(init_scale=…)",
        place=Place.STEP,
        memory=False,
        bar=bars.init_scale,
        options={"deepspeed": ("fp16.initial_scale_power",), "hydra": ("autotune.init_scale",)},
    ),
    Knob(
        name="checkpointing",
        values=(Checkpointing.OFF, Checkpointing.OWN, Checkpointing.BLOCKS, Checkpointing.ALTERNATE),
        reading=WORDS,
        summary="activations that the forward pass does not keep and the backward pass calculates again",
        risk="a quarter to a third more work a step; a model's own switch may lose gradients or count batch norm twice",
        applied="the model's own switch, or non-reentrant checkpoints around its repeated blocks",
        place=Place.MODEL,
        bar=bars.checkpointing,
        aside=bars.weaker_checkpointing,
        options={
            "hf": ("gradient_checkpointing", "gradient_checkpointing_kwargs"),
            "hydra": ("autotune.checkpointing",),
        },
    ),
    Knob(
        name="compile",
        values=(Compile.OFF, Compile.DEFAULT, Compile.REDUCE_OVERHEAD, Compile.MAX_AUTOTUNE),
        by_name=(Compile.MAX_AUTOTUNE,),
        reading=WORDS,
        summary="torch.compile of the whole model: fused kernels, with reduce-overhead in CUDA graphs",
        risk="half a minute or more at the first step, and again for every other shape; graphs hold memory of their own",
        applied="torch.compile(model.forward, mode=…, dynamic=False), after everything else",
        place=Place.MODEL,
        cost=Cost.COMPILE,
        bar=bars.compiling,
        aside=bars.compiling_is_dear,
        options={
            "hf": ("torch_compile", "torch_compile_mode"),
            "accelerate": ("dynamo_config.dynamo_backend", "dynamo_config.dynamo_mode"),
            "hydra": ("autotune.compile",),
        },
    ),
    Knob(
        name="activation_budget",
        values=(1.0, 0.5),
        reading=SHARE,
        summary="share of the activations that a compiled model keeps for its backward pass",
        risk="more work in the backward pass; compiles anew",
        applied="torch._functorch.config.activation_memory_budget, while the model is compiled",
        place=Place.MODEL,
        cost=Cost.COMPILE,
        bar=bars.activation_budget,
        aside=bars.compiling_is_dear,
        options={"hydra": ("autotune.activation_budget",)},
    ),
    Knob(
        name="optimizer",
        values=(OptimizerKind.DEFAULT, OptimizerKind.FUSED, OptimizerKind.FOREACH, OptimizerKind.FOR_LOOP),
        by_name=(OptimizerKind.FOR_LOOP,),
        reading=WORDS,
        summary="implementation of the optimizer's step; the mathematics are the same",
        risk="rounding; foreach needs memory for lists of temporaries",
        applied="foreach=… and fused=… of the optimizer's class",
        place=Place.OPTIMIZER,
        bar=bars.optimizer,
        aside=bars.same_optimizer,
        options={"hf": ("optim",), "hydra": ("autotune.optimizer",)},
    ),
    Knob(
        name="memory_format",
        values=(MemoryFormat.DEFAULT, MemoryFormat.CHANNELS_LAST),
        reading=WORDS,
        summary="order of the dimensions of images and feature maps in memory",
        risk="code that views such tensors by hand may fail; shapes stay what they are",
        applied="model.to(memory_format=torch.channels_last), and the same for four-dimensional inputs",
        place=Place.MODEL,
        bar=bars.memory_format,
        options={"hydra": ("autotune.memory_format",)},
    ),
    Knob(
        name="attention",
        values=(Attention.DEFAULT, Attention.CUDNN, Attention.FLASH, Attention.EFFICIENT, Attention.MATH),
        by_name=(Attention.EFFICIENT, Attention.MATH),
        reading=WORDS,
        summary="backend of scaled_dot_product_attention; default is PyTorch's choice",
        risk="a backend that cannot do some mask, head size or number format fails",
        applied="torch.nn.attention.sdpa_kernel around forward pass and loss",
        place=Place.STEP,
        bar=bars.attention,
        options={"hydra": ("autotune.attention",)},
    ),
    Knob(
        name="cudnn_benchmark",
        values=(False, True),
        reading=SWITCH,
        summary="cuDNN times its convolution algorithms at first sight of a shape and keeps the fastest",
        risk="slow first steps, again for every other shape; may take memory for workspace",
        applied="torch.backends.cudnn.benchmark",
        place=Place.PROCESS,
        bar=bars.cudnn_benchmark,
        options={"lightning": ("trainer.benchmark",), "hydra": ("autotune.cudnn_benchmark",)},
    ),
    Knob(
        name="set_to_none",
        values=(True, False),
        by_name=(False,),
        reading=SWITCH,
        summary="zero_grad lets go of the gradients instead of filling them with zeros",
        risk="without it gradients take memory during the forward pass, and parameters without one still decay",
        applied="optimizer.zero_grad(set_to_none=…)",
        place=Place.STEP,
        options={"hydra": ("autotune.set_to_none",)},
    ),
    Knob(
        name="loader_workers",
        values=(None, 2, 4, 8, 0),
        by_name=(0,),  # as a data loader is where nothing is said
        reading=COUNT,
        summary="processes that make batches ahead of the training",
        risk="host memory and shared memory for each; random numbers of the data are drawn elsewhere",
        applied="DataLoader(num_workers=…)",
        place=Place.LOADER,
        memory=False,
        loading=True,
        bar=bars.loader_workers,
        options={
            "hf": ("dataloader_num_workers",),
            "lightning": ("data.num_workers",),
            "hydra": ("autotune.loader_workers",),
        },
    ),
    Knob(
        name="pin_memory",
        values=(False, True),
        reading=SWITCH,
        summary="batches lie in page-locked memory, from which a device copies while it calculates",
        risk="host memory that cannot be swapped out",
        applied="DataLoader(pin_memory=…)",
        place=Place.LOADER,
        memory=False,
        loading=True,
        bar=bars.pin_memory,
        options={
            "hf": ("dataloader_pin_memory",),
            "lightning": ("data.pin_memory",),
            "hydra": ("autotune.pin_memory",),
        },
    ),
    Knob(
        name="allocator",
        values=("", EXPANDABLE),
        reading=CONFIGURATION,
        summary="how PyTorch's allocator cuts the device's memory; expandable segments leave fewer unusable pieces",
        risk="never the numbers; speed, and how much fits, in either direction",
        applied="environment variables, before the device is first used",
        place=Place.ENVIRONMENT,
        bar=bars.allocator,
        options={"env": ALLOCATOR_VARIABLES},
    ),
    Knob(
        name="parallel",
        values=(Parallel.DEFAULT, Parallel.DDP, Parallel.FSDP, Parallel.ZERO, Parallel.TENSOR),
        by_name=(Parallel.TENSOR,),
        only_own=(Parallel.DEFAULT,),
        reading=WORDS,
        summary="how several ranks train together: whole models, shards of them, or shards of optimizer state only",
        risk="time for what the ranks send each other; batch norm sees the samples of its own rank only",
        applied="DistributedDataParallel, fully_shard, ZeroRedundancyOptimizer or parallelize_module",
        place=Place.MODEL,
        ranks=True,
        bar=bars.parallel,
        options={
            "hf": ("fsdp", "fsdp_config"),
            "lightning": ("trainer.strategy",),
            "accelerate": ("distributed_type", "fsdp_config"),
            "deepspeed": ("zero_optimization.stage",),
            "hydra": ("autotune.parallel",),
        },
    ),
    Knob(
        name="bucket_mb",
        values=(25, 100),
        by_name=(100,),
        reading=COUNT,
        summary="MiB of gradients that DDP averages at once, while the backward pass goes on",
        risk="larger ones take more memory and wait longer for their last gradient",
        applied="DistributedDataParallel(bucket_cap_mb=…)",
        place=Place.MODEL,
        ranks=True,
        sharing=_WITH_DDP,
        bar=bars.of_ranks,
        options={
            "hf": ("ddp_bucket_cap_mb",),
            "hydra": ("autotune.bucket_mb",),
        },
    ),
    Knob(
        name="bucket_view",
        values=(False, True),
        reading=SWITCH,
        summary="gradients of DDP lie in the buckets they are averaged in, and not beside them",
        risk="code that calls detach_() on gradients fails",
        applied="DistributedDataParallel(gradient_as_bucket_view=True)",
        place=Place.MODEL,
        ranks=True,
        sharing=_WITH_DDP,
        bar=bars.of_ranks,
        options={"hydra": ("autotune.bucket_view",)},
    ),
    Knob(
        name="static_graph",
        values=(False, True),
        by_name=(True,),
        reading=SWITCH,
        summary="DDP takes it that every step uses the same parameters as the first",
        risk="a step that uses others fails or trains something else",
        applied="DistributedDataParallel(static_graph=True)",
        place=Place.MODEL,
        ranks=True,
        sharing=_WITH_DDP,
        bar=bars.of_ranks,
        options={"hf": ("ddp_static_graph",), "hydra": ("autotune.static_graph",)},
    ),
    Knob(
        name="reshard",
        values=(True, False),
        reading=SWITCH,
        summary="FSDP lets go of a block's parameters after its forward pass, and gathers them again for its backward",
        risk="without it the whole model lies on each rank from the forward to the backward pass",
        applied="fully_shard(reshard_after_forward=…) of every block",
        place=Place.MODEL,
        ranks=True,
        sharing=_WITH_FSDP,
        bar=bars.of_ranks,
        options={"hf": ("fsdp_config",), "accelerate": ("fsdp_config",), "hydra": ("autotune.reshard",)},
    ),
    Knob(
        name="offload",
        values=(False, True),
        by_name=(True,),
        reading=SWITCH,
        summary="shards of FSDP wait in host memory, and the optimizer steps there",
        risk="copies in every step, and optimizer steps at the speed of the host",
        applied="fully_shard(offload_policy=CPUOffloadPolicy())",
        place=Place.MODEL,
        ranks=True,
        sharing=_WITH_FSDP,
        bar=bars.offload,
        options={
            "hf": ("fsdp_config",),
            "accelerate": ("fsdp_config",),
            "deepspeed": ("zero_optimization.offload_optimizer", "zero_optimization.offload_param"),
            "hydra": ("autotune.offload",),
        },
    ),
)
"""In the order of the fields of ``Settings``."""

OF_RANKS = tuple(knob for knob in KNOBS if knob.ranks)
"""Those that trainings of several ranks have beside all others."""

_BY_NAME = {knob.name: knob for knob in KNOBS}


def knob_of(name: str) -> Knob:
    """The knob of that name; dashes count as underscores.

    Raises:
        UsageError: there is none; the message names what was probably meant.
    """
    plain = name.strip().replace("-", "_")
    if plain in _BY_NAME:
        return _BY_NAME[plain]
    if plain == "accumulate":
        raise UsageError(
            "accumulate is not searched: it follows from the wanted effective batch",
            hint="give --effective-batch, or --accumulate for a fixed number of micro-batches",
        )
    close = difflib.get_close_matches(plain, _BY_NAME, n=1, cutoff=0.5)
    meant = f"did you mean {close[0]}? " if close else ""
    raise UsageError(f"there is no knob {name!r}", hint=f"{meant}There are: {', '.join(_BY_NAME)}")
