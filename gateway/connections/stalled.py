"""Finds clients that do not read their answers, by checking from time to time, without timers."""

from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar


class Wire(Hashable, Protocol):
    """A connection that is written to."""

    @property
    def taken(self) -> int | None:
        """A number that changes whenever the peer reads something; None if nothing is waiting to be read."""


_W = TypeVar("_W", bound=Wire)


class Stalled(Generic[_W]):
    """The connections whose clients read nothing, and since when."""

    def __init__(self) -> None:
        self._since: dict[_W, tuple[int, float]] = {}

    def look(self, wires: Iterable[_W], now_s: float, limit_s: float) -> list[_W]:
        """Check all connections; return those whose clients have read nothing for ``limit_s`` seconds."""
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
