"""The relay of answers that pass unread: one deployment after the other, or beside each other where that is planned."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec

from gateway.core.attempts import AttemptRecord, Outcome, Role
from gateway.core.calls import Call, CallRecord
from gateway.core.errors import ApiError, ClientDisconnected, InternalError
from gateway.core.log import get_logger
from gateway.core.tasks import forget_frames
from gateway.fleet.models import Deployment, Model
from gateway.racing.attempts import audits_go_on
from gateway.racing.call import AttemptSeat, OpenCall, Unanswered
from gateway.racing.launches import EXTRA_ROLES, RETRIED_AFTER_S
from gateway.racing.measurement import AUDIT_S, Measurement, Overtaken
from gateway.racing.race import Phase
from gateway.racing.records import NOT_KNOWN, RelayedAttempt, alone, billed, keep_words, outcome_of, relayed_record
from gateway.racing.sinks import ClientGone
from gateway.steering import Launch, Plan
from providers import (
    NOTHING,
    ErrorKind,
    Form,
    Reported,
    Request,
    Rest,
    SendCount,
    UpstreamAnswer,
    UpstreamError,
    reported,
    sound_has_begun,
)
from providers.dialects import PIVOT, Dialect

# The receiver of an answer that is not raced: the answer is forwarded as it arrives.


class Relayed(msgspec.Struct, frozen=True):
    """An answer, and the deployment that gives it."""

    call: Call
    provider: str
    deployment: str
    launched: int  # attempts so far
    ttft_ms: float  # since the call was received: to the first byte, or to the whole answer if it is not streamed
    answer: UpstreamAnswer


class Outlet(Protocol):
    """The receiver of an answer that is forwarded as it arrives. After ``begin`` no other deployment may answer."""

    async def begin(self, relayed: Relayed) -> None:
        """Start the response; the first data follow with ``write``."""

    async def write(self, data: bytes) -> None:
        """Forward some bytes."""

    async def end(self, last: bytes) -> None:
        """Forward the last bytes and end the response. The call is already recorded."""

    def drop(self) -> None:
        """Abort the client's connection: the answer cannot be completed."""


def _interruption(why: type[ApiError]) -> Outcome:
    return Outcome.CLIENT_GONE if issubclass(why, ClientDisconnected) else Outcome.INTERRUPTED


def _due_at(timed: tuple[float, Launch]) -> float:
    return timed[0]


MAX_CLIENT_FAULTS = 2  # a request that two providers reject is invalid


_PAID = frozenset({Outcome.WON, Outcome.CLIENT_GONE, Outcome.INTERRUPTED, Outcome.LOST, Outcome.SUPERSEDED})


class Asking(msgspec.Struct, frozen=True):
    """The request to each deployment, besides the call's fields."""

    path: str  # at the provider: audio/speech
    dialect: Dialect = PIVOT  # whose vendor's headers are sent
    form: Form | None = None  # instead of the fields
    is_priced: bool = True  # its tokens are text, so the price table applies
    cost_usd: Mapping[str, float] = {}  # of an answer that is not paid for by its tokens, by deployment
    unpriced: Collection[str] = ()  # of these it is the dearest price of their vendor, which only limits count
    takes_extra_body: bool = True  # a deployment's ``extra_body`` is meant for this API too
    is_sound: bool = False  # it answers with a sound, or is about one: the header of a container is no answer yet
    is_compared: bool = False  # it is short, and raced: the call's row says when its answer came, and what racing saved


async def _begun(answer: UpstreamAnswer) -> UpstreamAnswer:
    """Return ``answer`` with the beginning of its sound.

    Raises:
        UpstreamError: it broke before, or told an error.

    """
    rest, head, kind = answer.rest, answer.body, answer.headers.get("content-type", "")
    assert rest is not None
    try:
        while not (rest.ended or rest.error is not None or sound_has_begun(kind, head)):
            head += await rest.read()
    except BaseException:
        rest.abort()
        raise
    if rest.error is not None and not sound_has_begun(kind, head):
        rest.abort()
        raise rest.error
    return answer if head is answer.body else msgspec.structs.replace(answer, body=head)


class Relay:
    """Runs one call over a plan's deployments. Use once: ``await Relay(...).run(outlet)``.

    One attempt runs at a time, but for those that the plan launches beside it: the first answer wins, and the others
    are cut before a byte of it is sent, but for those that are audited: they run on. ``answer`` is the answer, once
    there is one.
    """

    def __init__(
        self,
        open_call: OpenCall,
        model: Model,
        plan: Plan,
        asking: Asking,
        *,
        may_launch: Callable[[Launch], bool] = lambda _: True,
        on_slot_refused: Callable[[Launch], None] = lambda _: None,
        call: Call | None = None,
    ) -> None:
        """``call`` is as built for ``model``, if that is not yet the model of the open call."""
        self.answer: Relayed | None = None
        self.call = call or open_call.call
        self.loop = asyncio.get_running_loop()
        self.attempts: Sequence[RelayedAttempt] = ()  # none runs on after its loss
        self._is_over = False
        self._waiting: AttemptSeat | None = None
        self._open_call = open_call
        self._model = model
        self._plan = plan
        self._asking = asking
        self._may_launch = may_launch
        self._on_slot_refused = on_slot_refused
        self._running: dict[asyncio.Task[UpstreamAnswer], RelayedAttempt] = {}
        self._launched: list[RelayedAttempt] = []
        self._winner: RelayedAttempt | None = None
        self._cut_tasks: list[asyncio.Task[UpstreamAnswer]] = []
        self._audits: dict[asyncio.Task[UpstreamAnswer], RelayedAttempt] = {}  # losers that run on
        self._seats: dict[str, AttemptSeat] = {}  # by the ids of attempts that have not ended
        self._names = [launch.deployment for launch in plan.launches] + list(plan.rest)  # not asked yet, in their order
        self._failures: list[tuple[str, UpstreamError]] = []
        self._began = 0.0  # when the first attempt was launched
        self._due: list[tuple[float, Launch]] | None = None  # launches beside others, by time; None: none has begun
        self._is_doubted = False  # a provider calls the request invalid: none is asked beside another any more

    async def run(self, outlet: Outlet) -> CallRecord | Unanswered:
        """Try each deployment in turn; return the call's record, or why none answered.

        When it returns, the answer was sent to ``outlet``, or broke off, or the client has left.
        """
        self._open_call.use_model(self._model)
        try:
            return await self._run(outlet)
        except BaseException as reason:
            if self._running or isinstance(reason, asyncio.CancelledError):  # perhaps while it waited for a seat
                why = self._why(reason)
                self.stop(why)
                if self._open_call.rivals is not None:
                    self._open_call.rivals.stop(self, why)
                self._close(None, why.status, why.code)
            raise
        finally:
            if self._cut_tasks:
                await asyncio.wait(self._cut_tasks)
                self._cut_tasks.clear()  # their errors' frames refer to this relay

    @property
    def phase(self) -> Phase:
        """The phase, as of a race."""
        if self._is_over:
            return Phase.OVER
        return Phase.RUNNING if self.answer is None else Phase.ANSWERING

    @property
    def is_rescued(self) -> bool:
        """Whether a rescue runs beside an attempt that hangs."""
        return len(self._running) > 1 and any(each.start.role is Role.FAILOVER for each in self._running.values())

    def stop(self, reason: type[ApiError]) -> None:
        """End without a whole answer: the call ends with this error. Audits may go on, as in a race."""
        if not audits_go_on(reason):
            self._running |= {task: self._audits.pop(task) for task in [*self._audits] if not task.done()}
        self._end_with(_interruption(reason))

    def give_way(self, *, runs_on: bool) -> None:  # noqa: ARG002 - as a race; no primary is watched here
        """End without an answer: that of another model has won."""
        self._end_with(Outcome.LOST)

    def follow(self, attempts: Sequence[object]) -> None:
        """Do nothing: what the late model would have taken alone is not estimated here."""

    def _end_with(self, outcome: Outcome) -> None:
        self._is_over = True
        self._cut(outcome)
        if self._waiting is not None:
            self._waiting.stop_waiting()

    async def _run(self, outlet: Outlet) -> CallRecord | Unanswered:
        full: Sequence[str] = ()
        while (self._names or self._running) and not self._is_over:
            if not self._running:
                seat = self._waiting = AttemptSeat(self._open_call)
                try:
                    name = await seat.take_seat(self._names, self._plan.tripped)
                except asyncio.CancelledError:  # perhaps just after it got one
                    seat.leave_seat()
                    raise
                self._waiting = None
                if name is None:
                    full = tuple(dict.fromkeys(self._names))
                    break
                is_late = bool(self._failures) and self._is_late(self._model.deployments[name], len(self._failures))
                if is_late or self._is_over:
                    seat.leave_seat()
                    break
                is_first = self._due is None
                self._launch(name, seat)
                if is_first:
                    self._due = self._timed(name)
            self._launch_due()
            if (won := await self._first()) is not None:
                attempt, answer = won
                self._won(attempt)
                self._cut(Outcome.LOST)
                return await self._answered(attempt, answer, outlet)
            if sum(_is_of_client(error) for _, error in self._failures) >= MAX_CLIENT_FAULTS:
                break
        self._cut(Outcome.LOST)
        failed = [each for each in self._failures if not each[1].is_outsized]  # they tell more
        return Unanswered(tuple(failed or self._failures), tuple(full), {name for name, _ in self._failures})

    def _timed(self, primary: str) -> list[tuple[float, Launch]]:
        """Return the launches beside the first one, which runs at ``primary``, with their times: from now on.

        If the planned primary was full and another took its place, the two change places.
        """
        self._began = began = self._open_call.services.clock()
        plan, planned = self._plan, self._plan.launches[0].deployment if self._plan.launches else primary
        later = [*plan.launches[1:], *(() if plan.withheld is None else (plan.withheld,))]
        if primary != planned:
            later = [
                msgspec.structs.replace(each, deployment=planned) if each.deployment == primary else each
                for each in later
            ]
        return sorted(((began + launch.delay_s, launch) for launch in later), key=_due_at)

    def _launch_due(self) -> None:
        """Launch what is due beside the attempts that run; what is refused stays due, as a rescue."""
        if not self._due:
            return
        now, due = self._open_call.services.clock(), self._due
        self._due = [each for each in due if each[0] > now]
        for _, launch in due[: len(due) - len(self._due)]:
            if launch is self._plan.withheld:
                self._may_launch(launch)  # it is told why there is nobody
            elif launch.deployment in self._names and (again_s := self._launch_beside(launch)) is not None:
                self._due.append((again_s, msgspec.structs.replace(launch, role=Role.FAILOVER)))
        self._due.sort(key=_due_at)

    def _launch_beside(self, launch: Launch) -> float | None:
        """Launch an attempt beside those that run; return when it is to be tried again, None if it is not.

        A rescue starts where there is room.
        """
        seat, is_extra, rescue_s = AttemptSeat(self._open_call), launch.role in EXTRA_ROLES, self._plan.rescue_s
        names = [launch.deployment]
        if not is_extra:
            names += [name for name in self._names if name not in self._plan.tripped]
        name = next((name for name in names if seat.take_beside(name, is_extra=is_extra)), None)
        if name is None:
            if is_extra:
                self._on_slot_refused(launch)
        elif self._may_launch(launch):
            self._launch(name, seat, launch.role)
            return None
        else:
            seat.leave_seat()
        if not is_extra:
            return self._open_call.services.clock() + max(RETRIED_AFTER_S, rescue_s or 0.0)
        return None if rescue_s is None else self._began + max(launch.delay_s, rescue_s)

    def _replace(self, error: UpstreamError) -> None:
        """Ask the next deployment with room in place of one that failed beside another, unless the request is wrong."""
        if _is_of_client(error):
            self._due, self._is_doubted = [], True
        if self._is_doubted or not self._running:
            return
        seat, tripped = AttemptSeat(self._open_call), self._plan.tripped
        for name in sorted(self._names, key=lambda each: each in tripped):
            if self._is_late(self._model.deployments[name], len(self._failures)):
                continue
            if seat.take_beside(name, is_extra=False):
                self._launch(name, seat, Role.FAILOVER)
                return

    async def _first(self) -> tuple[RelayedAttempt, UpstreamAnswer] | None:
        """Wait for the first answer; return it, or None if an attempt has failed, or the next launch is due."""
        limit_s = max(0.0, self._due[0][0] - self._open_call.services.clock()) if self._due else None
        done, _ = await asyncio.wait(self._running, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        failed: list[UpstreamError] = []
        ended = [task for task in done if task in self._running]  # the others were cut meanwhile
        for task in sorted(ended, key=lambda each: self._running[each].start.number):
            error = task.exception()
            if error is None:
                return self._running.pop(task), task.result()
            if not isinstance(error, UpstreamError):
                raise error
            attempt = self._running.pop(task)
            attempt.failed_at = self._open_call.services.clock()
            failed.append(error.without_frames())
            self._failures.append((attempt.deployment.name, error))
            self._end(attempt, outcome_of(error), error=error)
        for each in failed:
            self._replace(each)
        return None

    def _won(self, winner: RelayedAttempt) -> None:
        """Note that the others are overtaken; those that are audited run on to their answer."""
        now, primary = self._open_call.services.clock(), self._plan.primary
        self._winner = winner
        winner.claimed_at = winner.measurement.first_at = now
        for task, loser in [*self._running.items()]:
            is_primary = loser.start.number == 1 and loser.deployment.name == self._plan.launches[0].deployment
            expected_s = primary.expected_s(now - loser.began) if is_primary and primary is not None else None
            loser.overtaken = Overtaken(now, expected_s)
            if loser.start.audited and not task.done():
                del self._running[task]
                self._seats[loser.start.id].lose()
                self._watch(task, loser, AUDIT_S - (now - loser.began))

    def _watch(self, task: asyncio.Task[UpstreamAnswer], loser: RelayedAttempt, limit_s: float) -> None:
        """Let an audited loser run on to its answer, for at most ``limit_s`` more; then record it."""
        outcome = Outcome.INTERRUPTED  # if the gateway ends before

        def expire() -> None:
            nonlocal outcome
            outcome = Outcome.LOST
            task.cancel()

        def ended(_: object) -> None:
            timer.cancel()
            if self._audits.pop(task, None) is not None:  # else it was cut with its call
                self._watched(task, loser, outcome)

        self._audits[task] = loser
        timer = self.loop.call_later(max(0.0, limit_s), expire)
        task.add_done_callback(ended)
        self._open_call.services.tasks.watch(task)
        self._open_call.held_by(task)

    def _watched(self, task: asyncio.Task[UpstreamAnswer], loser: RelayedAttempt, if_cut: Outcome) -> None:
        services, outcome, said = self._open_call.services, if_cut, NOTHING
        answer: UpstreamAnswer | None = None
        found = None if task.cancelled() else task.exception()
        error = found.without_frames() if isinstance(found, UpstreamError) else None
        if error is not None:
            outcome = outcome_of(error)
        elif found is not None:
            get_logger().error("audit.crashed", call=self.call.id, exc_info=found)
        elif not task.cancelled():
            answer, outcome, now = task.result(), Outcome.SUPERSEDED, services.clock()
            loser.measurement.first_at = now
            services.outbox.add(self._open_call.first_token, self.call, loser.start, loser.began, now)
            if answer.rest is None:
                said = reported(answer.body)
            else:
                answer.rest.abort()
        ttft_s = None if loser.measurement.first_at is None else loser.measurement.first_at - loser.began
        self._end(loser, outcome, answer=answer, said=said, error=error, ttft_s=ttft_s)
        if self._open_call.record is not None:
            services.outbox.drain()

    def _cut(self, outcome: Outcome) -> None:
        """Cut and record at once what still runs; ``run`` awaits it. What has failed by itself keeps its error."""
        for task, attempt in self._running.items():
            error = task.exception() if task.done() else None
            if isinstance(error, UpstreamError):
                self._end(attempt, outcome_of(error), error=error.without_frames())
                continue
            if task.done() and error is None and (rest := task.result().rest) is not None:
                rest.abort()
            task.cancel()
            self._cut_tasks.append(task)
            self._end(attempt, outcome)
        self._running.clear()

    async def _ask(self, attempt: RelayedAttempt) -> UpstreamAnswer:
        call, deployment, asking = self.call, attempt.deployment, self._asking
        headers = asking.dialect.headers_of(call.headers)
        request = Request(
            model=deployment.model,
            fields=call.fields,
            headers=headers if call.trace is None else call.trace.sent_with(headers, attempt.start.id),
            own_headers=deployment.extra_headers,
            extra_body=deployment.extra_body if asking.takes_extra_body else {},
            connect_timeout_s=deployment.clocks.connect_s,
            form=asking.form,
            key_name=call.key_name,
            sendings=attempt.sendings,
        )
        clocks = deployment.clocks
        limit_s, kind = clocks.ttft_s, ErrorKind.TTFT_TIMEOUT  # until the first byte, or the whole answer if unstreamed
        if clocks.total_s is not None and clocks.total_s < limit_s:
            limit_s, kind = clocks.total_s, ErrorKind.TOTAL_TIMEOUT
        try:
            async with asyncio.timeout(limit_s):
                answer = await deployment.upstream.send(asking.path, request)
                return await _begun(answer) if asking.is_sound and answer.rest is not None else answer
        except TimeoutError:
            raise UpstreamError(kind, f"no answer within {limit_s:g} s") from None

    async def _answered(self, attempt: RelayedAttempt, answer: UpstreamAnswer, outlet: Outlet) -> CallRecord:
        open_call = self._open_call
        if open_call.rivals is not None:
            open_call.rivals.won(self)
        if attempt.sendings.left_out:
            self.call = open_call.sent_without(self.call, attempt.deployment, attempt.sendings.left_out)
        call, now = self.call, open_call.services.clock()
        ttft_s = now - attempt.began
        start = attempt.start
        open_call.services.outbox.add(open_call.first_token, call, start, attempt.began, now)
        relayed = self.answer = Relayed(
            call=call,
            provider=start.provider,
            deployment=start.deployment,
            launched=open_call.launched,
            ttft_ms=open_call.since_received_ms(now),
            answer=answer,
        )
        if answer.rest is not None:
            return await self._forward(attempt, relayed, answer.rest, outlet, ttft_s)
        winner = self._end(attempt, Outcome.WON, answer=answer, said=reported(answer.body), ttft_s=ttft_s)
        return self._close(winner, answer.status, None)

    async def _forward(
        self, attempt: RelayedAttempt, relayed: Relayed, rest: Rest, outlet: Outlet, ttft_s: float
    ) -> CallRecord:
        """Forward an answer as it arrives; record the call before its last byte is sent."""
        answer = relayed.answer

        def end(outcome: Outcome, error: UpstreamError | None) -> AttemptRecord:
            if error is not None and attempt.sendings.failed is not None:
                attempt.sendings.failed(error)  # the key ring does not see what is forwarded
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
            error = rest.error  # reported within the stream: the client has received it; it is recorded
            attempted = end(Outcome.WON if error is None else Outcome.FAILED, error)
            record = self._close(attempted, answer.status, None if error is None else error.kind)
            await outlet.end(data)
        except UpstreamError as broken:
            outlet.drop()
            record = self._close(end(outcome_of(broken), broken), answer.status, broken.kind)
        except ClientGone as reason:
            record = record or self._interrupted(attempt, reason, answer, Reported(rest.usage, rest.model), ttft_s)
        except BaseException as reason:
            outlet.drop()
            if record is None:
                self._interrupted(attempt, reason, answer, Reported(rest.usage, rest.model), ttft_s)
            raise
        finally:
            rest.abort()
        return record

    async def _more(self, attempt: RelayedAttempt, rest: Rest) -> bytes:
        clocks = attempt.deployment.clocks
        limit_s, kind, message = clocks.stall_s, ErrorKind.STALL_TIMEOUT, f"nothing further within {clocks.stall_s:g} s"
        if clocks.total_s is not None:
            left_s = attempt.began + clocks.total_s - self._open_call.services.clock()
            if left_s < limit_s:
                limit_s, kind = max(0.0, left_s), ErrorKind.TOTAL_TIMEOUT
                message = f"no end of the answer within {clocks.total_s:g} s"
        try:
            async with asyncio.timeout(limit_s):
                return await rest.read()
        except TimeoutError:
            raise UpstreamError(kind, message) from None

    def _launch(self, name: str, seat: AttemptSeat, role: Role | None = None) -> None:
        self._names.remove(name)
        open_call, deployment = self._open_call, self._model.deployments[name]
        now = open_call.services.clock()
        first = self._plan.launches[0].role if self._plan.launches and self._due is None else Role.FAILOVER
        role = role or (first if first is Role.FALLBACK or not open_call.launched else Role.FAILOVER)
        launched = (*self._plan.launches, *(() if self._plan.withheld is None else (self._plan.withheld,)))
        is_audited = self._asking.is_compared and any(each.audited and each.deployment == name for each in launched)
        start = open_call.launch(self.call, deployment, role, now=now, audited=is_audited)
        seat.enter(start)
        self._seats[start.id] = seat
        open_call.begin([start])
        open_call.services.recorder.attempt_started(self.call, start)
        attempt = RelayedAttempt(start, deployment, Measurement(now), SendCount())
        self._launched.append(attempt)
        (task := asyncio.create_task(self._ask(attempt))).add_done_callback(forget_frames)
        self._running[task] = attempt

    def _is_late(self, following: Deployment, failures: int) -> bool:
        """Whether it is too late to try another deployment; the second one is always tried."""
        age_s = self._open_call.services.clock() - self.call.received_at
        return failures > 1 and age_s >= following.clocks.ttft_s

    def _interrupted(
        self, attempt: RelayedAttempt, reason: BaseException, answer: UpstreamAnswer, said: Reported, ttft_s: float
    ) -> CallRecord:
        """Record that the client has gone, the gateway is stopping, or has a bug, while the answer was forwarded."""
        why = self._why(reason)
        ended = self._end(attempt, _interruption(why), answer=answer, said=said, ttft_s=ttft_s)
        self.stop(why)
        return self._close(ended, why.status, why.code)

    def _why(self, reason: BaseException) -> type[ApiError]:
        """Return the error that ``reason`` is to the client, who may have gone."""
        why: type[ApiError] = InternalError
        if isinstance(reason, ClientGone | asyncio.CancelledError):
            why = self._open_call.cancelled_as()
        if isinstance(reason, ClientGone) and not issubclass(why, ClientDisconnected):
            why = ClientDisconnected
        return why

    def _end(
        self,
        attempt: RelayedAttempt,
        outcome: Outcome,
        *,
        answer: UpstreamAnswer | None = None,
        said: Reported = NOTHING,
        error: UpstreamError | None = None,
        ttft_s: float | None = None,
    ) -> AttemptRecord:
        open_call, services = self._open_call, self._open_call.services
        now = services.clock()
        self._seats.pop(attempt.start.id).leave_seat()
        if error is not None:
            keep_words(error, self.call, attempt.deployment, self._asking.form)
        record = relayed_record(self.call, attempt, outcome, now, answer=answer, said=said, error=error, ttft_s=ttft_s)
        usd = self._asking.cost_usd.get(record.deployment)
        if usd is not None and outcome in _PAID and not (outcome is Outcome.LOST and record.sends == 0):
            low_usd = 0.0 if outcome is Outcome.LOST else usd  # perhaps it had not begun to speak
            if record.deployment in self._asking.unpriced:
                record = msgspec.structs.replace(record, limit_usd=usd)
            else:
                record = msgspec.structs.replace(record, cost_usd=usd, cost_low_usd=low_usd, cost_high_usd=usd)
        if services.seats.preexisting:
            services.seats.ended(record.id, asyncio.get_running_loop())
        services.outbox.add(open_call.ended, record, now)
        return record

    def _close(self, winner: AttemptRecord | None, status_code: int, error_kind: str | None) -> CallRecord:
        claimed_at = None if self._winner is None else self._winner.claimed_at
        ttft_ms: float | None = None
        not_raced = NOT_KNOWN
        if self._asking.is_compared and claimed_at is not None:
            since_ms = self._open_call.since_received_ms
            ttft_ms = since_ms(claimed_at)
            if self._launched[0].start.number == 1:  # of all the call's models
                not_raced = alone(self._launched, self._winner, claimed_at, since_ms, streamed=self.call.streamed)
        return self._open_call.finish(
            winner,
            status_code=status_code,
            error_kind=error_kind,
            ttft_ms=ttft_ms,
            alone=not_raced,
            priced_as=partial(billed, is_priced=self._asking.is_priced),
        )


def _is_of_client(error: UpstreamError) -> bool:
    """Whether an error says that the request is wrong, wherever it is sent."""
    return error.kind is ErrorKind.BAD_REQUEST and not error.is_outsized
