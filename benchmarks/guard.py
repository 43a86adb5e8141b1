"""What a guard costs: the time of a training step with ``autotune.guard`` and without, in turns in one process.

    python benchmarks/guard.py --out guard.json                  # on a CUDA device, about two minutes
    python benchmarks/guard.py --device cpu --sizes tiny --blocks 2 --steps 5

Each block is so many steps without a guard, as many with its defaults (a look every ten steps and half a second), and
as many with a look and a line of the log in every single step, which is the most that it can cost. The device is waited
for before and after a block only. The share is the median over the blocks, each against the plain block beside it; the
spread of plain blocks against each other says how much of it is noise. Also: how long an emergency checkpoint takes.
"""

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import autotune

Step = Callable[[], object]


class Transformer(nn.Module):
    """Tokens in, cross-entropy of the next token out."""

    def __init__(self, words: int, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.layers(self.tokens(tokens) + self.places, mask=self.mask, is_causal=True)
        return F.cross_entropy(self.head(hidden)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


SIZES = {
    "gpt2": ("as large as GPT-2 (163M with its own head), 8 x 1024 tokens, bf16", 50257, 768, 12, 12, 1024, 8),
    "small": ("a tenth of it, 8 x 256 tokens, bf16", 50257, 256, 6, 4, 256, 8),
    "tiny": ("one small layer, 2 x 32 tokens: a step of little else than launches", 256, 64, 1, 2, 32, 2),
}
"""name -> (in words, vocabulary, width, layers, heads, tokens, samples)."""


def measure(size: str, device: torch.device, blocks: int, steps: int) -> dict[str, object]:
    """Times of one model, in seconds a step."""
    description, words, width, layers, heads, length, samples = SIZES[size]
    torch.manual_seed(0)
    model = Transformer(words, width, layers, heads, length).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randint(0, words, (samples, length), device=device)

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return model(batch)

    def plain() -> None:
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "emergency.pt"
        default = autotune.guard(model, optimizer, log=Path(folder) / "default.jsonl", checkpoint=path)
        busy = autotune.guard(model, optimizer, log=Path(folder) / "busy.jsonl", every=1, least_seconds=0)
        ways: dict[str, Step] = {
            "plain": plain,
            "guarded": lambda: default.train_step(loss, [batch]),
            "guarded_look_every_step": lambda: busy.train_step(loss, [batch]),
            "plain_again": plain,
        }
        for way in ways.values():
            block(way, max(3, steps // 5), device)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(blocks):
            for name in list(ways) if number % 2 == 0 else list(reversed(ways)):
                seconds[name].append(block(ways[name], steps, device))
        began = time.perf_counter()
        default.save(path)
        saving, saved = time.perf_counter() - began, path.stat().st_size
        default.close()
        busy.close()
    beside = seconds["plain"]
    return {
        "model": description,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds_a_step": {name: statistics.median(times) for name, times in seconds.items()},
        "share": {
            name: statistics.median(time / alone - 1 for time, alone in zip(times, beside, strict=True))
            for name, times in seconds.items()
            if name != "plain"
        },
        "microseconds_a_step": {
            name: 1e6 * statistics.median(time - alone for time, alone in zip(times, beside, strict=True))
            for name, times in seconds.items()
            if name != "plain"
        },
        "checkpoint_seconds": saving,
        "checkpoint_bytes": saved,
    }


def block(step: Step, steps: int, device: torch.device) -> float:
    """Seconds a step."""
    wait(device)
    began = time.perf_counter()
    for _ in range(steps):
        step()
    wait(device)
    return (time.perf_counter() - began) / steps


def wait(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30, help="in a block")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    found: dict[str, object] = {
        "command": " ".join(sys.argv),
        "device": name,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    print("| model | plain | guarded | a look every step | noise | checkpoint |\n| --- | --- | --- | --- | --- | --- |")
    for size in arguments.sizes:
        seen = measure(size, device, arguments.blocks, arguments.steps)
        found[size] = seen
        print(row(seen), flush=True)
        if arguments.out is not None:
            arguments.out.write_text(json.dumps(found, indent=1) + "\n")


def row(seen: dict[str, object]) -> str:
    """A line of the table."""
    seconds, share, more = seen["seconds_a_step"], seen["share"], seen["microseconds_a_step"]
    assert isinstance(seconds, dict) and isinstance(share, dict) and isinstance(more, dict)
    cells = [
        f"{share[name]:+.2%} ({more[name]:+.0f} us)" for name in ("guarded", "guarded_look_every_step", "plain_again")
    ]
    saved = f"{seen['checkpoint_seconds']:.2f} s, {float(str(seen['checkpoint_bytes'])) / 2**20:,.0f} MiB"
    return f"| {seen['model']} | {1000 * seconds['plain']:.2f} ms | {' | '.join(cells)} | {saved} |"


if __name__ == "__main__":
    main()
