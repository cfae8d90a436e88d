"""Seats: the places at deployments with ``max_in_flight``, who has one, and the calls that wait for one.

The limit protects a server, so it belongs to a deployment, whichever models, ad-hoc names and configurations use it. An
attempt takes its seat at its launch and gives it back when its task has ended, as the server may work on it until then.
A free seat goes at once to the call that has waited longest, so a new call finds none while others wait.
"""

from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


MAX_IN_FLIGHT = "max_in_flight"  # the limit's name in reports of refused extra attempts


class Waiting(Protocol):
    """A call that waits in lines, as far as a line sees it."""

    @property
    def is_timed(self) -> bool:
        """Whether its time limit counts: no attempt of the call runs."""

    def called(self, name: str) -> None:
        """Leave all lines, and take the seat that has become free at ``name``."""


class Line:
    """The seats of one deployment and the calls waiting for one, the oldest first."""

    __slots__ = ("limit", "name", "taken", "waiting")

    def __init__(self, name: str, limit: float) -> None:
        self.name = name
        self.limit = limit  # infinite after a reload removed it: taken seats must still be counted
        self.taken = 0
        self.waiting: dict[Waiting, None] = {}

    @property
    def has_room(self) -> bool:
        """Whether an attempt that its call needs may be launched. While calls wait, no seat is free."""
        return self.taken < self.limit

    @property
    def has_room_for_extra(self) -> bool:
        """Whether an extra attempt may be launched. The last free seat is kept for calls without an attempt."""
        return self.taken < max(1, self.limit - 1)

    def take(self) -> None:
        """Take a seat; the caller has checked that there is room, or was called up."""
        self.taken += 1

    def give_back(self) -> None:
        """Free a seat, and give it to the call that has waited longest."""
        self.taken -= 1
        self.call_up()

    def call_up(self) -> None:
        """Give free seats to the calls that have waited longest."""
        while self.waiting and self.taken < self.limit:
            next(iter(self.waiting)).called(self.name)  # it leaves all lines and takes the seat


class Seat:
    """A taken seat, which is given back once."""

    __slots__ = ("_line",)

    def __init__(self, line: Line) -> None:
        self._line: Line | None = line
        line.take()

    def give_back(self) -> None:
        """Give it back; does nothing the second time."""
        line, self._line = self._line, None
        if line is not None:
            line.give_back()


class Seats:
    """The lines of all limited deployments of this process. ``lines`` is empty if there are none."""

    def __init__(
        self,
        on_waited: Callable[[str, str, float], None] | None = None,
        on_refused: Callable[[str], None] | None = None,
    ) -> None:
        """Start without limits.

        ``on_waited`` is called for each wait with the model, its end (seated, timed_out, left) and the seconds;
        ``on_refused`` for each extra attempt without a seat, with the model.
        """
        self.lines: dict[str, Line] = {}
        self.queue_timeout_s = 0.0  # the maximum wait of a call, in all
        self.strangers: dict[str, Line] = {}  # by attempt id: launched before their deployment had a limit
        self._on_waited = on_waited
        self._on_refused = on_refused

    def limit(
        self,
        limits: Mapping[str, int],
        queue_timeout_s: float,
        under_way: Callable[[str], Collection[str]] = lambda _: (),
    ) -> None:
        """Apply a configuration: the maximum of attempts by limited deployment, and how long calls wait.

        Running attempts count. ``under_way`` returns their ids at a deployment that gets its first limit.
        """
        self.queue_timeout_s = queue_timeout_s
        for name, line in self.lines.items():
            line.limit = limits.get(name, inf)
        for name, limit in limits.items():
            if name not in self.lines:
                line = self.lines[name] = Line(name, limit)
                ids = under_way(name)
                line.taken = len(ids)
                self.strangers.update(dict.fromkeys(ids, line))
        for line in self.lines.values():
            line.call_up()

    def ended(self, attempt_id: str, loop: "asyncio.AbstractEventLoop") -> None:
        """Free the seat of one of the ``strangers`` when its task ends; ignores other attempts."""
        line = self.strangers.pop(attempt_id, None)
        if line is not None:
            loop.call_soon(line.give_back)

    def waited(self, model: str, how: str, seconds: float) -> None:
        """Report the end of a call's wait."""
        if self._on_waited is not None:
            self._on_waited(model, how, seconds)

    def refused(self, model: str) -> None:
        """Report an extra attempt that got no seat."""
        if self._on_refused is not None:
            self._on_refused(model)

    @property
    def waiting(self) -> int:
        """The number of waiting calls."""
        return len({wait for line in self.lines.values() for wait in line.waiting if wait.is_timed})
