"""Writes a checkpoint, then dies while it writes the next one: half-way in the file, and just before it takes its place.

    python killed_while_saving.py FOLDER

Each death is that of a forked copy, which says so on a pipe and then waits for SIGKILL. Prints a line of JSON for each.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from autotune.runtime import load_checkpoint, save_checkpoint

torch.set_num_threads(1)
path = Path(sys.argv[1]) / "emergency.pt"
model = nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())


def save(step: int) -> None:
    save_checkpoint(path, model, optimizer, step=step)


def die_in(place: Callable[[Callable[[], None]], None]) -> None:
    """Fork a copy that saves step 2 and is killed at ``place``."""
    reading, writing = os.pipe()

    def here() -> None:
        os.write(writing, b"here")
        signal.pause()

    child = os.fork()
    if child == 0:
        try:
            place(here)
            save(2)
        finally:
            os._exit(1)
    os.close(writing)
    said = os.read(reading, 4)
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    left = sorted(file.name.replace(str(child), "PID") for file in path.parent.iterdir())
    found = load_checkpoint(path)
    same = all(torch.equal(value, found.model[name]) for name, value in model.state_dict().items())
    save(found.step)  # what the dead one left is removed by whoever saves next
    print(
        json.dumps(
            {
                "reached": said.decode(),
                "signal": os.WTERMSIG(status),
                "left": left,
                "step": found.step,
                "same": same,
                "files": sorted(file.name for file in path.parent.iterdir()),
            }
        )
    )


def half_way(here: Callable[[], None]) -> None:
    whole = torch.save

    def half(content: Any, file: Any) -> None:
        whole(content, file)
        file.flush()
        os.ftruncate(file.fileno(), file.tell() // 2)
        here()

    torch.save = half


def before_it_takes_its_place(here: Callable[[], None]) -> None:
    os.replace = lambda *args, **kwargs: here()  # type: ignore[assignment]


save(1)
die_in(half_way)
die_in(before_it_takes_its_place)
