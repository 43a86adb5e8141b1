"""Models of other libraries, random weights and inputs: `hub_models.py resnet50` (torchvision), `gpt2` (transformers)."""

import sys
from typing import Any

import torch
from torch import nn
from torch.nn import functional

KIND = sys.argv[1]

if KIND == "resnet50":
    import torchvision

    def make_model() -> nn.Module:
        return torchvision.models.resnet50()

    def make_batch(batch_size: int) -> Any:
        return torch.randn(batch_size, 3, 224, 224), torch.randint(0, 1000, (batch_size,))

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        images, targets = batch
        return functional.cross_entropy(model(images), targets)

    def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, lr=0.1, momentum=0.9)

else:
    from transformers import GPT2Config, GPT2LMHeadModel

    def make_model() -> nn.Module:
        """GPT-2 small, two of its twelve layers."""
        return GPT2LMHeadModel(GPT2Config(n_layer=2, use_cache=False))

    def make_batch(batch_size: int) -> Any:
        ids = torch.randint(0, 50257, (batch_size, 128))
        return {"input_ids": ids, "labels": ids}

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return model(**batch).loss

    def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(params, lr=1e-4)
