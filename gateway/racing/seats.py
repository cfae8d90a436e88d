"""Seats: the concurrency slots of deployments with ``max_in_flight``, and the calls that wait for one.

The limit protects a server. So a deployment has one limit, whichever models, ad-hoc names and configurations use the
deployment. An attempt takes its seat at its launch, and gives the seat back when its task has ended: until then the
server may work on the request.
A free seat goes at once to the call that has waited longest, so a new call finds none while others wait.

With ``max_in_flight_fleet`` a seat is also one of the slots that this process has leased (``gateway.limits``).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from time import monotonic
from typing import Protocol

from gateway.limits import LeasedSlots, Leases

_NONE: Mapping[str, int] = {}


class Waiting(Protocol):
    """A call that waits for a seat, as a line sees it."""

    @property
    def is_timed(self) -> bool:
        """Whether the time limit of the wait runs: the call has no running attempt."""

    def called(self, name: str) -> None:
        """Leave all lines, and take the seat that has become free at ``name``."""


class Line:
    """The limit and the taken seats of one deployment, and the queue of calls that wait, the oldest first."""

    __slots__ = ("limit", "name", "slots", "taken", "waiting")

    def __init__(self, name: str, limit: float) -> None:
        self.name = name
        self.limit = limit  # infinite once a reload has removed the limit: taken seats must still be counted
        self.taken = 0
        self.waiting: dict[Waiting, None] = {}
        self.slots: LeasedSlots | None = None  # with max_in_flight_fleet

    @property
    def most(self) -> float:
        """The current maximum of attempts. After a reload this may be less than ``taken``."""
        return self.limit if self.slots is None else min(self.limit, self.slots.most)

    @property
    def has_room(self) -> bool:
        """Whether an attempt that the call needs may be launched: a seat is free. While calls wait, none is free."""
        return self.taken < self.limit and (self.slots is None or self.taken < self.slots.most)

    @property
    def has_room_for_extra(self) -> bool:
        """Whether an extra attempt may be launched. The last free seat is kept for calls without an attempt."""
        return self.taken < max(1, self.most - 1) and (self.slots is None or self.taken < self.slots.most)

    def take(self) -> None:
        """Occupy a seat; the caller has checked ``has_room``, or was called."""
        self.taken += 1
        if self.slots is not None:
            self.slots.hold(self.taken)

    def give_back(self) -> None:
        """Free a seat, and give it to the call that has waited longest."""
        self.taken -= 1
        if self.slots is not None:
            self.slots.hold(self.taken)
        self.call_up()

    def join(self, waiting: Waiting) -> None:
        """Add a call that waits."""
        self.waiting[waiting] = None
        if self.slots is not None:
            self.slots.ask()

    def call_up(self) -> None:
        """Give free seats to the calls that have waited longest."""
        while self.waiting and self.has_room:
            next(iter(self.waiting)).called(self.name)  # the call leaves all lines and takes the seat


class Seat:
    """A taken seat, which is given back once."""

    __slots__ = ("_line",)

    def __init__(self, line: Line) -> None:
        self._line: Line | None = line
        line.take()

    def give_back(self) -> None:
        """Give the seat back; does nothing the second time."""
        line, self._line = self._line, None
        if line is not None:
            line.give_back()


class Seats:
    """The lines of all limited deployments of this process. ``lines`` is empty if there are none."""

    def __init__(
        self,
        on_waited: Callable[[str, str, float], None] | None = None,
        on_refused: Callable[[str], None] | None = None,
        *,
        leases: Leases | None = None,
        clock: Callable[[], float] = monotonic,
        on_elsewhere: Callable[[str, float], None] | None = None,
    ) -> None:
        """Start without limits. Slots of deployments with ``max_in_flight_fleet`` come from ``leases``.

        ``on_waited`` is called for each wait with the model, how the wait ended (seated, timed_out, left) and the
        seconds; ``on_refused`` for each extra attempt without a seat, with the model; ``on_elsewhere`` with a
        deployment and the number of attempts that other processes have there, at each of their reports.
        """
        self.lines: dict[str, Line] = {}
        self.leased: dict[str, Line] = {}  # the lines of deployments with max_in_flight_fleet
        self.queue_timeout_s = 0.0  # the maximum total wait of a call
        self.preexisting: dict[str, Line] = {}  # attempt id → line, if launched before there was a limit
        self._on_waited = on_waited
        self._on_refused = on_refused
        self._leases = leases
        self._clock = clock
        self._on_elsewhere = on_elsewhere

    def limit(
        self,
        limits: Mapping[str, int],
        queue_timeout_s: float,
        under_way: Callable[[str], Collection[str]] = lambda _: (),
        of_fleet: Mapping[str, int] = _NONE,
    ) -> None:
        """Apply a configuration: the maximum of attempts by limited deployment, and how long calls wait.

        ``limits`` are for this process, ``of_fleet`` for all processes together. Running attempts count: ``under_way``
        returns the ids of the attempts at a deployment that gets its first limit.
        """
        self.queue_timeout_s = queue_timeout_s
        for name, line in self.lines.items():
            line.limit = limits.get(name, inf)
        for name in (*limits, *of_fleet):
            if name not in self.lines:
                line = self.lines[name] = Line(name, limits.get(name, inf))
                ids = under_way(name)
                line.taken = len(ids)
                self.preexisting.update(dict.fromkeys(ids, line))
        for name in self.leased.keys() - of_fleet.keys():
            self._unlease(name)
        for name, limit in of_fleet.items():
            self._lease(self.lines[name], limit)
        for line in self.lines.values():
            line.call_up()

    def now(self, limits: Mapping[str, int], *, of_call: bool = True) -> Mapping[str, int]:
        """Return the current ``limits`` of a model's deployments: where slots are leased, their number.

        ``of_call``: whether a call is planned with these limits. If no slot is free for the call, processes with idle
        slots are notified.
        """
        taken_seats: dict[str, int] = {}
        for name, limit in limits.items():
            line = self.leased.get(name)
            taken_seats[name] = limit if line is None else int(line.most)
            if of_call and line is not None and line.slots is not None and not line.has_room:
                line.slots.turn_away()
        return taken_seats

    def _lease(self, line: Line, limit: int) -> None:
        assert self._leases is not None, "there are slots of the fleet, but nobody lends them"
        if line.slots is not None:
            if line.slots.limit != limit:
                line.slots.set_limit(limit)
                line.slots.ask()
            return

        def changed() -> None:
            if self._on_elsewhere is not None:
                self._on_elsewhere(line.name, slots.running)
            line.call_up()

        slots = line.slots = LeasedSlots(
            line.name, limit, clock=self._clock, waiting_calls=lambda: len(line.waiting), changed=changed
        )
        slots.hold(line.taken)
        self.leased[line.name] = line
        self._leases.lend(slots)

    def _unlease(self, name: str) -> None:
        line = self.leased.pop(name)
        if line.slots is not None and self._leases is not None:
            self._leases.end(line.slots)
        line.slots = None
        if self._on_elsewhere is not None:
            self._on_elsewhere(name, 0.0)

    def ended(self, attempt_id: str, loop: "asyncio.AbstractEventLoop") -> None:
        """Free the seat of one of the ``preexisting`` when its task ends; ignores other attempts."""
        line = self.preexisting.pop(attempt_id, None)
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


# A call's wait for a seat at any of several deployments.


class Wait:
    """The waits of one call, for at most ``patience_s`` seconds in all.

    While another attempt of the call runs, waiting has no time limit: the seat would only serve a rescue. ``seated`` is
    called with the deployment that has a free seat, and must take it; ``timed_out`` if there was none in time.
    """

    def __init__(
        self,
        seats: Seats,
        model: str,
        patience_s: float,
        *,
        seated: Callable[[str], None],
        timed_out: Callable[[], None],
        clock: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.waited_s = 0.0
        self._seats = seats
        self._model = model
        self._patience_s = patience_s
        self._seated: Callable[[str], None] | None = seated
        self._timed_out: Callable[[], None] | None = timed_out
        self._clock = clock
        self._loop = loop
        self._names: tuple[str, ...] = ()  # the deployments that the call waits for
        self._since: float | None = None  # when the time limit started
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_timed(self) -> bool:
        """Whether the time limit runs: the call has no running attempt."""
        return self._timer is not None

    def line_up(self, names: Iterable[str]) -> None:
        """Wait in the lines of ``names``, which exist and are full. Does nothing if the call waits already."""
        if self._names:
            return
        self._names = tuple(names)
        for name in self._names:
            self._seats.lines[name].join(self)

    def start_clock(self) -> bool:
        """Start the time limit, as no attempt runs any more. If no time is left, leave all lines and return False."""
        if self._timer is not None:
            return True
        left_s = self._patience_s - self.waited_s
        if left_s <= 0:
            self.leave()
            return False
        self._since = self._clock()
        self._timer = self._loop.call_later(left_s, self._expire)
        return True

    def called(self, name: str) -> None:
        """End the wait: a seat has become free at ``name``."""
        seated = self._seated
        self.leave("seated")
        if seated is not None:
            seated(name)

    def leave(self, how: str = "left") -> None:
        """End the wait. ``how`` is reported: seated, timed_out or left."""
        names, self._names = self._names, ()
        for name in names:
            self._seats.lines[name].waiting.pop(self, None)
        if self._timer is not None and self._since is not None:
            self._timer.cancel()
            self._timer = None
            seconds = self._clock() - self._since
            self.waited_s += seconds
            self._seats.waited(self._model, how, seconds)

    def forget(self) -> None:
        """End the wait and release the callbacks: the call is over."""
        self.leave()
        self._seated = self._timed_out = None

    def _expire(self) -> None:
        timed_out = self._timed_out
        self.leave("timed_out")
        if timed_out is not None:
            timed_out()
