"""The gaps between an answer's meaningful chunks: recorded while it streams, and their figures at its end."""

from array import array
from bisect import bisect_left, bisect_right
from math import inf

import msgspec

from gateway.racing.milliseconds import milliseconds
from gateway.steering.constants import BUCKETS
from gateway.steering.histogram import ROUNDING, edge_s

MOST_GAPS = 4096  # per answer: 32 kB
LEAST_BUCKET = -56  # of the ledger's, from 0.078 ms; it also counts shorter gaps and gaps of 0

# Of the buckets from the first to the last: the upper end, and the number as JSON.
_UPPER_EDGES_S = (*(edge_s(number - ROUNDING) for number in range(LEAST_BUCKET + 1, BUCKETS)), inf)
_NAMES = tuple(str(number) for number in range(LEAST_BUCKET, BUCKETS))


class GapFigures(msgspec.Struct, frozen=True):
    """The gaps between an answer's meaningful chunks: two quantiles, the longest, and a histogram."""

    p50_ms: float
    p95_ms: float
    max_ms: float
    counts: dict[str, int]  # by number of the ledger's bucket


class Gaps:
    """The gaps of one answer, in seconds."""

    __slots__ = ("_blocked", "_kept", "_longest_s", "together")

    def __init__(self) -> None:
        self.together = 0  # number of gaps of 0: chunks that arrived with the one before
        self._kept = array("d")
        self._longest_s = 0.0  # of those no longer kept
        self._blocked: list[tuple[int, float]] | None = None  # in which gap the client took nothing, for how long

    def add(self, gap_s: float) -> None:
        """Record a gap. Of very long streams a part is kept, with more of the latest gaps."""
        self._kept.append(gap_s)
        if len(self._kept) > MOST_GAPS:
            self._longest_s = max(self._longest_s, *self._kept)
            self._kept, self.together = self._kept[::2], self.together // 2

    def blocked(self, seconds: float) -> None:
        """Record that the client took nothing for so long, in the gap that comes next."""
        if self._blocked is None:
            self._blocked = []
        self._blocked.append((len(self._kept), seconds))

    def unblocked(self) -> list[float] | None:
        """Return the gaps in their order, less what their client took; None without any, or if not all are kept."""
        if not self._kept or self._longest_s:
            return None
        gaps_s = self._kept.tolist()
        for number, seconds in self._blocked or ():
            if number < len(gaps_s):
                gaps_s[number] = max(0.0, gaps_s[number] - seconds)
        return gaps_s

    def figures(self) -> GapFigures | None:
        """Return the figures; None without any gap. Sorts them once."""
        if not self._kept:
            return None
        ordered, none = sorted(self._kept), self.together
        last = len(ordered) + none - 1
        p50_s, p95_s = (ordered[at - none] if at >= none else 0.0 for at in (round(last * 0.5), round(last * 0.95)))
        longest_s = max(ordered[-1], self._longest_s)
        return GapFigures(milliseconds(p50_s), milliseconds(p95_s), milliseconds(longest_s), _counts(ordered, none))


def _counts(ordered: list[float], together: int) -> dict[str, int]:
    """Return how many of the ``ordered`` gaps (seconds) fall into each bucket; ``together`` more have length 0.

    One binary search for each bucket in use, not for each gap.
    """
    at = bisect_left(ordered, _UPPER_EDGES_S[0])
    counts = {_NAMES[0]: at + together} if at + together else {}
    while at < len(ordered):
        number = bisect_right(_UPPER_EDGES_S, ordered[at])
        after = bisect_left(ordered, _UPPER_EDGES_S[number], at + 1)
        counts[_NAMES[number]] = after - at
        at = after
    return counts
