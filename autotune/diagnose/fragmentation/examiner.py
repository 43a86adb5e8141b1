"""The observer of fragmentation: trains on batches as they vary, counts retries, and looks at the pieces where one fails."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import cycle, islice
from typing import Any

import torch

from autotune.diagnose.examiner import Training
from autotune.diagnose.fragmentation.pieces import failed_request, pieces_of, squeezes_of
from autotune.diagnose.out_of_memory import OutOfMemoryWatch
from autotune.model import NO_POOL, Form, FragmentEvidence, Pieces

STEPS = 16
"""To take where nobody says: the shapes of a training have been there twice or more by the second half."""
_MAX_ENTRIES = 1_000_000
"""Of the allocator's ring buffer; older ones are dropped, and with them old retries."""


class FragmentationExaminer:
    """See ``Examiner``."""

    def __init__(self, steps: int | None = None) -> None:
        """``steps``: to take; None = ``STEPS``."""
        self._asked = STEPS if steps is None else steps
        self._device: torch.device | None = None
        self._training: Training | None = None
        self._retries: list[int] = []
        self._seconds: list[float] = []
        self._oom: OutOfMemoryWatch | None = None
        self._after_forward: Pieces | None = None
        self._allocated = self._reserved = 0
        self._note = ""

    def begin(self, device: torch.device) -> None:
        """Begin to record."""
        self._device = device
        if device.type != "cuda":
            self._note = NO_POOL
            return
        self._oom = OutOfMemoryWatch(device, keep=_cut)
        try:
            torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=_MAX_ENTRIES)
        except (AttributeError, TypeError, RuntimeError) as error:  # private, and another in other releases
            self._note = f"this PyTorch's record of allocations has another form ({error})"

    def run(self, training: Training) -> None:
        self._training = training
        shares = list(islice(cycle(_shares(training)), self._asked))
        for number, share in enumerate(shares, 1):
            last = number == len(shares) and self._oom is not None and not training.compiled
            retries, began = training.retries(), time.perf_counter()
            with self._looking_after_forward(training) if last else nullcontext():
                training.step(share)
            if training.device.type == "cuda":
                torch.cuda.synchronize(training.device)
            self._seconds.append(time.perf_counter() - began)
            self._retries.append(training.retries() - retries)
            self._allocated = max(self._allocated, training.peak_bytes())
            self._reserved = max(self._reserved, training.peak_reserved_bytes())

    @contextmanager
    def _looking_after_forward(self, training: Training) -> Iterator[None]:
        index = _index(training.device)

        def look(module: torch.nn.Module, args: object, output: object) -> None:
            self._after_forward = pieces_of(torch.cuda.memory._snapshot()["segments"], index)

        with training.model.register_forward_hook(look):
            yield

    def facts(self) -> dict[str, object]:
        seen: dict[str, object] = {}
        if self._device is not None and self._device.type == "cuda":
            seen = self._of_allocator(self._device)
        evidence = FragmentEvidence(
            steps=len(self._seconds),
            retries_per_step=tuple(self._retries),
            step_seconds=tuple(self._seconds),
            cap_bytes=self._training.cap_bytes if self._training else None,
            peak_allocated_bytes=self._allocated,
            peak_reserved_bytes=self._reserved,
            after_forward=self._after_forward,
            note=self._note or (self._oom.trouble if self._oom else ""),
            **seen,  # type: ignore[arg-type]
        )
        return asdict(evidence)

    def _of_allocator(self, device: torch.device) -> dict[str, object]:
        """What the allocator recorded."""
        seen = dict(self._oom.kept or {}) if self._oom is not None else {}
        try:
            entries = torch.cuda.memory._snapshot()["device_traces"][_index(device)]
            if len(entries) < _MAX_ENTRIES:
                seen["squeezes"] = squeezes_of(entries, 0, 0)
        except (AttributeError, KeyError, IndexError, RuntimeError) as error:
            self._note = self._note or f"this PyTorch's record of allocations has another form ({error})"
        return seen


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def _cut(snapshot: dict[str, Any], index: int) -> dict[str, object]:
    """What is kept of an out-of-memory."""
    return {
        "at_failure": pieces_of(snapshot["segments"], index),
        "requested_bytes": failed_request(snapshot["device_traces"][index]),
    }


def _shares(training: Training) -> tuple[float, ...]:
    """Shares of the full length that steps train on, again and again: where lengths vary, those that fragment most."""
    if not training.workload.varies:
        return (1.0,)
    return tuple(share for sequence in Form.LONG.mixtures for share in sequence)
