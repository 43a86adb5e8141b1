"""pytorch-autotune's tuner on a workload file at a given batch, in a process of its own. Prints one JSON line.

Everything that decides its pick is its own default: its budget ("balanced"), its cache (an empty one), its loss. It is told
the workload's optimizer by name, which lets it try the fused one. Its pick is then timed as everybody's, with fresh batches.
"""

import argparse
import importlib
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.comparison.child import Workload, load, prepare, say, to_device
from benchmarks.grid.stopwatch import TIMED, WARM_UP, time_steps

PACKAGE = "pytorch_autotune"
_NAMES = {torch.optim.AdamW: "adamw", torch.optim.Adam: "adam", torch.optim.SGD: "sgd"}


def optimizer_for(workload: Workload, model: torch.nn.Module) -> tuple[str | Callable[..., Any], float]:
    """What the tuner is given as optimizer, and the learning rate: the name where it knows the class."""
    made = workload.make_optimizer(list(model.parameters()))
    name = _NAMES.get(type(made))
    return (name or (lambda params: workload.make_optimizer(list(params)))), float(made.defaults.get("lr", 1e-3))


def main() -> None:
    """Tune, time and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("workload", help="workload file")
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--budget", default="balanced", help="fast, balanced, max or seconds")
    options.add_argument("--cap-bytes", type=int, required=True, help="for PyTorch's allocator; CUDA only")
    options.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    asked = options.parse_args()
    tune = importlib.import_module(PACKAGE).autotune
    workload = load(asked.workload)
    prepare(asked.device, asked.cap_bytes)
    model = workload.make_model()
    model.train()
    optimizer, rate = optimizer_for(workload, model)
    budget = int(asked.budget) if asked.budget.isdecimal() else asked.budget
    began = time.perf_counter()
    example = to_device(workload.make_batch(asked.batch), asked.device)
    result = tune(model, example, optimizer=optimizer, lr=rate, budget=budget, device=asked.device, verbose=False)
    searched = time.perf_counter() - began
    del example

    def step(batch: Any) -> object:
        return result.step(*batch) if isinstance(batch, tuple) else result.step(batch)

    timing = time_steps(step, lambda: workload.make_batch(asked.batch), asked.device, steps=WARM_UP + TIMED)
    winner = result.report.winner
    say(
        {
            "batch": asked.batch,
            "pick": result.config.label,
            "own_samples_per_second": round(1000 * asked.batch / winner.ms_per_step, 2),
            "samples_per_second": None if timing.message else timing.throughput(asked.batch),
            "search_seconds": round(searched, 1),
            "message": timing.message,
            "trials": [
                {"config": trial.config.label, "status": trial.status, "ms_per_step": trial.ms_per_step}
                for trial in result.report.trials
            ],
        }
    )


if __name__ == "__main__":
    main()
