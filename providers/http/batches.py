"""Answers under way are read in batches while the event loop is busy.

A token costs much less where several come at a time: a read, a search and a write are for all of them. When turns of
the loop get long, each answer of which a first token was forwarded rests after a read, for at most ``MOST_S``, and the
loop comes sooner to those that wait for their first token. What arrives meanwhile stays in the socket; over TLS and
HTTP/2 it is read, and only its search and its write are for several tokens.
"""

import asyncio
from collections import deque
from collections.abc import Callable

MOST_S = 0.05  # as long as a token of a model that writes 20 a second
BUSY = 0.25  # of the turn from which fewer calls are let in: from here on tokens come in batches
MORE_S, LESS_S = 0.01, 0.005  # after a turn that was longer, and after a shorter one
_TOGETHER_S = 0.003  # those whose rest ends within it go on together


class Batches:
    """How long answers under way rest between two reads, ``rest_s``, and those that do. One for each event loop."""

    __slots__ = ("_resting", "_timer", "rest_s")

    def __init__(self) -> None:
        self.rest_s = 0.0
        self._resting: deque[tuple[float, Callable[[], object]]] = deque()  # nearly in the order of their ends
        self._timer: asyncio.TimerHandle | None = None

    def observe(self, turn_s: float, longest_s: float) -> None:
        """Adapt the rest to a turn of the loop; from ``longest_s`` on, fewer calls are let in (0: never)."""
        if turn_s > BUSY * longest_s > 0:
            self.rest_s = min(MOST_S, self.rest_s + MORE_S)
        elif self.rest_s:
            self.rest_s = max(0.0, self.rest_s - LESS_S)

    def forget(self) -> None:
        """End all rests from the next read on: the loop is idle."""
        self.rest_s = 0.0

    def rest(self, loop: asyncio.AbstractEventLoop, go_on: Callable[[], object]) -> None:
        """Call ``go_on`` after a rest."""
        self._resting.append((loop.time() + self.rest_s, go_on))
        if self._timer is None:
            self._timer = loop.call_later(self.rest_s, self._wake, loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        resting, now = self._resting, loop.time() + _TOGETHER_S
        try:
            while resting and resting[0][0] <= now:
                resting.popleft()[1]()
        finally:  # whatever one of them raises, the others go on
            self._timer = loop.call_at(resting[0][0], self._wake, loop) if resting else None
