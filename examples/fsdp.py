"""A small GPT on bytes, its parameters sharded over several processes by FSDP2. Torch only; CPUs (gloo) and GPUs (nccl).

    torchrun --nproc-per-node 2 examples/fsdp.py         # with autotune.json where there is one, else batch 16 on each rank

Each rank holds a share of the parameters, gradients and optimizer state, and gathers one block at a time. With
autotune.json the batch and all settings are those it recommends; where they do not say how the ranks train together
(``parallel``), the script shards as before. As a diff of the script without autotune:

    +import autotune
    +from autotune.apply import leave_group, parallelise
    +from autotune.model import Parallel, Settings

    -    model = make_model()
    -    for block in model.blocks:
    -        fully_shard(block)
    -    fully_shard(model)
    -    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    +    tuned = autotune.load("autotune.json", missing_ok=True, device=device)
    +    model = parallelise(tuned.prepare(make_model()), Settings(parallel=Parallel.FSDP), device=device)
    +    optimizer = tuned.optimizer(torch.optim.AdamW, model.parameters(), lr=LEARNING_RATE)
         for step in range(steps):
    -        optimizer.zero_grad()
    -        value = loss(model, make_batch(BATCH_SIZE).to(device))
    -        value.backward()
    -        optimizer.step()
    +        value = tuned.train_step(model, optimizer, loss, batches(tuned))
    -    dist.destroy_process_group()
    +    leave_group()
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import autotune  # 1
from autotune.apply import leave_group, parallelise  # 2
from autotune.model import Parallel, Settings  # 3

BATCH_SIZE = 16
"""Of one rank, without autotune.json."""
LEARNING_RATE = 1e-3

CONTEXT = 64
WIDTH = 64
LAYERS = 2
HEADS = 4
VOCABULARY = 256


class Block(nn.Module):
    """Attention and MLP, each with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class BytesGPT(nn.Module):
    """Bytes in, logits of the next byte out: (batch, length) -> (batch, length, 256)."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


TEXT = torch.frombuffer(bytearray(Path(__file__).read_bytes()), dtype=torch.uint8)
WINDOWS = TEXT.unfold(0, CONTEXT + 1, 1)


def make_model() -> nn.Module:
    """What is trained."""
    return BytesGPT()


def make_batch(batch_size: int) -> torch.Tensor:
    """Random windows of this very text, (batch, 65). Each rank draws its own: see ``join``."""
    return WINDOWS[torch.randint(0, len(WINDOWS), (batch_size,))]


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each next byte, a mean over the samples."""
    tokens = batch.long()
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def batches(tuned: "autotune.Tuned") -> Iterator[torch.Tensor]:
    """The micro-batches of this rank in one optimizer step."""
    return (make_batch(tuned.batch_size(BATCH_SIZE)).to(tuned.device) for _ in range(tuned.accumulate))


def join() -> torch.device:
    """Meet the other ranks that ``torchrun`` started, and draw other samples than they do; the device of this rank."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(dist.get_rank())
    return device


def train(steps: int) -> None:
    """Train, and let rank 0 say what came of it."""
    device = join()
    tuned = autotune.load("autotune.json", missing_ok=True, device=device)  # 4
    model = parallelise(tuned.prepare(make_model()), Settings(parallel=Parallel.FSDP), device=device)  # 5
    optimizer = tuned.optimizer(torch.optim.AdamW, model.parameters(), lr=LEARNING_RATE)  # 6
    for _step in range(steps):
        value = tuned.train_step(model, optimizer, loss, batches(tuned))  # 7

    dist.all_reduce(value)
    if dist.get_rank() == 0:
        ranks, batch = dist.get_world_size(), tuned.batch_size(BATCH_SIZE)
        print(
            f"{type(model).__name__}, {type(optimizer).__name__}: {ranks} ranks x {batch} x {tuned.accumulate} samples"
        )
        print(f"loss of step {steps}: {value.item() / ranks:.3f}")
    dist.barrier()  # none leaves while another still prints


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a small GPT on bytes; start it with torchrun.")
    parser.add_argument("--steps", type=int, default=50)
    train(parser.parse_args().steps)
    leave_group()  # 8
