"""The event loop's delay: how late a timer runs, and how long a turn takes, in which all that is ready runs once.

The delay depends on the timer's place in a turn, which the timer itself determines: with turns of 19 ms a timer of 20
ms is always 18 ms late, with turns of 21 ms only 1 ms. So only turns show how much work there is. Two turns are
measured together, as one turn often only wakes the work of the next; a long turn counts alone. A long turn is noticed
by the count of turns, if a count is running, and by the late timer: perhaps by both.
"""

import asyncio
from collections.abc import Callable
from math import inf

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
