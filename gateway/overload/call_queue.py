"""The queue of calls that wait for a seat: the highest priority first, then the client with the fewest seats."""

from collections.abc import Callable, Hashable
from math import inf
from typing import Generic, Protocol, TypeVar


class WaitingCall(Protocol):
    """A waiting call."""

    @property
    def priority(self) -> int:
        """Higher is served first."""

    @property
    def owner(self) -> Hashable:
        """The call's client."""


_W = TypeVar("_W", bound=WaitingCall)


class Queue(Generic[_W]):
    """Calls by priority, and within a priority by owner. ``seats`` returns the number of an owner's seats."""

    __slots__ = ("_length", "_lines", "_seats")

    def __init__(self, seats: Callable[[Hashable], int] = lambda _: 0) -> None:
        self._lines: dict[int, dict[Hashable, dict[_W, None]]] = {}  # by priority and owner; no line is empty
        self._length = 0
        self._seats = seats

    def __len__(self) -> int:
        return self._length

    def add(self, one: _W) -> None:
        """Add a call behind all others of its priority and owner."""
        self._lines.setdefault(one.priority, {}).setdefault(one.owner, {})[one] = None
        self._length += 1

    def discard(self, one: _W) -> None:
        """Remove a call, if it is in the queue."""
        owners = self._lines.get(one.priority, {})
        line = owners.get(one.owner, {})
        if one in line:
            del line[one]
            self._length -= 1
            if not line:
                del owners[one.owner]
                if not owners:
                    del self._lines[one.priority]

    def pop(self, fewer_than: float = inf) -> _W | None:
        """Remove and return the next call; None if each owner of a waiting call has ``fewer_than`` seats or more."""
        for priority in sorted(self._lines, reverse=True):
            owners = self._lines[priority]
            owner = min(owners, key=self._seats)  # among equals the owner that has waited longest
            if owner is None or self._seats(owner) < fewer_than:
                one = next(iter(owners[owner]))
                self.discard(one)
                if owner in owners:
                    owners[owner] = owners.pop(owner)
                return one
        return None

    def load(self, priority: int, owner: Hashable) -> int:
        """Return the number of an owner's calls: those with a seat, and those waiting with this priority."""
        return self._seats(owner) + len(self._lines.get(priority, {}).get(owner, ()))

    def last(self) -> _W:
        """Return the call to drop first: of the lowest priority, the newest call of the owner with the most calls.

        Raises:
            ValueError: no call waits.

        """
        priority = min(self._lines)
        owners = self._lines[priority]
        return next(reversed(owners[max(owners, key=lambda owner: self.load(priority, owner))]))


# The maximum length of the queue and of a wait: as configured for a burst, very short for a standing queue. A burst is
# served within a moment, if it may wait. If calls arrive for long faster than they can be served, the queue is always
# full: it admits no more calls, and only adds its wait to every call. As in CoDel, a standing queue is one that was not
# empty lately.

STANDING_CALLS, STANDING_WAIT_S = 8, 0.1  # enough for arrivals by chance, and for a higher priority to go first


class QueuePatience:
    """Limits of the queue, which is standing if it filled ``wait_s`` ago and was since never empty for so long."""

    __slots__ = ("_began_s", "_calls", "_emptied_s", "_wait_s")

    def __init__(self, calls: int, wait_s: float) -> None:
        """Allow a burst of ``calls`` to wait for ``wait_s`` seconds."""
        self._calls, self._wait_s = calls, wait_s
        self._began_s = -inf  # the begin of filling; since then the queue was never empty for long
        self._emptied_s = -inf  # the last emptying; infinite: the queue is not empty

    def configure(self, calls: int, wait_s: float) -> None:
        """Use other limits."""
        self._calls, self._wait_s = calls, wait_s

    def fills(self, now_s: float) -> None:
        """Record the first call in an empty queue."""
        if now_s - self._emptied_s >= self._wait_s:
            self._began_s = now_s
        self._emptied_s = inf

    def empties(self, now_s: float) -> None:
        """Record that the last call has left the queue."""
        self._emptied_s = now_s

    def most(self, now_s: float) -> int:
        """Return the maximum number of waiting calls."""
        return min(STANDING_CALLS, self._calls) if self._is_standing(now_s) else self._calls

    def wait_s(self, now_s: float) -> float:
        """Return the maximum wait of a call arriving now, in seconds."""
        return min(STANDING_WAIT_S, self._wait_s) if self._is_standing(now_s) else self._wait_s

    def _is_standing(self, now_s: float) -> bool:
        return now_s - self._began_s >= self._wait_s > now_s - self._emptied_s
