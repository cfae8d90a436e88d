"""The limit of calls in flight: what memory and descriptors allow, or fewer while the event loop is late.

The loop's delay depends on the calls in flight, so their number is limited, not the rate at which they begin: a call
costs CPU long after it was let in. Additive increase and multiplicative decrease, as in TCP. As in CoDel, only a delay
that lasts counts: one long turn of the loop (a large body, a crowd that connects at once) is over when it is seen.
"""

from math import inf

from gateway.overload.loop_delay import PERIOD_S

WINDOW_S = 0.1  # the limit changes at most once in this time; the shortest delay in it counts
TICKS = 2  # that a window has at least
DOWN, MOST_DOWN = 0.03, 0.12  # of the calls in flight, for each late window; times delay / target, up to the second
# Of the limit, for each window in which it was reached and the loop was not late: the first while the longest delay was
# near the target, up to the second more when there was none: then what it was lowered for is over.
UP, MOST_UP = 0.02, 0.25
AGAIN = 0.1  # the same, while not even half of it is used
LEFT_TO_OTHERS = 8  # one client alone leaves an eighth of the seats
LEAST = 32  # so few calls are never too many for the loop: it is late for another reason


class Limit:
    """``now`` is the most calls that may be in flight, ``each`` those of one client.

    ``most`` and ``target_s`` are the configuration's.
    """

    __slots__ = (
        "_left_s",
        "_longest_s",
        "_shortest_s",
        "_ticks",
        "_value",
        "_was_reached",
        "each",
        "most",
        "now",
        "target_s",
    )

    def __init__(self, most: int, target_s: float) -> None:
        """``target_s`` is the delay of the loop above which fewer calls are let in; 0: ``most`` alone counts."""
        self.now = self.most = most
        self.each = most - most // LEFT_TO_OTHERS
        self.target_s = target_s
        self._value = float(most)
        self._left_s, self._ticks = WINDOW_S, 0  # of the window
        self._shortest_s, self._longest_s = inf, 0.0  # delays in it
        self._was_reached = False  # in it

    @property
    def is_lowered(self) -> bool:
        """Whether the loop's delay has lowered the limit."""
        return self.now < self.most

    def configure(self, most: int, target_s: float) -> None:
        """Use other settings. A limit that the loop's delay has lowered stays low."""
        stays_low = self.is_lowered and target_s > 0
        self.most, self.target_s = most, target_s
        self._set(self._value if stays_low else most)

    def forget(self) -> None:
        """Forget earlier delays: no calls are in flight."""
        self._begin_window()
        self._set(self.most)

    def observe(self, delay_s: float, in_flight: int, *, is_reached: bool) -> None:
        """Take the delay of a tick. ``is_reached``: since the one before, a call found no room."""
        if not self.target_s:
            return
        self._ticks += 1
        self._left_s -= PERIOD_S + delay_s
        self._shortest_s = min(self._shortest_s, delay_s)
        self._longest_s = max(self._longest_s, delay_s)
        self._was_reached |= is_reached
        if self._left_s > 0 or self._ticks < TICKS:
            return
        if self._shortest_s > self.target_s:
            share = min(MOST_DOWN, DOWN * self._shortest_s / self.target_s)
            self._set(min(self._value, max(LEAST, (1 - share) * in_flight)))
        elif self.is_lowered and self._was_reached:
            idle = max(0.0, 1 - self._longest_s / self.target_s)
            self._set(self._value + max(1.0, (UP + MOST_UP * idle * idle) * self._value))
        elif self.is_lowered and in_flight < self._value / 2:
            self._set(self._value + max(1.0, AGAIN * self._value))
        self._begin_window()

    def _begin_window(self) -> None:
        self._left_s, self._ticks = WINDOW_S, 0
        self._shortest_s, self._longest_s = inf, 0.0
        self._was_reached = False

    def _set(self, value: float) -> None:
        self._value = min(float(self.most), value)
        self.now = int(self._value)
        self.each = self.now - self.now // LEFT_TO_OTHERS
