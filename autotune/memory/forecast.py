"""What training at any batch size would need of the allocator, foretold from a recording of a few small ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from autotune.memory.allocator_config import AllocatorConfig, Unreplayable
from autotune.memory.long_run import LongRun, make_long
from autotune.memory.program import CannotAlign, Program, program
from autotune.memory.replay import Replayed, replay
from autotune.model import Form, Phase, Trace

_AGREES = 0.0005
"""Share of the peak within which a forecast is taken for exact: rounding of blocks and the order of frees differ."""
_MISLED = 0.02
"""Share of the peak by which more was foretold than was needed, from which on memory follows the size in another way than was
learned: tensors whose sizes come from the data, as in the routing of experts, have other ones in each step, and a rule through
two of them may be any. (Less is foretold where a workspace appears only at larger sizes; it grows as the rest does.)"""
_NO_CAP_BYTES = 1 << 60
_FIRST_MARGIN = 0.001
"""Share of the cap left free beside a size that failed unexpectedly; doubles with each further one."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One size, foretold."""

    batch_size: int
    allocated_bytes: int
    """Peak, or what was allocated when memory ran out."""
    reserved_bytes: int
    out_of_memory: bool
    thrashes: bool
    """Retries of the allocator go on in steady state."""

    @property
    def safe(self) -> bool:
        """Whether the probe that certifies is expected to succeed."""
        return not (self.out_of_memory or self.thrashes)


class Forecast:
    """Foretells the long form of a probe under one configuration of the allocator and one cap."""

    def __init__(self, learned: Program, allocator: str, cap_bytes: int, *, varies: bool = False) -> None:
        """
        Args:
            learned: from the recording.
            allocator: as in ``Settings``.
            cap_bytes: what the allocator may reserve.
            varies: whether the long form trains on samples of varying length. A batch of shorter ones is taken to need
                what as much smaller a batch of full ones needs: memory goes by what is in a batch, with kernels that
                do not hold a matrix of length by length.

        Raises:
            Unreplayable: ``allocator`` asks for something that has no replay.
        """
        self.program = learned
        self.cap_bytes = cap_bytes
        self._config = AllocatorConfig.parse(allocator)
        sequences = Form.LONG.mixtures if varies else ()
        before = sum(len(shares) for shares in sequences)
        full = Form.LONG.steps // 2 if varies else Form.LONG.steps  # replays take time, and the mixture decides
        steps = before + full
        self.run = make_long(learned.events, learned.marks, steps, before + full // 2)
        self._streams = tuple(learned.streams[i] for i in self.run.sources) if learned.streams else ()
        self._known: dict[tuple[int, int], Expected] = {}
        self._shares = _shares(self.run) if varies and self.run.steps == steps else ()
        """By allocation: of the full length, in the step that makes it."""
        firsts = {1 + sum(len(shares) for shares in sequences[:i]) for i in range(1, len(sequences) + 1)}
        begins = {step: min(m.position for m in self.run.marks if m.step == step) for step in firsts if self._shares}
        self._drop_at = frozenset(begins.values())
        after = any(mark.phase is Phase.EVALUATE for mark in self.run.marks)  # the step after it is not held to it
        self._first_steady = steps - full // 2 + 1 + after if self.run.steps == steps else self.run.steps
        """Where the recorded steps do not repeat, the last one of them has to do."""
        self._brief: dict[tuple[int, int], bool] = {}

    def replay(self, batch_size: int, cap_bytes: int | None) -> Replayed:
        """The replay itself, for those who want to see more than its verdict."""
        return replay(
            self.sizes_at(batch_size),
            self.run.events,
            self.run.marks,
            self._config,
            cap_bytes,
            self._streams,
            self._drop_at,
        )

    def sizes_at(self, batch_size: int) -> list[int]:
        """Requested bytes of each allocation of ``run``, in the order they are made."""
        full = self.program.sizes_at(batch_size)
        if not self._shares:
            return [full[i] for i in self.run.sources]
        by_share = {1.0: full}
        for share in set(self._shares) - {1.0}:
            below = int(batch_size * share)
            rest = batch_size * share - below
            pair = zip(self.program.sizes_at(below), self.program.sizes_at(below + 1), strict=True)
            by_share[share] = [low + int((high - low) * rest) for low, high in pair]
        return [by_share[share][i] for share, i in zip(self._shares, self.run.sources, strict=True)]

    def expect(self, batch_size: int, cap_bytes: int | None = None) -> Expected:
        """Foretell one size; ``cap_bytes`` = another cap than the forecast's own."""
        cap = self.cap_bytes if cap_bytes is None else cap_bytes
        key = (batch_size, cap)
        if key not in self._known:
            seen = self.replay(batch_size, cap)
            self._known[key] = Expected(
                batch_size,
                seen.allocated_bytes,
                seen.reserved_bytes,
                out_of_memory=seen.out_of_memory is not None,
                thrashes=any(step.retries for step in seen.steps if step.step >= self._first_steady),
            )
        return self._known[key]

    def largest(self, step: int, bound: int, cap_at: Callable[[int], int] | None = None) -> int:
        """The largest multiple of ``step`` up to ``bound`` expected to be safe; 0 if there is none.

        The recorded steps alone are replayed in a fraction of the time, and a size that they do not run at is not safe.

        Args:
            cap_at: by batch size, another cap than the forecast's own.
        """

        def safe(n: int) -> bool:
            cap = self.cap_bytes if cap_at is None else cap_at(n * step)
            return self._fits_briefly(n * step, cap) and self.expect(n * step, cap).safe

        return step * _last(safe, max(1, self.program.skeleton_batch // step), bound // step)

    def _fits_briefly(self, batch_size: int, cap_bytes: int) -> bool:
        """Whether the recorded steps run at this size, all of them at full length."""
        key = (batch_size, cap_bytes)
        if key not in self._brief:
            learned = self.program
            sizes = learned.sizes_at(batch_size)
            seen = replay(sizes, learned.events, learned.marks, self._config, cap_bytes, learned.streams)
            self._brief[key] = seen.out_of_memory is None
        return self._brief[key]

    def peak_bytes(self, batch_size: int) -> int:
        """Most that is allocated at a time at this size, whatever the cap."""
        return self.expect(batch_size, _NO_CAP_BYTES).allocated_bytes

    def needed_bytes(self, batch_size: int) -> int:
        """The smallest cap, to within 1 MiB, under which this size is expected to be safe."""
        free = self.replay(batch_size, None)
        low, high = free.allocated_bytes - 1, max(free.reserved_bytes, free.allocated_bytes)
        while high - low > 1 << 20:
            middle = (low + high) // 2
            if self.expect(batch_size, middle).safe:
                high = middle
            else:
                low = middle
        return high


def _last(holds: Callable[[int], bool], first: int, bound: int) -> int:
    """The last number up to ``bound`` for which ``holds`` is true, looked for around ``first``; 0 if there is none."""
    low, high = 0, bound + 1
    while low < first < high and holds(first):  # far bounds are not worth a replay
        low, first = first, 2 * first
    return _bisect(holds, low, min(high, max(first, low + 1)))


def _bisect(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The last number that ``holds``, between one that does and one that does not."""
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _shares(run: LongRun) -> tuple[float, ...]:
    """The share of each allocation: that of the mixture first, and then full in the steps of the long form proper."""
    mixed = [share for sequence in Form.LONG.mixtures for share in sequence]
    shares = [1.0] * sum(event > 0 for event in run.events[: run.marks[0].position])
    ends = [*(mark.position for mark in run.marks[1:]), len(run.events)]
    for mark, end in zip(run.marks, ends, strict=True):
        share = mixed[mark.step - 1] if 0 < mark.step <= len(mixed) else 1.0
        shares += [share] * sum(event > 0 for event in run.events[mark.position : end])
    return tuple(shares)


@lru_cache(maxsize=8)
def learn(trace: Trace) -> Program | str:
    """The program of a trace, or why there is none. Cached: a search asks for it before every probe."""
    try:
        return program(trace)
    except CannotAlign as error:
        return str(error)


@lru_cache(maxsize=16)
def forecast(trace: Trace, allocator: str, cap_bytes: int, varies: bool = False) -> Forecast | str:
    """Foretell from a trace, or say why not."""
    learned = learn(trace)
    if isinstance(learned, str):
        return learned
    try:
        return Forecast(learned, allocator, cap_bytes, varies=varies)
    except Unreplayable as error:
        return str(error)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a probe at some size showed, to correct the forecast by."""

    batch_size: int
    safe: bool
    allocated_bytes: int | None
    """Measured peak; None where it failed."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What probes beyond the recording say of a forecast."""

    foretold: Forecast
    ran: Seen | None
    """The largest size that ran, if its peak is not as foretold."""
    share: float
    """Of the cap: what is left of it, once sizes failed that were foretold to be safe."""

    @classmethod
    def by(cls, foretold: Forecast, seen: Sequence[Seen]) -> "Correction":
        """A size that failed although it was foretold to be safe needs more than the cap: it bounds the cap from above, with
        a margin that doubles with each such surprise."""
        ran = max(
            (one for one in seen if one.safe and one.allocated_bytes), key=lambda one: one.batch_size, default=None
        )
        found = cls(foretold, ran, 1.0)
        if ran is not None and abs(found._wrong) <= _AGREES:
            found = replace(found, ran=None)
        margin = _FIRST_MARGIN
        for one in sorted((one for one in seen if not one.safe), key=lambda one: -one.batch_size):
            cap = found.cap_at(one.batch_size)
            if foretold.expect(one.batch_size, cap).safe:
                needed = min(cap, foretold.needed_bytes(one.batch_size)) * (1 - margin)
                found = replace(found, share=found.share * needed / cap)
                margin *= 2
        return found

    @property
    def _wrong(self) -> float:
        """By how much more was foretold than was needed, as a share of that."""
        assert self.ran is not None and self.ran.allocated_bytes is not None
        return self.foretold.peak_bytes(self.ran.batch_size) / self.ran.allocated_bytes - 1

    @property
    def misled(self) -> bool:
        """Whether the recording let expect so much more that it did not show how memory follows the size."""
        return self.ran is not None and self._wrong > _MISLED

    def cap_at(self, batch_size: int) -> int:
        """The cap under which the forecast of this size agrees with what was seen; the true one where it agreed already.

        A peak is taken to be as wrong, as a share of it, at every size. Where the recording misled, what is needed is taken
        to lie on the line through the largest recorded size and the largest that ran.
        """
        cap = self.foretold.cap_bytes
        if self.ran is not None and self.ran.allocated_bytes is not None:
            size, measured = self.ran.batch_size, self.ran.allocated_bytes
            first = self.foretold.program.skeleton_batch
            rise = (measured - self.foretold.peak_bytes(first)) / (size - first)
            if self.misled and rise > 0:
                needed = max(1, int(measured + rise * (batch_size - size)))
                cap = cap * self.foretold.peak_bytes(batch_size) // needed
            else:
                cap = cap * self.foretold.peak_bytes(size) // measured
        return int(cap * self.share)
