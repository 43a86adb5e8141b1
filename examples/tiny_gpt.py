"""A small GPT on bytes; it learns its own source. Torch only.

autotune search examples/tiny_gpt.py --memory-limit 512MiB
python examples/tiny_gpt.py 16        # plain training at batch 16
"""

import ctypes
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


def pin_heap() -> None:
    """Have the C library map each large tensor by itself and give it back when it is freed (Linux, glibc).

    By default glibc moves what was freed once into its heap, which then fragments by chance: the same training needed
    535 to 590 MiB from run to run where 456 MiB are enough (batch 34, two threads, glibc 2.36, torch 2.13). The same is
    had without code by MALLOC_MMAP_THRESHOLD_=131072 in the environment.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-3, 128 * 1024)  # M_MMAP_THRESHOLD and
        mallopt(-1, 128 * 1024)  # M_TRIM_THRESHOLD, fixed: see mallopt(3)


pin_heap()

CONTEXT = 128
WIDTH = 128
LAYERS = 4
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


class TinyGPT(nn.Module):
    """Bytes in, next-byte logits out: (batch, length) -> (batch, length, 256)."""

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


TEXT = torch.frombuffer(bytearray(Path(__file__).read_bytes()), dtype=torch.uint8).long()


def make_model() -> nn.Module:
    """What is trained."""
    return TinyGPT()


def make_batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random windows of the text: inputs and the same shifted by one, each (batch, 128)."""
    starts = torch.randint(0, len(TEXT) - CONTEXT - 1, (batch_size,))
    windows = TEXT[starts[:, None] + torch.arange(CONTEXT + 1)]
    return windows[:, :-1], windows[:, 1:]


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Cross-entropy of the next byte."""
    inputs, targets = batch
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def train(batch_size: int, steps: int = 50) -> float:
    """A plain training loop, as one would write it without autotune; returns the last loss."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters())
    last = float("nan")
    for _ in range(steps):
        batch = make_batch(batch_size)
        optimizer.zero_grad(set_to_none=True)
        value = loss(model, batch)
        value.backward()
        optimizer.step()
        last = value.item()
    return last


if __name__ == "__main__":
    print(f"loss after 50 steps: {train(int(sys.argv[1]) if len(sys.argv) > 1 else 16):.3f}")
