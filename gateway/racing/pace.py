"""Whether a stream dribbled: for seconds far slower than its deployment's slowest usual answers.

It is only counted, to learn whether acting would pay. The hot path knows nothing of it: a stream of at least ``FOR_S``
is looked at once, at its end, from the gaps between its reads, less the time in which its client took nothing.
"""

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from math import ceil

import msgspec

from gateway.racing.measurement import Measurement

FOR_S = 5.0  # so long it has to be slow
SHARE = 0.2  # of the speed that 95 of 100 answers of the deployment reach
LATEST, FEWEST = 256, 64  # answers of which that speed is the quantile; with fewer it is not known
QUANTILE = 0.05
MOST_DEPLOYMENTS = 1000  # clients may name their own


class Dribble(msgspec.Struct, frozen=True):
    """Whether a stream dribbled (None: not known), and when it had for ``FOR_S``."""

    found: bool | None = None
    at: float | None = None  # by the gateway's clock


UNKNOWN, NONE = Dribble(), Dribble(found=False)


class Paces:
    """The decode speeds of each deployment's latest answers in this process."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: dict[str, deque[float]] = {}

    def add(self, deployment: str, decode_tps: float) -> None:
        """Add the speed of a whole answer, tokens per second."""
        latest = self._latest.get(deployment)
        if latest is None:
            if len(self._latest) >= MOST_DEPLOYMENTS:
                return
            latest = self._latest[deployment] = deque(maxlen=LATEST)
        latest.append(decode_tps)

    def slowest_usual(self, deployment: str) -> float | None:
        """Return the speed that 95 of 100 answers reach; None if too few are known."""
        latest = self._latest.get(deployment, ())
        return sorted(latest)[int(QUANTILE * len(latest))] if len(latest) >= FEWEST else None

    def dribble(self, deployment: str, measurement: Measurement) -> Dribble:
        """Return whether the stream that ends now has dribbled."""
        first_at, last_at = measurement.first_at, measurement.last_at
        if first_at is None or last_at is None or last_at - first_at < FOR_S:
            return NONE
        usual_tps, tps = self.slowest_usual(deployment), measurement.decode_tps(measurement.tokens())
        gaps_s = measurement.gaps.unblocked()
        if usual_tps is None or tps is None or gaps_s is None:
            return UNKNOWN
        after_s = dribbled_after_s(gaps_s, tps * (last_at - first_at) / len(gaps_s), SHARE * usual_tps)
        return NONE if after_s is None else Dribble(found=True, at=first_at + after_s)


def dribbled_after_s(gaps_s: Sequence[float], tokens_per_gap: float, tps: float) -> float | None:
    """Return when fewer tokens than at ``tps`` had come for ``FOR_S``, in seconds since the first; None: never.

    Each read counts as many tokens as any other, and its gap is the one before it.
    """
    most = ceil(tps * FOR_S / tokens_per_gap) - 1  # reads in FOR_S that are too few
    at_s = list(accumulate(gaps_s, initial=0.0))
    for number in range(1, len(at_s)):
        last_but = number - 1 - most  # once it is FOR_S ago, only ``most`` are left
        slow_at = max(at_s[number - 1], at_s[max(0, last_but)] + FOR_S)
        if slow_at < at_s[number]:
            return slow_at
    return None
