"""The observer that leaves files for PyTorch's memory viewer: of the peak, and of the moment at which memory ran out."""

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from autotune.diagnose.examiner import Training
from autotune.diagnose.out_of_memory import OutOfMemoryWatch
from autotune.model import NO_CUDA, NO_FOLDER, Snapshots

WARM_UP = 2
"""Steps before the one that is written: the first makes optimizer state, the second is the first with it."""
_MAX_ENTRIES = 300_000
"""Of the ring buffer. An entry with its stack is several KB in the viewer's page; a step of a large model has 10,000."""


class SnapshotExaminer:
    """See ``Examiner``."""

    def __init__(self, output: str) -> None:
        """``output``: folder; empty = nothing is written."""
        self._output = output
        self._peak: Path | None = None
        self._oom: Path | None = None
        self._watch: OutOfMemoryWatch | None = None
        self._note = "" if output else NO_FOLDER
        self._unwritten = ""

    def begin(self, device: torch.device) -> None:
        """Begin to record, with the stack of each allocation."""
        if device.type != "cuda":
            self._note = NO_CUDA
        if self._note:
            return
        Path(self._output).mkdir(parents=True, exist_ok=True)
        self._watch = OutOfMemoryWatch(device, keep=self._keep)
        self._record()

    def _record(self) -> None:
        """Begin anew."""
        try:
            torch.cuda.memory._record_memory_history(None)
            torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=_MAX_ENTRIES)
        except (AttributeError, TypeError, RuntimeError) as error:  # private, and another in other releases
            self._note = f"this PyTorch's record of allocations has another form ({error})"

    def run(self, training: Training) -> None:
        if self._note:
            return
        for _ in range(WARM_UP):
            training.step()
        self._record()
        training.step()
        self._peak = self._write(f"peak-batch-{training.batch_size}.pickle")

    def _keep(self, snapshot: dict[str, Any], index: int) -> dict[str, object]:
        self._oom = self._write("out-of-memory.pickle")
        return {}

    def _write(self, name: str) -> Path | None:
        """Returns where; None where the disk does not take it, which is no fault of the training."""
        path = Path(self._output) / name
        try:
            torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]
        except OSError as error:
            self._unwritten = f"{path} could not be written: {error.strerror or error}"
            with contextlib.suppress(OSError):  # it may not even be there
                path.unlink()
            return None
        return path

    def facts(self) -> dict[str, object]:
        note = self._note or (self._watch.trouble if self._watch else "")
        files = {"peak": str(self._peak or ""), "out_of_memory": str(self._oom or "")}
        return asdict(Snapshots(**files, note=note, unwritten=self._unwritten))
