"""Whether the loader's worker processes grow from batch to batch. In the child, and in its workers."""

import gc
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader

from autotune.diagnose.examiner import Training
from autotune.diagnose.leaks.heap import Heap
from autotune.model import LeakEvidence

ROUNDS = 24
"""Each worker makes so many batches that are read; ..."""
WARM_UP_ROUNDS = 4
"""... after these."""
WORKERS = 2
"""Where the user's loader says nothing."""


class Reporting:
    """In place of a loader's collate function: makes the batch, lets it go, and says what the worker still holds."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate
        self._heap: Heap | None = None

    def __call__(self, samples: Any) -> tuple[int, int]:
        """(process, bytes in use)."""
        self._collate(samples)
        if self._heap is None:
            self._heap = Heap()
            gc.freeze()  # what came with the fork is not looked at again
        gc.collect()
        return os.getpid(), self._heap.held_bytes()


def watch_loader(evidence: LeakEvidence, training: Training) -> LeakEvidence:
    """The evidence with what worker processes hold after each round of batches; the same where no data set is loaded by
    any, or its loader is none of PyTorch's.

    Raises whatever the user's data set raises.
    """
    workload = training.workload
    workers = workload.loader.workers if workload.loader is not None else WORKERS
    if not workload.has_data_set or not workers:
        return evidence  # what grows then grows in the training's own process
    batches = (WARM_UP_ROUNDS + ROUNDS) * workers
    loader = workload.load(training.batch_size, batches, workers, False)
    if not isinstance(loader, DataLoader):
        return evidence
    loader.collate_fn = Reporting(loader.collate_fn)
    held: dict[int, list[int]] = defaultdict(list)
    for process, bytes_ in islice(loader, batches):
        held[process].append(bytes_)
    rounds = [sum(each) for each in zip(*held.values(), strict=False)]
    return replace(
        evidence, worker_bytes=tuple(rounds[WARM_UP_ROUNDS:]), batches_per_round=len(held), workers=len(held)
    )
