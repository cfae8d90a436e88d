"""The queue of calls that wait to be let in: the highest priority first, then the client that holds fewest seats."""

from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """A call that waits."""

    @property
    def priority(self) -> int:
        """Higher is served first."""

    @property
    def owner(self) -> Hashable:
        """Whose call it is."""


_W = TypeVar("_W", bound=Waiting)


class Queue(Generic[_W]):
    """Calls by priority, and in it by owner. ``seats`` returns how many seats an owner holds."""

    __slots__ = ("_length", "_lines", "_seats")

    def __init__(self, seats: Callable[[Hashable], int] = lambda _: 0) -> None:
        self._lines: dict[int, dict[Hashable, dict[_W, None]]] = {}  # by priority and owner; none is empty
        self._length = 0
        self._seats = seats

    def __len__(self) -> int:
        return self._length

    def add(self, one: _W) -> None:
        """Add a call behind all others of its priority and owner."""
        self._lines.setdefault(one.priority, {}).setdefault(one.owner, {})[one] = None
        self._length += 1

    def discard(self, one: _W) -> None:
        """Remove a call, if it waits."""
        owners = self._lines.get(one.priority, {})
        line = owners.get(one.owner, {})
        if one in line:
            del line[one]
            self._length -= 1
            if not line:
                del owners[one.owner]
                if not owners:
                    del self._lines[one.priority]

    def pop(self, most_each: float = float("inf")) -> _W | None:
        """Remove and return the call that is next; None if each that waits is of an owner with ``most_each`` seats."""
        for priority in sorted(self._lines, reverse=True):
            owners = self._lines[priority]
            owner = min(owners, key=self._seats)  # among equals the one that waits longest
            if owner is None or self._seats(owner) < most_each:
                one = next(iter(owners[owner]))
                self.discard(one)
                if owner in owners:
                    owners[owner] = owners.pop(owner)
                return one
        return None

    def load(self, priority: int, owner: Hashable) -> int:
        """Return how many calls an owner has: with a seat, and waiting with this priority."""
        return self._seats(owner) + len(self._lines.get(priority, {}).get(owner, ()))

    def last(self) -> _W:
        """Return the call that would be next last of all: of the lowest priority, the newest of who has most calls.

        Raises:
            ValueError: no call waits.

        """
        priority = min(self._lines)
        owners = self._lines[priority]
        return next(reversed(owners[max(owners, key=lambda owner: self.load(priority, owner))]))
