"""The processing of bodies and the making of long pages, one slice per turn of the event loop, with counters."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from gateway.core.tasks import LongestTurns
from providers import Steps, raw_json

_T = TypeVar("_T")


class BodyWork:
    """The heavy work on all bodies and pages of a gateway: at most one slice in each turn of the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.turns = LongestTurns(clock)
        self.inflated_bytes = 0  # bytes after decompression
        self.drained_bytes = 0  # of bodies read and dropped
        self.slices = 0
        self._clock = clock
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def slice(self, of: str = "body") -> AsyncIterator[None]:
        """Wait for a turn of the loop with no other slice, in order of arrival."""
        async with self._turn:
            await asyncio.sleep(0)
            self.slices += 1
            began_s = self._clock()
            try:
                yield
            finally:
                self.turns.note(of, began_s)

    async def run(self, steps: Steps[_T], of: str = "body") -> _T:
        """Run ``steps``, each as one slice, and return their result."""
        while True:
            async with self.slice(of):
                try:
                    next(steps)
                except StopIteration as end:
                    result: _T = end.value
                    return result

    async def made(self, rows: Iterable[_T], a_turn: int = 1) -> list[_T]:
        """Return the rows of a page, made ``a_turn`` at a time, so that thousands of rows delay no stream."""
        return await self.run(_row_steps(rows, a_turn), "page")

    async def pieces(self, rows: Iterable[object], a_turn: int = 1) -> list[Any]:
        """Return the JSON of each row, made in the same way, for a page with JSON in place of rows."""
        return await self.made(map(raw_json, rows), a_turn)


def _row_steps(rows: Iterable[_T], a_turn: int) -> Steps[list[_T]]:
    made_rows: list[_T] = []
    for number, row in enumerate(rows, start=1):
        made_rows.append(row)
        if number % a_turn == 0:
            yield
    return made_rows
