"""Connections that owe the head of a request, and since when; one timer for all of them."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

LOOK_S = 0.25  # between two looks for late heads, at least

_C = TypeVar("_C", bound=Hashable)


class OwedHeads(Generic[_C]):
    """Who owes a head, the longest first. ``limit_s`` returns how long one may; who is later is given to ``cut``."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit_s: Callable[[], float], cut: Callable[[_C], None]
    ) -> None:
        self._loop = loop
        self._limit_s = limit_s
        self._cut = cut
        self._since: dict[_C, float] = {}
        self._look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many owe one."""
        return len(self._since)

    def owe(self, connection: _C) -> None:
        """Await a head from now on."""
        self._since[connection] = self._loop.time()
        if self._look is None:  # each request of a quiet gateway starts and cancels the timer
            self._look = self._loop.call_later(max(LOOK_S, self._limit_s()), self._cut_late)

    def settle(self, connection: _C) -> None:
        """Await none any more, and look for late ones no more when it was the last."""
        if self._since.pop(connection, None) is not None and not self._since and self._look is not None:
            self._look.cancel()
            self._look = None

    def close(self) -> None:
        """Look for late ones no more."""
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _cut_late(self) -> None:
        """Cut who owes a head for too long, and look again when the next one will."""
        self._look = None
        limit_s, now = self._limit_s(), self._loop.time()
        late = []
        for connection, since in self._since.items():
            if now - since < limit_s:
                self._look = self._loop.call_later(max(LOOK_S, since + limit_s - now), self._cut_late)
                break
            late.append(connection)
        for connection in late:
            self._cut(connection)
