"""The event loop's delay: how late a timer runs. Everything that the process does waits as long."""

import asyncio
from collections.abc import Callable
from math import inf

PERIOD_S = 0.02  # of the timer
SMOOTHED_OVER = 10.0  # ticks: the time constant of ``smoothed_s``, about 0.2 s
PEAK_WINDOW_S = 10.0  # ``peak_s`` is of the last one to two windows


class LoopDelay:
    """Measures while the gateway has work: ``wake`` starts the timer, which stops when ``is_busy`` is false.

    An idle gateway has no timer, and its delay is 0. ``on_tick`` is called at each tick with the delay in seconds.

    ``smoothed_s`` is the delay lately, ``total_s`` the sum of all until the last tick, which only grows; ``due_s`` is
    when the next tick is due, infinite if there is none.
    """

    __slots__ = (
        "_clock",
        "_is_busy",
        "_loop",
        "_on_tick",
        "_peak_before_s",
        "_peak_now_s",
        "_timer",
        "_window_ends_s",
        "due_s",
        "smoothed_s",
        "total_s",
    )

    def __init__(
        self, *, clock: Callable[[], float], is_busy: Callable[[], bool], on_tick: Callable[[float], None]
    ) -> None:
        """``clock`` returns monotonic seconds."""
        self.smoothed_s = self.total_s = 0.0
        self.due_s = inf
        self._clock = clock
        self._is_busy = is_busy
        self._on_tick = on_tick
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
        self._rest()

    def peak_s(self) -> float:
        """Return the longest delay of the last ten to twenty seconds; that of a tick which is due now counts."""
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
            self._rest()
        self._on_tick(delay_s)

    def _sleep(self, now_s: float, loop: asyncio.AbstractEventLoop) -> None:
        self.due_s = now_s + PERIOD_S
        self._timer = loop.call_later(PERIOD_S, self._tick)

    def _rest(self) -> None:
        self._timer = None
        self.due_s = inf
        self.smoothed_s = 0.0

    def _turn_window(self, now_s: float) -> None:
        if now_s >= self._window_ends_s:
            is_next = now_s < self._window_ends_s + PEAK_WINDOW_S
            self._peak_before_s, self._peak_now_s = (self._peak_now_s if is_next else 0.0), 0.0
            self._window_ends_s = now_s + PEAK_WINDOW_S
