"""How long samples are: what length buckets go by. A length is the extent of a dimension that differs between samples.

Of a text as token numbers it is their number, of a spectrogram the number of frames; the samples of a translation have two
lengths, of which the larger counts. What is as large in every sample (features, channels, a fixed picture) is no length.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.workload.sizes import Sizes, Spans, part_sizes, shapes_of

_SLOTS = 16
"""Different lengths up to a bucket's of which a sample is kept, where samples cannot be read again by index."""
_LARGEST = 64
"""Samples that are kept there for being the largest."""
IN_CHARACTERS = "length buckets count the characters of texts: the samples of the data set hold no tokens"
"""Said where that is so."""


def equally_long(what: str, hint: str) -> UsageError:
    """Length buckets were asked for where there is but one length, or nothing tells."""
    return UsageError(f"length buckets need samples of different lengths, and {what}", hint=hint)


class Lengths:
    """Tells how long samples are."""

    def __init__(self, spans: Spans) -> None:
        """
        Args:
            spans: of the samples that were looked at.

        Raises:
            UsageError: they are equally long.
        """
        differing = spans.differing
        texts = {one for one in differing if one[0] in spans.texts}
        # raw texts are often kept beside their tokens: then those count
        self._dimensions = sorted(differing - texts or texts)
        if not self._dimensions:
            raise equally_long(
                "all samples of the data set that were looked at have the same shapes",
                "leave out --buckets: one answer holds for all of them",
            )
        self.notes: tuple[str, ...] = () if differing - texts else (IN_CHARACTERS,)
        """What a length is, where that may surprise."""

    def known(self, sizes: Sizes) -> dict[int, int]:
        """Index -> length of the samples that were looked at."""
        columns = [sizes.extent(dimension) for dimension in self._dimensions]
        return {index: max(column.get(index, 0) for column in columns) for index in sizes.totals}

    def of(self, sample: object) -> int:
        """The length of any sample."""
        found = [
            extent
            for part, shape in shapes_of(sample)
            for number, extent in enumerate(shape)
            if (part, number) in self._dimensions
        ]
        return max(found, default=0)


@dataclass(frozen=True, slots=True)
class Kept:
    """Samples of a stream that are at most so long: the largest of each kind, and some of other lengths."""

    samples: list[object]
    seen: int
    """At most so long."""
    longer: int
    longest: int


def keep(samples: Iterable[object], lengths: Lengths, length: int) -> Kept:
    """Read samples and keep those that make the worst batches of a bucket, and a few shorter ones."""
    seen = longer = longest = 0
    largest: list[tuple[int, int, object]] = []  # (elements, number, sample) as a heap, the smallest first
    leaders: dict[str, tuple[int, int, object]] = {}  # part -> (its size, number, sample)
    slots: dict[int, tuple[int, object]] = {}
    for number, sample in enumerate(samples):
        measured = lengths.of(sample)
        if measured > length:
            longer += 1
            continue
        seen, longest = seen + 1, max(longest, measured)
        sizes = part_sizes(sample)
        for part, size in sizes.items():
            if part not in leaders or size > leaders[part][0]:
                leaders[part] = size, number, sample
        push = heapq.heappush if len(largest) < _LARGEST else heapq.heappushpop
        push(largest, (sum(sizes.values()), -number, sample))
        slots.setdefault(_SLOTS * measured // (length + 1), (number, sample))
    found = {-number: sample for _, number, sample in largest} | dict(slots.values())
    found |= {number: sample for _, number, sample in leaders.values()}
    return Kept([found[number] for number in sorted(found)], seen, longer, longest)
