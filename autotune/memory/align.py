"""Which allocation of one training pass is which of another, although their batch sizes differ.

Both passes ran the same program, so most requests come in the same order, ask for the same bytes or for bytes in
proportion to the batch, and end at the same place. What differs is short-lived: workspaces that libraries choose by the
size of the problem grow, jump, appear and vanish. So the longest sequence of requests that agree is found first,
tolerating what is missing on either side; what is left between two agreements is then paired by lifetime and plausible
growth. Index by index would not do: after one appearance everything is off by one.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from autotune.memory.passes import Pass, Request

Pair = tuple[int, int]

_AGREES, _AGREES_LONGER, _PLAUSIBLE, _POSSIBLE = 8, 3, 4, 2
"""What pairing two requests is worth: same rule and lifetime; same rule, another span; grew no faster than the batch;
nothing but the lifetime in common, as after a change of algorithm. Two weak pairs never outweigh an agreement."""
_NEARLY = 64
"""In proportion but for 1/64: with a header, or rounded up to whole slices."""
_WINDOW, _WIDE_WINDOW, _WIDE_SEARCHES = 50, 400, 2
"""So many differences are searched through at once; where that leads nowhere, so many, but only so often: the cost grows
with the square. Recorded traces of up to 2,400 requests a step differ in 50 to 210 places altogether."""
_RUN = 3
"""So many agreements in a row are hardly an accident."""
_REGION_CELLS = 60_000
"""A stretch without agreement larger than this (product of its lengths) is not searched: it would take seconds."""
_GROWTH_SLACK = 1.04
_GROWTH_SLACK_BYTES = 4096
"""A plausible workspace exceeds its share of the batch by no more than this."""


def align(small: Pass, large: Pass) -> dict[int, int]:
    """The counterparts in the smaller pass of the larger one's allocations, both as indices into ``Trace.sizes``.

    A step that only the larger pass took (others were skipped by a gradient scaler) is compared with the last one.
    """
    known: dict[tuple[tuple[Request, ...], tuple[Request, ...]], list[Pair]] = {}
    found: dict[int, int] = {}
    latest = {key[1:]: segment for key, segment in small.segments.items()}
    for key, segment in large.segments.items():
        other = small.segments.get(key) or latest.get(key[1:])
        if other is None:
            continue
        question = (other.requests, segment.requests)
        if question not in known:  # Steps after the first are alike.
            known[question] = _Alignment(other.requests, segment.requests, small.batch_size, large.batch_size).pairs()
        found.update((segment.first + right, other.first + left) for left, right in known[question])
    return found


class _Alignment:
    """Pairs the requests of one segment in two passes. Both keep their order: no two pairs cross."""

    def __init__(self, left: Sequence[Request], right: Sequence[Request], small: int, large: int) -> None:
        self._left, self._right, self._small = left, right, small
        # Equal where the right one is the left one in proportion to the batch.
        self._left_scaled = [request.size * large for request in left]
        self._right_scaled = [request.size * small for request in right]

    def pairs(self) -> list[Pair]:
        """Ascending on both sides; few or none where the two have too little in common."""
        anchors = self._anchors()
        end = (len(self._left), len(self._right))
        result: list[Pair] = []
        previous = (-1, -1)
        for firm in [*self._firm(anchors), end]:
            low = (previous[0] + 1, previous[1] + 1)
            if (firm[0] - low[0]) * (firm[1] - low[1]) <= _REGION_CELLS:
                result += self._best(low, firm)
            else:
                result += anchors[bisect_left(anchors, low) : bisect_left(anchors, firm)]
            result.append(firm)
            previous = firm
        return result[:-1]

    def _anchors(self) -> list[Pair]:
        """A longest common sequence of agreeing requests, window by window."""
        pairs: list[Pair] = []
        low, end = (0, 0), (len(self._left), len(self._right))
        wide = _WIDE_SEARCHES
        while low[0] < end[0] and low[1] < end[1]:
            path, ended = self._search(low, end, _WINDOW)
            sure = path if ended else _sure(path)
            if not sure and not ended and wide:
                wide -= 1
                path, ended = self._search(low, end, _WIDE_WINDOW)
                sure = path if ended else _sure(path) or path[: len(path) // 2]
            pairs += sure
            if ended or not sure:
                break
            low = (sure[-1][0] + 1, sure[-1][1] + 1)
        return pairs

    def _search(self, low: Pair, end: Pair, window: int) -> tuple[list[Pair], bool]:
        """Myers' greedy search for the fewest differences from ``low`` on, and whether the end was reached with no more
        of them than ``window``. If not, the path is the one that came farthest."""
        n, m = end[0] - low[0], end[1] - low[1]
        agrees = self._agrees
        reach = [0] * (2 * window + 3)
        """How far along the left side the best path on each diagonal comes; diagonal k is at ``window + 1 + k``."""
        trail: list[list[int]] = []
        for differences in range(window + 1):
            trail.append(reach[window - differences : window + differences + 3])
            for k in range(-differences, differences + 1, 2):
                i = _onward(reach, window + 1 + k, k == -differences, k == differences)
                while i < n and i - k < m and agrees(low[0] + i, low[1] + i - k):
                    i += 1
                reach[window + 1 + k] = i
                if i >= n and i - k >= m:
                    return _walked(trail, (n, m), low), True
        ends = [(i, i - k) for k in range(-window, window + 1, 2) if (i := reach[window + 1 + k]) <= n and i - k <= m]
        return _walked(trail, max(ends, key=sum), low) if ends else [], False

    def _agrees(self, i: int, j: int) -> bool:
        """Same lifetime, and a size that is constant or nearly in proportion."""
        left, right = self._left[i], self._right[j]
        if left.fate != right.fate or not _similar(left.span, right.span):
            return False
        proportional = self._left_scaled[i]
        return left.size == right.size or abs(proportional - self._right_scaled[j]) * _NEARLY <= proportional

    def _firm(self, anchors: list[Pair]) -> Iterator[Pair]:
        """Anchors inside a run. One at the edge may agree by accident: its neighbourhood is to decide."""
        known = {*anchors, (-1, -1), (len(self._left), len(self._right))}
        return ((i, j) for i, j in anchors if (i - 1, j - 1) in known and (i + 1, j + 1) in known)

    def _best(self, low: Pair, high: Pair) -> list[Pair]:
        """The pairs from ``low`` on and before ``high`` that are worth most together."""
        n, m = high[0] - low[0], high[1] - low[1]
        worth = [[self._worth(i, j) for j in range(low[1], high[1])] for i in range(low[0], high[0])]
        best = [[0] * (m + 1) for _ in range(n + 1)]
        for i in range(n - 1, -1, -1):
            for j in range(m - 1, -1, -1):
                paired = best[i + 1][j + 1] + worth[i][j] if worth[i][j] else 0
                best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
        pairs = []
        i = j = 0
        while i < n and j < m:
            if worth[i][j] and best[i][j] == best[i + 1][j + 1] + worth[i][j]:
                pairs.append((low[0] + i, low[1] + j))
                i, j = i + 1, j + 1
            elif best[i][j] == best[i + 1][j]:
                i += 1
            else:
                j += 1
        return pairs

    def _worth(self, i: int, j: int) -> int:
        """Of pairing these two; 0 = they cannot be the same request."""
        left, right = self._left[i], self._right[j]
        if left.fate != right.fate:
            return 0
        similar = _similar(left.span, right.span)
        if left.size == right.size or self._left_scaled[i] == self._right_scaled[j]:
            return _AGREES if similar else _AGREES_LONGER
        if not similar:
            return 0
        most = self._left_scaled[i] * _GROWTH_SLACK + _GROWTH_SLACK_BYTES * self._small
        return _PLAUSIBLE if left.size <= right.size and self._right_scaled[j] <= most else _POSSIBLE


def _similar(span: int, other: int) -> bool:
    """Workspaces that appear while a request lives lengthen its span."""
    return span <= 2 * other + 8 and other <= 2 * span + 8


def _onward(reach: Sequence[int], middle: int, lowest: bool, highest: bool) -> int:
    """Where the path on a diagonal goes on from the better of its neighbours: past one on the right, or on the left."""
    if lowest or (not highest and reach[middle - 1] < reach[middle + 1]):
        return reach[middle + 1]
    return reach[middle - 1] + 1


def _walked(trail: Sequence[Sequence[int]], end: Pair, low: Pair) -> list[Pair]:
    """The pairs along the path that reached the end, which is relative to ``low``. ``trail[d]`` is the reach before
    ``d`` differences were made, on the diagonals from ``-d - 1`` to ``d + 1``."""
    pairs: list[Pair] = []
    i, j = end
    for differences in range(len(trail) - 1, 0, -1):
        reach, k = trail[differences], i - j
        middle = differences + 1 + k
        turn = _onward(reach, middle, k == -differences, k == differences)
        while i > turn:
            i, j = i - 1, j - 1
            pairs.append((low[0] + i, low[1] + j))
        if k == -differences or (k != differences and reach[middle - 1] < reach[middle + 1]):
            j -= 1
        else:
            i -= 1
    pairs.extend((low[0] + same, low[1] + same) for same in range(i - 1, -1, -1))
    return pairs[::-1]


def _sure(pairs: list[Pair]) -> list[Pair]:
    """Up to the end of the last run of ``_RUN`` pairs without a difference."""
    length = 0
    for index in range(len(pairs) - 1, -1, -1):
        follows = index + 1 < len(pairs) and pairs[index + 1] == (pairs[index][0] + 1, pairs[index][1] + 1)
        length = length + 1 if follows else 1
        if length == _RUN:
            return pairs[: index + _RUN]
    return []
