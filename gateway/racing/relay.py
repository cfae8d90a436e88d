"""A relay: one deployment after the other until one has answered, for requests that are routed but not raced."""

import asyncio
from collections.abc import Callable
from datetime import datetime

import msgspec

from gateway.calls import AttemptRecord, AttemptStart, Call, CallRecord, Outcome, Recorder, Role, TokensSource
from gateway.errors import AllRateLimited, ApiError, ClientDisconnected, RaceFailed, race_failed
from gateway.fleet import Deployment, Model
from gateway.racing.measurement import milliseconds
from gateway.racing.recording import call_record, call_start
from gateway.steering.planner import Plan
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Answer, Request

MAX_CLIENT_FAULTS = 2  # a request called wrong by two providers is wrong


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None


class _Body(msgspec.Struct):
    usage: _Usage | None = None


class Relay:
    """Runs one call along a plan's deployments. Use once: ``await Relay(...).run("embeddings")``."""

    def __init__(
        self,
        call: Call,
        model: Model,
        plan: Plan,
        recorder: Recorder,
        *,
        clock: Callable[[], float],
        new_id: Callable[[], str],
        utc_now: Callable[[], datetime],
        cancelled_as: Callable[[], type[ApiError]] = lambda: ClientDisconnected,
    ) -> None:
        self._call = call
        self._model = model
        self._plan = plan
        self._recorder = recorder
        self._new_id = new_id
        self._utc_now = utc_now
        self._cancelled_as = cancelled_as
        self._clock = clock
        self._attempts: list[AttemptRecord] = []

    async def run(self, path: str) -> tuple[CallRecord, Answer]:
        """Post the call to ``path`` of each deployment in turn; return the record and the first answer.

        Raises:
            RaceFailed: nobody answered.

        """
        names = [launch.deployment for launch in self._plan.launches] + list(self._plan.rest)
        if not names:
            wait_s = self._plan.retry_after_s or 1.0
            raise self._fail(
                AllRateLimited(f"every deployment of {self._call.model!r} is cooling down", retry_after_s=wait_s)
            )
        failures: list[tuple[str, UpstreamError]] = []
        for number, name in enumerate(names, start=1):
            deployment = self._model.deployments[name]
            start = self._start(number, deployment)
            if number == 1:
                self._recorder.call_started(call_start(self._call, (start,)))
            self._recorder.attempt_started(self._call.model, start)
            began = self._clock()
            try:
                answer = await self._ask(deployment, path)
            except UpstreamError as error:
                failures.append((name, error))
                self._end(start, _outcome(error), began, error=error)
            except asyncio.CancelledError:
                reason = self._cancelled_as()
                self._end(start, Outcome.CLIENT_GONE if reason is ClientDisconnected else Outcome.INTERRUPTED, began)
                self._close(None, reason.status, reason.code)
                raise
            else:
                # The whole answer is its first token: one embedder is better than another by how soon it answers.
                ttft_s = self._clock() - began
                self._recorder.first_token(self._call.model, self._call.prompt_class, start, ttft_s)
                winner = self._end(start, Outcome.WON, began, answer=answer, ttft_s=ttft_s)
                return self._close(winner, answer.status, None), answer
            if sum(error.kind is ErrorKind.BAD_REQUEST for _, error in failures) >= MAX_CLIENT_FAULTS:
                break
        raise self._fail(race_failed(self._call.model, failures))

    async def _ask(self, deployment: Deployment, path: str) -> Answer:
        request = Request(
            model=deployment.model,
            fields=self._call.fields,
            headers=self._call.headers,
            extra_body=deployment.extra_body,
            connect_timeout_s=deployment.clocks.connect_s,
        )
        limit_s = deployment.clocks.total_s or deployment.clocks.ttft_s  # the whole answer is its first token
        try:
            async with asyncio.timeout(limit_s):
                return await deployment.upstream.send(path, request)
        except TimeoutError:
            raise UpstreamError(ErrorKind.TOTAL_TIMEOUT, f"no answer within {limit_s:g} s") from None

    def _start(self, number: int, deployment: Deployment) -> AttemptStart:
        return AttemptStart(
            id=self._new_id(),
            number=number,
            started_at=self._utc_now(),
            role=Role.PRIMARY if number == 1 else Role.FAILOVER,
            provider=deployment.provider,
            deployment=deployment.name,
            launch_offset_ms=self._since_received_ms(),
        )

    def _end(
        self,
        start: AttemptStart,
        outcome: Outcome,
        began: float,
        *,
        answer: Answer | None = None,
        error: UpstreamError | None = None,
        ttft_s: float | None = None,
    ) -> AttemptRecord:
        prompt_tokens = _prompt_tokens(answer.body) if answer is not None else None
        record = AttemptRecord(
            **msgspec.structs.asdict(start),
            call_id=self._call.id,
            outcome=outcome,
            connect_ms=answer.connect_ms if answer else None,
            headers_ms=answer.headers_ms if answer else None,
            ttft_ms=None if ttft_s is None else milliseconds(ttft_s),
            censored_at_ms=milliseconds(self._clock() - began) if outcome is Outcome.CLIENT_GONE else None,
            status_code=answer.status if answer else (error.status if error else None),
            error_kind=error.kind if error else None,
            error_message=error.message if error else None,
            retry_after_s=error.retry_after_s if error else None,
            prompt_tokens=prompt_tokens,
            tokens_source=TokensSource.REPORTED if prompt_tokens is not None else None,
        )
        self._attempts.append(record)
        self._recorder.attempt_ended(self._call.model, self._call.prompt_class, record)
        return record

    def _fail(self, error: RaceFailed) -> RaceFailed:
        self._close(None, error.status_code, error.kind)
        return error

    def _close(self, winner: AttemptRecord | None, status_code: int, error_kind: str | None) -> CallRecord:
        record = call_record(
            self._call,
            self._attempts,
            winner,
            self._model.deployments,
            launched=len(self._attempts),
            status_code=status_code,
            error_kind=error_kind,
            ttft_ms=None,
            total_ms=self._since_received_ms(),
            overhead_ms=None,
        )
        self._recorder.call_finished(record)
        return record

    def _since_received_ms(self) -> float:
        return milliseconds(self._clock() - self._call.received_at)


def _outcome(error: UpstreamError) -> Outcome:
    timed_out = error.kind in {ErrorKind.CONNECT_TIMEOUT, ErrorKind.TOTAL_TIMEOUT}
    return Outcome.TIMEOUT if timed_out else Outcome.FAILED


def _prompt_tokens(body: bytes) -> int | None:
    try:
        usage = msgspec.json.decode(body, type=_Body).usage
    except msgspec.DecodeError:
        return None
    return usage.prompt_tokens if usage else None
