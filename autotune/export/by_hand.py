"""What to write in a training script for a setting that its framework has no switch for.

Names are those of PyTorch 2.6 and later.
"""

from autotune.export.nouns import Recommendation
from autotune.export.shell import assignments
from autotune.model import Attention, Checkpointing, Compile, OptimizerKind, Parallel, Precision, Settings

_BACKENDS = {
    Attention.MATH: "MATH",
    Attention.EFFICIENT: "EFFICIENT_ATTENTION",
    Attention.FLASH: "FLASH_ATTENTION",
    Attention.CUDNN: "CUDNN_ATTENTION",
}
_OPTIMIZERS = {
    OptimizerKind.FOR_LOOP: "foreach=False, fused=False",
    OptimizerKind.FOREACH: "foreach=True",
    OptimizerKind.FUSED: "fused=True",
}
_TF32 = 'torch.set_float32_matmul_precision("high")'
TF32 = f"what stays in fp32 was measured with tf32 allowed: {_TF32}"
"""Beside autocast: convolutions have tf32 by PyTorch's default, matrix products have not."""
_BLOCKS = {Checkpointing.BLOCKS: "each repeated block", Checkpointing.ALTERNATE: "every second repeated block"}


def by_hand(setting: str, recommendation: Recommendation) -> str:
    """What applies the recommended value of a setting, whatever trains; for any name, so that none is passed over."""
    it = recommendation.settings
    match setting:
        case "precision":
            return _precision(it.precision, recommendation.device)
        case "init_scale" if it.precision is not Precision.FP16:
            return "without effect, since only fp16 has a gradient scaler"
        case "init_scale":
            return f"torch.amp.GradScaler({recommendation.device!r}, init_scale={it.init_scale!r})"
        case "checkpointing" if it.checkpointing is Checkpointing.OWN:
            return "model.gradient_checkpointing_enable() (transformers), model.set_grad_checkpointing() (timm)"
        case "checkpointing":
            return (
                f"run {_BLOCKS[it.checkpointing]} of the model through "
                "torch.utils.checkpoint.checkpoint(block, inputs, use_reentrant=False)"
            )
        case "compile":
            options = f"mode={it.compile.value!r}, dynamic=False"
            return f"model.forward = torch.compile(model.forward, {options}), after all other changes to the model"
        case "activation_budget" if it.compile is Compile.OFF:
            return "without effect, since the model is not compiled"
        case "activation_budget":
            return f"torch._functorch.config.activation_memory_budget = {it.activation_budget!r}, before compiling"
        case "optimizer":
            return f"give the optimizer {_OPTIMIZERS[it.optimizer]}"
        case "memory_format":
            return "model.to(memory_format=torch.channels_last), and the same for its 4-dimensional inputs"
        case "attention":
            backend = _BACKENDS[it.attention]
            return f"train under torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.{backend})"
        case "cudnn_benchmark":
            return "torch.backends.cudnn.benchmark = True"
        case "set_to_none":
            return "optimizer.zero_grad(set_to_none=False)"
        case "loader_workers":
            return f"give the data loader num_workers={it.loader_workers}"
        case "pin_memory":
            return "give the data loader pin_memory=True"
        case "allocator":
            return f"in the environment before Python starts: {' '.join(assignments(it.environment))}"
        case "parallel":
            return _parallel(it, recommendation.world)
        case "bucket_mb" | "bucket_view" | "static_graph" if not has_ddp(it):
            return "without effect, since it is of DDP"
        case "bucket_mb" | "bucket_view" | "static_graph":
            return f"DistributedDataParallel(model, {ddp_options(it)})"
        case "reshard" | "offload" if it.parallel is not Parallel.FSDP:
            return "without effect, since it is of FSDP2"
        case "reshard":
            return f"fully_shard(block, reshard_after_forward={it.reshard}) for each repeated block"
        case "offload":
            return "give fully_shard offload_policy=CPUOffloadPolicy()"
        case "accumulate" if it.parallel in (Parallel.DDP, Parallel.ZERO):
            return (
                f"step the optimizer once every {it.accumulate} batches, each loss divided by {it.accumulate}, "
                "all but the last under model.no_sync()"
            )
        case "accumulate":
            return f"step the optimizer once every {it.accumulate} batches, each loss divided by {it.accumulate}"
        case _:
            return "there is no counterpart; apply it in the training script"


def beside_autocast(recommendation: Recommendation, *, on_cpu: str) -> str:
    """What to know of a framework's autocast. ``on_cpu``: the format that it takes in place of fp16 there."""
    if recommendation.settings.precision is Precision.FP16 and recommendation.device == "cpu":
        return f"on the CPU {on_cpu} is calculated in its place; measured was torch.autocast('cpu', torch.float16)"
    return TF32


def has_ddp(settings: Settings) -> bool:
    """Whether gradients are averaged by DDP, as far as autotune knows: a training of several ranks may use it by itself."""
    return settings.parallel in (Parallel.DDP, Parallel.ZERO)


def ddp_options(settings: Settings) -> str:
    """Arguments of DistributedDataParallel that are not PyTorch's own, as they are written."""
    plain = Settings()
    given = {
        "bucket_cap_mb": (settings.bucket_mb, plain.bucket_mb),
        "gradient_as_bucket_view": (settings.bucket_view, plain.bucket_view),
        "static_graph": (settings.static_graph, plain.static_graph),
    }
    return ", ".join(f"{name}={value}" for name, (value, default) in given.items() if value != default)


def _parallel(settings: Settings, world: int) -> str:
    if world == 1:
        return "without effect on one device"
    match settings.parallel:
        case Parallel.DDP:
            return "torch.nn.parallel.DistributedDataParallel(model) on each rank"
        case Parallel.FSDP:
            return "torch.distributed.fsdp.fully_shard(block) for each repeated block, then fully_shard(model)"
        case Parallel.ZERO:
            wrapped = "ZeroRedundancyOptimizer(model.parameters(), optimizer_class=...)"
            return f"DistributedDataParallel(model), and torch.distributed.optim.{wrapped} around the optimizer's class"
        case Parallel.TENSOR:
            return "torch.distributed.tensor.parallel.parallelize_module(model, mesh, plan); all ranks see one batch"
        case Parallel.DEFAULT:
            return "nothing to do"


def _precision(precision: Precision, device: str) -> str:
    match precision:
        case Precision.TF32:
            return _TF32
        case Precision.FP32:
            return "torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False"
        case Precision.BF16:
            return f"torch.autocast({device!r}, torch.bfloat16) around forward pass and loss; {TF32}"
        case Precision.FP16:
            autocast = f"torch.autocast({device!r}, torch.float16) around forward pass and loss"
            return f"{autocast}, backward pass and step through a torch.amp.GradScaler; {TF32}"
        case Precision.DEFAULT:
            return "nothing to do"
