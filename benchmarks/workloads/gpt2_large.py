"""GPT-2 large, 774M, from its configuration (random weights), 64 tokens, AdamW. Needs transformers.

Parameters, gradients and the optimizer's state take 11.5 GiB in fp32. Every process makes the model anew, so its random
numbers are drawn once and repeated: 3 GiB of fresh ones would take longer than a probe.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

TOKENS = 64
LARGE = {"n_embd": 1280, "n_layer": 36, "n_head": 20}
NUMBERS = (1 << 20) + 7
"""Normal ones to repeat; no multiple of a layer's width, so that its rows differ."""


@contextmanager
def repeated_numbers() -> Iterator[None]:
    """Within, ``normal_`` of any tensor fills it with the same normal numbers again and again."""
    numbers = torch.randn(NUMBERS)

    def fill(self: torch.Tensor, mean: float = 0.0, std: float = 1.0, **_: object) -> torch.Tensor:
        for part in self.detach().view(-1).split(NUMBERS):
            torch.mul(numbers[: len(part)], std, out=part).add_(mean)
        return self

    torch.Tensor.normal_ = fill  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        del torch.Tensor.normal_  # what it inherits is there again


def make_model() -> nn.Module:
    with repeated_numbers():
        return GPT2LMHeadModel(GPT2Config(n_positions=TOKENS, use_cache=False, **LARGE))


def make_batch(batch_size: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, 50257, (batch_size, TOKENS))
    return {"input_ids": ids, "labels": ids}


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return model(**batch).loss


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=1e-4)


def shorten(batch: dict[str, torch.Tensor], share: float) -> dict[str, torch.Tensor]:
    """The batch of shorter texts that a real data set has between long ones."""
    ids = batch["input_ids"][:, : round(TOKENS * share)].contiguous()
    return {"input_ids": ids, "labels": ids}
