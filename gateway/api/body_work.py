"""The processing of bodies, one slice per turn of the event loop, and its counters."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from gateway.core.tasks import LongestTurns
from providers import Steps

_T = TypeVar("_T")


class BodyWork:
    """The heavy work on all bodies of a gateway. Each turn of the event loop has at most one slice of it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.turns = LongestTurns(clock)
        self.inflated_bytes = 0  # bytes after decompression
        self.drained_bytes = 0  # of bodies that were read and dropped
        self.slices = 0
        self._clock = clock
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def slice(self) -> AsyncIterator[None]:
        """Wait for a turn of the loop with no other slice, in order of arrival."""
        async with self._turn:
            await asyncio.sleep(0)
            self.slices += 1
            began_s = self._clock()
            try:
                yield
            finally:
                self.turns.note("body", began_s)

    async def run(self, steps: Steps[_T]) -> _T:
        """Run ``steps``, each as one slice; return their result."""
        while True:
            async with self.slice():
                try:
                    next(steps)
                except StopIteration as end:
                    result: _T = end.value
                    return result
