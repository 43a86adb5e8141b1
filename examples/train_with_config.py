"""A training script that runs with the settings and the batch autotune found, and as it was without them. Torch only.

    python examples/train_with_config.py                               # batch 16, PyTorch's defaults
    autotune search examples/train_with_config.py --output autotune.json
    python examples/train_with_config.py                               # what autotune.json recommends

The same file is model file and training script: functions at the top level, training under the main guard. What
autotune needs in the training are five lines, marked below; as a diff of the script without it:

    +import autotune

    -    model = make_model().to(device)
    -    optimizer = make_optimizer(model.parameters())
    +    tuned = autotune.load("autotune.json", missing_ok=True)
    +    model = tuned.prepare(make_model())
    +    optimizer = tuned.optimizer(torch.optim.AdamW, model.parameters(), lr=LEARNING_RATE)
         for step in range(steps):
    -        batch = make_batch(BATCH_SIZE).to(device)
    -        optimizer.zero_grad()
    -        value = loss(model, batch)
    -        value.backward()
    -        optimizer.step()
    +        value = tuned.train_step(model, optimizer, loss, batches(tuned))
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import autotune  # 1

BATCH_SIZE = 16
"""What one would take without autotune."""
LEARNING_RATE = 1e-3
WARM_UP = 3
"""First steps that are not timed: compiling, choosing kernels, making the optimizer's state."""

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
    """Random windows of this very text, (batch, 129). Bytes stay bytes on their way to the device."""
    return WINDOWS[torch.randint(0, len(WINDOWS), (batch_size,))]


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each next byte."""
    tokens = batch.long()
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    """What autotune trains with; the training below says the same."""
    return torch.optim.AdamW(params, lr=LEARNING_RATE)


def batches(tuned: "autotune.Tuned") -> Iterator[torch.Tensor]:
    """The micro-batches of one optimizer step, each made when the one before it is done."""
    return (make_batch(tuned.batch_size(BATCH_SIZE)).to(tuned.device) for _ in range(tuned.accumulate))


def now(device: torch.device) -> float:
    """The time when the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def train(steps: int) -> None:
    """Train, and say how fast it went."""
    tuned = autotune.load("autotune.json", missing_ok=True)  # 2
    model = tuned.prepare(make_model())  # 3
    optimizer = tuned.optimizer(torch.optim.AdamW, model.parameters(), lr=LEARNING_RATE)  # 4
    began = 0.0
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            began = now(tuned.device)
        value = tuned.train_step(model, optimizer, loss, batches(tuned))  # 5
    rate = steps * tuned.batch_size(BATCH_SIZE) * tuned.accumulate / (now(tuned.device) - began)

    print(tuned)
    print(f"{rate:,.1f} samples/s over {steps} steps of {tuned.batch_size(BATCH_SIZE)} x {tuned.accumulate} samples")
    print(f"loss of the last step: {value.item():.3f}")
    expected = tuned.samples_per_second
    if expected is not None:
        print(f"{100 * (rate / expected - 1):+.1f} % against the {expected:,.1f} samples/s that autotune measured")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a small GPT on bytes.")
    parser.add_argument("--steps", type=int, default=50, help=f"timed steps, after {WARM_UP} to warm up")
    train(parser.parse_args().steps)
