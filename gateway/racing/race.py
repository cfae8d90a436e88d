"""A race: the running of a plan until one attempt has answered.

The rules are DESIGN's section 5. All attempts live in one task group, so whatever ends the race (an answer, a
failure, a client that hangs up, a defect) leaves no task, no connection in use and no timer behind. The race itself
never waits for anything but its own end: launches are timers, and a failing or claiming attempt calls it directly.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import datetime

from gateway.calls import AttemptStart, Call, CallRecord, Outcome, Recorder, Role
from gateway.errors import AllRateLimited, ApiError, ClientDisconnected, InternalError, race_failed
from gateway.fleet import Model
from gateway.racing.attempt import Attempt
from gateway.racing.recording import call_record, call_start
from gateway.racing.sink import Sink, Winner
from gateway.steering.planner import Launch, Plan
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Exchange

EXTRA_ROLES = frozenset({Role.RACE, Role.HEDGE, Role.EXPLORE})  # these draw on the budget; replacing a failure does not


class Race:
    """Runs one plan for one call. Use once: ``await Race(...).run()``."""

    def __init__(
        self,
        call: Call,
        model: Model,
        plan: Plan,
        sink: Sink,
        recorder: Recorder,
        *,
        clock: Callable[[], float],
        permit: Callable[[Role], bool],
        new_id: Callable[[], str],
        utc_now: Callable[[], datetime],
    ) -> None:
        self.call = call
        self.sink = sink
        self.recorder = recorder
        self.winner: Attempt | None = None
        self._model = model
        self._plan = plan
        self.clock = clock  # monotonic seconds, finer than the loop's own
        self._permit = permit
        self._new_id = new_id
        self._utc_now = utc_now
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._attempts: list[Attempt] = []
        self._running: set[Attempt] = set()
        self._timers: list[tuple[Launch, asyncio.TimerHandle]] = []
        self._candidates: deque[str] = deque(plan.rest)
        self._empty: dict[Attempt, asyncio.Future[None]] = {}  # answered with nothing; win only when nobody else runs
        self._failures: list[tuple[str, UpstreamError]] = []
        self._launches_after_fault: int | None = None  # once the request itself was called wrong
        self._first_launch_at: float | None = None
        self._overhead_ms: float | None = None
        self._error: ApiError | None = None
        self._defect: Exception | None = None
        self._record: CallRecord | None = None

    async def run(self) -> CallRecord:
        """Run to the end and return the call's record, which the recorder has heard of by then.

        Raises:
            ApiError: nobody answered, and nothing has been sent to the client.

        """
        try:
            return await self._run()
        finally:
            self._let_go()

    async def _run(self) -> CallRecord:
        if not self._plan.launches:
            wait_s = self._plan.retry_after_s or 1.0
            error = AllRateLimited(f"every deployment of {self.call.model!r} is cooling down", retry_after_s=wait_s)
            self._close(error.status_code, error.kind)
            raise error
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._start()
            try:
                await self._over.wait()
            except asyncio.CancelledError:
                self._abandon(ClientDisconnected)
                raise
            finally:
                self._cancel_timers()
        if self._defect is not None:
            raise self._defect
        if self._error is not None:
            raise self._error
        assert self._record is not None
        return self._record

    async def claim(self, attempt: Attempt, now: float, exchange: Exchange) -> bool:
        """Let ``attempt`` win if nobody has: everybody else is cut here, before a byte of it is forwarded."""
        if self.winner is not None or self._over.is_set():
            return False
        self.winner = attempt
        self._cancel_timers()
        for other in self._running - {attempt}:
            other.cut(Outcome.LOST)
            self._candidates.append(other.deployment.name)  # healthy: the last resort if a gathered answer breaks off
        self._running = {attempt}
        assert self._first_launch_at is not None
        own_s = (self._first_launch_at - self.call.received_at) + (self.clock() - now)
        self._overhead_ms = round(own_s * 1000, 3)
        winner = Winner(
            provider=attempt.deployment.provider,
            deployment=attempt.deployment.name,
            launched=len(self._attempts),
            ttft_ms=self._since_received_ms(now),
            overhead_ms=self._overhead_ms,
            exchange=exchange,
        )
        await self.sink.begin(winner)
        return True

    async def alone(self, attempt: Attempt) -> None:
        """Wait until nobody but such empty answers as ``attempt``'s is left running."""
        self._empty[attempt] = self._loop.create_future()
        self._settle_empty()
        await self._empty[attempt]

    async def complete(self, attempt: Attempt) -> None:
        """End the race with ``attempt``'s whole answer."""
        self._running.discard(attempt)
        self._close(200, None)
        await self.sink.end()
        self._over.set()

    async def failed(self, attempt: Attempt, error: UpstreamError) -> None:
        """Take a failure: replace the attempt, or end the race when nobody is left or the answer was committed."""
        self._running.discard(attempt)
        if attempt is self.winner:
            if self.sink.streams:
                self._close(200, error.kind)
                await self.sink.fail(error)
                self._over.set()
                return
            self.winner = None
        self._failures.append((attempt.deployment.name, error))
        if error.kind is ErrorKind.BAD_REQUEST and self._launches_after_fault is None:
            self._cancel_timers()
            self._launches_after_fault = 0 if self._running else 1
        if not self._launch_next() and not self._running:
            self._error = race_failed(self.call.model, self._failures)
            self._close(self._error.status_code, self._error.kind)
            self._over.set()
        self._settle_empty()

    def client_gone(self, attempt: Attempt) -> None:
        """End the race: the client cannot be written to any more."""
        self._running.discard(attempt)
        attempt.end(Outcome.CLIENT_GONE)
        self._abandon(ClientDisconnected)
        self._over.set()

    def crashed(self, attempt: Attempt, defect: Exception) -> None:
        """End the race: something in the gateway itself is at fault."""
        self._running.discard(attempt)
        attempt.end(Outcome.INTERRUPTED)
        self._defect = self._defect or defect
        self._abandon(InternalError)
        self._over.set()

    def _let_go(self) -> None:
        """Undo the circles of references, so that a call's memory is free at its end and not at the next collection."""
        self._attempts.clear()
        self._empty.clear()
        self.winner = None
        self._group = None

    def _start(self) -> None:
        self._first_launch_at = self.clock()
        now: list[Attempt] = []
        for launch in self._plan.launches:
            if launch.delay_s > 0:
                self._schedule(launch)
            elif self._allowed(launch):
                now.append(self._prepare(launch.deployment, launch.role))
        self.recorder.call_started(call_start(self.call, tuple(attempt.start for attempt in now)))
        for attempt in now:
            self._go(attempt)

    def _allowed(self, launch: Launch) -> bool:
        """Ask the budget. Who is refused stands by: as a rescue if the plan has those, else as a candidate."""
        if launch.role not in EXTRA_ROLES or self._permit(launch.role):
            return True
        if self._plan.rescue_s is not None:
            delay_s = max(launch.delay_s, self._plan.rescue_s)
            self._schedule(Launch(deployment=launch.deployment, delay_s=delay_s, role=Role.FAILOVER))
        else:
            self._candidates.append(launch.deployment)
        return False

    def _schedule(self, launch: Launch) -> None:
        assert self._first_launch_at is not None
        timer = self._loop.call_later(self._first_launch_at + launch.delay_s - self.clock(), self._fire, launch)
        self._timers.append((launch, timer))
        self._timers.sort(key=lambda pending: pending[1].when())

    def _fire(self, launch: Launch) -> None:
        self._timers = [pending for pending in self._timers if pending[0] is not launch]
        if self.winner is None and not self._over.is_set() and self._allowed(launch):
            self._go(self._prepare(launch.deployment, launch.role))

    def _launch_next(self) -> bool:
        """Launch the next candidate in place of one that failed: the plan's own next first."""
        if self._launches_after_fault is not None:
            if self._launches_after_fault == 0:
                return False
            self._launches_after_fault -= 1
        if self._timers:
            launch, timer = self._timers.pop(0)
            timer.cancel()
            self._candidates.appendleft(launch.deployment)
        if not self._candidates:
            return False
        name = self._candidates.popleft()
        late = self.clock() - self.call.received_at >= self._model.deployments[name].clocks.ttft_s
        if late and len(self._attempts) > 1:  # whoever hung through the whole clock alone is still replaced once
            return False
        self._go(self._prepare(name, Role.FAILOVER))
        return True

    def _prepare(self, name: str, role: Role) -> Attempt:
        deployment = self._model.deployments[name]
        now = self.clock()
        start = AttemptStart(
            id=self._new_id(),
            number=len(self._attempts) + 1,
            started_at=self._utc_now(),
            role=role,
            provider=deployment.provider,
            deployment=name,
            launch_offset_ms=self._since_received_ms(now),
        )
        attempt = Attempt(self, self.call, deployment, start, now)
        self._attempts.append(attempt)
        return attempt

    def _go(self, attempt: Attempt) -> None:
        assert self._group is not None
        self._running.add(attempt)
        self.recorder.attempt_started(self.call.model, attempt.start)
        attempt.task = self._group.create_task(attempt.run())

    def _settle_empty(self) -> None:
        if self._empty and self.winner is None and self._running <= self._empty.keys():
            future = next(iter(self._empty.values()))
            if not future.done():
                future.set_result(None)

    def _cancel_timers(self) -> None:
        for _, timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _abandon(self, reason: type[ApiError]) -> None:
        """Stop everybody: the client has gone, or the gateway itself is at fault."""
        for attempt in self._running:
            attempt.cut(Outcome.CLIENT_GONE if reason is ClientDisconnected else Outcome.INTERRUPTED)
        self._running.clear()
        self._close(reason.status, reason.code)

    def _close(self, status_code: int, error_kind: str | None) -> None:
        """Record the call, once."""
        if self._record is not None:
            return
        first_at = self.winner.measurement.first_at if self.winner is not None else None
        self._record = call_record(
            self.call,
            [attempt.record for attempt in self._attempts if attempt.record is not None],
            self.winner.record if self.winner is not None else None,
            self._model.deployments,
            status_code=status_code,
            error_kind=error_kind,
            ttft_ms=None if first_at is None else self._since_received_ms(first_at),
            total_ms=self._since_received_ms(self.clock()),
            overhead_ms=self._overhead_ms,
        )
        self.recorder.call_finished(self._record)

    def _since_received_ms(self, instant: float) -> float:
        return round((instant - self.call.received_at) * 1000, 3)
