"""A relay: one deployment after the other until one has answered, for requests that are routed but not raced."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

import msgspec

from gateway.calls import (
    AttemptRecord,
    AttemptStart,
    Call,
    CallRecord,
    Outcome,
    Recorder,
    Role,
)
from gateway.errors import (
    ApiError,
    ClientDisconnected,
    InternalError,
    NotAsked,
    RaceFailed,
    all_cooling,
    race_failed,
)
from gateway.fleet import Deployment, Model
from gateway.racing.measurement import milliseconds
from gateway.racing.outlet import Outlet, Relayed
from gateway.racing.race import Earlier
from gateway.racing.recording import call_record, call_start, outcome_of
from gateway.racing.relayed_records import RelayedAttempt, billed, relayed_record
from gateway.racing.seats import Line, Seats
from gateway.racing.sink import ClientGone
from gateway.racing.tasks import AttemptTasks
from gateway.racing.wait import Wait
from gateway.steering.planner import Plan
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Answer, Request, Rest
from providers.multipart import Form
from providers.sendings import Sendings
from providers.whole_answers import NOTHING, Reported, reported

MAX_CLIENT_FAULTS = 2  # a request called wrong by two providers is wrong


class Asking(msgspec.Struct, frozen=True):
    """What is asked of every deployment alike, beside the call's own fields."""

    path: str  # at the provider: audio/speech
    form: Form | None = None  # in place of the fields
    is_priced: bool = True  # its tokens cost what the price table says: they are text
    takes_extra_body: bool = True  # what a deployment adds to requests is meant for this API too


class Relay:
    """Runs one call along a plan's deployments. Use once: ``await Relay(...).run(outlet)``.

    Where nobody answers, ``falls_back`` is asked whether the call goes on elsewhere: it is not recorded then, and
    ``behind`` is what the next relay has to be told. ``not_asked`` says of everybody but those it is given who
    was passed over, and why.
    """

    def __init__(
        self,
        call: Call,
        model: Model,
        plan: Plan,
        recorder: Recorder,
        asking: Asking,
        *,
        tasks: AttemptTasks,
        seats: Seats,
        clock: Callable[[], float],
        new_id: Callable[[], str],
        utc_now: Callable[[], datetime],
        cancelled_as: Callable[[], type[ApiError]] = lambda: ClientDisconnected,
        falls_back: Callable[[ApiError], bool] = lambda _: False,
        not_asked: Callable[[Collection[str]], Sequence[NotAsked]] = lambda _: (),
        earlier: Earlier | None = None,
    ) -> None:
        self.behind: Earlier | None = None
        self._call = call
        self._model = model
        self._plan = plan
        self._recorder = recorder
        self._asking = asking
        self._new_id = new_id
        self._utc_now = utc_now
        self._cancelled_as = cancelled_as
        self._falls_back = falls_back
        self._not_asked = not_asked
        self._earlier = earlier or Earlier()
        self._clock = clock
        self._attempts: list[AttemptRecord] = []
        self._tasks = tasks
        self._under_way: str | None = None  # the deployment that is being asked
        self._seats = seats
        self._waited_s = self._earlier.waited_s
        self._line: Line | None = None  # in which the attempt under way has a seat

    async def run(self, outlet: Outlet) -> tuple[CallRecord, Relayed]:
        """Ask each deployment in turn; return the record and the first answer.

        What is still to come of that has gone to ``outlet`` by then, or its client has left, or it has broken off.

        Raises:
            RaceFailed: nobody answered.

        """
        try:
            return await self._run(outlet)
        finally:
            self._stand_up()

    async def _run(self, outlet: Outlet) -> tuple[CallRecord, Relayed]:
        names = [launch.deployment for launch in self._plan.launches] + list(self._plan.rest)
        if not names:
            wait_s = self._plan.retry_after_s or 1.0
            raise self._give_up(all_cooling(self._call.model, self._not_asked(()), wait_s))
        failures: list[tuple[str, UpstreamError]] = []
        full: Sequence[str] = ()
        while names:
            name = await self._sit_down(names) if self._seats.lines else names[0]
            if name is None:
                full = names
                break
            names.remove(name)
            if failures and self._is_late(self._model.deployments[name]):
                break
            attempt = self._launch(self._model.deployments[name])
            try:
                answer = await self._ask(attempt)
            except UpstreamError as error:
                failures.append((name, error.without_frames()))
                self._end(attempt, outcome_of(error), error=error)
                self._stand_up()
            except BaseException as reason:
                self._abandon(attempt, reason)
                raise
            else:
                return await self._answered(attempt, answer, outlet)
            if sum(error.kind is ErrorKind.BAD_REQUEST for _, error in failures) >= MAX_CLIENT_FAULTS:
                break
        out = self._not_asked({*full, *(name for name, _ in failures)})
        adhoc = self._model.adhoc
        raise self._give_up(race_failed(self._call.model, failures, full=full, out=out, adhoc=adhoc))

    def answered_here(self) -> CallRecord:
        """Record a call that nobody answered, and that ``falls_back`` kept open, as answered by the gateway itself."""
        return self._close(None, 200, None)

    async def _sit_down(self, names: Sequence[str]) -> str | None:
        """Return the first of ``names`` that has room, or is the first to have it in time; its seat is taken.

        The broken are asked only where there is nobody to wait for, or the waiting was in vain.
        """
        tripped = self._plan.tripped
        well = [name for name in names if name not in tripped]
        chosen = next(filter(self._has_room, well), None)
        if chosen is None:
            if well and (name := await self._turn(tuple(dict.fromkeys(well)))) is not None:
                return name
            chosen = next(filter(self._has_room, names), None)
        if chosen is not None:
            self._take(chosen)
        return chosen

    async def _turn(self, names: Sequence[str]) -> str | None:
        """Wait until one of ``names``, which are all full, has a seat; return it, None if that takes too long."""
        loop = asyncio.get_running_loop()
        called: asyncio.Future[str | None] = loop.create_future()

        def seated(name: str) -> None:
            if not called.done():  # or its client has just gone
                self._take(name)
                called.set_result(name)

        def timed_out() -> None:
            if not called.done():
                called.set_result(None)

        wait = Wait(
            self._seats,
            self._call.model,
            self._seats.queue_timeout_s - self._waited_s,
            seated=seated,
            timed_out=timed_out,
            clock=self._clock,
            loop=loop,
        )
        wait.line_up(names)
        try:
            return await called if wait.start_clock() else None
        except asyncio.CancelledError:
            why = self._cancelled_as()
            self._close(None, why.status, why.code)
            raise
        finally:
            wait.forget()
            self._waited_s += wait.waited_s

    def _has_room(self, name: str) -> bool:
        line = self._seats.lines.get(name)
        return line is None or line.has_room

    def _take(self, name: str) -> None:
        self._line = self._seats.lines.get(name)
        if self._line is not None:
            self._line.take()

    def _stand_up(self) -> None:
        """Count the attempt out and give its seat back, once."""
        name, self._under_way = self._under_way, None
        if name is not None:
            self._tasks.left(name)
        line, self._line = self._line, None
        if line is not None:
            line.give_back()

    async def _ask(self, attempt: RelayedAttempt) -> Answer:
        call, deployment, asking = self._call, attempt.deployment, self._asking
        request = Request(
            model=deployment.model,
            fields=call.fields,
            headers=call.headers,
            own_headers=deployment.extra_headers,
            extra_body=deployment.extra_body if asking.takes_extra_body else {},
            connect_timeout_s=deployment.clocks.connect_s,
            form=asking.form,
            sendings=attempt.sendings,
        )
        clocks = deployment.clocks
        limit_s, kind = clocks.ttft_s, ErrorKind.TTFT_TIMEOUT  # the first byte is its first token, or all of it
        if clocks.total_s is not None and clocks.total_s < limit_s:
            limit_s, kind = clocks.total_s, ErrorKind.TOTAL_TIMEOUT
        try:
            async with asyncio.timeout(limit_s):
                return await deployment.upstream.send(asking.path, request)
        except TimeoutError:
            raise UpstreamError(kind, f"no answer within {limit_s:g} s") from None

    async def _answered(self, attempt: RelayedAttempt, answer: Answer, outlet: Outlet) -> tuple[CallRecord, Relayed]:
        ttft_s = self._clock() - attempt.began
        start = attempt.start
        self._recorder.first_token(self._call.model, self._call.prompt_class, start, ttft_s)
        relayed = Relayed(
            call=self._call,
            provider=start.provider,
            deployment=start.deployment,
            launched=start.number,
            ttft_ms=self._since_received_ms(),
            answer=answer,
        )
        if answer.rest is not None:
            return await self._pass_on(attempt, relayed, answer.rest, outlet, ttft_s), relayed
        winner = self._end(attempt, Outcome.WON, answer=answer, said=reported(answer.body), ttft_s=ttft_s)
        return self._close(winner, answer.status, None), relayed

    async def _pass_on(
        self, attempt: RelayedAttempt, relayed: Relayed, rest: Rest, outlet: Outlet, ttft_s: float
    ) -> CallRecord:
        """Forward an answer as it comes, and record the call before its last byte goes out."""
        answer = relayed.answer

        def end(outcome: Outcome, error: UpstreamError | None) -> AttemptRecord:
            return self._end(
                attempt, outcome, answer=answer, said=Reported(rest.usage, rest.model), error=error, ttft_s=ttft_s
            )

        record: CallRecord | None = None
        try:
            await outlet.begin(relayed)
            data = answer.body
            while not rest.ended:
                if data:
                    await outlet.write(data)
                data = await self._more(attempt, rest)
            error = rest.error  # told in the stream itself: the client has it, and the ledger
            attempted = end(Outcome.WON if error is None else Outcome.FAILED, error)
            record = self._close(attempted, answer.status, None if error is None else error.kind)
            self._stand_up()  # the provider is done, however slowly the client reads
            await outlet.end(data)
        except UpstreamError as broken:
            outlet.drop()
            record = self._close(end(outcome_of(broken), broken), answer.status, broken.kind)
        except ClientGone as reason:
            record = record or self._abandon(attempt, reason, answer, Reported(rest.usage, rest.model), ttft_s)
        except BaseException as reason:
            outlet.drop()
            if record is None:
                self._abandon(attempt, reason, answer, Reported(rest.usage, rest.model), ttft_s)
            raise
        finally:
            rest.abort()
        return record

    async def _more(self, attempt: RelayedAttempt, rest: Rest) -> bytes:
        clocks = attempt.deployment.clocks
        limit_s, kind, told = clocks.stall_s, ErrorKind.STALL_TIMEOUT, f"nothing further within {clocks.stall_s:g} s"
        if clocks.total_s is not None:
            left_s = attempt.began + clocks.total_s - self._clock()
            if left_s < limit_s:
                limit_s, kind = max(0.0, left_s), ErrorKind.TOTAL_TIMEOUT
                told = f"no end of the answer within {clocks.total_s:g} s"
        try:
            async with asyncio.timeout(limit_s):
                return await rest.read()
        except TimeoutError:
            raise UpstreamError(kind, told) from None

    def _launch(self, deployment: Deployment) -> RelayedAttempt:
        number = self._launched + 1
        start = AttemptStart(
            id=self._new_id(),
            number=number,
            started_at=self._utc_now(),
            role=Role.PRIMARY if number == 1 else Role.FAILOVER,
            provider=deployment.provider,
            deployment=deployment.name,
            launch_offset_ms=self._since_received_ms(),
            model=self._call.model,
            in_flight=self._tasks.in_flight(deployment.name),
            asked_tokens=self._call.prompt_tokens,
        )
        self._under_way = deployment.name
        self._tasks.entered(deployment.name)
        if number == 1:
            self._recorder.call_started(call_start(self._call, (start,)))
        self._recorder.attempt_started(self._call.model, start)
        return RelayedAttempt(start, deployment, self._clock(), Sendings())

    def _is_late(self, following: Deployment) -> bool:
        """Tell whether so much time has passed that whoever comes next is not tried, unless it is the second."""
        return len(self._attempts) > 1 and self._clock() - self._call.received_at >= following.clocks.ttft_s

    def _abandon(
        self,
        attempt: RelayedAttempt,
        reason: BaseException,
        answer: Answer | None = None,
        said: Reported = NOTHING,
        ttft_s: float | None = None,
    ) -> CallRecord:
        """Record that the client has gone, that the gateway is stopping, or that it is itself at fault."""
        why: type[ApiError] = InternalError
        if isinstance(reason, ClientGone | asyncio.CancelledError):
            why = self._cancelled_as()
        if isinstance(reason, ClientGone) and not issubclass(why, ClientDisconnected):
            why = ClientDisconnected
        outcome = Outcome.CLIENT_GONE if issubclass(why, ClientDisconnected) else Outcome.INTERRUPTED
        ended = self._end(attempt, outcome, answer=answer, said=said, ttft_s=ttft_s)
        return self._close(None if answer is None else ended, why.status, why.code)

    def _end(
        self,
        attempt: RelayedAttempt,
        outcome: Outcome,
        *,
        answer: Answer | None = None,
        said: Reported = NOTHING,
        error: UpstreamError | None = None,
        ttft_s: float | None = None,
    ) -> AttemptRecord:
        record = relayed_record(
            self._call, attempt, outcome, self._clock(), answer=answer, said=said, error=error, ttft_s=ttft_s
        )
        self._attempts.append(record)
        self._recorder.attempt_ended(self._call.model, self._call.prompt_class, record)
        return record

    def _give_up(self, error: RaceFailed) -> RaceFailed:
        """Take that nobody answers: leave the call to somebody else, or record that it failed."""
        if self._falls_back(error):
            self.behind = Earlier(
                (*self._earlier.attempts, *self._attempts),
                self._launched,
                {**self._earlier.deployments, **self._model.deployments},
                self._waited_s,
            )
        else:
            self._close(None, error.status_code, error.kind)
        return error

    def _close(self, winner: AttemptRecord | None, status_code: int, error_kind: str | None) -> CallRecord:
        call = self._call
        attempts = [*self._earlier.attempts, *self._attempts]
        record = call_record(
            call,
            attempts,
            winner,
            billed(
                {**self._earlier.deployments, **self._model.deployments}, attempts, is_priced=self._asking.is_priced
            ),
            launched=self._launched,
            status_code=status_code,
            error_kind=error_kind,
            ttft_ms=None,
            total_ms=self._since_received_ms(),
            overhead_ms=None,
            answered_model=call.model if call.asked_model is not None and winner is not None else None,
        )
        self._recorder.call_finished(record)
        return record

    @property
    def _launched(self) -> int:
        return self._earlier.launched + len(self._attempts)

    def _since_received_ms(self) -> float:
        return milliseconds(self._clock() - self._call.received_at)
