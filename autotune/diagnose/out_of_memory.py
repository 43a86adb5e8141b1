"""Looking at the CUDA allocator at the very moment in which it gives up, before anything is let go."""

from collections.abc import Callable
from typing import Any

import torch

Keep = Callable[[dict[str, Any], int], dict[str, object]]
"""(snapshot, index of the device) -> what to keep of it."""


class OutOfMemoryWatch:
    """From now on, for the rest of the process: observers of the allocator cannot be taken off again."""

    def __init__(self, device: torch.device, keep: Keep) -> None:
        self._index = torch.cuda.current_device() if device.index is None else device.index
        self._keep = keep
        self.kept: dict[str, object] | None = None
        """Of the last out-of-memory: one that PyTorch copes with, for want of a convolution's workspace, comes before the
        one that ends a training. None = there was none, or it could not be looked at."""
        self.trouble = ""
        """Why it could not."""
        attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is None:
            self.trouble = "this PyTorch does not tell of an out-of-memory before it raises it"
        else:
            attach(self._look)

    def _look(self, device: int, requested: int, allowed: int, free: int) -> None:
        """Called by the allocator; an exception in here would hide the out-of-memory."""
        if device != self._index:
            return
        try:
            self.kept = self._keep(torch.cuda.memory._snapshot(), self._index)
        except (AttributeError, KeyError, IndexError, RuntimeError, OSError) as error:
            self.trouble = f"the allocator could not be looked at: {error}"
