"""ResNet-50 (random weights) on 224x224 images, SGD with momentum. Needs torchvision."""

import torch
import torchvision
from torch import nn

# Made once: filling 480 images with random numbers on the CPU would take longer than the training step.
IMAGES = torch.randn(1, 3, 224, 224)


def make_model() -> nn.Module:
    return torchvision.models.resnet50()


def make_batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return IMAGES.expand(batch_size, -1, -1, -1).contiguous(), torch.randint(0, 1000, (batch_size,))


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    images, targets = batch
    return nn.functional.cross_entropy(model(images), targets)


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)
