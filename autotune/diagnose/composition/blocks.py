"""The peak of a recorded stretch of allocations, and what was alive at it: blocks matched by address to known objects.

Pure: the record comes from CUDA's allocator, or on the CPU from watching storages come and go; positions count the events
before a moment. A block that nothing known explains stays unknown.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autotune.memory.allocator_config import BLOCK_BYTES, SMALL_MAX_BYTES
from autotune.model import KindBytes, MemoryKind, NamedBytes, Phase

MAX_NAMED = 10
"""So many of the largest are named."""
_RANKS = {
    kind: rank
    for rank, kind in enumerate(
        (
            MemoryKind.WEIGHTS,
            MemoryKind.BUFFERS,
            MemoryKind.GRADIENTS,
            MemoryKind.OPTIMIZER,
            MemoryKind.BATCH,
            MemoryKind.ACTIVATIONS,
            MemoryKind.WORKSPACE,
        )
    )
}
"""A block seen as several of them is the first: a saved weight is a weight."""


class Event(NamedTuple):
    """A block is handed out, or given back."""

    address: int
    size: int
    """Bytes asked for; 0 = given back."""


class Sighting(NamedTuple):
    """Something known lay at this address at this moment."""

    position: int
    """Number of events before."""
    address: int
    kind: MemoryKind
    name: str = ""


class Window(NamedTuple):
    """One operator ran."""

    first: int
    """Position before it."""
    last: int
    """Position after it."""
    operator: str
    phase: Phase | None
    outputs: frozenset[int]
    """Addresses of what it returned."""


@dataclass(frozen=True, slots=True)
class AtPeak:
    """What was alive when most was."""

    phase: Phase | None
    requested_bytes: int
    """All that was asked for."""
    rounded_bytes: int
    """The same in whole blocks."""
    num_large: int
    """Blocks of the large pool, each of which may be up to 1 MiB larger than it had to be."""
    kinds: tuple[KindBytes, ...]
    """Requested bytes, largest first; neither slack nor what no event tells of is in them."""
    modules: tuple[NamedBytes, ...]
    makers: tuple[NamedBytes, ...]


@dataclass(slots=True)
class _Life:
    """One allocation."""

    size: int
    born: int
    """Index of its event; -1 = before the record."""
    died: int | None = None
    """Index of its end's event."""
    seen: Sighting | None = None


def at_peak(
    before: Mapping[int, int],
    events: Sequence[Event],
    sightings: Iterable[Sighting],
    windows: Sequence[Window],
    *,
    block_bytes: int = BLOCK_BYTES,
) -> AtPeak:
    """Find the peak and say what each block that is alive there is.

    Args:
        before: requested bytes of what is alive when the record begins, by address.
        events: everything after, in order.
        sightings: in order of their positions; of equals the first names the block.
        windows: in the order the operators began; none lies in another.
        block_bytes: sizes are rounded up to multiples of this.
    """
    lives = _lives(before, events)
    by_address: dict[int, list[_Life]] = defaultdict(list)
    for address, life in lives:
        by_address[address].append(life)
    for sighting in sightings:
        found = _alive_at(by_address.get(sighting.address, []), sighting.position)
        if found is not None and (found.seen is None or _RANKS[sighting.kind] < _RANKS[found.seen.kind]):
            found.seen = sighting
    peak = _peak_position(before, events, block_bytes)
    starts = [window.first for window in windows]
    kinds: Counter[MemoryKind] = Counter()
    counts: Counter[MemoryKind] = Counter()
    modules, makers = _Named(), _Named()
    requested = rounded = num_large = 0
    for address, life in lives:
        if not (life.born < peak and (life.died is None or life.died >= peak)):
            continue
        kind, name = _told(address, life, windows, starts)
        kinds[kind] += life.size
        counts[kind] += 1
        requested += life.size
        rounded += _rounded(life.size, block_bytes)
        num_large += life.size > SMALL_MAX_BYTES
        if kind is MemoryKind.ACTIVATIONS:
            modules.add(name, life.size)
        elif kind in (MemoryKind.TEMPORARIES, MemoryKind.WORKSPACE):
            makers.add(name, life.size)
    ran = _window_of(peak - 1, windows, starts, nearest=True)
    return AtPeak(
        phase=ran.phase if ran else None,
        requested_bytes=requested,
        rounded_bytes=rounded,
        num_large=num_large,
        kinds=tuple(KindBytes(kind=k, size_bytes=size, count=counts[k]) for k, size in kinds.most_common()),
        modules=modules.largest(),
        makers=makers.largest(),
    )


def with_rest(found: AtPeak, watched_bytes: int, *, process_bytes: int | None = None) -> tuple[KindBytes, ...]:
    """Kinds that sum to the peak that was counted by others than us.

    On CUDA what blocks have beyond the requests is slack, as far as the allocator's rules explain it: each block is
    rounded up, and keeps a rest of up to 1 MiB where it is large. On the CPU there are no such rules; ``process_bytes`` is
    what the process held beside tensors. What is left either way is not attributed; it may be negative on the CPU, where
    pages of tensors need not be resident.
    """
    sizes = Counter({one.kind: one.size_bytes for one in found.kinds})
    counts = {one.kind: one.count for one in found.kinds}
    rest = watched_bytes - found.requested_bytes
    if process_bytes is None:
        most = found.rounded_bytes - found.requested_bytes + found.num_large * SMALL_MAX_BYTES
        sizes[MemoryKind.SLACK] = max(0, min(rest, most))
        rest -= sizes[MemoryKind.SLACK]
        sizes[MemoryKind.UNKNOWN] += rest
    else:
        sizes[MemoryKind.PROCESS] = max(0, min(process_bytes, rest))
        sizes[MemoryKind.UNKNOWN] += rest - sizes[MemoryKind.PROCESS]
    return tuple(
        KindBytes(kind=kind, size_bytes=size, count=counts.get(kind, 0)) for kind, size in sizes.most_common() if size
    )


def pattern(name: str, blocks: Iterable[str]) -> str:
    """Name of a module with ``*`` for the number of the repeated block it lies in: ``h.*.attn`` for ``h.3.attn``.

    ``blocks``: qualified names of the repeated blocks.
    """
    for block in blocks:
        holder, _, number = block.rpartition(".")
        if number.isdigit() and (name == block or name.startswith(f"{block}.")):
            return f"{holder}.*{name[len(block) :]}" if holder else f"*{name[len(block) :]}"
    return name


def _lives(before: Mapping[int, int], events: Sequence[Event]) -> list[tuple[int, _Life]]:
    """All allocations with their addresses, in the order they were made."""
    lives = [(address, _Life(size, -1)) for address, size in before.items()]
    alive = dict(lives)
    for index, (address, size) in enumerate(events):
        ended = alive.pop(address, None)  # a size where one is alive: its end was not recorded
        if ended is not None:
            ended.died = index
        if size:
            life = _Life(size, index)
            alive[address] = life
            lives.append((address, life))
    return lives


def _alive_at(lives: list[_Life], position: int) -> _Life | None:
    """The one of an address's allocations that was there at this moment."""
    return next((a for a in lives if a.born < position and (a.died is None or a.died >= position)), None)


def _peak_position(before: Mapping[int, int], events: Sequence[Event], block_bytes: int) -> int:
    """Number of events until most is alive."""
    alive = {address: _rounded(size, block_bytes) for address, size in before.items()}
    now = highest = sum(alive.values())
    peak = 0
    for index, (address, size) in enumerate(events):
        now -= alive.pop(address, 0)
        if size:
            alive[address] = _rounded(size, block_bytes)
            now += alive[address]
        if now > highest:
            highest, peak = now, index + 1
    return peak


def _told(address: int, life: _Life, windows: Sequence[Window], starts: Sequence[int]) -> tuple[MemoryKind, str]:
    """Kind and name: by what was seen there, else by the operator that made it."""
    made_by = _window_of(life.born, windows, starts)
    if life.seen is not None:
        return life.seen.kind, life.seen.name
    if made_by is None:
        return MemoryKind.UNKNOWN, ""
    if address not in made_by.outputs:
        return MemoryKind.WORKSPACE, made_by.operator
    if made_by.phase is Phase.DATA:
        return MemoryKind.BATCH, ""
    return MemoryKind.TEMPORARIES, made_by.operator


def _window_of(event: int, windows: Sequence[Window], starts: Sequence[int], *, nearest: bool = False) -> Window | None:
    """The operator during which this event came; with ``nearest`` else the last one before it."""
    if event < 0:
        return None
    index = bisect_right(starts, event) - 1
    if index < 0 or not (nearest or event < windows[index].last):
        return None
    return windows[index]


def _rounded(size: int, block_bytes: int) -> int:
    return -(-size // block_bytes) * block_bytes


class _Named:
    """Bytes and counts by name."""

    def __init__(self) -> None:
        self._sizes: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, size: int) -> None:
        self._sizes[name] += size
        self._counts[name] += 1

    def largest(self) -> tuple[NamedBytes, ...]:
        return tuple(
            NamedBytes(name=name, size_bytes=size, count=self._counts[name])
            for name, size in self._sizes.most_common(MAX_NAMED)
        )
