"""A training of several ranks as a user would write it, with a recommendation; start it with ``torchrun``.

Each rank leaves a report in a folder. Texts vary in length, otherwise in each rank, and there are evaluations and copies of
all states on the host, as in ``benchmarks.comparison.survival``.
"""

import argparse
import json
import os
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.elastic.multiprocessing.errors import record

import autotune
from autotune.apply import leave_group, parallelise
from benchmarks.comparison.child import Workload, load, prepare
from benchmarks.comparison.survival import endure
from benchmarks.grid.train import optimizer_of


class Together:
    """Model and optimizer of one rank as the recommendation wants them."""

    def __init__(self, tuned: "autotune.Tuned", workload: Workload) -> None:
        self._tuned = tuned
        self._workload = workload
        self.model = parallelise(tuned.prepare(workload.make_model()), tuned.settings, device=tuned.device)
        self.model.train()
        made = workload.make_optimizer(list(self.model.parameters()))
        self.optimizer = optimizer_of(tuned, made, self.model)
        torch.manual_seed(1 + distributed.get_rank())  # the same model everywhere, and other samples

    def autocast(self) -> AbstractContextManager[object]:
        """Where forward pass and loss run."""
        return self._tuned.autocast()

    def step(self, batch: Any) -> object:
        """One optimizer step; what max-batch writes accumulates no micro-batches."""
        return self._tuned.train_step(self.model, self.optimizer, self._workload.loss, [batch])


def join(kind: str, cap_bytes: int) -> torch.device:
    """Meet the other ranks; the device of this one, its allocator under the cap."""
    device = torch.device("cpu")
    if kind == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    prepare(kind, cap_bytes)
    distributed.init_process_group("nccl" if kind == "cuda" else "gloo")
    return device


@record
def main() -> None:
    """Train and write the report."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("workload", help="workload file")
    options.add_argument("--config", type=Path, required=True, help="recommendation")
    options.add_argument("--reports", type=Path, required=True, help="folder")
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--cap-bytes", type=int, required=True, help="for PyTorch's allocator; CUDA only")
    options.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    asked = options.parse_args()
    device = join(asked.device, asked.cap_bytes)
    tuned = autotune.load(asked.config, device=device)
    assert tuned.micro_batch is not None and tuned.accumulate == 1, "what max-batch writes"
    workload, rank = load(asked.workload), distributed.get_rank()
    began = time.perf_counter()

    def make() -> Together:
        return Together(tuned, workload)

    done, message = endure(make, workload, tuned.micro_batch, asked.steps, str(device), seed=rank)
    report: dict[str, object] = {
        "batch": tuned.micro_batch,
        "steps": done,
        "message": f"rank {rank}: {message}" if message else "",
        "peak_reserved_bytes": None,
        "retries": 0,
        "seconds": round(time.perf_counter() - began, 1),
        "nccl": "",
    }
    if asked.device == "cuda":
        report["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
        report["retries"] = int(torch.cuda.memory_stats().get("num_alloc_retries", 0))
        report["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    (asked.reports / f"rank-{rank}.json").write_text(json.dumps(report))
    if message:
        os._exit(1)  # the others wait for this rank in a collective, and leaving in order would wait for them
    distributed.barrier()


if __name__ == "__main__":
    main()
    leave_group()
