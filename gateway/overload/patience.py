"""How many calls may wait for a seat, and for how long: a crowd as configured, a standing queue hardly.

A crowd that comes at once is served within a moment, if it may wait. When more calls come than can be served for good,
a queue is always full: it lets in nobody more, and only adds its wait to every call. As in CoDel, both are told apart
by whether the queue was empty lately.
"""

from math import inf

STANDING_CALLS, STANDING_WAIT_S = 8, 0.1  # enough for arrivals by chance, and to let a higher priority go first


class Patience:
    """The queue is standing when it was never empty for ``wait_s`` since it began to fill, at least so long ago."""

    __slots__ = ("_began_s", "_calls", "_emptied_s", "_wait_s")

    def __init__(self, calls: int, wait_s: float) -> None:
        """Allow a crowd of ``calls`` to wait for ``wait_s`` seconds."""
        self._calls, self._wait_s = calls, wait_s
        self._began_s = -inf  # since when it was never empty for long
        self._emptied_s = -inf  # since when it is empty; infinite: it is not

    def configure(self, calls: int, wait_s: float) -> None:
        """Use other limits."""
        self._calls, self._wait_s = calls, wait_s

    def fills(self, now_s: float) -> None:
        """Record that the queue gets its first call."""
        if now_s - self._emptied_s >= self._wait_s:
            self._began_s = now_s
        self._emptied_s = inf

    def empties(self, now_s: float) -> None:
        """Record that the last call has left the queue."""
        self._emptied_s = now_s

    def most(self, now_s: float) -> int:
        """Return how many calls may wait."""
        return min(STANDING_CALLS, self._calls) if self._is_standing(now_s) else self._calls

    def wait_s(self, now_s: float) -> float:
        """Return how long a call that comes now may wait."""
        return min(STANDING_WAIT_S, self._wait_s) if self._is_standing(now_s) else self._wait_s

    def _is_standing(self, now_s: float) -> bool:
        return now_s - self._began_s >= self._wait_s > now_s - self._emptied_s
