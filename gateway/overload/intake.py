"""The intake: admits a call if there is room, queues it for a moment if there is none, or refuses it.

Each call in flight has a seat until its answer has ended. A free seat goes at once to the next call in the queue: by
priority, the highest first, and then by client, the one with the fewest seats first.
"""

import asyncio
from collections.abc import Callable, Hashable
from enum import StrEnum
from itertools import cycle
from math import inf
from typing import Generic, Protocol, TypeVar

from gateway.core.errors import Overloaded
from gateway.settings import OverloadSettings
from providers.http import Batches

# The queue of calls that wait for a seat: the highest priority first, then the client with the fewest seats.


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


# The event loop's delay: how late a timer runs; and how long a turn of the loop takes, in which all that is ready runs
# once. The delay depends on the timer's place in a turn, which the timer itself determines: with turns of 19 ms a timer
# of 20 ms is always 18 ms late, with turns of 21 ms only 1 ms. So only turns show how much work there is. Two turns are
# measured together, as one turn often only wakes the work of the next; a long turn counts alone. A long turn is noticed
# by the count of turns, if a count is running, and by the late timer: perhaps by both.

PERIOD_S = 0.02  # of the timer
TURNS, LONG_S = 2, 0.05  # turns measured together, or fewer once they have taken so long
SMOOTHED_OVER = 10.0  # ticks: the time constant of ``smoothed_s``, about 0.2 s
PEAK_WINDOW_S = 10.0  # ``peak_s`` covers the last one to two windows


class LoopDelay:
    """Measures while the gateway has work: ``wake`` starts the timer, which stops when ``is_busy`` is false.

    An idle gateway has no timer, and its delay is 0. ``on_tick`` is called at each tick with the delay in seconds, and
    ``on_turns`` with the mean length of the loop's next ``TURNS``.

    ``smoothed_s`` is the recent delay; ``total_s`` the sum of all delays until the last tick, which never decreases;
    ``due_s`` is the time of the next tick, infinite without a timer.
    """

    __slots__ = (
        *("_clock", "_is_busy", "_loop", "_on_tick", "_on_turns", "_peak_before_s", "_peak_now_s"),
        *("_timer", "_turns", "_turns_from_s", "_window_ends_s", "due_s", "smoothed_s", "total_s"),
    )

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        is_busy: Callable[[], bool],
        on_tick: Callable[[float], None],
        on_turns: Callable[[float], None] = lambda _: None,
    ) -> None:
        """``clock`` returns monotonic seconds."""
        self.smoothed_s = self.total_s = 0.0
        self.due_s = inf
        self._clock = clock
        self._is_busy = is_busy
        self._on_tick = on_tick
        self._on_turns = on_turns
        self._turns: int | None = None  # the counted turns; None: no measurement
        self._turns_from_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None  # None: not started, or closed
        self._timer: asyncio.TimerHandle | None = None
        self._peak_now_s = self._peak_before_s = 0.0  # of this window and the one before
        self._window_ends_s = 0.0

    def start(self) -> None:
        """Allow ``wake`` to measure the running loop."""
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """Measure from now on, until the gateway is idle."""
        if self._timer is None and self._loop is not None:
            self._sleep(self._clock(), self._loop)

    def close(self) -> None:
        """Stop for good."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        self._stop_timer()

    def peak_s(self) -> float:
        """Return the longest delay of the last ten to twenty seconds, including that of an overdue tick."""
        now_s = self._clock()
        self._turn_window(now_s)
        return max(self._peak_now_s, self._peak_before_s, now_s - self.due_s)

    def _tick(self) -> None:
        loop = self._loop
        if loop is None:
            return
        now_s = self._clock()
        delay_s = max(0.0, now_s - self.due_s)
        self.total_s += delay_s
        self.smoothed_s += (delay_s - self.smoothed_s) / SMOOTHED_OVER
        self._turn_window(now_s)
        self._peak_now_s = max(self._peak_now_s, delay_s)
        if self._is_busy():
            self._sleep(now_s, loop)
        else:
            self._stop_timer()
        self._on_tick(delay_s)
        if delay_s >= LONG_S:
            # asyncio runs a timer at the end of the turn after its due time, uvloop soon after the turn of its due
            # time.
            self._on_turns(delay_s / 2 if isinstance(loop, asyncio.BaseEventLoop) else delay_s)
        elif self._timer is not None and self._turns is None:
            self._turns = 0
            loop.call_soon(self._count_turn)  # uvloop runs it still in this turn, asyncio in the next one

    def _count_turn(self) -> None:
        turns, now_s = self._turns or 0, self._clock()
        if not turns:
            self._turns_from_s = now_s
        passed_s = now_s - self._turns_from_s
        if turns == TURNS or passed_s >= LONG_S:
            self._turns = None
            self._on_turns(passed_s / turns)
        elif self._loop is not None:
            self._turns = turns + 1
            self._loop.call_soon(self._count_turn)

    def _sleep(self, now_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self.due_s = now_s + PERIOD_S
        self._timer = loop.call_later(PERIOD_S, self._tick)

    def _stop_timer(self) -> None:
        self._timer = None
        self.due_s = inf
        self.smoothed_s = 0.0

    def _turn_window(self, now_s: float) -> None:
        if now_s >= self._window_ends_s:
            is_next = now_s < self._window_ends_s + PEAK_WINDOW_S
            self._peak_before_s, self._peak_now_s = (self._peak_now_s if is_next else 0.0), 0.0
            self._window_ends_s = now_s + PEAK_WINDOW_S


# The limit of calls in flight: as memory and descriptors allow, or fewer while the turns of the event loop are long.
# The length of turns depends on the calls in flight, so the limit is for these, not for the rate of new calls: a call
# costs CPU long after its admission. But in a longer turn each call costs less, as more work comes together, so turns
# must not be short. The rule is additive increase and multiplicative decrease, as in TCP. As in CoDel, only a lasting
# delay counts: one long turn of the loop (a large body, a burst of connections) is over when it is noticed. A turn
# noticed twice makes a late window of its own, which the next windows undo.

WINDOW_S = 0.1  # the limit changes at most once in this time; the shortest turn in it counts
OBSERVED = 2  # minimum number in a window
# Decrease for each late window, as a part of the calls in flight: DOWN x turn / target, at most MOST_DOWN.
DOWN, MOST_DOWN = 0.02, 0.12
# Increase for each window in which the limit was reached and the loop was not late, as a part of the limit: UP if the
# longest turn was near the target, up to MOST_UP more if turns were short, as the cause of the decrease is then over.
UP, MOST_UP = 0.02, 0.12
UP_UNUSED = 0.1  # the same, while less than half of the limit is used
# An eighth of the seats is reserved for clients with few: such a seat goes only to a client with fewer seats than are
# free. So neither one client nor some together can take all seats; the last one is for a client without any.
RESERVED_PART = 8
LEAST_LIMIT = 32  # minimum of the limit: with so few calls the loop is late for another reason


class CallLimit:
    """The limit: ``now`` is the maximum of calls in flight, ``open`` the part of it that every client may use.

    ``most`` and ``target_s`` are the configuration's.
    """

    __slots__ = (
        *("_left_s", "_longest_s", "_observed", "_shortest_s", "_value"),
        *("_was_reached", "most", "now", "open", "target_s"),
    )

    def __init__(self, most: int, target_s: float) -> None:
        """``target_s``: the longest turn of the loop at which the limit stays; 0: only ``most`` applies."""
        self.now = self.most = most
        self.open = most - most // RESERVED_PART
        self.target_s = target_s
        self._value = float(most)
        self._left_s, self._observed = WINDOW_S, 0  # of the window
        self._shortest_s, self._longest_s = inf, 0.0  # turns in the window
        self._was_reached = False  # in the window

    @property
    def is_lowered(self) -> bool:
        """Whether long turns of the loop have lowered the limit."""
        return self.now < self.most

    def configure(self, most: int, target_s: float) -> None:
        """Use other settings. A lowered limit stays low."""
        stays_low = self.is_lowered and target_s > 0
        self.most, self.target_s = most, target_s
        self._set(self._value if stays_low else most)

    def forget(self) -> None:
        """Reset the limit, as no calls are in flight."""
        self._begin_window()
        self._set(self.most)

    def observe(self, turn_s: float, in_flight: int, *, is_reached: bool) -> None:
        """Record the length of a turn of the loop. ``is_reached``: since the last turn, a call found no room."""
        if not self.target_s:
            return
        self._observed += 1
        self._left_s -= PERIOD_S + turn_s
        self._shortest_s = min(self._shortest_s, turn_s)
        self._longest_s = max(self._longest_s, turn_s)
        self._was_reached |= is_reached
        if self._left_s > 0 or self._observed < OBSERVED:
            return
        if self._shortest_s > self.target_s:
            share = min(MOST_DOWN, DOWN * self._shortest_s / self.target_s)
            self._set(min(self._value, max(LEAST_LIMIT, (1 - share) * in_flight)))
        elif self.is_lowered and self._was_reached:
            idle = max(0.0, 1 - self._longest_s / self.target_s)
            self._set(self._value + max(1.0, (UP + MOST_UP * idle * idle) * self._value))
        elif self.is_lowered and in_flight < self._value / 2:
            self._set(self._value + max(1.0, UP_UNUSED * self._value))
        self._begin_window()

    def _begin_window(self) -> None:
        self._left_s, self._observed = WINDOW_S, 0
        self._shortest_s, self._longest_s = inf, 0.0
        self._was_reached = False

    def _set(self, value: float) -> None:
        self._value = min(float(self.most), value)
        self.now = int(self._value)
        self.open = self.now - self.now // RESERVED_PART


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
