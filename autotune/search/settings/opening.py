"""The first probes: the user's own settings, at a size where others can be compared with them.

Their exact limit is only worth knowing if they turn out to be the answer. Here it is enough to have one size certified: near
the limit where a recording foretells it, or where throughput stops growing. A search that is cut short has an answer then.
Where they fit at no size, others that need less memory are tried at the smallest one, and stand in for them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise, product
from math import isqrt

from autotune.model import Checkpointing, Form, Objective, Parallel, Precision, Question, Reason, Settings, Stop
from autotune.search.settings.candidates import needs_as_much_as_failed
from autotune.search.settings.guard import compare
from autotune.search.settings.leg import ask_leg, leg_history
from autotune.search.settings.priors import features, of_room
from autotune.search.settings.room import PEAK_DROP
from autotune.search.settings.rows import Row
from autotune.search.settings.view import View
from autotune.search.verdict import Ending, why_nothing

_SAFE_SHARE = 0.9
"""Of a limit that was foretold: candidates may need a little more memory at the same size."""
_PLATEAU = 1.05
"""Growing further for less than this is not worth it."""
_STRIDE = 4
"""A size smaller by this factor shows whether throughput still grows with the batch."""
_ELSEWHERE = 3
"""Probes spent on that at most."""
_NARROW = 1.5
"""Neighbouring sizes nearer than by this factor hide no peak worth a probe."""
_FIRST = frozenset({Reason.TRACE, Reason.LEGAL_SIZE, Reason.RETRY})
"""What the batch finder asks for in order to know what it is dealing with."""


def open_search(view: View) -> Question | Stop | None:
    """The next probe of the opening; None once there is a reference to compare others with."""
    row = view.opening
    if view.rescued and row.probes and (doubtful := compare(view, row.settings)) is not None:
        return doubtful
    if not row.certified:
        return _first_size(view, row)
    if not any(view.sizes.down(size) == size for size in row.speeds):
        return _time_it(view, row)
    return _elsewhere(view, row)


def _first_size(view: View, row: Row) -> Question | Stop:
    """Find one size that can be certified."""
    wanted = view.asked.batch_finder.max_batch
    if view.asked.objective is Objective.MEMORY and wanted:
        return _at_wanted(view, row, wanted)
    reply = ask_leg(view, row.settings, recommend=False)
    if isinstance(reply, Stop):
        return _rescue(view, row, reply)
    if reply.reason in _FIRST or (not row.evidence.good and reply.reason is not Reason.PREDICTED):
        return reply
    enough: float | None = _enough(row)
    if enough is None and reply.reason is Reason.PREDICTED:
        enough = _SAFE_SHARE * reply.batch_size
    size = view.sizes.round(enough) if enough else None
    if size is None or any(p.batch_size == size and p.form is Form.LONG for p in row.probes):
        return reply
    return view.question(row.settings, size, Form.LONG, Reason.BASELINE)


def _at_wanted(view: View, row: Row, wanted: int) -> Question | Stop:
    """The size at which memory is to be compared, and no other."""
    size = view.sizes.down(wanted)
    if size is None:
        return Stop(reason=f"No legal batch size is up to {wanted}.", answer=None)
    failed = [found for found in row.evidence.failed if found.size == size]
    if not failed:
        return view.question(row.settings, size, Form.LONG, Reason.BASELINE)
    return _rescue(view, row, Stop(reason=f"The wanted batch of {size} does not fit.", answer=None))


def _enough(row: Row) -> int | None:
    """The size to stay at where nothing foretells the limit: once growing further failed, or gains little."""
    speeds = row.speeds
    if not speeds:
        return None
    top = max(speeds.values())
    if row.too_large:
        return min(size for size, speed in speeds.items() if speed * _PLATEAU >= top)
    last = max(speeds)
    smaller = [size for size in speeds if 2 * size <= last]
    if not smaller or _PLATEAU * max(speeds[size] for size in smaller) < speeds[last]:
        return None
    return min(size for size, speed in speeds.items() if speed * _PLATEAU >= top)


def _time_it(view: View, row: Row) -> Question | Stop:
    """Time a legal size, where certifying did not: too few steps, or a size that divides no effective batch."""
    size = view.sizes.down(row.certified[-1])
    if size is None:
        return Stop(
            reason=f"No micro-batch that the workload accepts, a multiple of {view.sizes.unit}, divides"
            f" {view.sizes.share} samples a step.",
            answer=None,
        )
    if row.times_timed(size) == 0:
        return view.question(row.settings, size, Form.TIMED, Reason.BASELINE)
    return Stop(
        reason=f"Batch {size} runs, but its {row.times_timed(size)} timed probes have no step times.", answer=None
    )


def _elsewhere(view: View, row: Row) -> Question | None:
    """Another size to compare settings at, if one may be better: smaller and as fast, or nearer to a peak."""
    if view.started or view.asked.objective is not Objective.THROUGHPUT or row.asked_for(Reason.BASELINE) > _ELSEWHERE:
        return None
    speeds = {size: speed for size, speed in row.speeds.items() if view.sizes.down(size) == size}
    size = _towards_peak(view, speeds) or _smaller(view, speeds)
    if size is None or size in row.evidence.findings:
        return None
    return view.question(row.settings, size, Form.TIMED, Reason.BASELINE)


def _smaller(view: View, speeds: Mapping[int, float]) -> int | None:
    """If a smaller batch is as fast, everything is cheaper there."""
    if len(speeds) > 1 and min(speeds) != view.reference:
        return None
    return view.sizes.down(min(speeds) / _STRIDE)


def _towards_peak(view: View, speeds: Mapping[int, float]) -> int | None:
    """Half-way into the wider gap beside the fastest size, if throughput falls again above it."""
    sizes = sorted(speeds)
    fastest = max(sizes, key=lambda size: speeds[size])
    if all(speeds[size] >= (1 - PEAK_DROP) * speeds[fastest] for size in sizes if size > fastest):
        return None
    at = sizes.index(fastest)
    gaps = [(high / low, low, high) for low, high in pairwise(sizes[max(0, at - 1) : at + 2])]
    ratio, low, high = max(gaps, key=lambda gap: (gap[0], -gap[1]))
    return view.sizes.down(isqrt(low * high)) if ratio > _NARROW else None


def _rescue(view: View, row: Row, stop: Stop) -> Question | Stop:
    """Settings that need less memory, at the smallest size that the row failed at; the stop if nothing is left to try."""
    if row.settings != view.asked.base:
        return stop
    own = view.asked.space.base
    failures = leg_history(view.history, own, records=False)
    if not failures or why_nothing(failures).kind is not Ending.NOTHING_FITS:
        return stop
    size = min(row.too_large or row.evidence.findings)
    for settings in _savers(view):
        known = settings in view.table.rows or view.table.blames(settings)
        if not known and not needs_as_much_as_failed(view, settings, size):
            return view.question(settings, size, Form.SHORT, Reason.KNOWN)
    return stop


def _savers(view: View) -> Iterator[Settings]:
    """Settings that should need less memory, those that need the least first."""
    space, start = view.asked.space, view.asked.space.start
    precisions = {start.precision, *(p for p in (Precision.BF16, Precision.FP16) if p in space.values("precision"))}
    kept = {start.checkpointing, *(c for c in Checkpointing if c in space.values("checkpointing"))}
    shared = {start.parallel, *(s for s in (Parallel.ZERO, Parallel.FSDP) if s in space.values("parallel"))}
    found = [
        replace(start, precision=p, checkpointing=c, parallel=s, accumulate=1)
        for p, c, s in product(precisions, kept, shared)
    ]
    room = of_room()
    saves = {
        settings: sum(room[effect].mean * share for effect, share in features(settings).items()) for settings in found
    }
    ordered = sorted(saves, key=lambda it: (-saves[it], it.precision, it.checkpointing, it.parallel))
    return (s for s in ordered if s != view.asked.base and not space.refuses(s))
