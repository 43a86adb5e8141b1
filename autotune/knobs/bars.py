"""Why a value cannot be had for a workload on a device, or is not worth a probe there: one function a knob.

All are judges (see ``knob.Judge``): the reason as a sentence without its full stop, empty where there is none. The
default value of a knob asks for nothing, and is not asked about here.
"""

from autotune.knobs.texts import Value
from autotune.model import Checkpointing, Compile, OptimizerKind, Parallel, Precision, Traits


def precision(value: Value, traits: Traits, device: str) -> str:
    """Number formats that the device has."""
    if value == Precision.TF32:
        return traits.tf32_trouble
    if value == Precision.FP32 and traits.tf32_trouble:
        return "a device without tf32 calculates in strict fp32 anyway"
    if value == Precision.BF16:
        return traits.bf16_trouble
    return _fp16(traits) if value == Precision.FP16 else ""


def slow_precision(value: Value, traits: Traits, device: str) -> str:
    """fp16 where no hardware for it is to be expected, bf16 where it is known that there is none."""
    if value == Precision.BF16 and traits.slow_bf16:
        return f"{traits.slow_bf16}; to try it, name it: --allow precision=bf16"
    if value == Precision.FP16 and device == "cpu":
        return "few CPUs calculate in fp16, and bf16 needs no gradient scaler"
    return ""


def init_scale(value: Value, traits: Traits, device: str) -> str:
    """The gradient scaler comes with fp16."""
    return _fp16(traits)


def _fp16(traits: Traits) -> str:
    if traits.lower_parameters:
        return "the model trains parameters in half precision, whose gradients the gradient scaler refuses"
    return traits.fp16_trouble


def checkpointing(value: Value, traits: Traits, device: str) -> str:
    """A switch of the model's own, or blocks to wrap."""
    if not traits.own_checkpointing and not traits.blocks:
        return "the model has neither repeated blocks nor a switch of its own for it"
    if value == Checkpointing.OWN and not traits.own_checkpointing:
        return "the model has no switch of its own for it"
    if value in (Checkpointing.BLOCKS, Checkpointing.ALTERNATE) and not traits.blocks:
        return "the model has no repeated blocks"
    return ""


def weaker_checkpointing(value: Value, traits: Traits, device: str) -> str:
    """Of the model's own switch and wrapped blocks the one that is surer."""
    if value == Checkpointing.OWN and traits.batch_norm_in_blocks:
        return "it would update the running statistics of batch norm twice a step"
    if value == Checkpointing.BLOCKS and traits.own_checkpointing and not traits.batch_norm_in_blocks:
        return f"the model's own switch ({traits.own_checkpointing}) does the same"
    return ""


def compiling(value: Value, traits: Traits, device: str) -> str:
    """A compiler, and for its modes with CUDA graphs a CUDA device."""
    if value == Compile.REDUCE_OVERHEAD and device != "cuda":
        return traits.compile_trouble or "CUDA graphs are of CUDA devices"
    return traits.compile_trouble


def compiling_is_dear(value: Value, traits: Traits, device: str) -> str:
    """Compiling is for static shapes, and on a CPU a search of a minute would become one of several."""
    if traits.varies:
        return "samples differ in length, and every length would be compiled anew"
    return "on a CPU compiling takes half a minute for every size; to try it, name it" if device == "cpu" else ""


def activation_budget(value: Value, traits: Traits, device: str) -> str:
    """It works through the compiler."""
    return traits.compile_trouble


def optimizer(value: Value, traits: Traits, device: str) -> str:
    """Implementations that the optimizer's class has."""
    if not traits.optimizer_kinds:
        return "the optimizer has one implementation only"
    return "" if value in traits.optimizer_kinds else f"the optimizer has no {value} implementation on this device"


def same_optimizer(value: Value, traits: Traits, device: str) -> str:
    """What PyTorch's optimizers do without being told (their default for parameters on CUDA devices)."""
    if value == OptimizerKind.FOREACH and device == "cuda":
        return "PyTorch's optimizers take it by themselves on a CUDA device"
    return ""


def memory_format(value: Value, traits: Traits, device: str) -> str:
    """Only two-dimensional convolutions gain by it."""
    return "" if traits.convolutions else _NO_CONVOLUTIONS


_NO_CONVOLUTIONS = "the model has no two-dimensional convolutions"


def attention(value: Value, traits: Traits, device: str) -> str:
    """Backends that the build and the device have, in a model that uses them."""
    if not traits.attention:
        return "the model does not call scaled_dot_product_attention"
    if device != "cuda":
        return "backends are there to choose from on CUDA devices only"
    return "" if value in traits.attention_backends else f"this build or device has no {value} attention"


def cudnn_benchmark(value: Value, traits: Traits, device: str) -> str:
    """cuDNN, and convolutions for it to choose algorithms for."""
    if device != "cuda":
        return "cuDNN is of CUDA devices"
    return "" if traits.convolutions else _NO_CONVOLUTIONS


def loader_workers(value: Value, traits: Traits, device: str) -> str:
    """A data set, and not more processes than cores."""
    if not traits.data_set:
        return _NO_DATA_SET
    if isinstance(value, int) and value * traits.ranks > traits.cpu_cores:
        who = "this process" if traits.ranks == 1 else f"{traits.ranks} ranks with as many each"
        return f"{who} may use {traits.cpu_cores} {'core' if traits.cpu_cores == 1 else 'cores'}"
    return ""


def pin_memory(value: Value, traits: Traits, device: str) -> str:
    """A data set, and a device to copy to."""
    if not traits.data_set:
        return _NO_DATA_SET
    return "" if device == "cuda" else "memory is pinned for copies to a CUDA device"


_NO_DATA_SET = "the workload has no data set"


def allocator(value: Value, traits: Traits, device: str) -> str:
    """A caching allocator."""
    return "" if device == "cuda" else "the caching allocator is of CUDA devices"


def parallel(value: Value, traits: Traits, device: str) -> str:
    """Several ranks, and what each way of sharing needs of the model."""
    if why := of_ranks(value, traits, device):
        return why
    if value == Parallel.FSDP and not traits.blocks:
        return "the model has no repeated blocks to shard one after the other"
    if value == Parallel.FSDP:
        return traits.shard_trouble
    if value == Parallel.ZERO and 0 < traits.trained_tensors < traits.ranks:
        return (
            f"the optimizer has {traits.trained_tensors} parameters, too few to be shared out to {traits.ranks} ranks"
        )
    if value == Parallel.TENSOR and not traits.tensor_plan:
        return "neither the model (_tp_plan) nor the workload (make_plan) says how to split it"
    return ""


def of_ranks(value: Value, traits: Traits, device: str) -> str:
    """Several ranks."""
    return "" if traits.ranks > 1 else "one rank trains alone; ask for more with --ranks"


def offload(value: Value, traits: Traits, device: str) -> str:
    """Several ranks on devices with memory of their own."""
    return of_ranks(value, traits, device) or ("" if device == "cuda" else "there is no device beside the host")
