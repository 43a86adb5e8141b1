"""A small convolutional net with batch norm on random images. Torch only.

autotune search examples/convnet.py --memory-limit 1GiB
"""

import torch
from torch import nn

CLASSES = 10


class Residual(nn.Module):
    """Two convolutions with batch norm around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


def make_model() -> nn.Module:
    """Images (batch, 3, 64, 64) -> logits (batch, 10)."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        Residual(32),
        nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        Residual(64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )


def make_batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and class numbers: the pair gives cross-entropy, so no loss function is needed."""
    return torch.randn(batch_size, 3, 64, 64), torch.randint(0, CLASSES, (batch_size,))


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    """SGD with momentum keeps one state tensor a parameter, AdamW two."""
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)


def evaluate(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Accuracy; autotune runs it in eval mode between training steps."""
    images, labels = batch
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())
