"""Allocator histories recorded on a real GPU, as values of the model: see ``tests/assets/h200/README.md``."""

import json
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autotune.model import Mark, PassPeaks, Phase, Trace

_ASSETS = Path(__file__).parent / "assets" / "h200"


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """What the allocator itself counted in one training step."""

    allocated_bytes: int
    """Peak within the step."""
    reserved_bytes: int
    """Peak within the step."""
    retries: int
    """Within the step."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """One process: a model is built, then trained for a few steps at one batch size."""

    workload: str
    batch_size: int
    allocator: str
    """``native`` or ``expandable_segments``."""
    trace: Trace
    """Its marks know steps, not phases: step 0 is ``build``, all others are ``forward`` throughout."""
    steps: tuple[RecordedStep, ...]
    """Of the training steps 1, 2, …: the building of the model is not among them."""

    @property
    def name(self) -> str:
        """For test ids: ``gpt2-16-native``."""
        return f"{self.workload}-{self.batch_size}-{self.allocator}"


@dataclass(frozen=True, slots=True, eq=False)
class LimitRun:
    """Training close to the memory limit, up to the request that was refused, if one was."""

    name: str
    """Workload and batch size."""
    options: str
    """Of the allocator, as PyTorch reads them."""
    cap_bytes: int
    sizes: tuple[int, ...]
    events: tuple[int, ...]
    """As in ``Trace``; if memory ran out, the last one is the request that was refused."""
    out_of_memory: bool
    allocated_bytes: int
    """Peak."""
    reserved_bytes: int
    """Peak."""
    retries: int


@dataclass(frozen=True, slots=True, eq=False)
class AllocatorRun:
    """Requests drawn at random, and what PyTorch's allocator said after each."""

    options: str
    cap_bytes: int | None
    sizes: tuple[int, ...]
    events: tuple[int, ...]
    """As in ``Trace``; requests that were refused are among them."""
    streams: tuple[int, ...]
    """As in ``Trace``."""
    refused: frozenset[int]
    """Indices of the events that were refused."""
    figures: tuple[tuple[int, int, int], ...]
    """After each event: allocated bytes, reserved bytes, retries so far."""


def load() -> list[Recording]:
    """All recordings, by workload, allocator and batch size. Read once a process: the same objects each time."""
    return list(_load())


def find(workload: str, batch_size: int, allocator: str = "native") -> Recording:
    """The one recording of that name.

    Raises:
        KeyError: it was never recorded.
    """
    for recording in _load():
        if (recording.workload, recording.batch_size, recording.allocator) == (workload, batch_size, allocator):
            return recording
    raise KeyError(f"{workload}-{batch_size}-{allocator}")


def load_limit_runs() -> list[LimitRun]:
    """GPT-2 and ResNet-50 at the largest sizes that fit in 40 GiB, and at the first ones that do not."""
    return [
        LimitRun(
            f"{raw['workload']}-{raw['batch_size']}",
            raw["options"],
            raw["cap_bytes"],
            *_history(raw["events"]),
            raw["out_of_memory"],
            raw["allocated_bytes"],
            raw["reserved_bytes"],
            raw["retries"],
        )
        for raw in _read("limit_runs.json.xz")["runs"]
    ]


def load_allocator_runs() -> list[AllocatorRun]:
    """2,500 operations each under a choice of options."""
    return [_allocator_run(raw) for raw in _read("allocator_runs.json.xz")["runs"]]


def _read(name: str) -> dict[str, Any]:
    with lzma.open(_ASSETS / name, "rt", encoding="utf-8") as file:
        document: dict[str, Any] = json.load(file)
    return document


def _history(numbers: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and events from requests and distances."""
    sizes: list[int] = []
    events: list[int] = []
    for number in numbers:
        if number > 0:
            sizes.append(number)
            events.append(len(sizes))
        else:
            events.append(-(len(sizes) + number + 1))
    return tuple(sizes), tuple(events)


@cache
def _load() -> tuple[Recording, ...]:
    recordings = [_recording(raw) for raw in _read("allocator_traces.json.xz")["traces"]]
    return tuple(sorted(recordings, key=lambda one: (one.workload, one.allocator, one.batch_size)))


def _recording(raw: dict[str, Any]) -> Recording:
    batch_size: int = raw["batch_size"]
    totals: list[tuple[int, int, int]] = [tuple(step) for step in raw["steps"]]
    before = [0, *(total for _, _, total in totals)]
    steps = tuple(
        RecordedStep(allocated, reserved, total - earlier)
        for (allocated, reserved, total), earlier in zip(totals, before, strict=False)
    )
    return Recording(raw["workload"], batch_size, raw["allocator"], _trace(raw, steps), steps)


def _trace(raw: dict[str, Any], steps: tuple[RecordedStep, ...]) -> Trace:
    sizes, events = _history(raw["events"])
    batch_size: int = raw["batch_size"]
    marks = [
        Mark(start, Phase.FORWARD if step else Phase.BUILD, step, batch_size if step else 0)
        for step, start in enumerate(raw["starts"])
    ]
    peaks = PassPeaks(
        batch_size,
        len(steps),
        max(step.allocated_bytes for step in steps),
        max(step.reserved_bytes for step in steps),
    )
    return Trace(sizes, (), events, tuple(marks), (peaks,))


def _allocator_run(raw: dict[str, Any]) -> AllocatorRun:
    sizes, events = _history(raw["events"])
    extra, reserved, retries = dict(raw["extra"]), dict(raw["reserved"]), dict(raw["retries"])
    refused = frozenset(raw["refused"])
    held: dict[int, int] = {}
    figures: list[tuple[int, int, int]] = []
    figure = (0, 0, 0)
    for index, number in enumerate(events):
        change = 0
        if number < 0:
            change = -held.pop(-number)
        elif index not in refused:
            change = held[number] = -(-sizes[number - 1] // 512) * 512 + extra.get(index, 0)
        figure = (figure[0] + change, figure[1] + reserved.get(index, 0), figure[2] + retries.get(index, 0))
        figures.append(figure)
    streams = tuple(raw["streams"])
    return AllocatorRun(raw["options"], raw["cap_bytes"], sizes, events, streams, refused, tuple(figures))
