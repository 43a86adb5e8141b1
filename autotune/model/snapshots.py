"""Files for PyTorch's memory viewer (https://pytorch.org/memory_viz)."""

from dataclasses import dataclass

NO_CUDA = "the memory viewer is for CUDA's caching allocator; the CPU has none"
NO_FOLDER = "name a folder for the files: --output DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    """Which were written. They are pickles: for the viewer; autotune never reads them."""

    peak: str = ""
    """Path of the history of one whole step, whose highest point is the peak; empty = not written."""
    out_of_memory: str = ""
    """Path of the allocator's state and history at the moment at which memory ran out; empty = it did not."""
    note: str = ""
    """Why something was not written."""
    unwritten: str = ""
    """Which file was to be written and could not be, and why: a full disk. Empty = none."""
