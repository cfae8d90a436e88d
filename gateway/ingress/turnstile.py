"""Limits how many calls begin in one turn of the event loop, so that in a burst the first are sent early.

Otherwise a thousand simultaneous calls are all read, then all planned, then all sent: the first waits for the last
at each step, and so does every first token that arrives meanwhile: its losers run on and are billed. On an overloaded
machine, where turns are long, nobody waits longer than a second for one.
"""

import asyncio
from collections import deque

PER_TURN = 32  # calls: some 6 ms to plan and launch
PATIENCE_S = 1.0  # a thousand calls begin in half of it; where turns are long, whoever has waited for so long begins


class Turnstile:
    """Admits calls in order of arrival. It belongs to the event loop on which it is first used."""

    def __init__(self, per_turn: int = PER_TURN) -> None:
        self._per_turn = per_turn
        self._entered = 0  # in this turn
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()  # since when, by the loop's clock
        self._loop: asyncio.AbstractEventLoop | None = None

    def enter(self) -> asyncio.Future[None] | None:
        """Count a call; return the future that it must await before it begins, None if it may begin now."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        if self._entered >= self._per_turn:
            turn = loop.create_future()
            self._waiting.append((turn, loop.time()))
            return turn
        if not self._entered:
            loop.call_soon(self._turn, loop)
        self._entered += 1
        return None

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the next turn and release the calls that have waited longest."""
        waiting, late = self._waiting, loop.time() - PATIENCE_S
        self._entered = 0
        while waiting and (self._entered < self._per_turn or waiting[0][1] <= late):
            turn, _ = waiting.popleft()
            if not turn.done():  # else its client has disconnected
                turn.set_result(None)
                self._entered += 1
        if self._entered:
            loop.call_soon(self._turn, loop)
