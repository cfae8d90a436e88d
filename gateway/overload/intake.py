"""The intake: lets a call in when there is room, has it wait a moment when there is none, or refuses it.

Each call in flight has a seat until its answer has ended. A free seat goes to the next call in the queue in that
instant: of the highest priority, and in it of the client that holds fewest.
"""

import asyncio
from collections.abc import Callable, Hashable
from enum import StrEnum
from itertools import cycle

from gateway.errors import Overloaded
from gateway.overload.limit import Limit
from gateway.overload.loop_delay import LoopDelay
from gateway.overload.patience import Patience
from gateway.overload.queue import Queue
from gateway.settings.overload import OverloadSettings

SHED_AT_ONCE = 50  # at a tick, when a crowd has turned out to be none: each costs a tenth of a millisecond
RETRY_AFTER_S = (1, 2, 3)  # in turn: those that are refused together shall not all return together


class Shed(StrEnum):
    """Why a call was refused."""

    QUEUE_FULL = "queue_full"  # as many wait as may
    QUEUE_TIMEOUT = "queue_timeout"  # it has waited as long as it may
    DISPLACED = "displaced"  # a call of higher priority has its place in the queue


class Cause(StrEnum):
    """What set the limit that left no room."""

    LOOP_DELAY = "loop_delay"
    MAX_IN_FLIGHT = "max_in_flight"


class _Waiting:
    """A call in the queue. ``turn`` gets None with a seat, or the reason for which there will be none."""

    __slots__ = ("owner", "priority", "turn")

    def __init__(self, priority: int, owner: Hashable, turn: "asyncio.Future[Shed | None]") -> None:
        self.priority = priority
        self.owner = owner
        self.turn = turn


class Intake:
    """The calls of one process: those in flight, those that wait, and those refused.

    A call enters like this, and gives its seat back once::

        if not intake.enter():
            await intake.wait(priority)
        try:
            ...
        finally:
            intake.leave()
    """

    __slots__ = (
        "_clock",
        "_default_most",
        "_found_no_room",
        "_on_shed",
        "_patience",
        "_queue",
        "_retry_after_s",
        "_seats",
        "_settings",
        "delay",
        "in_flight",
        "limit",
    )

    def __init__(
        self,
        settings: OverloadSettings,
        *,
        default_most: int,
        clock: Callable[[], float],
        is_busy: Callable[[], bool] = lambda: False,
        on_shed: Callable[[Shed, Cause], None] = lambda *_: None,
    ) -> None:
        """Start without calls.

        ``default_most`` is the limit if the settings have none; ``is_busy`` tells whether there is work besides the
        calls, for which the loop's delay is measured as well; ``on_shed`` is called for each refused call.
        """
        self.in_flight = 0
        self.limit = Limit(settings.max_in_flight or default_most, settings.loop_delay_ms / 1000)
        self.delay = LoopDelay(clock=clock, is_busy=lambda: bool(self.in_flight) or is_busy(), on_tick=self._tick)
        self._clock = clock
        self._settings = settings
        self._default_most = default_most
        self._seats: dict[Hashable, int] = {}  # by owner
        self._queue: Queue[_Waiting] = Queue(self._held)
        self._patience = Patience(settings.queue if settings.queue_timeout_s else 0, settings.queue_timeout_s)
        self._found_no_room = False  # a call, since the last tick
        self._retry_after_s = cycle(RETRY_AFTER_S)
        self._on_shed = on_shed

    @property
    def waiting(self) -> int:
        """The number of calls in the queue."""
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether a new call finds no seat."""
        return self.in_flight >= self.limit.now

    def configure(self, settings: OverloadSettings) -> None:
        """Use other settings. Calls in flight and in the queue stay."""
        self._settings = settings
        self.limit.configure(settings.max_in_flight or self._default_most, settings.loop_delay_ms / 1000)
        self._patience.configure(settings.queue if settings.queue_timeout_s else 0, settings.queue_timeout_s)
        if self._queue:
            self._call_up()

    def cap_default(self, most: int) -> None:
        """Allow at most ``most`` calls by default: there are no more descriptors."""
        self._default_most = min(self._default_most, most)
        self.configure(self._settings)

    def enter(self, owner: Hashable = None) -> bool:
        """Take a seat for a call of ``owner`` (None: not told apart from others); return False if there is none."""
        held = self._seats.get(owner, 0)
        if self.in_flight >= self.limit.now or (held >= self.limit.each and owner is not None):
            return False
        if not self.in_flight:
            self.delay.wake()
        self.in_flight += 1
        self._seats[owner] = held + 1
        return True

    def leave(self, owner: Hashable = None) -> None:
        """Give a seat of ``owner`` back; the next call in the queue has it."""
        self.in_flight -= 1
        left = self._seats[owner] - 1
        if left:
            self._seats[owner] = left
        else:
            del self._seats[owner]
        if self._queue:
            self._call_up()

    def refuses(self, priority: int, owner: Hashable = None) -> bool:
        """Whether a call of this priority would be refused at once: no seat, and no place in the queue."""
        if not self.is_full and (owner is None or self._held(owner) < self.limit.each):
            return False
        return not self._has_place(priority, owner)

    def demand_place(self, priority: int, owner: Hashable) -> None:
        """Check that a call would not be refused at once.

        Raises:
            Overloaded: it would.

        """
        if self.refuses(priority, owner):
            raise self.refusal(Shed.QUEUE_FULL)

    async def wait(self, priority: int, owner: Hashable = None) -> float:
        """Wait for a seat and take it; return the seconds that took.

        Raises:
            Overloaded: there was none in time, or already too many calls wait.

        """
        if not self._has_place(priority, owner):
            raise self.refusal(Shed.QUEUE_FULL)
        self._found_no_room = True
        loop, since_s = asyncio.get_running_loop(), self._clock()
        if not self._queue:
            self._patience.fills(since_s)
        elif len(self._queue) >= self._patience.most(since_s):
            self._shed_last(Shed.DISPLACED)
        waiting = _Waiting(priority, owner, loop.create_future())
        self._queue.add(waiting)
        timer = loop.call_later(self._patience.wait_s(since_s), _end, waiting.turn, Shed.QUEUE_TIMEOUT)
        try:
            shed = await waiting.turn
        except asyncio.CancelledError:
            if _has_seat(waiting.turn):  # since this turn of the loop
                self.leave(owner)
            raise
        finally:
            timer.cancel()
            if self._queue:
                self._queue.discard(waiting)
                self._note_empty()
        if shed is not None:
            raise self.refusal(shed)
        return self._clock() - since_s

    def refusal(self, shed: Shed) -> Overloaded:
        """Count a refused call, and return its error."""
        self._found_no_room = True
        self._on_shed(shed, Cause.LOOP_DELAY if self.limit.is_lowered else Cause.MAX_IN_FLIGHT)
        after_s = next(self._retry_after_s)
        return Overloaded(
            f"the gateway has as many calls as it can serve in time; retry in {after_s} s",
            headers={"retry-after": str(after_s)},
        )

    def _has_place(self, priority: int, owner: Hashable) -> bool:
        most = self._patience.most(self._clock())
        if len(self._queue) < most or most <= 0:
            return most > 0
        last = self._queue.last()
        if last.priority != priority:
            return last.priority < priority
        return self._queue.load(priority, last.owner) > self._queue.load(priority, owner) + 1

    def _held(self, owner: Hashable) -> int:
        return self._seats.get(owner, 0)

    def _shed_last(self, shed: Shed) -> None:
        """Refuse the call in the queue that would be next last of all."""
        last = self._queue.last()
        self._queue.discard(last)
        _end(last.turn, shed)

    def _call_up(self) -> None:
        """Give free seats to the first calls in the queue."""
        while self._queue and self.in_flight < self.limit.now:
            waiting = self._queue.pop(self.limit.each)
            if waiting is None:
                break
            if not waiting.turn.done():  # else its client has hung up, or its time is over
                self.in_flight += 1
                self._seats[waiting.owner] = self._held(waiting.owner) + 1
                waiting.turn.set_result(None)
        self._note_empty()

    def _note_empty(self) -> None:
        if not self._queue:
            self._patience.empties(self._clock())

    def _tick(self, delay_s: float) -> None:
        """Adjust the limit to the loop's delay."""
        if not self.in_flight:
            self.limit.forget()
            return
        self.limit.observe(delay_s, self.in_flight, is_reached=self._found_no_room or bool(self._queue))
        self._found_no_room = False
        if self._queue:
            self._call_up()
            too_many = len(self._queue) - self._patience.most(self._clock())
            for _ in range(min(too_many, SHED_AT_ONCE)):
                self._shed_last(Shed.QUEUE_FULL)


def _end(turn: "asyncio.Future[Shed | None]", shed: Shed) -> None:
    if not turn.done():
        turn.set_result(shed)


def _has_seat(turn: "asyncio.Future[Shed | None]") -> bool:
    return turn.done() and not turn.cancelled() and turn.result() is None
