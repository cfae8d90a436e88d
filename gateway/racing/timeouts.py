"""The timeouts of one attempt, on a single timer: first token, stall and total.

The connect timeout belongs to the provider's transport. A running stream does not touch the timer: an event only
stores its time. When the timer fires, it checks that time and, if it is too early, is set again.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from gateway.fleet.models import Clocks
from providers import ErrorKind, UpstreamError

# A timer that is later than this has waited for the event loop. What the provider sent meanwhile is read first: within
# ``READ_S``, and within that again while the loop goes on standing still.
LATE_S = 0.1
READ_S = 0.05
MOST_WAITS = 5

FINISH_GRACE_S = 5.0  # time for usage and [DONE] after a finish reason; the answer itself is complete


class AttemptClocks:
    """Cancels ``task`` when a timeout expires, and stores which one in ``expired``.

    The owner converts the cancellation into an error, as ``asyncio.timeout`` does: see ``take_expiry``.
    """

    __slots__ = (
        "_clock",
        "_clocks",
        "_due",
        "_expired",
        "_finishing",
        "_first_token",
        "_loop",
        "_paused_at",
        "_quiet_since",
        "_started",
        "_task",
        "_timer",
        "_waits",
    )

    def __init__(
        self, clocks: Clocks, task: asyncio.Task[None], clock: Callable[[], float], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._clocks = clocks
        self._task: asyncio.Task[None] | None = task
        self._clock = clock
        self._loop = loop
        self._started = self._quiet_since = clock()
        self._first_token = False
        self._paused_at: float | None = None
        self._finishing = False
        self._expired: UpstreamError | None = None
        self._waits = 0  # for data that came while the event loop stood still, one after the other
        self._due = 0.0  # when the timer fires
        self._timer: asyncio.TimerHandle | None = self._sleep(self._next()[0])

    def event(self, now: float, *, meaningful: bool) -> None:
        """Record an event (not a comment or ping). The first meaningful one ends the first-token timeout."""
        self._quiet_since = now
        if meaningful and not self._first_token:
            self._first_token = True
            self._rearm()

    def heard(self) -> None:
        """Record that the provider sent something meaningful which the client is not shown, or not yet."""
        self.event(self._clock(), meaningful=True)

    def finish(self) -> None:
        """Record a finish reason: the rest must arrive within ``FINISH_GRACE_S``."""
        if not self._finishing:
            self._finishing = self._first_token = True
            self._rearm()

    def pause(self, now: float) -> None:
        """Stop the clocks: the gateway waits for the client, not for the provider."""
        self._paused_at = now

    def resume(self) -> float:
        """Restart the stall clock after ``pause``; return for how many seconds it stood."""
        if self._paused_at is None:
            return 0.0
        paused_s = self._clock() - self._paused_at
        self._quiet_since += paused_s
        self._paused_at = None
        return paused_s

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget(self) -> None:
        """Stop, and break the reference cycle exception → frame → clock → task."""
        self.stop()
        self._task = None

    def take_expiry(self) -> UpstreamError | None:
        """Return the timeout behind a cancellation and uncancel the task; None if it has another cause."""
        if self._expired is not None and self._task is not None and self._task.uncancel() == 0:
            return self._expired
        return None

    def _next(self) -> tuple[float, ErrorKind, float]:
        """Return when the next timeout expires, which one it is, and its length in seconds."""
        clocks = self._clocks
        if not self._first_token:
            due = (self._started + clocks.ttft_s, ErrorKind.TTFT_TIMEOUT, clocks.ttft_s)
        else:
            quiet_s = min(clocks.stall_s, FINISH_GRACE_S) if self._finishing else clocks.stall_s
            since = self._quiet_since if self._paused_at is None else self._clock()
            due = (since + quiet_s, ErrorKind.STALL_TIMEOUT, quiet_s)
        if clocks.total_s is not None and self._started + clocks.total_s < due[0]:
            due = (self._started + clocks.total_s, ErrorKind.TOTAL_TIMEOUT, clocks.total_s)
        return due

    def _sleep(self, until: float) -> asyncio.TimerHandle:
        self._due = until
        return self._loop.call_later(until - self._clock(), self._fire)

    def _rearm(self) -> None:
        """Fire earlier if necessary; a timer that fires too early is set again."""
        due = self._next()[0]
        if self._timer is not None and due < self._due:
            self._timer.cancel()
            self._timer = self._sleep(due)

    def _fire(self) -> None:
        at, kind, limit_s = self._next()
        now = self._clock()
        if at > now:
            self._waits = 0
            self._timer = self._sleep(at)
            return
        if now - self._due > LATE_S and self._waits < MOST_WAITS:
            self._waits += 1
            self._timer = self._sleep(now + READ_S)
            return
        self._timer = None
        self._expired = UpstreamError(kind, f"no {_WAITED_FOR[kind]} within {limit_s:g} s")
        if self._task is not None:
            self._task.cancel()


_WAITED_FOR = {
    ErrorKind.TTFT_TIMEOUT: "first token",
    ErrorKind.STALL_TIMEOUT: "further event",
    ErrorKind.TOTAL_TIMEOUT: "end of the answer",
}


# The timers of an event loop: asyncio's loop has them, and so has the simulated one.


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call; no effect if it has been made."""


class Timers(Protocol):
    """Schedules calls."""

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Timer:
        """Call ``callback`` with ``args`` after ``delay_s`` seconds, or at once if that is negative."""
