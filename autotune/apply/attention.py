"""Which backend ``scaled_dot_product_attention`` uses."""

from contextlib import AbstractContextManager, nullcontext

from torch.nn.attention import SDPBackend, sdpa_kernel

from autotune.model import Attention

_BACKENDS = {
    Attention.MATH: SDPBackend.MATH,
    Attention.EFFICIENT: SDPBackend.EFFICIENT_ATTENTION,
    Attention.FLASH: SDPBackend.FLASH_ATTENTION,
    Attention.CUDNN: SDPBackend.CUDNN_ATTENTION,
}


def backend(attention: Attention) -> AbstractContextManager[object]:
    """Only this backend inside, in the whole process; for inputs it cannot take PyTorch raises a RuntimeError."""
    chosen = _BACKENDS.get(attention)
    return nullcontext() if chosen is None else sdpa_kernel(chosen)
