"""A training as a user would write it, with a recommendation of autotune or without. Prints one JSON line.

The same script both ways: ``autotune.load`` finds a file or it does not. Nothing of autotune's probes is in here.
"""

import argparse
import inspect
import time
from pathlib import Path
from typing import Any

import torch

import autotune
from benchmarks.comparison.child import load, prepare, say
from benchmarks.grid.stopwatch import time_steps


def optimizer_of(tuned: "autotune.Tuned", made: torch.optim.Optimizer, model: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer that the workload makes, in the implementation that the recommendation names."""
    taken = inspect.signature(type(made)).parameters
    options: dict[str, Any] = {name: value for name, value in made.defaults.items() if name in taken}
    return tuned.optimizer(type(made), model.parameters(), **options)


def main() -> None:
    """Train and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("workload", help="workload file")
    options.add_argument(
        "--config", type=Path, required=True, help="recommendation; where it is not there, without one"
    )
    options.add_argument("--batch", type=int, required=True, help="batch size of a training without a recommendation")
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--cap-bytes", type=int, required=True, help="for PyTorch's allocator; CUDA only")
    options.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    asked = options.parse_args()
    tuned = autotune.load(asked.config, missing_ok=True, device=asked.device)  # before anything uses the device
    workload = load(asked.workload)
    prepare(asked.device, asked.cap_bytes)
    size = tuned.batch_size(asked.batch)
    began = time.perf_counter()
    model = tuned.prepare(workload.make_model())
    model.train()
    optimizer = optimizer_of(tuned, workload.make_optimizer(list(model.parameters())), model)

    def step(batches: Any) -> object:
        return tuned.train_step(model, optimizer, workload.loss, batches)

    def make_batches() -> Any:
        return tuple(workload.make_batch(size) for _ in range(tuned.accumulate))

    timing = time_steps(step, make_batches, asked.device, steps=asked.steps)
    retries, reserved = 0, None
    if asked.device == "cuda":
        retries = int(torch.cuda.memory_stats().get("num_alloc_retries", 0))
        reserved = torch.cuda.max_memory_reserved()
    say(
        {
            "batch": size,
            "accumulate": tuned.accumulate,
            "steps": len(timing.seconds),
            "survived": not timing.message,
            "message": timing.message,
            "samples_per_second": timing.throughput(size * tuned.accumulate),
            "expected": tuned.samples_per_second,
            "first_step_seconds": round(timing.seconds[0], 3) if timing.seconds else None,
            "retries": retries,
            "peak_reserved_bytes": reserved,
            "seconds": round(time.perf_counter() - began, 1),
        }
    )


if __name__ == "__main__":
    main()
