"""What the tool tells the hook in a user's command. Written by us, read by us; no torch."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from autotune.model import Form
from autotune.probe.workplace import write_working_file

HOOK_VARIABLE = "AUTOTUNE_HOOK"
"""Environment variable with the path of the order; without it the start-up file does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOrder:
    """One run of the command."""

    roots: dict[str, str]
    """Package -> folder that it is imported from, should the command's Python not have it: autotune, and what it needs."""
    pipe: str
    """Named pipe to answer on."""
    token: str
    trouble: str
    """File in which the hook says why it could not attach."""
    batch_size: int
    """What the command was told to train with."""
    device: str
    """``cpu``, ``cuda:N``, or ``auto``: whatever the command trains on."""
    form: Form = Form.SHORT
    steps: int = 1
    """Optimizer steps after which the run ends."""
    limit_bytes: int | None = None
    """The budget; None = look only."""
    reserve_bytes: int = 0
    """Non-PyTorch device memory seen in earlier probes."""
    others_bytes: int | None = None
    """What others held on the device before the command was started."""
    known_batch: int | None = None
    """Another size that the command was told before; None = there was none."""
    known_extents: list[list[int]] = field(default_factory=list)
    """Of a batch that it trained on then (``workload.batch.extents``): what does not follow the size is not the batch."""
    rehearsal: bool = False
    """Also say what the command trains, and on what."""
    directory: str = ""
    """Below which files are the user's own code."""

    def write(self, path: Path) -> None:
        """Write it for ``read``."""
        write_working_file(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: str) -> Self:
        """Read what ``write`` wrote."""
        fields = json.loads(Path(path).read_text())
        return cls(**{**fields, "form": Form(fields["form"])})
