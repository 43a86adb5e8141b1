"""A workload's allocations at any batch size, learned from a trace of passes at a few small sizes.

Order of allocations and frees is that of the pass at the largest size, the skeleton: nearest to the limit, its kernels
are the most like those there. Sizes come from comparing it with the other passes. The result is what a fresh process
would do that builds the model and trains at one size only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.memory.align import align
from autotune.memory.history import History, peak_bytes
from autotune.memory.lines import Curve, Kind, Point, Rule, constant, fit
from autotune.memory.passes import HERE, Pass, Request, cut
from autotune.model import Mark, Trace

_ENOUGH = 0.8
"""A pass in which less than this share of the skeleton's allocations is found again ran another program."""
_BRIEF_SPAN = 8
"""A request that ends in its phase after so many others were made at most may be a workspace."""
_SEMAPHORE_BYTES = 4
_SEMAPHORES_BYTES = 1 << 16
"""PyTorch's reductions over many rows stage partial sums in a buffer bounded by the number of multiprocessors, and ask
for a few counters right after it (``aten/src/ATen/native/cuda/Reduce.cuh``)."""


class CannotAlign(Exception):
    """Raised by ``program``: the passes have too little in common to foretell anything; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Made by ``program``."""

    skeleton_batch: int
    """Batch size of the pass whose order of events is used."""
    events: tuple[int, ...]
    """As in ``Trace``: the building of the model, then one pass."""
    marks: tuple[Mark, ...]
    streams: tuple[int, ...]
    kinds: tuple[Kind, ...]
    """By allocation. What was made before the skeleton's first step is constant."""
    _sizes: tuple[int, ...]
    """At the skeleton's batch size."""
    _slopes: tuple[int, ...]
    """Bytes per sample, for those that are whole."""
    _curves: tuple[tuple[int, Curve], ...]
    """Of the others, by index."""
    _doubts: tuple[tuple[int, Rule], ...]
    """By index: what may be smaller or larger than likely."""

    def sizes_at(self, batch_size: int) -> list[int]:
        """Requested bytes of each allocation, by its number in ``events`` less one."""
        distance = batch_size - self.skeleton_batch
        sizes = [size + slope * distance for size, slope in zip(self._sizes, self._slopes, strict=True)]
        for index, curve in self._curves:
            sizes[index] = curve.at(batch_size)
        return sizes if distance >= 0 else [max(size, 1) for size in sizes]

    def uncertain_bytes(self, batch_size: int) -> tuple[int, int]:
        """How much lower, and how much higher, the peak of allocated bytes may be than ``sizes_at`` says.

        The peak is that of all steps, with every doubtful request at its least, then at its most. What no pass has
        shown (a workspace that only appears at larger sizes) is not in it.
        """
        likely = self.sizes_at(batch_size)
        least, most = likely.copy(), likely.copy()
        for index, rule in self._doubts:
            least[index] = min(likely[index], rule.least.at(batch_size))
            most[index] = max(likely[index], rule.most.at(batch_size))
        peak = peak_bytes(self.events, likely)
        return peak - peak_bytes(self.events, least), peak_bytes(self.events, most) - peak


def program(trace: Trace) -> Program:
    """Learn the program from a trace of at least two passes at different sizes that ``Trace.passes`` calls complete.

    Raises:
        CannotAlign: there are fewer, or no other pass is like the one at the largest size.
    """
    ran = cut(trace)
    complete = {peaks.batch_size for peaks in trace.passes}
    by_size = {one.batch_size: one for one in ran if one.batch_size in complete}
    passes = [by_size[size] for size in sorted(by_size)]
    if len(passes) < 2:
        raise CannotAlign(f"complete passes at {len(passes)} batch sizes were recorded, two are needed")
    skeleton = passes[-1]
    num_requests = sum(len(segment.requests) for segment in skeleton.segments.values())
    found = [align(one, skeleton) for one in passes[:-1]]
    shares = [len(pairs) / max(num_requests, 1) for pairs in found]
    if max(shares) < _ENOUGH:
        raise CannotAlign(
            f"of the {num_requests} allocations at batch size {skeleton.batch_size}, at most {max(shares):.0%} were found"
            " again at a smaller one"
        )
    used = [(one, pairs) for one, pairs, share in zip(passes, found, shares, strict=False) if share >= _ENOUGH]
    rules = _rules(trace.sizes, skeleton, used)
    redone = {index for _, pairs in used for index in pairs.values()}
    events, marks = History(trace, ran[0].start).alone(skeleton, redone)
    return _assemble(trace, skeleton.batch_size, events, marks, rules)


def _rules(sizes: Sequence[int], skeleton: Pass, used: Sequence[tuple[Pass, Mapping[int, int]]]) -> dict[int, Rule]:
    """By index of the skeleton's allocation."""
    rules: dict[int, Rule] = {}
    staged: list[int] = []
    known: dict[tuple[tuple[Point, ...], bool, bool], Rule] = {}
    for segment in skeleton.segments.values():
        following = [*segment.requests[1:], None]
        for index, (request, after) in enumerate(zip(segment.requests, following, strict=True), segment.first):
            smaller = [(one.batch_size, sizes[pairs[index]]) for one, pairs in used if index in pairs]
            points = (*smaller, (skeleton.batch_size, request.size))
            brief = request.fate == HERE and request.span <= _BRIEF_SPAN
            is_staged = _is_staged(request, after)
            question = (points, brief, is_staged)
            if question not in known:  # Layers and steps are alike.
                known[question] = fit(points, brief=brief, staged=is_staged)
            rules[index] = known[question]
            if is_staged:
                staged.append(index)
    # One bound holds for all reductions of a device, but for rounding to whole slices.
    bound = max((rules[index].likely.cap or 0 for index in staged), default=0)
    for index in staged if bound else ():
        likely = rules[index].likely
        if likely.cap is None:
            rules[index] = rules[index]._replace(likely=likely._replace(cap=max(bound, likely.size)))
    return rules


def _is_staged(request: Request, after: Request | None) -> bool:
    """Whether this is a reduction's staging buffer: the counters are made next, and end before any other is made."""
    if after is None or (request.fate, request.span, after.fate, after.span) != (HERE, 1, HERE, 0):
        return False
    return after.size <= _SEMAPHORES_BYTES and after.size % _SEMAPHORE_BYTES == 0


def _assemble(
    trace: Trace, batch_size: int, events: Sequence[int], marks: Sequence[Mark], rules: Mapping[int, Rule]
) -> Program:
    """With the allocations numbered anew, in the order they are made; those without a rule are constant."""
    made = [event - 1 for event in events if event > 0]
    numbers = {index: number for number, index in enumerate(made, 1)}
    ordered = [rules.get(index) or constant(batch_size, trace.sizes[index]) for index in made]
    is_line = [
        rule.likely.slope.denominator == 1 and not rule.likely.bend and rule.likely.cap is None for rule in ordered
    ]
    return Program(
        skeleton_batch=batch_size,
        events=tuple(numbers[event - 1] if event > 0 else -numbers[-event - 1] for event in events),
        marks=tuple(marks),
        streams=tuple(trace.streams[index] for index in made) if trace.streams else (),
        kinds=tuple(rule.kind for rule in ordered),
        _sizes=tuple(trace.sizes[index] for index in made),
        _slopes=tuple(rule.likely.slope.numerator if line else 0 for rule, line in zip(ordered, is_line, strict=True)),
        _curves=tuple(
            (index, rule.likely) for index, (rule, line) in enumerate(zip(ordered, is_line, strict=True)) if not line
        ),
        _doubts=tuple((index, rule) for index, rule in enumerate(ordered) if rule.is_doubtful),
    )
