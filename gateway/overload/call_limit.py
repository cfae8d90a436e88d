"""The limit of calls in flight: as memory and descriptors allow, or fewer while the turns of the event loop are long.

The length of turns depends on the calls in flight, so the limit is for these, not for the rate of new calls: a call
costs CPU long after its admission. But in a longer turn each call costs less, as more work comes together, so turns
must not be short. The rule is additive increase and multiplicative decrease, as in TCP. As in CoDel, only a lasting
delay counts: one long turn of the loop (a large body, a burst of connections) is over when it is noticed. A turn
noticed twice makes a late window of its own, which the next windows undo.
"""

from math import inf

from gateway.overload.loop_delay import PERIOD_S

WINDOW_S = 0.1  # the limit changes at most once in this time; the shortest turn in it counts
OBSERVED = 2  # minimum number in a window
# Decrease for each late window, as a part of the calls in flight: DOWN x turn / target, at most MOST_DOWN.
DOWN, MOST_DOWN = 0.02, 0.12
# Increase for each window in which the limit was reached and the loop was not late, as a part of the limit: UP if the
# longest turn was near the target, up to MOST_UP more if turns were short, as the cause of the decrease is then over.
UP, MOST_UP = 0.02, 0.12
UP_UNUSED = 0.1  # the same, while less than half of the limit is used
# An eighth of the seats is reserved for clients with few: such a seat goes only to a client with fewer seats than are
# free. So neither one client nor some together can take all seats; the last one is for a client without any.
RESERVED_PART = 8
LEAST_LIMIT = 32  # minimum of the limit: with so few calls the loop is late for another reason


class CallLimit:
    """The limit: ``now`` is the maximum of calls in flight, ``open`` the part of it that every client may use.

    ``most`` and ``target_s`` are the configuration's.
    """

    __slots__ = (
        *("_left_s", "_longest_s", "_observed", "_shortest_s", "_value"),
        *("_was_reached", "most", "now", "open", "target_s"),
    )

    def __init__(self, most: int, target_s: float) -> None:
        """``target_s``: the longest turn of the loop at which the limit stays; 0: only ``most`` applies."""
        self.now = self.most = most
        self.open = most - most // RESERVED_PART
        self.target_s = target_s
        self._value = float(most)
        self._left_s, self._observed = WINDOW_S, 0  # of the window
        self._shortest_s, self._longest_s = inf, 0.0  # turns in the window
        self._was_reached = False  # in the window

    @property
    def is_lowered(self) -> bool:
        """Whether long turns of the loop have lowered the limit."""
        return self.now < self.most

    def configure(self, most: int, target_s: float) -> None:
        """Use other settings. A lowered limit stays low."""
        stays_low = self.is_lowered and target_s > 0
        self.most, self.target_s = most, target_s
        self._set(self._value if stays_low else most)

    def forget(self) -> None:
        """Reset the limit, as no calls are in flight."""
        self._begin_window()
        self._set(self.most)

    def observe(self, turn_s: float, in_flight: int, *, is_reached: bool) -> None:
        """Record the length of a turn of the loop. ``is_reached``: since the last turn, a call found no room."""
        if not self.target_s:
            return
        self._observed += 1
        self._left_s -= PERIOD_S + turn_s
        self._shortest_s = min(self._shortest_s, turn_s)
        self._longest_s = max(self._longest_s, turn_s)
        self._was_reached |= is_reached
        if self._left_s > 0 or self._observed < OBSERVED:
            return
        if self._shortest_s > self.target_s:
            share = min(MOST_DOWN, DOWN * self._shortest_s / self.target_s)
            self._set(min(self._value, max(LEAST_LIMIT, (1 - share) * in_flight)))
        elif self.is_lowered and self._was_reached:
            idle = max(0.0, 1 - self._longest_s / self.target_s)
            self._set(self._value + max(1.0, (UP + MOST_UP * idle * idle) * self._value))
        elif self.is_lowered and in_flight < self._value / 2:
            self._set(self._value + max(1.0, UP_UNUSED * self._value))
        self._begin_window()

    def _begin_window(self) -> None:
        self._left_s, self._observed = WINDOW_S, 0
        self._shortest_s, self._longest_s = inf, 0.0
        self._was_reached = False

    def _set(self, value: float) -> None:
        self._value = min(float(self.most), value)
        self.now = int(self._value)
        self.open = self.now - self.now // RESERVED_PART
