"""Seats: the places at deployments with ``max_in_flight``, who has one, and the calls that wait for one.

The limit protects a server, so it belongs to a deployment, whichever models, ad-hoc names and versions of the
configuration lead to it. An attempt takes its seat in the instant in which it is launched, and gives it back once its
task has ended: until then the server may still be at work on it. A seat that becomes free goes to the call that has
waited longest, in the same instant: whoever comes later finds no room while somebody waits.
"""

from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from gateway.racing.wait import Wait


MAX_IN_FLIGHT = "max_in_flight"  # the limit, where it refuses an extra attempt


class Line:
    """The seats of one deployment, and the calls that wait for one of them, the oldest first."""

    __slots__ = ("limit", "name", "taken", "waiting")

    def __init__(self, name: str, limit: float) -> None:
        self.name = name
        self.limit = limit  # infinite where a reload has taken it away: who still has a seat must not be forgotten
        self.taken = 0
        self.waiting: dict[Wait, None] = {}

    @property
    def has_room(self) -> bool:
        """Whether an attempt that its call needs may be launched. While somebody waits, there is never a free seat."""
        return self.taken < self.limit

    @property
    def has_room_for_extra(self) -> bool:
        """Whether an attempt beside another may be launched: it leaves the last seat to a call that has none yet."""
        return self.taken < max(1, self.limit - 1)

    def take(self) -> None:
        """Take a seat: there is room, or it has just been this call's turn."""
        self.taken += 1

    def give_back(self) -> None:
        """Free a seat, for whoever has waited longest."""
        self.taken -= 1
        self.call_up()

    def call_up(self) -> None:
        """Let those that have waited longest take what is free."""
        while self.waiting and self.taken < self.limit:
            next(iter(self.waiting)).called(self.name)  # which leaves all lines, and takes the seat


class Seat:
    """A seat that is taken, and given back once."""

    __slots__ = ("_line",)

    def __init__(self, line: Line) -> None:
        self._line: Line | None = line
        line.take()

    def give_back(self) -> None:
        """Give it back, unless that was done."""
        line, self._line = self._line, None
        if line is not None:
            line.give_back()


class Seats:
    """The lines of all deployments with a limit, in this process. ``lines`` is empty where there are none."""

    def __init__(
        self,
        on_waited: Callable[[str, str, float], None] | None = None,
        on_refused: Callable[[str], None] | None = None,
    ) -> None:
        """Begin without limits.

        ``on_waited`` hears of each call that has waited: its model, how that ended (seated, timed_out, left) and the
        seconds; ``on_refused`` of each extra attempt that found no room: its model.
        """
        self.lines: dict[str, Line] = {}
        self.queue_timeout_s = 0.0  # how long a call waits in all
        self.strangers: dict[str, Line] = {}  # attempts launched before their deployment had a limit, by id
        self._on_waited = on_waited
        self._on_refused = on_refused

    def limit(
        self,
        limits: Mapping[str, int],
        queue_timeout_s: float,
        under_way: Callable[[str], Collection[str]] = lambda _: (),
    ) -> None:
        """Take a configuration: the most attempts at a time by deployment, where limited, and how long calls wait.

        Attempts under way count on. ``under_way`` returns the ids of those at a deployment, for the first limit it has.
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
        """Take the end of an attempt that may be one of the ``strangers``; its task is about to end."""
        line = self.strangers.pop(attempt_id, None)
        if line is not None:
            loop.call_soon(line.give_back)

    def waited(self, model: str, how: str, seconds: float) -> None:
        """Tell of a call that waits no longer."""
        if self._on_waited is not None:
            self._on_waited(model, how, seconds)

    def refused(self, model: str) -> None:
        """Tell of an extra attempt that found no room."""
        if self._on_refused is not None:
            self._on_refused(model)

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len({wait for line in self.lines.values() for wait in line.waiting if wait.is_timed})
