"""The timeouts of one attempt, on a single timer: first token, stall and total.

The connect timeout belongs to the provider's transport. An event of a running stream does not touch the timer: it only
stores its time. When the timer fires too early for that time, it is set again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from math import inf
from typing import Protocol

import msgspec

from gateway.fleet import Clocks
from providers import ErrorKind, UpstreamError
from providers.dialects import Chunk

# A timer that fires later than this has waited for the event loop. What the provider sent meanwhile is read first,
# within ``READ_S``; another ``READ_S`` follows whenever the loop stands still again.
LATE_S = 0.1
READ_S = 0.05
MOST_WAITS = 5

FINISH_GRACE_S = 5.0  # time for usage and [DONE] after a finish reason; the answer itself is complete

BUSY_S = 0.5  # a timer that fires so late has waited for the event loop: data that arrived may not have been read
SOON_S = 0.001  # what is due so soon is due now: clocks are rounded
AGAIN_S = 5.0  # between two looks at a silence, as another deployment may be asked only then

TEXT_S = 60.0  # how long a stream may stand still after text, unless its deployment is known to pause for longer


def in_background(clocks: Clocks) -> Clocks:
    """Return the limits of an attempt that runs in the background: its silence has no limit."""
    return msgspec.structs.replace(clocks, ttft_s=inf, stall_s=inf)


# Some servers send the call of a tool only when the call is complete. While a call may be in the making, a stream may
# have nothing but signs of life: pings, comments, empty events, halves of events. Without signs of life, the times
# after a piece of a call hold.
CALL_S = 600.0  # for so long the stream may have only signs of life
CALL_NOTICED_S = 300.0  # after so long another deployment is asked, too


class DeltaKind(StrEnum):  # a string has a hash without a Python call; Enum's is one
    """What came last in a stream. What may follow, and how soon, depends on this."""

    TEXT = "text"
    THINKING = "thinking"
    ARGUMENTS = "arguments"  # of a call of a tool: some vendors send all of these at the end
    BOUNDARY = "boundary"  # of a block or an item, or of a tool that the vendor runs itself


_ARGUMENTS = DeltaKind.ARGUMENTS

# How a deployment sends calls of tools. In pieces: a call came in ``SOME_PIECES`` or more, no faster than a model
# writes (``FASTEST_CHARS_S``). Whole: a call of ``LONG_CALL_CHARS`` came in fewer pieces. Shorter calls show nothing.
SOME_PIECES = 4
FASTEST_CHARS_S = 5_000.0
LONG_CALL_CHARS = 64


def came(chunk: Chunk) -> DeltaKind:
    """Return the kind of an event that is not ``idle``."""
    if chunk.reasoning:
        return DeltaKind.THINKING
    if chunk.tools or chunk.names:
        return DeltaKind.ARGUMENTS
    # Blank text, and text that may become the mark of a thought, count as text here: no answer has begun, but text may.
    return DeltaKind.TEXT if chunk.text_chars and not chunk.of_tool else DeltaKind.BOUNDARY


# How long the streams of each deployment pause, by what came last, learnt in this process. A pause that is long for the
# deployment is noticed, and another deployment is asked beside it.

LATEST = 300  # streams whose pauses count
FEWEST = 100  # streams after which the pauses of a deployment after text are known
UNKNOWN_S = 12.0  # the limit at the first stream; each further stream moves the limit to what is known
POOLED = 1_000  # streams after which the model's other deployments do not count for this one any more
TIMES = 1.5  # the longest pause
LEAST_S, MOST_S = 3.0, 30.0
ABOVE = 1.3  # at least so many times the longest pause, also beyond ``MOST_S``
LONG_S = LEAST_S / TIMES  # shorter pauses change nothing
NOTICED_S: Mapping[DeltaKind, float] = {DeltaKind.THINKING: 120.0, DeltaKind.ARGUMENTS: 60.0, DeltaKind.BOUNDARY: 60.0}

# A deployment with more than ``MOST_NOTICED`` notices among ``AMONG`` streams may have changed. Its pauses are learnt
# again, with ``CHANGED_S`` as the limit: a longer silence is a stall, and so were the noticed silences.
MOST_NOTICED, AMONG = 2, 50
CHANGED_S = 45.0
MOST_DEPLOYMENTS = 1000  # clients may name deployments of their own
MOST_POOLED = 20  # deployments of one model whose pauses are learnt together


class Pauses:
    """The long pauses of one deployment's latest streams."""

    __slots__ = ("_long", "_noticed", "in_pieces", "pool", "streams")

    def __init__(self) -> None:
        self.in_pieces: bool | None = None  # whether calls of tools are sent as they are written; None: not known
        self.streams = 0  # ended streams: whoever reads a stream counts it
        self.pool: list[Pauses] | None = None  # pauses of the model's deployments; set by the first stream
        # By what came last: stream and seconds of each pause, shorter than the one before: the first is the longest.
        self._long: dict[DeltaKind, deque[tuple[int, float]]] = {}
        self._noticed: deque[int] = deque(maxlen=MOST_NOTICED)  # how many streams had ended at the latest notices

    def recovered(self, came: DeltaKind, pause_s: float) -> None:
        """Count a pause longer than ``LONG_S`` after which the stream went on."""
        long = self._long.setdefault(came, deque())
        while long and long[-1][1] <= pause_s:
            long.pop()
        long.append((self.streams, pause_s))

    def refill(self, longest_s: Sequence[float]) -> None:
        """Count streams of an earlier process by their longest pauses after text, the latest last."""
        for pause_s in longest_s:
            if pause_s > LONG_S:
                self.recovered(DeltaKind.TEXT, pause_s)
            self.streams += 1

    def noticed(self, limit_s: float) -> None:
        """Count a pause after text that was noticed after ``limit_s``."""
        if limit_s >= CHANGED_S:
            self._noticed.clear()
        else:
            self._noticed.append(self.streams)

    def longest_s(self, came: DeltaKind = DeltaKind.TEXT) -> float:
        """Return the longest pause from which one of the latest streams recovered; 0: none longer than ``LONG_S``."""
        long = self._long.get(came, ())
        while long and long[0][0] <= self.streams - LATEST:
            long.popleft()
        return long[0][1] if long else 0.0

    def noticed_s(self, came: DeltaKind) -> float:
        """Return after how many seconds of silence another deployment should be asked."""
        if came is DeltaKind.TEXT and len(self._noticed) == MOST_NOTICED and self._noticed[0] > self.streams - AMONG:
            return CHANGED_S
        few = self.pool is not None and self.streams < POOLED
        longest_s = max(each.longest_s(came) for each in self.pool or ()) if few else self.longest_s(came)
        if came is not DeltaKind.TEXT:
            return max(NOTICED_S[came], TIMES * longest_s)
        least_s = UNKNOWN_S - (UNKNOWN_S - LEAST_S) * min(1.0, self.streams / FEWEST)
        return max(ABOVE * longest_s, min(MOST_S, max(least_s, TIMES * longest_s)))


class PausesByDeployment(dict[str, Pauses]):
    """The pauses of all deployments in this process; beyond ``MOST_DEPLOYMENTS`` nothing is kept."""

    def __init__(self) -> None:
        super().__init__()
        self._pools: dict[str, list[Pauses]] = {}

    def __missing__(self, deployment: str) -> Pauses:
        """Return new pauses for an unknown deployment, and keep them."""
        pauses = Pauses()
        if len(self) < MOST_DEPLOYMENTS:
            self[deployment] = pauses
        return pauses

    def pool(self, pauses: Pauses, model: str) -> None:
        """Share a deployment's pauses with the others of ``model``, in both directions; only for its first model."""
        pool = self._pools.setdefault(model, []) if len(self._pools) < MOST_DEPLOYMENTS else []
        if len(pool) < MOST_POOLED:
            pool.append(pauses)
        pauses.pool = pool if pauses in pool else [pauses]

    def refill(self, gaps_ms: Mapping[str, Sequence[float]]) -> None:
        """Count streams of earlier processes by deployment: the longest gap in the text of each, the latest last."""
        for deployment, longest_ms in gaps_ms.items():
            self[deployment].refill([gap_ms / 1000 for gap_ms in longest_ms])


class StallListener(Protocol):
    """Notified when a stream stands still in the middle of its answer, long before the silence is an error."""

    def stands_still(self) -> bool:
        """Return whether another deployment was asked; called again every ``AGAIN_S`` while the silence lasts."""

    def goes_on(self) -> None:
        """Note that the stream goes on after ``stands_still``."""


class AttemptClocks:
    """Cancels ``task`` when a timeout expires, and stores the timeout in ``expired``.

    The owner converts the cancellation into an error, as ``asyncio.timeout`` does: see ``take_expiry``. ``attempt``, if
    set, is notified of a silence that is long for the deployment.
    """

    __slots__ = (
        "_attempt",
        "_awaited",
        "_call_since",
        "_call_until",
        "_came",
        "_clock",
        "_clocks",
        "_due",
        "_expired",
        "_finishing",
        "_first_token",
        "_longest_gap_s",
        "_loop",
        "_may_call",
        "_paused_at",
        "_pauses",
        "_quiet_since",
        "_started",
        "_still",
        "_task",
        "_timer",
        "_waits",
        "alive_at",
    )

    def __init__(
        self,
        clocks: Clocks,
        task: asyncio.Task[None],
        clock: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
        pauses: Pauses,
        *,
        attempt: StallListener | None = None,
        started: float | None = None,
        may_call: bool = False,
        awaited: str = "first token",
    ) -> None:
        """``pauses``: of the deployment. ``started``: set if the attempt goes on with another attempt's time.

        ``may_call``: the answer may be a call of one of the request's tools. ``awaited``: the kind of delta that an
        answer begins with.
        """
        self._awaited = awaited
        self._clocks = clocks
        self._task: asyncio.Task[None] | None = task
        self._clock = clock
        self._loop = loop
        now = self._quiet_since = clock()
        self._started = now if started is None else started
        self._first_token = False
        self._came = DeltaKind.BOUNDARY
        self._may_call = may_call
        self._call_since: float | None = None  # when the first piece of a call came
        self._call_until = 0.0  # and the last one
        self._longest_gap_s = 0.0  # between two pieces of a call
        self.alive_at: float | None = None  # when something came last that is no event of the answer: a ping, a comment
        self._pauses = pauses
        self._paused_at: float | None = None
        self._finishing = False
        self._still = False  # whether the attempt was told of this silence
        self._attempt = attempt
        self._expired: UpstreamError | None = None
        self._waits = 0  # turns of the loop given to data that came while the loop stood still, without a pause between
        self._due = 0.0  # when the timer fires
        self._timer: asyncio.TimerHandle | None = self._sleep(self._next()[0], LEAST_S, now)

    def event(self, now: float, came: DeltaKind, *, meaningful: bool) -> None:
        """Record an event (not a comment or ping). The first meaningful one ends the first-token timeout."""
        if self._finishing and not meaningful:
            return  # the end must come, whatever else does
        if now - self._quiet_since > LONG_S:
            self._resumed(now - self._quiet_since, came)
        if came is _ARGUMENTS:
            self._note_piece(now)
        self._quiet_since = now
        self._came = came
        if meaningful:
            self._first_token = True
        else:
            self.alive_at = now

    def heard(self, came: DeltaKind, *, meaningful: bool) -> None:
        """Record an event which the client is not shown, or not yet."""
        self.event(self._clock(), came, meaningful=meaningful)

    def now(self) -> float:
        """Return the time of the attempt's clock."""
        return self._clock()

    def finish(self) -> None:
        """Record a finish reason: the rest must arrive within ``FINISH_GRACE_S``."""
        if not self._finishing:
            self._finishing = self._first_token = True
            self._rearm()

    def pause(self, now: float) -> None:
        """Stop the clocks: the gateway waits for the client, not for the provider."""
        self._paused_at = now

    def resume(self) -> float:
        """Restart the stall clock after ``pause``; return for how many seconds the clock stood."""
        if self._paused_at is None:
            return 0.0
        paused_s = self._clock() - self._paused_at
        self._quiet_since += paused_s
        self._paused_at = None
        return paused_s

    def learn_calls(self, calls: Sequence[int], chars: int) -> None:
        """Learn how the deployment sends calls. ``calls``: the number of pieces of each. ``chars``: the length of all.

        Pieces that came at once, or nearly, were written before the first of them was sent.
        """
        if not self._may_call or self._call_since is None or not calls:
            return
        written_s = self._call_until - self._call_since - self._longest_gap_s
        if max(calls) >= SOME_PIECES and written_s > 0.0 and chars < written_s * FASTEST_CHARS_S:
            self._pauses.in_pieces = True
        elif chars >= LONG_CALL_CHARS:
            self._pauses.in_pieces = False

    def _note_piece(self, now: float) -> None:
        self._call_until = now
        if self._call_since is None:
            self._call_since = now
        elif self._came is _ARGUMENTS:
            self._longest_gap_s = max(self._longest_gap_s, now - self._quiet_since)

    @property
    def _is_alive(self) -> bool:
        """Whether there was a sign of life since the latest event."""
        return self.alive_at is not None and self.alive_at > self._quiet_since

    @property
    def _makes_call(self) -> bool:
        """Whether a call may be written unseen: one has been announced, or the deployment may send calls whole."""
        return self._may_call and (not self._pauses.in_pieces or (self._came is _ARGUMENTS and self._is_alive))

    def _resumed(self, pause_s: float, came: DeltaKind) -> None:
        """Learn from a pause that ended with ``came``, unless a call of a tool was made in the pause."""
        made_call = self._makes_call and (self._is_alive or came is _ARGUMENTS or came is DeltaKind.BOUNDARY)
        if not made_call:
            self._pauses.recovered(self._came, pause_s)
        if self._still and self._attempt is not None:
            self._still = False
            self._attempt.goes_on()

    def complete(self) -> None:
        """Stop: the answer has been read to the end."""
        self._pauses.streams += 1
        if self._timer is not None:  # as ``stop``, without a call
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget(self) -> None:
        """Stop, and break the reference cycle exception → frame → clock → task."""
        self.stop()
        self._task = self._attempt = None

    def take_expiry(self) -> UpstreamError | None:
        """Return the timeout behind a cancellation, and uncancel the task; None: the cancellation has another cause."""
        if self._expired is not None and self._task is not None and self._task.uncancel() == 0:
            return self._expired
        return None

    def _next(self) -> tuple[float, ErrorKind, float]:
        """Return when the next timeout expires, which timeout that is, and its length in seconds."""
        clocks = self._clocks
        if not self._first_token and self._paused_at is None:
            ttft_s = self._first_token_s() if self._may_call else clocks.ttft_s
            due = (self._started + ttft_s, ErrorKind.TTFT_TIMEOUT, ttft_s)
        else:
            quiet_s = clocks.stall_s
            if not self._finishing and self._makes_call:
                quiet_s = self._silent_call_s()
            elif self._came is DeltaKind.TEXT:
                quiet_s = min(quiet_s, max(TEXT_S, quiet_s / 2, 2 * self._pauses.longest_s()))
            quiet_s = min(quiet_s, FINISH_GRACE_S) if self._finishing else quiet_s
            since = self._quiet_since if self._paused_at is None else self._clock()
            due = (since + quiet_s, ErrorKind.STALL_TIMEOUT, quiet_s)
        if clocks.total_s is not None and self._started + clocks.total_s < due[0]:
            due = (self._started + clocks.total_s, ErrorKind.TOTAL_TIMEOUT, clocks.total_s)
        return due

    def _first_token_s(self) -> float:
        """Return how long the first token may take, which may be a whole call.

        A call may be written unseen before the first token if the deployment sends calls whole, or the stream has
        begun.
        """
        clocks, pauses = self._clocks, self._pauses
        if pauses.in_pieces or clocks.first_call_s <= clocks.ttft_s:
            return clocks.ttft_s
        if self.alive_at is None:
            return clocks.ttft_s if pauses.in_pieces is None else clocks.first_call_s
        return max(clocks.ttft_s, min(self.alive_at - self._started + clocks.first_call_s, CALL_S))

    def _silent_call_s(self) -> float:
        """Return how long the stream may stand still where a call may be in the making."""
        limit_s = max(self._clocks.stall_s, self._clocks.silent_call_s)
        if not self._is_alive or self.alive_at is None:
            return limit_s
        return max(limit_s, min(self.alive_at - self._quiet_since + limit_s, CALL_S))

    def _sleep(self, until: float, most_s: float, now: float) -> asyncio.TimerHandle:
        # Not later than a silence after text may be noticed: then no event has to set the timer earlier.
        self._due = min(until, now + min(most_s, self._clocks.stall_s))
        return self._loop.call_later(self._due - now, self._fire)

    def _rearm(self) -> None:
        """Have the timer fire earlier if necessary. A timer that fires too early is set again."""
        due = self._next()[0]
        if self._timer is not None and due < self._due:
            self._timer.cancel()
            self._timer = self._sleep(due, LEAST_S, self._clock())

    def _fire(self) -> None:
        at, kind, limit_s = self._next()
        now = self._clock()
        if at > now:
            self._waits = 0
            most_s = self._look(now)
            if self._timer is not None:  # else the clocks were stopped meanwhile
                self._timer = self._sleep(at, most_s, now)
            return
        if now - self._due > LATE_S and self._waits < MOST_WAITS:
            self._waits += 1
            self._timer = self._sleep(now + READ_S, READ_S, now)
            return
        self._timer = None
        self._expired = UpstreamError(kind, f"no {_WAITED_FOR.get(kind, self._awaited)} within {limit_s:g} s")
        if self._task is not None:
            self._task.cancel()

    def _look(self, now: float) -> float:
        """Report a silence that is long for the deployment; return the seconds until the next look."""
        pauses = self._pauses
        after_text_s = pauses.noticed_s(DeltaKind.TEXT)
        if self._attempt is None or not self._first_token or self._finishing or self._paused_at is not None:
            return after_text_s
        makes_call = self._makes_call
        if makes_call:  # the pauses of other streams say nothing of this one
            limit_s = CALL_NOTICED_S if self._is_alive else NOTICED_S[_ARGUMENTS]
        else:
            limit_s = pauses.noticed_s(self._came)
        left_s = limit_s - (now - self._quiet_since)
        if left_s > SOON_S:
            return min(after_text_s, left_s)
        if now - self._due >= BUSY_S:
            return BUSY_S
        self._still = True
        if self._attempt.stands_still() and self._came is DeltaKind.TEXT and not makes_call:
            pauses.noticed(limit_s)
        return AGAIN_S


_WAITED_FOR = {
    ErrorKind.STALL_TIMEOUT: "further event",
    ErrorKind.TOTAL_TIMEOUT: "end of the answer",
}
