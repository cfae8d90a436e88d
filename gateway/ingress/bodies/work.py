"""The processing of bodies, one slice per turn of the event loop, and its counters."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from gateway.ingress.survey import Steps

_T = TypeVar("_T")


class BodyWork:
    """The heavy work on all bodies of a gateway. Each turn of the event loop has at most one slice of it."""

    def __init__(self) -> None:
        self.inflated_bytes = 0  # bytes after decompression
        self.drained_bytes = 0  # of bodies that were not needed
        self.slices = 0
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def slice(self) -> AsyncIterator[None]:
        """Wait for a turn of the loop with no other slice, in order of arrival."""
        async with self._turn:
            await asyncio.sleep(0)
            self.slices += 1
            yield

    async def run(self, steps: Steps[_T]) -> _T:
        """Run ``steps``, each as one slice; return their result."""
        while True:
            async with self.slice():
                try:
                    next(steps)
                except StopIteration as end:
                    result: _T = end.value
                    return result
