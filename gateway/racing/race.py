"""A race: the running of a plan until one attempt has answered.

Whatever ends the race (an answer, a failure, a client that hangs up, a defect) leaves no task, no connection in use and
no timer behind; only an audited loser is watched a little longer. The race itself never waits for anything but its own
end: launches are timers, and a failing or claiming attempt calls it directly. So does a seat that becomes free, where
everybody who may be asked has as many attempts in flight as ``max_in_flight`` allows.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

import msgspec
import structlog

from gateway.calls import AttemptRecord, AttemptStart, Call, CallRecord, Outcome, Recorder, Role
from gateway.errors import ApiError, ClientDisconnected, InternalError, NotAsked, all_cooling, race_failed
from gateway.fleet import Deployment, Model
from gateway.racing.alone import UNKNOWN, alone
from gateway.racing.attempt import Attempt
from gateway.racing.costs import settle
from gateway.racing.grid import Grid
from gateway.racing.hold import Hold
from gateway.racing.measurement import milliseconds
from gateway.racing.reading import Block
from gateway.racing.recording import call_record, call_start
from gateway.racing.seats import Seats
from gateway.racing.sink import Forward, Sink, Winner
from gateway.racing.tasks import AttemptTasks
from gateway.racing.wait import Wait
from gateway.steering.planner import Launch, Plan
from providers.errors import ErrorKind, UpstreamError


class Earlier(msgspec.Struct, frozen=True):
    """What a call has behind it: the attempts for another model, which did not answer, and their deployments."""

    attempts: tuple[AttemptRecord, ...] = ()
    deployments: Mapping[str, Deployment] = {}
    waited_s: float = 0.0  # for a seat


class Race:
    """Runs one plan for one call. Use once: ``await Race(...).run()``.

    Where nobody answers, ``falls_back`` is asked whether another model is to be tried: then the call goes on, and is
    not recorded yet; ``behind`` is what the next race has to be told. ``not_asked`` says of everybody but those it is
    given who was passed over, and why. ``full`` hears of extra launches that find no
    room under ``max_in_flight``.
    """

    __slots__ = (
        "_attempts",
        "_audited",
        "_cancelled_as",
        "_claimed_at",
        "_earlier",
        "_empty",
        "_error",
        "_failures",
        "_falls_back",
        "_grid",
        "_hold",
        "_model",
        "_new_id",
        "_not_asked",
        "_over",
        "_overhead_ms",
        "_plan",
        "_planned_at",
        "_record",
        "_running",
        "_seats",
        "_tasks",
        "_utc_now",
        "_wait",
        "behind",
        "call",
        "clock",
        "loop",
        "recorder",
        "sink",
        "winner",
    )

    def __init__(
        self,
        call: Call,
        model: Model,
        plan: Plan,
        sink: Sink,
        recorder: Recorder,
        *,
        tasks: AttemptTasks,
        clock: Callable[[], float],
        permit: Callable[[Launch], bool],
        seats: Seats,
        new_id: Callable[[], str],
        utc_now: Callable[[], datetime],
        full: Callable[[Launch], None] = lambda _: None,
        cancelled_as: Callable[[], type[ApiError]] = lambda: ClientDisconnected,
        falls_back: Callable[[ApiError], bool] = lambda _: False,
        not_asked: Callable[[Collection[str]], Sequence[NotAsked]] = lambda _: (),
        earlier: Earlier | None = None,
    ) -> None:
        self.behind: Earlier | None = None
        self.call = call
        self.sink = sink
        self.recorder = recorder
        self.winner: Attempt | None = None
        self.clock = clock  # monotonic seconds, finer than the loop's own
        self._model = model
        self._earlier = earlier or Earlier()
        self._plan = plan
        self._tasks = tasks
        self._new_id = new_id
        self._utc_now = utc_now
        self._falls_back = falls_back
        self._not_asked = not_asked
        self._cancelled_as = cancelled_as  # why a cancelled call is: its client has gone, or the gateway is stopping
        self.loop = tasks.loop
        self._over: asyncio.Future[None] = self.loop.create_future()
        self._seats = seats
        self._grid = Grid(
            plan,
            clock=clock,
            permit=permit,
            go=self._launch,
            in_need=self._replace,
            lines=seats.lines,
            full=full,
            loop=self.loop,
        )
        self._wait: Wait | None = None  # for a seat; made when first needed
        deadline_at = None if call.deadline_ms is None else call.received_at + call.deadline_ms / 1000
        self._hold = Hold(plan.decode_s, self.release, self.loop, clock=clock, deadline_at=deadline_at)
        self._attempts: list[Attempt] = []
        self._running: set[Attempt] = set()
        self._audited: set[Attempt] = set()  # losers that are still watched
        self._empty: dict[Attempt, asyncio.Future[None]] = {}  # answered with nothing; win only when nobody else runs
        self._failures: list[tuple[str, UpstreamError]] = []
        self._planned_at: float | None = None  # when the first is launched, unless it has to wait for a seat
        self._claimed_at: float | None = None
        self._overhead_ms: float | None = None
        self._error: Exception | None = None  # what run raises: that nobody answered, or a defect
        self._record: CallRecord | None = None

    async def run(self) -> CallRecord:
        """Run to the end and return the call's record, which the recorder has heard of by then.

        Raises:
            ApiError: nobody answered, and nothing has been sent to the client.

        """
        try:
            return await self._run()
        except asyncio.CancelledError:
            self._abandon(self._cancelled_as())  # a call that was left to another model is not recorded yet
            raise
        finally:
            self._forget()

    async def _run(self) -> CallRecord:
        if not self._plan.launches:
            wait_s = self._plan.retry_after_s or 1.0
            error = all_cooling(self.call.model, self._not_asked(()), wait_s)
            self._give_up(error)
            raise error
        try:
            self._start()
            await self._over
        except asyncio.CancelledError:
            self._abandon(self._cancelled_as())
            raise
        finally:
            self._grid.close()
            self._hold.end()
            if self._wait is not None:
                self._wait.leave()
            await self._reap()
        if self._error is not None:
            raise self._error
        assert self._record is not None
        return self._record

    def bid(self, attempt: Attempt, now: float) -> bool | None:
        """Answer an attempt that has its first token: True, it wins; False, it has lost; None, it is held for now.

        Another one that should be the better answer may overtake within the hold. Whoever wins, everybody else
        is cut here, before a byte is forwarded.
        """
        if self.winner is not None or self._over.done():
            return False
        leader = self._hold.leader
        if leader is None and self._hold.begin(attempt, self._running - {attempt} - self._empty.keys()):
            self._grid.close()  # no launches while holding
            if self._wait is not None:
                self._wait.leave()
            return None
        if leader is not None and leader is not attempt and not self._hold.overtakes(attempt):
            self._running.discard(attempt)
            self._let_go(attempt)
            self._grid.add(attempt.deployment.name)
            return False
        self._win(attempt, now)
        return True

    def release(self, attempt: Attempt) -> None:
        """Let the held ``attempt`` win: nobody has overtaken it."""
        self._win(attempt, self.clock())
        attempt.released()

    async def begin(self, attempt: Attempt, now: float) -> Forward | None:
        """Commit to ``attempt``, which has won, and whose first token was there at ``now``."""
        assert self._planned_at is not None
        assert attempt.exchange is not None
        own_s = (self._planned_at - self.call.received_at) + max(0.0, self.clock() - now)
        self._overhead_ms = milliseconds(own_s)
        winner = Winner(
            call=self.call,
            provider=attempt.deployment.provider,
            deployment=attempt.deployment.name,
            launched=self._launched,
            ttft_ms=self._since_received_ms(now),
            overhead_ms=self._overhead_ms,
            exchange=attempt.exchange,
            is_last=not self._audited and attempt.deployment.spoken_to(self.call.dialect) is self.call.dialect,
        )
        return await self.sink.begin(winner)

    async def alone(self, attempt: Attempt) -> None:
        """Wait until nobody but such empty answers as ``attempt``'s is left running."""
        self._empty[attempt] = self.loop.create_future()
        self._settle_empty()
        await self._empty[attempt]

    async def complete(self, attempt: Attempt, last: Block) -> None:
        """End the race with ``attempt``'s whole answer, of which the ``last`` events are still to be sent."""
        self._running.discard(attempt)
        self._close(200, None)
        await self.sink.end(last)
        self._finish()

    async def failed(self, attempt: Attempt, error: UpstreamError) -> None:
        """Take a failure: replace the attempt, or end the race when nobody is left or the answer was committed."""
        if attempt in self._audited:
            return
        self._running.discard(attempt)
        if attempt is self.winner:
            if self.sink.streams:
                self._close(200, error.kind)
                await self.sink.fail(error)
                self._finish()
                return
            self.winner = None
            self._grid.unlimit()  # it had begun to answer, so the request is right
        self._hold.failed(attempt, self._running)
        self._failures.append((attempt.deployment.name, error))
        if error.kind is ErrorKind.BAD_REQUEST:
            self._grid.limit(0 if self._running else 1)
        if self.winner is not None or self._hold.leader is not None:
            return  # somebody has an answer; a release may just have made the held one win
        if not self._replace() and not self._running:
            self._fail()
        self._settle_empty()

    def audited(self, attempt: Attempt) -> None:
        """Take the end of a loser that was watched beyond the claim."""
        if attempt not in self._audited:
            return  # cut with its call, and in its record
        self._audited.discard(attempt)
        if self._record is not None and attempt.record is not None:
            self.recorder.attempt_audited(self._priced(attempt.record, self._record.max_tokens))
        if self._over.done():
            self._forget()

    def client_gone(self, attempt: Attempt) -> None:
        """End the race: the client cannot be written to any more."""
        self._running.discard(attempt)
        attempt.end(Outcome.CLIENT_GONE)
        why = self._cancelled_as()
        self._abandon(why if issubclass(why, ClientDisconnected) else ClientDisconnected)
        self._finish()

    def crashed(self, attempt: Attempt, defect: Exception) -> None:
        """End the race: something in the gateway itself is at fault."""
        self._running.discard(attempt)
        attempt.end(Outcome.INTERRUPTED)
        if self._over.done():
            structlog.get_logger().error("audit.crashed", call=self.call.id, exc_info=defect)
            return
        self._error = self._error or defect
        self._abandon(InternalError)
        self._finish()

    def _start(self) -> None:
        self._planned_at = self.clock()
        now = [self._prepare(launch) for launch in self._grid.open()]
        if now:
            self._begin(now)
        elif not self._line_up():
            self._fail()

    def _begin(self, now: list[Attempt]) -> None:
        """Launch the first, and who starts beside it."""
        if not self._earlier.attempts:
            self.recorder.call_started(call_start(self.call, tuple(attempt.start for attempt in now)))
        for attempt in now:
            self._go(attempt)

    def _launch(self, launch: Launch) -> None:
        self._go(self._prepare(launch))

    def _launch_next(self, name: str) -> None:
        """Launch ``name`` as the first attempt, or in place of one that failed."""
        if self._attempts:
            self._launch(Launch(deployment=name, delay_s=0.0, role=Role.FAILOVER))
        else:
            self._begin([self._prepare(Launch(name, 0.0, Role.PRIMARY, self._plan.launches[0].audited))])

    def _line_up(self) -> bool:
        """Wait for the first seat of whoever may still be asked; return whether somebody is asked, or waited for."""
        names = self._grid.full()
        if not names:
            return False
        if self._wait is None:
            patience_s = self._seats.queue_timeout_s - self._earlier.waited_s
            self._wait = Wait(
                self._seats,
                self.call.model,
                patience_s,
                seated=self._seated,
                timed_out=self._timed_out,
                clock=self.clock,
                loop=self.loop,
            )
        self._wait.line_up(names)
        return bool(self._running) or self._wait.start_clock() or self._take_last_resort()

    def _take_last_resort(self) -> bool:
        name = self._grid.next(last_resort=True)
        if name is not None:
            self._launch_next(name)
        return name is not None

    def _seated(self, name: str) -> None:
        """Launch ``name``, where it is this call's turn to have a seat."""
        self._grid.called(name, first=not self._attempts)
        try:
            self._launch_next(name)
        except Exception as defect:  # noqa: BLE001 - run raises it: who has freed the seat is another call
            self._error = self._error or defect
            self._abandon(InternalError)
            self._finish()

    def _timed_out(self) -> None:
        """Take that nobody had a seat in time."""
        if not self._take_last_resort():
            self._fail()

    def _fail(self) -> None:
        """End the race: nobody has answered, and nobody is left to be asked."""
        full = self._grid.full()
        out = self._not_asked({*full, *(attempt.deployment.name for attempt in self._attempts)})
        error = self._error = race_failed(self.call.model, self._failures, full=full, out=out, adhoc=self._model.adhoc)
        self._give_up(error)
        self._finish()

    def _replace(self) -> bool:
        """Launch the next candidate in place of an attempt that failed, or wait for one that has no room."""
        name = self._grid.next()
        if name is None:
            return self._line_up()
        late = self.clock() - self.call.received_at >= self._model.deployments[name].clocks.ttft_s
        if late and len(self._attempts) > 1:  # whoever hung through the whole clock alone is still replaced once
            return False
        self._launch(Launch(deployment=name, delay_s=0.0, role=Role.FAILOVER))
        return True

    def _prepare(self, launch: Launch) -> Attempt:
        deployment = self._model.deployments[launch.deployment]
        now = self.clock()
        start = AttemptStart(
            id=self._new_id(),
            number=self._launched + 1,
            started_at=self._utc_now(),
            role=launch.role,
            provider=deployment.provider,
            deployment=launch.deployment,
            launch_offset_ms=self._since_received_ms(now),
            audited=launch.audited,
            model=self.call.model,
            in_flight=self._tasks.in_flight(launch.deployment),
            asked_tokens=self.call.prompt_tokens,
        )
        attempt = Attempt(self, self.call, deployment, start, now)
        if launch.watch_s is not None:
            attempt.watch_s = launch.watch_s
        if self._seats.lines:
            attempt.sit_down(self._seats.lines.get(launch.deployment))
        self._attempts.append(attempt)
        return attempt

    def _go(self, attempt: Attempt) -> None:
        self._running.add(attempt)
        self.recorder.attempt_started(self.call.model, attempt.start)
        attempt.task = self._tasks.start(attempt.run(), attempt.deployment.name, self.loop)
        if attempt.line is not None:
            attempt.task.add_done_callback(attempt.stand_up)

    def _win(self, attempt: Attempt, now: float) -> None:
        self.winner = attempt
        self._claimed_at = now
        self._hold.end()
        self._grid.close()
        if self._wait is not None:
            self._wait.leave()
        losers, self._running = self._running - {attempt}, {attempt}
        for other in losers:
            self._overtake(other, now)
            self._let_go(other)
            self._grid.add(other.deployment.name)  # healthy: the last resort if a gathered answer breaks off

    def _overtake(self, loser: Attempt, now: float) -> None:
        """Note at which age it lost; of a primary also what was to be expected of it, but for exploring races."""
        if (
            loser.overtaken(now)
            and loser is self._attempts[0]
            and not self._earlier.attempts
            and self._plan.primary is not None
            and not self._plan.explores
        ):
            loser.predicted_s = self._plan.primary.expected_s(now - loser.measurement.started)

    def _let_go(self, loser: Attempt) -> None:
        explores = self._plan.explores
        if loser.start.audited and (explores or loser.token_at() is None):
            self._audited.add(loser)
            loser.audit(speed=explores)
        else:
            loser.cut(Outcome.LOST)

    async def _reap(self) -> None:
        """Await every task but those nobody need wait for: of watched losers, and of a winner that drains."""
        awaited = [item for item in self._attempts if item not in self._audited and not item.draining]
        if self._seats.lines:
            for item in awaited:
                if item.task is None:  # it has ended, or a defect kept it from being started
                    item.stand_up()
        running = [item.task for item in awaited if item.task is not None and not item.task.done()]
        if running:
            await asyncio.wait(running)

    def _finish(self) -> None:
        if self._wait is not None:
            self._wait.leave()
        if not self._over.done():
            self._over.set_result(None)

    def _give_up(self, error: ApiError) -> None:
        """Take that nobody answers: leave the call to another model, or record that it failed."""
        if not self._falls_back(error):
            self._close(error.status_code, error.kind)
            return
        waited_s = self._earlier.waited_s + (0.0 if self._wait is None else self._wait.waited_s)
        self.behind = Earlier(
            tuple(self._records()), {**self._earlier.deployments, **self._model.deployments}, waited_s
        )

    def _forget(self) -> None:
        """Undo the circles of references, so that a call's memory is free at its end and not at the next collection."""
        self._empty.clear()
        self._failures.clear()
        self._error = None  # whose frames know this race
        self._grid.forget()
        self._hold.forget()
        if self._wait is not None:
            self._wait.forget()
            self._wait = None
        if not self._audited:
            self._attempts.clear()
            self.winner = None

    def _settle_empty(self) -> None:
        if self._empty and self.winner is None and self._running <= self._empty.keys():
            future = next(iter(self._empty.values()))
            if not future.done():
                future.set_result(None)

    def _abandon(self, reason: type[ApiError]) -> None:
        """Stop everybody: the client has gone, or the gateway itself is at fault.

        A client's leaving ends no audit: who leaves, and when, must not choose what is seen of losers.
        """
        gone = issubclass(reason, ClientDisconnected)
        for attempt in self._running if gone else self._running | self._audited:
            attempt.cut(Outcome.CLIENT_GONE if gone else Outcome.INTERRUPTED)
        self._running.clear()
        if not gone:
            self._audited.clear()
        self._close(reason.status, reason.code)

    def _close(self, status_code: int, error_kind: str | None) -> None:
        """Record the call, once."""
        if self._record is not None:
            return
        # Under a hold, the client's first token is not the provider's, but the moment of release.
        first_at = self._claimed_at if self.winner is not None and self.winner.measurement.meaningful else None
        call = self.call
        winner = self.winner.record if self.winner is not None else None
        self._record = call_record(
            call,
            self._records(),
            winner,
            {**self._earlier.deployments, **self._model.deployments}
            if self._earlier.deployments
            else self._model.deployments,
            launched=self._launched,
            status_code=status_code,
            error_kind=error_kind,
            ttft_ms=None if first_at is None else self._since_received_ms(first_at),
            total_ms=self._since_received_ms(self.clock()),
            overhead_ms=self._overhead_ms,
            alone=UNKNOWN
            if self._earlier.attempts
            else alone(self._attempts, self.winner, first_at, self._since_received_ms),
            answered_model=call.model if call.asked_model is not None and winner is not None else None,
            dropped=call.dropped.get(winner.deployment, ()) if call.dropped and winner is not None else (),
        )
        self.recorder.call_finished(self._record)

    @property
    def _launched(self) -> int:
        return len(self._earlier.attempts) + len(self._attempts)

    def _records(self) -> list[AttemptRecord]:
        own = [attempt.record for attempt in self._attempts if attempt.record is not None]
        return [*self._earlier.attempts, *own]

    def _since_received_ms(self, instant: float) -> float:
        return milliseconds(instant - self.call.received_at)

    def _priced(self, record: AttemptRecord, max_tokens: int | None) -> AttemptRecord:
        winner = self.winner.record if self.winner is not None else None
        prompt_tokens = self.call.prompt_tokens
        return settle([record], winner, self._model.deployments, prompt_tokens, max_tokens).attempts[0]
