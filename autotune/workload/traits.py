"""What of a workload decides which settings make sense for it, found by looking at it: nothing is run.

The model may be one whose parameters were never initialised; only their shapes and types count.
"""

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils import _foreach_utils

from autotune.apply import Unsupported, sharding
from autotune.apply.blocks import find_blocks, own_switch
from autotune.apply.optimizers import CHOSEN_BY, parameters_of
from autotune.apply.splitting import plan_of
from autotune.model import OptimizerKind, Settings, Traits
from autotune.workload.task import Workload

_HALF = (torch.float16, torch.bfloat16)
_SDPA = "scaled_dot_product_attention"
_CONVOLUTIONS = frozenset({"conv2d", "conv_transpose2d"})


def traits_of(model: nn.Module, optimizer: torch.optim.Optimizer, workload: Workload, device: str) -> Traits:
    """What the model, its optimizer and its data tell; what only the device knows is left at its defaults.

    Args:
        model: as the workload makes it.
        optimizer: of its trainable parameters.
        workload: where batches come from.
        device: kind of device it will be trained on.
    """
    blocks = [model.get_submodule(name) for name in find_blocks(model)]
    parameters = list(model.parameters())
    return Traits(
        blocks=", ".join(dict.fromkeys(type(block).__name__ for block in blocks)),
        num_blocks=len(blocks),
        own_checkpointing=own_switch(model),
        convolutions=_convolves(model),
        attention=_attends(model),
        batch_norm=any(isinstance(part, _BatchNorm) for part in model.modules()),
        batch_norm_in_blocks=any(_keeps_statistics(part) for block in blocks for part in block.modules()),
        dropout=any(_drops(part) for part in model.modules()),
        lower_parameters=any(p.requires_grad and p.dtype in _HALF for p in parameters),
        frozen=any(not p.requires_grad for p in parameters),
        trained_tensors=sum(p.requires_grad for p in parameters),
        shard_trouble=_shard_trouble(model),
        optimizer_kinds=optimizer_kinds(optimizer, device),
        data_set=workload.has_data_set,
        varies=workload.varies,
        tensor_plan=workload.has_plan or plan_of(model) is not None,
    )


def _shard_trouble(model: nn.Module) -> str:
    try:
        sharding.check(model, Settings())
    except Unsupported as refused:
        return str(refused)
    return ""


def optimizer_kinds(optimizer: torch.optim.Optimizer, device: str) -> tuple[str, ...]:
    """Implementations that the optimizer's class can be asked for on this kind of device, in the order of the enum."""
    taken = parameters_of(type(optimizer)) & optimizer.defaults.keys()
    kinds = [kind for kind, flag in CHOSEN_BY.items() if flag in taken]
    return tuple(str(kind) for kind in kinds if kind is not OptimizerKind.FUSED or _is_fused(type(optimizer), device))


def _is_fused(cls: type, device: str) -> bool:
    """Whether PyTorch's fused kernel of this optimizer is built for this kind of device.

    Asked of the dispatcher, which touches no device: Adagrad's, for one, is there for CPUs only. Both questions are
    private to PyTorch; where one cannot be put, the optimizer itself says no in the first probe.
    """
    of_torch = next((owner.__name__ for owner in cls.__mro__ if owner.__module__.startswith("torch.optim")), "")
    supported = getattr(_foreach_utils, "_get_fused_kernels_supported_devices", None)
    has_kernel = getattr(torch._C, "_dispatch_has_kernel_for_dispatch_key", None)
    if supported is not None and device not in supported():
        return False
    operation = f"aten::_fused_{of_torch.lower()}_"
    if has_kernel is None or not hasattr(torch, operation.removeprefix("aten::")):
        return True
    return bool(has_kernel(operation, device.upper()))


def _convolves(model: nn.Module) -> bool:
    if any(isinstance(part, nn.Conv2d | nn.ConvTranspose2d) for part in model.modules()):
        return True
    filters = any(parameter.dim() == 4 for parameter in model.parameters())
    return filters and any(name in _CONVOLUTIONS for name, _ in _called(model))


def _attends(model: nn.Module) -> bool:
    """By PyTorch's own module, by what transformers was configured to, or by a call in the code of the model."""
    for part in model.modules():
        if isinstance(part, nn.MultiheadAttention):
            return True
        if getattr(vars(part).get("config"), "_attn_implementation", None) == "sdpa":
            return True
    sdpa = getattr(nn.functional, _SDPA)
    return any(name == _SDPA or value is sdpa for name, value in _called(model))


def _keeps_statistics(part: nn.Module) -> bool:
    return isinstance(part, _BatchNorm) and part.track_running_stats


def _drops(part: nn.Module) -> bool:
    if isinstance(part, _DropoutNd):
        return part.p > 0
    return isinstance(part, nn.MultiheadAttention | nn.RNNBase) and part.dropout > 0


def _called(model: nn.Module) -> Iterator[tuple[str, object]]:
    """Names in the code of the model's own classes and of the functions that this calls, one level deep, each with what a
    global name stands for (None for others). The name of an attribute is all that is known of it: ``F.conv2d`` is
    ``conv2d``, whatever ``F`` may be."""
    seen: set[CodeType] = set()
    for method in _methods(model):
        yield from _names(method, seen)
        for function in _functions_in(method):
            yield from _names(function, seen)


def _methods(model: nn.Module) -> Iterator[FunctionType]:
    """Of all classes of the model but PyTorch's own."""
    parts = list(model.modules())
    classes = dict.fromkeys(owner for part in parts for owner in type(part).__mro__ if not _is_torch(owner))
    values = [value for owner in classes for value in vars(owner).values()]
    values += [vars(part).get("forward") for part in parts]  # replaced in one object alone
    for value in values:
        inner = value.fget if isinstance(value, property) else value
        inner = inner.__func__ if isinstance(inner, staticmethod | classmethod | MethodType) else inner
        yield from _unwrapped(inner)


def _functions_in(method: FunctionType) -> Iterator[FunctionType]:
    """Functions outside of PyTorch that the code of a method names, by themselves or as attributes of a Python module."""
    names = {name for code in _codes(method.__code__) for name in code.co_names}
    known = [method.__globals__.get(name) for name in sorted(names)]
    for module in [value for value in known if isinstance(value, ModuleType) and not _is_torch(value)]:
        known += [vars(module).get(name) for name in sorted(names)]
    for value in known:
        if isinstance(value, FunctionType) and not _is_torch(value):
            yield from _unwrapped(value)


def _unwrapped(value: object) -> Iterator[FunctionType]:
    """The function inside of its decorators, if it is one."""
    inner = inspect.unwrap(value) if isinstance(value, FunctionType) else None
    if isinstance(inner, FunctionType):
        yield inner


def _names(function: FunctionType, seen: set[CodeType]) -> Iterator[tuple[str, object]]:
    for code in _codes(function.__code__):
        if code not in seen:
            seen.add(code)
            yield from ((name, function.__globals__.get(name)) for name in code.co_names)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code and that of everything defined inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_torch(thing: FunctionType | type | ModuleType) -> bool:
    """PyTorch's own, or Python's."""
    name = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
    return str(name).split(".", 1)[0] in ("torch", "builtins")
