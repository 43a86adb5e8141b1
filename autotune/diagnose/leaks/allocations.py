"""What the CUDA allocator itself recorded: which of the user's lines allocated what is still there. In the child."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from autotune.diagnose.leaks.places import is_users, shown

_MAX_ENTRIES = 1_000_000


@dataclass(frozen=True, slots=True)
class PerStep:
    """Line -> bytes that each step allocates there and keeps."""

    lines: dict[str, float] = field(default_factory=dict)

    @property
    def largest(self) -> str:
        """The line with most bytes; empty if none was seen."""
        return max(self.lines, key=lambda line: self.lines[line], default="")


class Allocations:
    """Records with stacks while it is asked to; on other devices than CUDA, and where PyTorch cannot, nothing."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._blocks: list[tuple[str, int]] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within this block. Private functions of PyTorch, whose signature changed with the releases."""
        if self._device.type != "cuda":
            yield
            return
        record = torch.cuda.memory._record_memory_history
        try:
            record("state", context="state", stacks="python", max_entries=_MAX_ENTRIES)
        except (AttributeError, TypeError, RuntimeError):
            yield
            return
        try:
            yield
            torch.cuda.synchronize(self._device)
            self._read()
        finally:
            record(None)

    def _read(self) -> None:
        for segment in torch.cuda.memory._snapshot()["segments"]:
            for block in segment["blocks"]:
                frames = block.get("frames") or next((h.get("frames") for h in block.get("history", ())), None)
                if block["state"] != "active_allocated" or not frames:
                    continue  # free, or from before the recording
                place = next((shown(f["filename"], f["line"]) for f in frames if is_users(f["filename"])), "")
                self._blocks.append((place, block["size"]))

    def per_step(self, steps: int) -> PerStep:
        """Of the steps that were recorded; lines of which fewer blocks than half the steps are there keep nothing."""
        lines: dict[str, list[int]] = {}
        for place, size in self._blocks:
            lines.setdefault(place, []).append(size)
        return PerStep(
            {place: sum(sizes) / steps for place, sizes in lines.items() if place and len(sizes) >= steps / 2}
        )
