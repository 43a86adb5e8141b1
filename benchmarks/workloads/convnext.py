"""ConvNeXt-S (random weights) on 224x224 images, AdamW. Needs timm."""

import timm
import torch
from torch import nn

# Made once: filling hundreds of images with random numbers on the CPU would take longer than the training step.
IMAGES = torch.randn(1, 3, 224, 224)


def make_model() -> nn.Module:
    return timm.create_model("convnext_small", pretrained=False)


def make_batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return IMAGES.expand(batch_size, -1, -1, -1).contiguous(), torch.randint(0, 1000, (batch_size,))


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    images, targets = batch
    return nn.functional.cross_entropy(model(images).float(), targets)


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=1e-4)
