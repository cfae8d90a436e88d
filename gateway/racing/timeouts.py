"""The timeouts of one attempt, on a single timer: first token, stall and total.

The connect timeout belongs to the provider's transport. A running stream does not touch the timer: an event only
stores its time. When the timer fires, it checks that time and, if it is too early, is set again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol

from gateway.fleet.models import Clocks
from providers import ErrorKind, UpstreamError
from providers.dialects import Chunk

FINISH_GRACE_S = 5.0  # time for usage and [DONE] after a finish reason; the answer itself is complete

BUSY_S = 0.5  # a timer that is so late has waited for the event loop: data that arrived may not have been read yet
SOON_S = 0.001  # what is due so soon is due now: clocks are rounded
AGAIN_S = 5.0  # between two looks at a silence, as another deployment may be asked only then

TEXT_S = 60.0  # how long a stream may stand still after text, unless its deployment is known to pause for longer


class Came(Enum):
    """What came last in a stream: what may follow, and how soon, depends on it."""

    TEXT = "text"
    THINKING = "thinking"
    OTHER = "other"  # a call of a tool, which some vendors send only at its end, or the boundary of a block

    __hash__ = object.__hash__  # Enum's own is a Python call


def came(chunk: Chunk) -> Came:
    """Return the kind of an event that is not ``idle``."""
    if chunk.reasoning:
        return Came.THINKING
    is_text = chunk.answer and chunk.text_chars and not (chunk.tools or chunk.names or chunk.of_tool)
    return Came.TEXT if is_text else Came.OTHER


# How long the streams of each deployment pause after text, learnt in this process: a pause that is long for its
# deployment is noticed, and another deployment is asked beside it.

LATEST = 300  # streams whose pauses count
FEWEST = 100  # streams from which the pauses of a deployment are known,
UNKNOWN_S = 12.0  # and before that
TIMES = 1.5  # the longest pause
LEAST_S, MOST_S = 3.0, 30.0
LONG_S = LEAST_S / TIMES  # shorter pauses change nothing
MOST_NOTICED, AMONG = 2, 50  # streams: a deployment with more notices has changed; for so many ``MOST_S`` holds
NOTICED_S: Mapping[Came, float] = {Came.THINKING: 120.0, Came.OTHER: 60.0}
MOST_DEPLOYMENTS = 1000  # clients may name their own


class Pauses:
    """The long pauses after text of one deployment's latest streams."""

    __slots__ = ("_long", "_noticed", "streams")

    def __init__(self) -> None:
        self.streams = 0  # that came to their end: counted by whoever reads them
        self._long: deque[tuple[int, float]] = deque()  # stream and seconds, ever shorter: the first is the longest
        self._noticed: deque[int] = deque(maxlen=MOST_NOTICED)  # how many streams had ended at the latest notices

    def recovered(self, pause_s: float) -> None:
        """Count a pause longer than ``LONG_S`` after which the stream went on."""
        while self._long and self._long[-1][1] <= pause_s:
            self._long.pop()
        self._long.append((self.streams, pause_s))

    def noticed(self) -> None:
        """Count a pause after which another deployment was asked."""
        self._noticed.append(self.streams)

    @property
    def longest_s(self) -> float:
        """The longest pause from which one of the latest streams recovered; 0 if none was longer than ``LONG_S``."""
        while self._long and self._long[0][0] <= self.streams - LATEST:
            self._long.popleft()
        return self._long[0][1] if self._long else 0.0

    def noticed_s(self, came: Came) -> float:
        """Return after how many seconds of silence another deployment should be asked."""
        if came is not Came.TEXT:
            return NOTICED_S[came]
        if len(self._noticed) == MOST_NOTICED and self._noticed[0] > self.streams - AMONG:
            return MOST_S
        least_s = LEAST_S if self.streams >= FEWEST else UNKNOWN_S
        return min(MOST_S, max(least_s, TIMES * self.longest_s))


class PausesByDeployment(dict[str, Pauses]):
    """The pauses of all deployments in this process; beyond ``MOST_DEPLOYMENTS`` nothing is kept."""

    def __missing__(self, deployment: str) -> Pauses:
        """Return the pauses of a deployment that none are known of, and keep them."""
        pauses = Pauses()
        if len(self) < MOST_DEPLOYMENTS:
            self[deployment] = pauses
        return pauses


class Silenced(Protocol):
    """Is told when a stream stands still in the middle of its answer, long before that is an error."""

    def stands_still(self) -> bool:
        """Return whether another deployment was asked; called again every ``AGAIN_S`` while the silence lasts."""

    def goes_on(self) -> None:
        """Note that the stream goes on after ``stands_still``."""


class AttemptClocks:
    """Cancels ``task`` when a timeout expires, and stores which one in ``expired``.

    The owner converts the cancellation into an error, as ``asyncio.timeout`` does: see ``take_expiry``. ``silenced``,
    if it is set, is told of a silence that is long for the deployment.
    """

    __slots__ = (
        "_came",
        "_clock",
        "_clocks",
        "_due",
        "_expired",
        "_finishing",
        "_first_token",
        "_loop",
        "_paused_at",
        "_pauses",
        "_quiet_since",
        "_silenced",
        "_started",
        "_still",
        "_task",
        "_timer",
    )

    def __init__(
        self,
        clocks: Clocks,
        task: asyncio.Task[None],
        clock: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
        pauses: Pauses,
        *,
        silenced: Silenced | None = None,
    ) -> None:
        """``pauses``: of its deployment."""
        self._clocks = clocks
        self._task: asyncio.Task[None] | None = task
        self._clock = clock
        self._loop = loop
        self._started = self._quiet_since = clock()
        self._first_token = False
        self._came = Came.OTHER
        self._pauses = pauses
        self._paused_at: float | None = None
        self._finishing = False
        self._still = False  # whether ``silenced`` was told of this silence
        self._silenced = silenced
        self._expired: UpstreamError | None = None
        self._due = 0.0  # when the timer fires
        self._timer: asyncio.TimerHandle | None = self._sleep(self._next()[0], LEAST_S)

    def event(self, now: float, came: Came, *, meaningful: bool) -> None:
        """Record an event (not a comment or ping). The first meaningful one ends the first-token timeout."""
        if now - self._quiet_since > LONG_S:
            self._resumed(now - self._quiet_since)
        self._quiet_since = now
        self._came = came
        if meaningful:
            self._first_token = True

    def heard(self, came: Came) -> None:
        """Record that the provider sent something meaningful which the client is not shown, or not yet."""
        self.event(self._clock(), came, meaningful=True)

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

    def _resumed(self, pause_s: float) -> None:
        """Learn from a pause after which the stream goes on."""
        if self._came is Came.TEXT:
            self._pauses.recovered(pause_s)
        if self._still and self._silenced is not None:
            self._still = False
            self._silenced.goes_on()

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget(self) -> None:
        """Stop, and break the reference cycle exception → frame → clock → task."""
        self.stop()
        self._task = self._silenced = None

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
            quiet_s = clocks.stall_s
            if self._came is Came.TEXT:
                quiet_s = min(quiet_s, max(TEXT_S, quiet_s / 2, 2 * self._pauses.longest_s))
            quiet_s = min(quiet_s, FINISH_GRACE_S) if self._finishing else quiet_s
            since = self._quiet_since if self._paused_at is None else self._clock()
            due = (since + quiet_s, ErrorKind.STALL_TIMEOUT, quiet_s)
        if clocks.total_s is not None and self._started + clocks.total_s < due[0]:
            due = (self._started + clocks.total_s, ErrorKind.TOTAL_TIMEOUT, clocks.total_s)
        return due

    def _sleep(self, until: float, most_s: float) -> asyncio.TimerHandle:
        # Not later than a silence after text may be noticed: then no event has to set the timer earlier.
        now = self._clock()
        self._due = min(until, now + min(most_s, self._clocks.stall_s))
        return self._loop.call_later(self._due - now, self._fire)

    def _rearm(self) -> None:
        """Fire earlier if necessary; a timer that fires too early is set again."""
        due = self._next()[0]
        if self._timer is not None and due < self._due:
            self._timer.cancel()
            self._timer = self._sleep(due, LEAST_S)

    def _fire(self) -> None:
        at, kind, limit_s = self._next()
        now = self._clock()
        if at > now:
            most_s = self._look(now)
            if self._timer is not None:  # else it was stopped meanwhile
                self._timer = self._sleep(at, most_s)
            return
        self._timer = None
        self._expired = UpstreamError(kind, f"no {_WAITED_FOR[kind]} within {limit_s:g} s")
        if self._task is not None:
            self._task.cancel()

    def _look(self, now: float) -> float:
        """Tell of a silence that is long for the deployment; return the seconds until the next look."""
        pauses = self._pauses
        after_text_s = pauses.noticed_s(Came.TEXT)
        if self._silenced is None or not self._first_token or self._finishing or self._paused_at is not None:
            return after_text_s
        left_s = pauses.noticed_s(self._came) - (now - self._quiet_since)
        if left_s > SOON_S:
            return min(after_text_s, left_s)
        if now - self._due >= BUSY_S:
            return BUSY_S
        self._still = True
        if self._silenced.stands_still() and self._came is Came.TEXT:
            pauses.noticed()
        return AGAIN_S


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
