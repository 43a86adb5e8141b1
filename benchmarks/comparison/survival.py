"""Does a batch size survive real training? Many steps in a process of its own under the cap. Prints one JSON line.

Texts vary in length, the full length coming now and then; every 25 steps there is an evaluation in eval mode and a copy
of the ``state_dict`` on the host, as for a checkpoint.
"""

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from benchmarks.comparison.child import Training, Workload, load, parser, prepare, say, to_device

SHORTEST = 0.25
"""Of the full length."""
FULL_EVERY = 10
PAUSE_EVERY = 25


def shares(steps: int, seed: int = 0) -> list[float]:
    """Length of the texts of each step as a share of the full one, in (0, 1]."""
    draw = random.Random(seed)
    return [1.0 if step % FULL_EVERY == 0 else draw.uniform(SHORTEST, 1.0) for step in range(1, steps + 1)]


class Trains(Protocol):
    """What is trained, as far as a pause and a step concern it."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer

    def autocast(self) -> AbstractContextManager[object]:
        """Where forward pass and loss run."""

    def step(self, batch: Any) -> object:
        """One optimizer step."""


def pause(training: Trains, workload: Workload, batch_size: int, device: str) -> None:
    """Evaluate on a full batch, and copy model and optimizer to the host."""
    training.model.eval()
    with torch.no_grad(), training.autocast():
        workload.loss(training.model, to_device(workload.make_batch(batch_size), device))
    training.model.train()
    copied = [value.cpu() for value in training.model.state_dict().values()]
    for state in training.optimizer.state_dict()["state"].values():
        copied += [value.cpu() for value in state.values() if isinstance(value, torch.Tensor)]


def endure(
    make: Callable[[], Trains], workload: Workload, batch_size: int, steps: int, device: str, seed: int = 0
) -> tuple[int, str]:
    """Make what is trained, and train it for so many steps.

    Returns:
        Steps that were done, and what ended them too early; empty if nothing did.
    """
    done = 0
    try:
        training = make()
        for share in shares(steps, seed):
            made = workload.make_batch(batch_size)
            if workload.shorten is not None and share < 1:
                made = workload.shorten(made, share)
            batch = to_device(made, device)  # the former one lives until this is there
            training.step(batch)
            if (done + 1) % PAUSE_EVERY == 0:
                pause(training, workload, batch_size, device)
            done += 1
        if device.startswith("cuda"):
            torch.cuda.synchronize()
    except RuntimeError as error:  # out of memory comes in many texts, and whatever else it is, it did not survive
        first, *_ = str(error).splitlines() or [""]
        return done, f"{type(error).__name__}: {first}"
    return done, ""


def main() -> None:
    """Train and print."""
    options = parser(__doc__)
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--steps", type=int, default=200)
    asked = options.parse_args()
    workload = load(asked.workload)
    prepare(asked.device, asked.cap_bytes)
    began = time.perf_counter()

    def make() -> Training:
        return Training(workload, asked.device, asked.precision)

    done, message = endure(make, workload, asked.batch, asked.steps, asked.device)
    retries, reserved = 0, None
    if asked.device == "cuda":
        retries = int(torch.cuda.memory_stats().get("num_alloc_retries", 0))
        reserved = torch.cuda.max_memory_reserved()
    say(
        {
            "batch": asked.batch,
            "survived": not message,
            "steps": done,
            "retries": retries,
            "peak_reserved_bytes": reserved,
            "seconds": round(time.perf_counter() - began, 1),
            "message": message,
        }
    )


if __name__ == "__main__":
    main()
