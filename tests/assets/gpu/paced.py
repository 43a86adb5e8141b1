"""A small model with blocks, attention and a convolution, whose steps take planted times that follow from its settings.

What a step takes does not depend on how fast a device is, so that searches on one and on two of them come to one answer. As
on a device, there is a time for each step and one for each sample. bf16 and channels_last pay; fp16, other backends of attention
and cuDNN's choice of kernels cost a few per cent; checkpointed blocks are run, and slept in, twice. A sample holds some 0.1 GiB,
whatever the precision.
"""

import time

import torch
from torch import nn
from torch.nn import functional

SAMPLE_S, HALF = 0.008, 20
"""Seconds of a sample; throughput is half of what it tends to at this batch size."""
HEADS, LENGTH, WIDTH, BLOCKS = 4, 32, 64, 3
TIMES = 2048
"""That a block repeats what it holds: 16 MiB a sample."""


def step_s(samples: int, channels_last: bool) -> float:
    """What a step should take under the settings that are in force."""
    seconds = SAMPLE_S * (HALF + samples)
    if torch.is_autocast_enabled("cuda"):
        seconds *= 0.5 if torch.get_autocast_dtype("cuda") is torch.bfloat16 else 0.54
    if channels_last:
        seconds *= 0.93
    if torch.backends.cudnn.benchmark:
        seconds *= 1.03
    if not torch.backends.cuda.math_sdp_enabled():  # one backend alone
        seconds *= 1.05
    return seconds


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.pause_s = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.pause_s)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.mix(x).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        held = x.repeat(1, 1, TIMES).sin().cos()
        return x + held.unflatten(-1, (TIMES, WIDTH)).mean(dim=2)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(4, 4, 3, padding=1)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.stem.weight
        other = weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
        x = x + self.stem(x.unflatten(1, (4, -1))).flatten(1, 2)
        for block in self.blocks:
            block.pause_s = step_s(len(x), other) / BLOCKS
            x = block(x)
        return x


def make_model() -> nn.Module:
    return Model()


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.randn(batch_size, LENGTH, WIDTH)


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).float().pow(2).mean()
