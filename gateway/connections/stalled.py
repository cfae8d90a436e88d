"""Clients that take nothing of their answer, and since when: found by a look from time to time, with no timers."""

from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar


class Wire(Hashable, Protocol):
    """A connection, as far as what is written to it goes."""

    @property
    def taken(self) -> int | None:
        """A number that changes whenever its peer takes something, None while nothing waits to be taken."""


_W = TypeVar("_W", bound=Wire)


class Stalled(Generic[_W]):
    """Who takes nothing, and since when."""

    def __init__(self) -> None:
        self._since: dict[_W, tuple[int, float]] = {}

    def look(self, wires: Iterable[_W], now_s: float, limit_s: float) -> list[_W]:
        """Look at all connections there are; return those that have taken nothing for ``limit_s`` seconds."""
        before, self._since = self._since, {}
        stalled = []
        for wire in wires:
            taken = wire.taken
            if taken is None:
                continue
            known = before.get(wire)
            if known is None or known[0] != taken:
                known = (taken, now_s)
            if now_s - known[1] >= limit_s:
                stalled.append(wire)
            else:
                self._since[wire] = known
        return stalled
