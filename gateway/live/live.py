"""The live view of one process: its viewers, and the recording, which runs only while there is a viewer."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from gateway.core.attempts import AttemptRecord, AttemptStart
from gateway.core.calls import Call, CallRecord
from gateway.core.errors import ShuttingDown, TooManyViewers
from gateway.live.events import PROCESS, Began, CallDone, Ended, First, Hello, Launched, Scope, Viewer, Wanted, frame
from gateway.live.hub import Hub
from gateway.racing import Attempt, AttemptTasks, OpenCall, milliseconds

# The calls of this process: recorder events, turned into events of the hub.


class OwnCalls:
    """A recorder that exists while there are viewers, and begins with the running calls. ``clock``: monotonic seconds.

    The recorder neither waits nor sends: all that a call pays is the making of its events.
    """

    def __init__(
        self, hub: Hub, tasks: AttemptTasks[Attempt], *, clock: Callable[[], float], replica: str, worker: str
    ) -> None:
        self._hub = hub
        self._tasks = tasks
        self._clock = clock
        self._replica = replica
        self._worker = worker
        self._launched_at: dict[str, float] = {}  # running attempts, in seconds of the clock
        for attempt in tasks.attempts:
            if attempt.ending is None:
                entry, token_at = attempt.entry, attempt.token_at()
                ttft_s = None if token_at is None else token_at - attempt.measurement.started
                self._find(entry.open_call, entry.call, attempt.start, ttft_s)
        self.sample()

    def attempt_started(self, call: Call, start: AttemptStart) -> None:
        """Show a launch; before a call's first launch, show the call."""
        known = self._hub.call(call.caller.id) or self._hub.began(self._began(call))
        self._launched_at[start.id] = _launched_at(call, start)
        self._hub.launched(_launched(known.began, start))

    def first_token(self, start: AttemptStart, ttft_s: float) -> None:
        """Show a first token."""
        lane = self._hub.lane(start.id)
        if lane is not None:
            self._hub.first(First(call=lane.launched.call, attempt=start.id, ttft_ms=milliseconds(ttft_s)))

    def attempt_ended(self, attempt: AttemptRecord, ago_s: float) -> None:
        """Show an attempt's end, ``ago_s`` seconds ago."""
        at = self._launched_at.pop(attempt.id, None)
        self._hub.ended(_ended(attempt, None if at is None else self._clock() - ago_s - at))

    def call_finished(self, record: CallRecord) -> None:
        """Show a call's end. A call that is not known yet has had no attempt since a viewer connected."""
        if self._hub.call(record.id) is None:
            began = self._hub.began(self._began_of(record)).began
            for attempt in record.attempts:
                self._past(began, attempt)
        self._hub.done(
            CallDone(
                id=record.id,
                status=record.status_code,
                winner=record.winner_attempt_id,
                ttft_ms=record.ttft_ms,
                total_ms=record.total_ms,
                completion_tokens=record.completion_tokens,
                cost_usd=record.cost_usd,
                error=record.error_kind,
                narrowed=record.narrowed,
            )
        )

    def sample(self) -> None:
        """Show the number of tokens of each running attempt."""
        self._hub.counted(self._tokens())

    def _tokens(self) -> Iterator[tuple[str, int]]:
        for attempt in self._tasks.attempts:
            if attempt.measurement.meaningful and attempt.ending is None:
                yield attempt.start.id, attempt.measurement.tokens_so_far

    def _find(self, open_call: OpenCall, call: Call, start: AttemptStart, ttft_s: float | None = None) -> None:
        """Add a running call when a viewer connects, with one of its running attempts."""
        if open_call.record is not None:
            return  # an audited loser; its call is over
        known = self._hub.call(call.caller.id)
        if known is None:
            known = self._hub.began(self._began(call))
            for ended in open_call.attempts:
                self._past(known.began, ended)
        self._launched_at[start.id] = _launched_at(call, start)
        self._hub.launched(_launched(known.began, start))
        if ttft_s is not None:
            self.first_token(start, ttft_s)

    def _past(self, began: Began, attempt: AttemptRecord) -> None:
        """Show an attempt that ended before its call was known."""
        self._hub.launched(_launched(began, attempt))
        if attempt.token_ms is not None:
            self._hub.first(First(call=attempt.call_id, attempt=attempt.id, ttft_ms=attempt.token_ms))
        self._hub.ended(_ended(attempt, None))

    def _began(self, call: Call) -> Began:
        return Began(
            id=call.caller.id,
            at_ms=_unix_ms(call.caller.started_at),
            client=call.caller.client,
            model=call.request.model,
            endpoint=call.decision.endpoint,
            streamed=call.request.stream,
            mode=str(call.decision.mode),
            objective=str(call.decision.objective),
            replica=self._replica,
            worker=self._worker,
        )

    def _began_of(self, record: CallRecord) -> Began:
        return Began(
            id=record.id,
            at_ms=_unix_ms(record.started_at),
            client=record.client,
            model=record.model,
            endpoint=record.endpoint,
            streamed=record.streamed,
            mode=str(record.mode),
            objective=str(record.objective),
            replica=self._replica,
            worker=self._worker,
        )


def _launched_at(call: Call, start: AttemptStart) -> float:
    """Return when an attempt was launched, in seconds of the clock; recorders may learn of it a little later."""
    return call.caller.received_at + start.launch_offset_ms / 1000


def _launched(began: Began, start: AttemptStart | AttemptRecord) -> Launched:
    return Launched(
        call=began.id,
        attempt=start.id,
        number=start.number,
        deployment=start.deployment,
        provider=start.provider,
        role=str(start.role),
        at_ms=began.at_ms + int(start.launch_offset_ms),  # a date costs ten times as much
        offset_ms=start.launch_offset_ms,
    )


def _ended(attempt: AttemptRecord, age_s: float | None) -> Ended:
    return Ended(
        call=attempt.call_id,
        attempt=attempt.id,
        outcome=str(attempt.outcome),
        ms=None if age_s is None else milliseconds(age_s),
        tokens=attempt.completion_tokens,
        error=None if attempt.error_kind is None else str(attempt.error_kind),
    )


def _unix_ms(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)


MOST_VIEWERS = 50  # in one process
MOST_OF_ONE = 10  # of one client, so that others can look, too
SAMPLE_S = 0.2  # between two counts of the tokens of running attempts
RETRY_AFTER_S = 10


class Live:
    """The live view of a process. ``own`` receives the events of calls; it is None while there is no viewer.

    ``on_viewers`` is called when the first viewer comes and when the last one has gone. ``catch_up`` is called before
    running calls are read: it delivers pending events.
    """

    def __init__(
        self,
        tasks: AttemptTasks[Attempt],
        *,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        replica: str,
        worker: str,
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        self.own: OwnCalls | None = None
        self.hub = Hub()  # empty without viewers
        self.replica = replica
        self.worker = worker
        self.scope = PROCESS
        self.on_viewers: Callable[[], None] = lambda: None
        self._tasks = tasks
        self._catch_up = catch_up
        self._clock = clock
        self._unix_clock = unix_clock
        self._viewers: set[Viewer] = set()  # of clients
        self._clients: Counter[str | None] = Counter()  # how many viewers each has
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    @property
    def viewers(self) -> int:
        """The number of open streams."""
        return len(self._viewers)

    @contextmanager
    def watch(self, wanted: Wanted, client: str | None = None) -> Iterator[Viewer]:
        """Yield a viewer of ``client``; its first event has the running calls.

        Raises:
            TooManyViewers: a limit is reached, of all viewers or of this client's.
            ShuttingDown: the gateway is stopping.

        """
        if self._is_over:
            raise ShuttingDown("the gateway is stopping; retry")
        if len(self._viewers) >= MOST_VIEWERS:
            raise TooManyViewers(
                f"{MOST_VIEWERS} live streams are open at this worker; close one, or retry later",
                headers={"retry-after": str(RETRY_AFTER_S)},
            )
        if self._clients[client] >= MOST_OF_ONE:
            raise TooManyViewers(
                f"you have {MOST_OF_ONE} live streams open at this worker; close one",
                headers={"retry-after": str(RETRY_AFTER_S)},
            )
        viewer = Viewer(wanted, self.hub.running, loop=asyncio.get_running_loop())
        viewer.greet(self.add(viewer))
        self._viewers.add(viewer)
        self._clients[client] += 1
        if len(self._viewers) == 1:
            self.on_viewers()
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]
            self.remove(viewer)
            if not self._viewers:
                self.on_viewers()

    def add(self, viewer: Viewer) -> bytes:
        """Show calls to ``viewer`` from now on; return its first event, with the running ones."""
        if self.own is None:
            self._catch_up()
            self.own = OwnCalls(self.hub, self._tasks, clock=self._clock, replica=self.replica, worker=self.worker)
            self._timer = asyncio.get_running_loop().call_later(SAMPLE_S, self._sample)
        running, left_out = self.hub.add(viewer)
        now_ms = int(self._unix_clock() * 1000)
        hello = Hello(
            scope=self.scope,
            replica=self.replica,
            worker=self.worker,
            now_ms=now_ms,
            running=running,
            left_out=left_out,
        )
        return frame(hello)

    def remove(self, viewer: Viewer) -> None:
        """Remove a viewer, and with the last one all calls."""
        viewer.forget()
        self.hub.remove(viewer)
        if not self.hub.viewers:
            self.own = None
            self.hub.clear()
            if self._timer is not None:
                self._timer.cancel()

    def set_scope(self, scope: str, reason: str | None) -> None:
        """Tell viewers the scope of the races that they see from now on, if it changes."""
        if scope != self.scope:
            self.scope = scope
            for viewer in self._viewers:
                viewer.offer(frame(Scope(scope=scope, reason=reason)))

    def end(self) -> None:
        """End all streams: the gateway is stopping. No new ones begin."""
        self._is_over = True
        for viewer in list(self._viewers):
            viewer.end()

    def _sample(self) -> None:
        if self.own is not None:
            self._timer = asyncio.get_running_loop().call_later(SAMPLE_S, self._sample)
            self._catch_up()
            self.own.sample()
