"""The intake: admits a call if there is room, queues it for a moment if there is none, or refuses it.

Each call in flight has a seat until its answer has ended. A free seat goes at once to the next call in the queue: by
priority, the highest first, and then by client, the one with the fewest seats first.
"""

import asyncio
from collections.abc import Callable, Hashable
from enum import StrEnum
from itertools import cycle
from math import inf

from gateway.core.errors import Overloaded
from gateway.overload.call_limit import CallLimit
from gateway.overload.call_queue import Queue, QueuePatience
from gateway.overload.loop_delay import LoopDelay
from gateway.settings import OverloadSettings
from providers.http import Batches

SHED_AT_ONCE = 50  # at a tick, when the queue has become a standing one: each takes a tenth of a millisecond
RETRY_AFTER_S = (1, 2, 3)  # in turn, so that calls refused together do not return together


class ShedReason(StrEnum):
    """Why a call was refused."""

    QUEUE_FULL = "queue_full"  # the queue has its maximum length
    QUEUE_TIMEOUT = "queue_timeout"  # the call has waited for the maximum time
    DISPLACED = "displaced"  # a call of higher priority has taken the call's place in the queue


class LimitCause(StrEnum):
    """The reason for the limit that left no room."""

    LOOP_DELAY = "loop_delay"
    MAX_IN_FLIGHT = "max_in_flight"


class _Waiting:
    """A call in the queue. ``turn`` is resolved with None for a seat, or with the reason of the refusal."""

    __slots__ = ("owner", "priority", "turn")

    def __init__(self, priority: int, owner: Hashable, turn: "asyncio.Future[ShedReason | None]") -> None:
        self.priority = priority
        self.owner = owner
        self.turn = turn


class Intake:
    """Admission of one process's calls.

    A call enters like this, and releases its seat once::

        if not intake.enter():
            await intake.wait(priority)
        try:
            ...
        finally:
            intake.leave()
    """

    __slots__ = (
        *("_clock", "_default_most", "_found_no_room", "_on_shed", "_patience", "_queue"),
        *("_retry_after_s", "_seats", "_settings", "batches", "delay", "in_flight", "limit"),
    )

    def __init__(
        self,
        settings: OverloadSettings,
        *,
        default_most: int,
        clock: Callable[[], float],
        is_busy: Callable[[], bool] = lambda: False,
        on_shed: Callable[[ShedReason, LimitCause], None] = lambda *_: None,
    ) -> None:
        """Start without calls.

        ``default_most`` is the limit if the settings have none; ``is_busy`` returns whether other work than calls needs
        a measured delay of the loop; ``on_shed`` is called for each refused call.
        """
        self.in_flight = 0
        self.batches = Batches()
        self.limit = CallLimit(settings.max_in_flight or default_most, settings.loop_delay_ms / 1000)
        self.delay = LoopDelay(
            clock=clock,
            is_busy=lambda: bool(self.in_flight) or is_busy(),
            on_tick=self._tick,
            on_turns=self._observe,
        )
        self._clock = clock
        self._settings = settings
        self._default_most = default_most
        self._seats: dict[Hashable, int] = {}  # by owner
        self._queue: Queue[_Waiting] = Queue(self._held)
        self._patience = QueuePatience(settings.queue if settings.queue_timeout_s else 0, settings.queue_timeout_s)
        self._found_no_room = False  # of a call, since the last tick
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
            self._serve_queue()

    def cap_default(self, most: int) -> None:
        """Lower the default limit to ``most`` calls, for lack of descriptors."""
        self._default_most = min(self._default_most, most)
        self.configure(self._settings)

    def enter(self, owner: Hashable = None) -> bool:
        """Reserve a seat for a call of ``owner`` (None: clients are not told apart); return False if none is free."""
        held, limit = self._seats.get(owner, 0), self.limit
        if self.in_flight >= limit.open:
            free = limit.now - self.in_flight
            if free <= 0 or (held >= free and owner is not None):
                return False
        if not self.in_flight:
            self.delay.wake()
        self.in_flight += 1
        self._seats[owner] = held + 1
        return True

    def leave(self, owner: Hashable = None) -> None:
        """Release a seat of ``owner`` for the next call in the queue."""
        self.in_flight -= 1
        left = self._seats[owner] - 1
        if left:
            self._seats[owner] = left
        else:
            del self._seats[owner]
        if self._queue:
            self._serve_queue()

    def refuses(self, priority: int, owner: Hashable = None) -> bool:
        """Return whether a call of this priority would be refused at once: no seat, and no place in the queue."""
        free = self.limit.now - self.in_flight
        if free > 0 and (self.in_flight < self.limit.open or self._held(owner) < free or owner is None):
            return False
        return not self._has_place(priority, owner)

    def check_place(self, priority: int, owner: Hashable) -> None:
        """Check that a call would not be refused at once.

        Raises:
            Overloaded: the call would be refused

        """
        if self.refuses(priority, owner):
            raise self.refusal(ShedReason.QUEUE_FULL)

    async def wait(self, priority: int, owner: Hashable = None) -> float:
        """Wait for a seat and take it; return the wait in seconds.

        Raises:
            Overloaded: no seat became free in time, or too many calls wait already.

        """
        if not self._has_place(priority, owner):
            raise self.refusal(ShedReason.QUEUE_FULL)
        self._found_no_room = True
        loop, since_s = asyncio.get_running_loop(), self._clock()
        if not self._queue:
            self._patience.fills(since_s)
        elif len(self._queue) >= self._patience.most(since_s):
            self._shed_last(ShedReason.DISPLACED)
        waiting = _Waiting(priority, owner, loop.create_future())
        self._queue.add(waiting)
        timer = loop.call_later(self._patience.wait_s(since_s), _end, waiting.turn, ShedReason.QUEUE_TIMEOUT)
        try:
            shed = await waiting.turn
        except asyncio.CancelledError:
            if _has_seat(waiting.turn):  # the call got a seat in this turn of the loop
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

    def refusal(self, shed: ShedReason) -> Overloaded:
        """Count a refused call, and return its error."""
        self._found_no_room = True
        self._on_shed(shed, LimitCause.LOOP_DELAY if self.limit.is_lowered else LimitCause.MAX_IN_FLIGHT)
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

    def _shed_last(self, shed: ShedReason) -> None:
        """Refuse the call in the queue that would be served last."""
        last = self._queue.last()
        self._queue.discard(last)
        _end(last.turn, shed)

    def _serve_queue(self) -> None:
        """Give free seats to the first calls in the queue."""
        while self._queue and (free := self.limit.now - self.in_flight) > 0:
            waiting = self._queue.pop(inf if self.in_flight < self.limit.open else free)
            if waiting is None:
                break
            if not waiting.turn.done():  # else the client has disconnected, or the call's time is over
                self.in_flight += 1
                self._seats[waiting.owner] = self._held(waiting.owner) + 1
                waiting.turn.set_result(None)
        self._note_empty()

    def _note_empty(self) -> None:
        if not self._queue:
            self._patience.empties(self._clock())

    def _observe(self, turn_s: float) -> None:
        """Adjust batches and the limit to the length of the loop's turns."""
        if self.in_flight:
            self.batches.observe(turn_s, self.limit.target_s)
            self.limit.observe(turn_s, self.in_flight, is_reached=self._found_no_room or bool(self._queue))
            self._found_no_room = False

    def _tick(self, _: float) -> None:
        """Serve the queue, and refuse calls of a standing queue."""
        if not self.in_flight:
            self.limit.forget()
            self.batches.forget()
            return
        if self._queue:
            self._serve_queue()
            too_many = len(self._queue) - self._patience.most(self._clock())
            for _ in range(min(too_many, SHED_AT_ONCE)):
                self._shed_last(ShedReason.QUEUE_FULL)


def _end(turn: "asyncio.Future[ShedReason | None]", shed: ShedReason) -> None:
    if not turn.done():
        turn.set_result(shed)


def _has_seat(turn: "asyncio.Future[ShedReason | None]") -> bool:
    return turn.done() and not turn.cancelled() and turn.result() is None
