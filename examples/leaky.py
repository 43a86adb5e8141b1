"""A small training that keeps the loss of every step with its autograd graph: `autotune diagnose examples/leaky.py`.

The short run of a test never shows it. The fix is in the comment.
"""

import torch
from torch import nn

history: list[torch.Tensor] = []


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))


def make_batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch_size, 64), torch.randint(0, 8, (batch_size,))


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    inputs, targets = batch
    result = nn.functional.cross_entropy(model(inputs), targets)
    smooth = model(inputs).softmax(dim=-1).amax(dim=-1).mean()  # only for a plot
    history.append(smooth)  # the fix: history.append(smooth.item())
    return result
