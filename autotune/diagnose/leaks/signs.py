"""Signs of a leak in readings, and how many of them it takes. Pure; the child asks as it goes, the parent judges by them."""

from collections.abc import Sequence
from statistics import median

from autotune.diagnose.growth import Growth, growth_of
from autotune.model import LeakEvidence, Rate
from autotune.units import KIB

WARM_UP = 5
"""First steps that are left out: optimizer state, chosen kernels, caches of the allocator come once."""
FIRST_STEPS = 24
"""After the warm-up. Enough where nothing moves."""
MOST_STEPS = 101
"""In all: what grows through 96 steps is not taken for a cache that fills, and what rests in them is not growing."""
LEAST_STEP_BYTES = 4 * KIB
"""A step. Below it a million steps take 4 GiB: worth no alarm."""
LEAST_HOST_STEP_BYTES = 16 * KIB
"""Of host memory beside a device, where drivers keep books of their own."""
LEAST_STEP_BLOCKS = 20
"""Of Python's allocator, a step, that call for a closer look."""
_LEAST_ROUNDS = 8

Readings = list[tuple[int, int]]


def grows(evidence: LeakEvidence) -> bool:
    """Whether anything grows, so that a closer look is worth it."""
    blocks = after(evidence, evidence.blocks)
    return bool(
        device_growth(evidence)
        or host_growth(evidence)
        or growth_of(blocks, LEAST_STEP_BLOCKS * _span(blocks))
        or garbage_rate(evidence) >= LEAST_STEP_BYTES
        or keeps_graphs(evidence)
        or adds_hooks(evidence)
    )


def has_told(evidence: LeakEvidence) -> bool:
    """Whether more steps would say no more: nothing moves. What grows is followed to the end, as it may level off."""
    held = after(evidence, evidence.held_bytes)
    late = [bytes_ for _, bytes_ in held[len(held) // 2 :]]
    return max(late) - min(late) < LEAST_STEP_BYTES * len(late) / 2 and not grows(evidence)


def steps_left(evidence: LeakEvidence) -> int:
    """Steps that memory lasts if nothing is collected any more."""
    grown = device_growth(evidence)
    rate = (grown.bytes_per_step if grown else 0.0) + max(0.0, garbage_rate(evidence))
    return MOST_STEPS if evidence.room_bytes is None or rate <= 0 else int(evidence.room_bytes / rate)


def device_growth(evidence: LeakEvidence) -> Growth | None:
    """Of what is kept on the device, or by the process where that is the CPU."""
    held = after(evidence, evidence.held_bytes)
    return growth_of(held, LEAST_STEP_BYTES * _span(held))


def host_growth(evidence: LeakEvidence) -> Growth | None:
    """Of the process beside a device."""
    held = after(evidence, evidence.host_bytes)
    return growth_of(held, LEAST_HOST_STEP_BYTES * _span(held))


def garbage_rate(evidence: LeakEvidence) -> float:
    """Bytes of cyclic garbage that a step makes; half of the steps make as much."""
    garbage = evidence.garbage_bytes[evidence.warm_up :]
    return float(median(garbage)) if garbage else 0.0


def garbage_is_bounded(evidence: LeakEvidence) -> bool:
    """Whether Python collects garbage before memory ends."""
    every, room = evidence.gc_every_steps, evidence.room_bytes
    return every is not None and (room is None or every * garbage_rate(evidence) < room)


def keeps_graphs(evidence: LeakEvidence) -> bool:
    """Whether the loss of every step is still there."""
    return evidence.graphs_kept >= max(4, evidence.steps - evidence.warm_up)


def adds_hooks(evidence: LeakEvidence) -> bool:
    """Whether every other step adds one, at least."""
    return evidence.hooks_added >= max(4, (evidence.steps - evidence.warm_up) // 2)


def worker_growth(evidence: LeakEvidence) -> Rate | None:
    """Of the loader's worker processes, a batch."""
    if len(evidence.worker_bytes) < _LEAST_ROUNDS:
        return None
    readings = [(number * evidence.batches_per_round, held) for number, held in enumerate(evidence.worker_bytes, 1)]
    grown = growth_of(readings, LEAST_STEP_BYTES * _span(readings))
    if grown is None:
        return None
    return Rate(bytes_per_step=grown.bytes_per_step, fit=grown.fit, from_step=readings[0][0], to_step=readings[-1][0])


def after(evidence: LeakEvidence, readings: Sequence[int]) -> Readings:
    """(step, reading) after the warm-up; of very many some evenly spaced ones, since all pairs are looked at."""
    late = list(enumerate(readings, 1))[evidence.warm_up :]
    return late[:: 1 + len(late) // (2 * MOST_STEPS)]


def _span(readings: Sequence[tuple[int, int]]) -> int:
    return readings[-1][0] - readings[0][0] if readings else 0
