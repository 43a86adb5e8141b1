"""What was seen of a training becomes what is said of it. Pure."""

import math
from collections.abc import Sequence
from dataclasses import replace

from autotune.diagnose.growth import Growth, slope
from autotune.diagnose.leaks.signs import (
    LEAST_STEP_BYTES,
    device_growth,
    garbage_is_bounded,
    garbage_rate,
    host_growth,
    worker_growth,
)
from autotune.model import Failure, LeakEvidence, LeakKind, Leaks, Rate, Suspect
from autotune.units import MIB, format_bytes

_UNCOUNTED = (LeakKind.GRAPH, LeakKind.LOCKED_CYCLES)
"""What a graph saves is no object of Python's, so that these get what nothing else explains."""
_ALWAYS = (*_UNCOUNTED, LeakKind.HOOKS)
"""Told however small they are."""
_STRAIGHT = 0.995
"""Share that a line explains. Below it memory may grow by whole arenas of Python's allocator, 1 MiB each."""
_LEAST_SHARE = 0.05
"""Of what grows, in something that is told."""
_LEAST_SMALL_SHARE = 0.1
"""... where that something keeps less than would be an alarm alone: memory grows by more, and this may be why."""
_LEAST_TRACED_SHARE = 0.2
"""... where it was traced, which counts Python's own objects for tensors as well."""

_LEAST_UNSEEN_SHARE = 0.25
"""Of what grows, explained by nothing that was found, that is told as such..."""
_TENSOR_BYTES = 1024
"""... beside what each kept tensor takes of the host for itself (0.6 KiB in torch 2.13)."""
_SEGMENTS_BYTES = 8 * 20 * MIB
"""Growth of what the allocator holds that shows its rate: PyTorch takes 20 MiB of the device at once for tensors of 1 to 10,
and two of 8 MiB fill one."""


def judge_leaks(evidence: LeakEvidence, failure: Failure | None) -> Leaks:
    """What grows, how fast, and when it ends the training.

    Args:
        evidence: of one process.
        failure: what ended its steps too early; only an out-of-memory comes here.
    """
    device, host, garbage = device_growth(evidence), host_growth(evidence), garbage_rate(evidence)
    waits = garbage >= LEAST_STEP_BYTES
    bounded = waits and garbage_is_bounded(evidence)
    kept = _worth_telling(evidence.suspects, device, host)
    rate = _exact(device, evidence, kept)
    kept = _with_graphs(kept, rate)
    workers = worker_growth(evidence)
    kept += _unexplained(kept, rate)
    kept, rate, workers = _by_workers(kept, rate, workers, evidence)
    if waits and not bounded:
        rate += garbage
        cycles = [one for one in evidence.suspects if one.kind is LeakKind.CYCLES] or [_unseen(LeakKind.CYCLES, 0.0)]
        kept += [replace(one, bytes_per_step=garbage / len(cycles)) for one in cycles]
    grows = rate >= LEAST_STEP_BYTES or (rate > 0 and any(one.kind in _ALWAYS for one in kept))
    if not kept and (grows or host):
        kept.append(_unseen(LeakKind.UNKNOWN, rate or (host.bytes_per_step if host else 0.0)))
    return Leaks(
        steps=evidence.steps,
        device=_rate(evidence, rate, device) if grows else None,
        host=_rate(evidence, host.bytes_per_step, host) if host else None,
        workers=workers,
        suspects=tuple(sorted(kept, key=lambda one: -(one.bytes_per_step or 0.0))),
        ends_at_step=_end(evidence, rate) if grows else None,
        died_at_step=failure.step if failure else None,
        notes=(*((_note_of_cycles(evidence),) if bounded else ()), *((evidence.trouble,) if evidence.trouble else ())),
    )


def _worth_telling(suspects: Sequence[Suspect], device: Growth | None, host: Growth | None) -> list[Suspect]:
    """Those of ``_ALWAYS``; others as far as memory shows them, or their own bytes do. Cycles are judged apart."""
    told = [one for one in suspects if one.kind in _ALWAYS]
    counted = [one for one in suspects if one.kind not in (*_ALWAYS, LeakKind.CYCLES)]
    rate = max((grown.bytes_per_step for grown in (device, host) if grown), default=0.0)
    least = min(LEAST_STEP_BYTES, _LEAST_SMALL_SHARE * rate) if rate else LEAST_STEP_BYTES
    largest = max((one.bytes_per_step or 0.0 for one in suspects if one.kind is not LeakKind.CYCLES), default=0.0)
    for one in counted:
        share = _LEAST_TRACED_SHARE if one.kind is LeakKind.HOST else _LEAST_SHARE
        if (one.bytes_per_step or 0.0) >= max(least, share * largest, share * rate):
            told.append(one)
    return told


def _exact(device: Growth | None, evidence: LeakEvidence, suspects: Sequence[Suspect]) -> float:
    """The rate of the device; where it is Python's objects that grow, which come in arenas, as these were counted."""
    counted = any(one.kind is LeakKind.HOST for one in suspects) and not evidence.host_bytes
    if counted and (device is None or device.fit < _STRAIGHT):
        return sum(one.bytes_per_step or 0.0 for one in suspects)
    return device.bytes_per_step if device else 0.0


def _with_graphs(suspects: Sequence[Suspect], rate: float) -> list[Suspect]:
    """Graphs get what nothing else explains, in equal parts."""
    graphs = sum(one.kind in _UNCOUNTED for one in suspects)
    others = sum(one.bytes_per_step or 0.0 for one in suspects if one.kind not in _UNCOUNTED)
    left = max(0.0, rate - others) / max(1, graphs)
    return [replace(one, bytes_per_step=left) if one.kind in _UNCOUNTED else one for one in suspects]


def _unexplained(suspects: Sequence[Suspect], rate: float) -> list[Suspect]:
    """What libraries keep beside it, such as kernels made for each new shape of a tensor that grows."""
    if not suspects or any(one.kind in _ALWAYS for one in suspects):
        return []
    left = rate - sum((one.bytes_per_step or 0.0) + _TENSOR_BYTES * one.count_per_step for one in suspects)
    return [_unseen(LeakKind.UNKNOWN, left)] if left >= max(LEAST_STEP_BYTES, _LEAST_UNSEEN_SHARE * rate) else []


def _by_workers(
    suspects: Sequence[Suspect], rate: float, workers: Rate | None, evidence: LeakEvidence
) -> tuple[list[Suspect], float, Rate | None]:
    """Suspects, rate of the training's own process and rate of the workers.

    A training's steps make their batches themselves here. What they keep of that, workers keep in the real training, and
    there it is seen by whole pages alone.
    """
    theirs = [one for one in suspects if one.phase == "data"]
    if workers is None:
        return list(suspects), rate, None
    if not theirs:
        return [*suspects, _unseen(LeakKind.WORKERS, workers.bytes_per_step)], rate, workers
    counted = sum(one.bytes_per_step or 0.0 for one in theirs)
    moved = [replace(one, kind=LeakKind.WORKERS) for one in theirs]
    others = [one for one in suspects if one.phase != "data"]
    rate = rate - counted if others else 0.0
    return [*others, *moved], rate, replace(workers, bytes_per_step=counted)


def _unseen(kind: LeakKind, rate: float) -> Suspect:
    """Of which nothing but its bytes is known."""
    words = {
        LeakKind.UNKNOWN: "memory that Python does not see",
        LeakKind.WORKERS: "memory of the loader's worker processes",
        LeakKind.CYCLES: "objects in reference cycles",
    }
    return Suspect(kind=kind, what=words[kind], count_per_step=1.0, bytes_per_step=rate)


def _rate(evidence: LeakEvidence, rate: float, grown: Growth | None) -> Rate:
    """``grown``: what the readings alone show; None where the rate comes from counted objects or collected garbage."""
    fit = grown.fit if grown else 1.0
    return Rate(bytes_per_step=rate, fit=fit, from_step=evidence.warm_up + 1, to_step=evidence.steps)


def _end(evidence: LeakEvidence, rate: float) -> int | None:
    """The first step that finds no room."""
    if evidence.room_bytes is None:
        return None
    left = evidence.room_bytes / rate
    reserved = evidence.reserved_bytes[evidence.warm_up :]
    if evidence.unreserved_bytes is not None and reserved and reserved[-1] - reserved[0] >= _SEGMENTS_BYTES:
        left = min(left, evidence.unreserved_bytes / slope(list(enumerate(reserved))))
    return evidence.steps + math.floor(left) + 1


def _note_of_cycles(evidence: LeakEvidence) -> str:
    every, garbage = evidence.gc_every_steps or 0.0, garbage_rate(evidence)
    cycles = [one for one in evidence.suspects if one.kind is LeakKind.CYCLES]
    where = "".join(f" ({one.what}, made at {one.made_at or 'an unknown place'})" for one in cycles)
    held = format_bytes(round(every * garbage))
    return (
        f"reference cycles keep {format_bytes(round(garbage))} of every step until Python collects them, about every"
        f" {every:,.0f} steps: up to {held} more than need be{where}"
    )
