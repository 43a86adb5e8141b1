"""Lines of the user's code: where a tensor or object was made, and where it was put into what keeps it. In the child."""

import os
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from autotune.workload.places import OWN, is_installed

FRAMES = 24
"""Frames that tracemalloc keeps: libraries between the user's line and the allocation are left out of them."""


@cache
def is_users(file: str) -> bool:
    """Whether a file is of the user's own code."""
    return not is_installed(file)


def shown(file: str, line: int) -> str:
    """``FILE:LINE``, the file as seen from the working directory where it lies below it."""
    here = os.getcwd() + os.sep
    return f"{file.removeprefix(here)}:{line}"


def innermost(frame: FrameType | None) -> str:
    """The innermost line of the user's own code that is running; empty if there is none."""
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return shown(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return ""


@dataclass(slots=True)
class Site:
    """What one line makes."""

    phase: str
    sizes: dict[int, int] = field(default_factory=dict)
    """Step -> bytes of the largest tensor made there."""


class Makers(TorchFunctionMode):
    """Notes which line makes each tensor, as long as it lives. Sees what Python asks of torch in this thread."""

    def __init__(self, phase: Callable[[], str]) -> None:
        super().__init__()
        self.step = 0
        self.sites: dict[str, Site] = {}
        self._phase = phase
        self._made: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self._note(made)
        elif type(made) in (tuple, list):
            for each in made:
                if isinstance(each, torch.Tensor):
                    self._note(each)
        return made

    def _note(self, made: torch.Tensor) -> None:
        place = innermost(sys._getframe(2))
        if not place:
            return
        site = self.sites.setdefault(place, Site(self._phase()))
        site.sizes[self.step] = max(site.sizes.get(self.step, 0), made.nbytes)
        self._made[id(made)] = weakref.ref(made), place

    def place_of(self, tensor: torch.Tensor) -> str:
        """``FILE:LINE`` that made it; empty where that was not seen."""
        reference, place = self._made.get(id(tensor), (None, ""))
        return place if reference is not None and reference() is tensor else ""

    def place_of_garbage(self, tensor: torch.Tensor) -> str:
        """The same of a tensor that the collector has found, and taken its weak references from."""
        reference, place = self._made.get(id(tensor), (None, ""))
        return place if reference is not None and reference() is None else ""


@contextmanager
def traced_objects() -> Iterator[None]:
    """Python's and NumPy's allocations are traced within. Where the user traces already, it goes on as it was."""
    began = not tracemalloc.is_tracing()
    if began:
        tracemalloc.start(FRAMES)
    try:
        yield
    finally:
        if began:
            tracemalloc.stop()


def traced_bytes() -> dict[str, tuple[int, int]]:
    """Line of the user's code -> (bytes, number) of traced blocks that were allocated below it and are alive."""
    found: dict[str, tuple[int, int]] = {}
    for one in tracemalloc.take_snapshot().statistics("traceback"):
        place = _innermost_traced(one.traceback)
        size, count = found.get(place, (0, 0))
        found[place] = size + one.size, count + one.count
    return found


def _innermost_traced(frames: tracemalloc.Traceback) -> str:
    """Of a traced block; empty for what autotune allocates, on whoever's behalf."""
    for frame in reversed(frames):
        if frame.filename.startswith(OWN):
            return ""
        if is_users(frame.filename):
            return shown(frame.filename, frame.lineno)
    return ""


class Keepers:
    """Watches containers while the user's code runs line by line, to see which line makes them longer."""

    def __init__(self, containers: Sequence[Any]) -> None:
        self._watched = list(containers)
        self._known = [len(one) for one in containers]
        self._lines: dict[FrameType, int] = {}
        self.places = [""] * len(containers)
        """Line that made each longer last; empty = none of the user's did."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this block, in this thread. A debugger's or coverage's own trace comes back after it."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)
            self._lines.clear()

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        if not is_users(frame.f_code.co_filename):
            return None
        self._lines[frame] = frame.f_lineno
        return self._inside

    def _inside(self, frame: FrameType, event: str, arg: object) -> Any:
        self._look(frame)
        if event == "return":
            self._lines.pop(frame, None)
        else:
            self._lines[frame] = frame.f_lineno
        return self._inside

    def _look(self, frame: FrameType) -> None:
        """Whatever is longer than before was made so by the line that the frame has just left."""
        for number, one in enumerate(self._watched):
            size = len(one)
            if size > self._known[number]:
                self.places[number] = shown(frame.f_code.co_filename, self._lines.get(frame, frame.f_lineno))
            self._known[number] = size
