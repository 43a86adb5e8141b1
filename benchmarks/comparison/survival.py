"""Does a batch size survive real training? Many steps in a process of its own under the cap. Prints one JSON line.

Texts vary in length, the full length coming now and then; every 25 steps there is an evaluation in eval mode and a copy
of the ``state_dict`` on the host, as for a checkpoint.
"""

import random
import time

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


def pause(training: Training, workload: Workload, batch_size: int, device: str) -> None:
    """Evaluate on a full batch, and copy model and optimizer to the host."""
    training.model.eval()
    with torch.no_grad(), training.autocast():
        workload.loss(training.model, to_device(workload.make_batch(batch_size), device))
    training.model.train()
    copied = [value.cpu() for value in training.model.state_dict().values()]
    for state in training.optimizer.state_dict()["state"].values():
        copied += [value.cpu() for value in state.values() if isinstance(value, torch.Tensor)]


def main() -> None:
    """Train and print."""
    options = parser(__doc__)
    options.add_argument("--batch", type=int, required=True)
    options.add_argument("--steps", type=int, default=200)
    asked = options.parse_args()
    workload = load(asked.workload)
    prepare(asked.device, asked.cap_bytes)
    done, message, began = 0, "", time.perf_counter()
    try:
        training = Training(workload, asked.device, asked.precision)
        for share in shares(asked.steps):
            made = workload.make_batch(asked.batch)
            if workload.shorten is not None and share < 1:
                made = workload.shorten(made, share)
            batch = to_device(made, asked.device)  # the former one lives until this is there
            training.step(batch)
            if (done + 1) % PAUSE_EVERY == 0:
                pause(training, workload, asked.batch, asked.device)
            done += 1
        if asked.device == "cuda":
            torch.cuda.synchronize()
    except RuntimeError as error:  # out of memory comes in many texts, and whatever else it is, it did not survive
        message = f"{type(error).__name__}: {str(error).splitlines()[0]}"
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
