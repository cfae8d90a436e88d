"""What bodies make the gateway do, one slice a turn of the loop, and how much of it was done."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from gateway.ingress.survey import Steps

_T = TypeVar("_T")


class BodyWork:
    """The heavy work on bodies of one gateway. Whatever their number, a turn of the loop has one slice of it."""

    def __init__(self) -> None:
        self.inflated_bytes = 0  # that came out of compressed bodies
        self.drained_bytes = 0  # of bodies that nobody wanted
        self.slices = 0
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def slice(self) -> AsyncIterator[None]:
        """Wait for a turn of the loop that is this slice's: first come, first served."""
        async with self._turn:
            await asyncio.sleep(0)
            self.slices += 1
            yield

    async def run(self, steps: Steps[_T]) -> _T:
        """Return what ``steps`` come to, each a slice."""
        while True:
            async with self.slice():
                try:
                    next(steps)
                except StopIteration as end:
                    result: _T = end.value
                    return result
