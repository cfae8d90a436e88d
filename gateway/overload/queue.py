"""The queue of calls that wait to be let in: the highest priority first, and in it who has waited longest."""

from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """A call that waits."""

    @property
    def priority(self) -> int:
        """Higher is served first."""


_W = TypeVar("_W", bound=Waiting)


class Queue(Generic[_W]):
    """Calls by priority."""

    __slots__ = ("_length", "_lines")

    def __init__(self) -> None:
        self._lines: dict[int, dict[_W, None]] = {}  # by priority; none is empty
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, one: _W) -> None:
        """Add a call behind all others of its priority."""
        self._lines.setdefault(one.priority, {})[one] = None
        self._length += 1

    def discard(self, one: _W) -> None:
        """Remove a call, if it waits."""
        line = self._lines.get(one.priority)
        if line is not None and one in line:
            del line[one]
            self._length -= 1
            if not line:
                del self._lines[one.priority]

    def pop(self) -> _W:
        """Remove and return the call that is next.

        Raises:
            ValueError: no call waits.

        """
        one = next(iter(self._lines[max(self._lines)]))
        self.discard(one)
        return one

    def last(self) -> _W:
        """Return the call that would be next last of all: the newest of the lowest priority.

        Raises:
            ValueError: no call waits.

        """
        return next(reversed(self._lines[min(self._lines)]))
