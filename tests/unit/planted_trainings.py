"""Trainings whose passes run out of memory above a number of samples: forward, or in the middle of the backward pass."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from autotune.runtime.readings import Reading
from autotune.units import GIB

Batch = tuple[torch.Tensor, torch.Tensor]
Loss = Callable[[Any, Any], torch.Tensor]

WIDTH, CLASSES, LENGTH, IGNORED = 6, 5, 7, -100


def out_of_memory() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB"
    )


def make_model(*middle: nn.Module, out: int = CLASSES) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), *middle, nn.Linear(8, out))


class Failing:
    """Wraps a loss: passes of more than ``largest`` samples run out of memory.

    In the backward pass they do so when the gradient has come to ``at`` (a layer): what is behind it has been accumulated.
    """

    def __init__(self, loss: Loss, largest: int, *, at: nn.Module | None = None) -> None:
        self.loss, self.largest, self.at = loss, largest, at
        self.tried: list[int] = []
        """Samples of each pass."""

    def __call__(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        samples = batch[0].shape[0]
        self.tried.append(samples)
        fails = samples > self.largest
        if fails and self.at is None:
            raise out_of_memory()
        if not fails:
            return self.loss(model, batch)

        def stop(gradient: torch.Tensor) -> torch.Tensor:
            raise out_of_memory()

        def hook(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
            output.register_hook(stop)  # type: ignore[no-untyped-call]

        assert self.at is not None
        handle = self.at.register_forward_hook(hook)
        try:
            return self.loss(model, batch)
        finally:
            handle.remove()


def cross_entropy(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def mean_square(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.mse_loss(model(batch[0]), batch[1])


def noisy(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Draws random numbers of its own, as diffusion does."""
    return mean_square(model, (batch[0] + torch.randn_like(batch[0]), batch[1]))


def sum_of_squares(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.mse_loss(model(batch[0]), batch[1], reduction="sum")


def yes_or_no(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(model(batch[0]), batch[1])


def of_tokens(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten(), ignore_index=IGNORED)


def count_tokens(batch: Batch) -> torch.Tensor:
    return (batch[1] != IGNORED).sum()


def contrastive(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Each sample is told from all others of the batch."""
    one, other = F.normalize(model(batch[0]), dim=-1), F.normalize(model(batch[1]), dim=-1)
    return F.cross_entropy(one @ other.T, torch.arange(len(one)))


def make_batch(loss: Loss, samples: int, seed: int = 5) -> Batch:
    """Of random numbers; sequences have between one and LENGTH tokens that count."""
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, WIDTH, generator=draw)
    if loss is cross_entropy:
        return inputs, torch.randint(0, CLASSES, (samples,), generator=draw)
    if loss is contrastive:
        return inputs, inputs + 0.1 * torch.randn(samples, WIDTH, generator=draw)
    if loss is of_tokens:
        labels = torch.randint(0, CLASSES, (samples, LENGTH), generator=draw)
        for row in range(samples):
            labels[row, 1 + (5 * row + seed) % LENGTH :] = IGNORED
        return torch.randn(samples, LENGTH, WIDTH, generator=draw), labels
    targets = torch.randn(samples, CLASSES, generator=draw)
    return inputs, targets.sigmoid() if loss is yes_or_no else targets


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def assert_same_gradients(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    """Within what rounding of sums in float32 makes of them."""
    assert len(found) == len(wanted) > 0
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 * float(other.abs().max()))


# What a guard is told of memory and time

CAPACITY = 80 * GIB


class PlantedMeter:
    """Tells what it is told, and counts how often it was asked."""

    def __init__(self, used: int = 10 * GIB) -> None:
        self.used, self.allocated, self.retries, self.asked = used, used // 2, 0, 0

    def read(self) -> Reading:
        self.asked += 1
        return Reading(
            allocated_bytes=self.allocated,
            reserved_bytes=self.used - GIB,
            reserved_peak_bytes=self.used - GIB,
            used_bytes=self.used,
            capacity_bytes=CAPACITY,
            host_rss_bytes=GIB,
            retries=self.retries,
        )


class Clock:
    """Stands still unless it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
