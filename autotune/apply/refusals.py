"""Operations that refuse what a setting makes of their inputs: said as ``Unsupported``, not as an error of the user's."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from autotune.apply.unsupported import Unsupported
from autotune.model import Attention, MemoryFormat, OptimizerKind, Parallel, Precision, Settings

_MIXED_TYPES = (
    "must have the same dtype",
    "should be the same",
    "expected scalar type",
    "dtypes match",
    "same dtype",
    "unsafe to autocast",
    "not implemented for 'half'",
    "not implemented for 'bfloat16'",
)
"""How PyTorch says that two inputs differ in type, or have one that the operation does not know. Lower case."""
_FUSED = "fused=true"
_NO_SHARDS = "does not have a sharding strategy registered"
_STRIDES = ("view size is not compatible with input tensor's size and stride",)
_UNUSED = ("expected to have finished reduction in the prior iteration",)
_NO_KERNEL = ("no available kernel", "no viable backend for scaled_dot_product_attention")


def forward_explained(settings: Settings) -> AbstractContextManager[None]:
    """Tells a refusal in forward pass or loss that these settings can be the reason of from other errors, which pass.

    Raises:
        Unsupported: with the operation's own words.
    """
    return _explained(lambda text: _forward_reason(settings, text))


def optimizer_explained(settings: Settings) -> AbstractContextManager[None]:
    """The same for making the optimizer and for its steps: releases of PyTorch differ in when they look at the parameters.

    Raises:
        Unsupported: with the optimizer's own words.
    """
    return _explained(lambda text: _optimizer_reason(settings, text))


@contextmanager
def _explained(reason: Callable[[str], str]) -> Iterator[None]:
    """``reason``: of an error with this text in lower case; empty if the settings have nothing to do with it."""
    try:
        yield
    except RuntimeError as error:
        if why := reason(str(error).lower()):
            raise Unsupported(f"{why}: {error}") from error
        raise


def _optimizer_reason(settings: Settings, text: str) -> str:
    if settings.optimizer is OptimizerKind.FUSED and _FUSED in text:
        return "the fused optimizer does not take these parameters"
    if settings.parallel in (Parallel.FSDP, Parallel.TENSOR) and _NO_SHARDS in text:
        return f"this optimizer ({settings.optimizer.value}) does not work on shards of parameters"
    return ""


def _forward_reason(settings: Settings, text: str) -> str:
    if settings.precision in (Precision.BF16, Precision.FP16) and any(words in text for words in _MIXED_TYPES):
        return f"an operation refuses what {settings.precision.value} autocast hands it"
    if settings.memory_format is MemoryFormat.CHANNELS_LAST and any(words in text for words in _STRIDES):
        return "an operation relies on the usual order of dimensions, and channels_last has another"
    if settings.attention is not Attention.DEFAULT and any(words in text for words in _NO_KERNEL):
        return f"the {settings.attention.value} backend does not take this attention"
    if settings.parallel in (Parallel.DDP, Parallel.ZERO) and any(words in text for words in _UNUSED):
        return "DDP waits for gradients of parameters that the loss does not use; static_graph=true takes such models"
    return ""
