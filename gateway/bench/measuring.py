"""One request of a bench, sent and measured with the code that measures an attempt of a race."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gateway.api import ParsedRequest, Question, fitted, read_chat
from gateway.bench.plan import BenchPlan, BenchSample, Contender, Key, PromptKind, body, kind_of, salt
from gateway.core.attempts import AnswerKind, AttemptRecord, AttemptStart, Outcome, Role, WinOn
from gateway.core.calls import Call, Caller, CallTraits, Decision, Mode, Objective, RenderedRequest
from gateway.core.errors import ApiError
from gateway.fleet import Deployment
from gateway.http import Contents
from gateway.racing import (
    CUT_SHORT,
    ENOUGH_WORDS,
    SPOKEN_CHARS_S,
    AnswerStream,
    AttemptClocks,
    Ending,
    Measurement,
    Pauses,
    RequestParameters,
    attempt_record,
    drain,
    outcome_of,
    request_of,
    settle,
    translated,
)
from gateway.settings import DataPolicy
from providers import ErrorKind, Sendings, UpstreamError, kinds, step_by_step

if TYPE_CHECKING:
    from providers import Exchange

_ANSWERED_BY = "x-holeshot-deployment"
_ENDS = kinds(lambda facts: facts.may_be_whole)
_anything = msgspec.json.Decoder()


class Moments(NamedTuple):
    """The clocks of a bench: monotonic seconds, and seconds since 1970."""

    clock: Callable[[], float]
    unix_clock: Callable[[], float]


class Measured(NamedTuple):
    """A sample, and the facts about it that are not stored."""

    sample: BenchSample
    message: str | None  # of its error, without secrets
    retry_after_s: float | None


def request_for(
    plan: BenchPlan, contender: Contender, key: Key, sitting: int, prompts: Sequence[str] = ()
) -> ParsedRequest:
    """Return the request for ``key``; ``prompts`` are the user's own, of which each is asked in turn."""
    own = prompts[(max(0, key.round) * key.concurrency + key.number) % len(prompts)] if prompts else None
    content = body(key.kind, plan.lengths, salt(plan, key, sitting), contender.model, own)
    return read_chat(Contents.of(content), None)


def unfit_for(parsed: ParsedRequest, deployment: Deployment) -> str | None:
    """Return why ``deployment`` cannot answer this request; None if it can."""
    try:
        _rendered(parsed, deployment)
    except ApiError as error:
        return str(error)
    return None


async def measure(
    parsed: ParsedRequest, deployment: Deployment, key: Key, *, sitting: int, in_flight: int, moments: Moments
) -> Measured:
    """Send a request and return its sample, also after an error. ``in_flight`` counts this request, too."""
    rendered = _rendered(parsed, deployment)
    began_s, started = moments.unix_clock(), moments.clock()
    kind = kind_of(key.kind)
    call = Call(
        # Never sent twice: it would be paid twice, and measured wrongly.
        msgspec.structs.replace(parsed, stream=True, wants_usage=True, stateful=True),
        Caller(id=str(key), received_at=started, started_at=datetime.fromtimestamp(began_s, UTC), replica=""),
        Decision(
            model=parsed.model,
            endpoint=parsed.dialect.endpoint,
            mode=Mode.SINGLE,
            objective=Objective.FIRST_TOKEN,
            answer_kind=AnswerKind.JSON if kind is PromptKind.JSON else AnswerKind.PLAIN,
            win_on=WinOn.ANSWER if kind is PromptKind.JSON else WinOn.SENTENCE,  # so its first clause is looked for
            sentence_words=ENOUGH_WORDS,
        ),
        CallTraits(prompt_class=parsed.prompt_class, prompt_tokens=parsed.needs.prompt_tokens),
        rendered,
    )
    request = _Request(call, deployment, moments.clock)
    error = await request.run()
    record = _priced(request.record(key, error, in_flight), deployment, parsed)
    sample = _sample(key, record, request, sitting=sitting, began_s=began_s, in_flight=in_flight)
    return Measured(sample, error.message if error else None, error.retry_after_s if error else None)


class _Request:
    """A running request."""

    def __init__(self, call: Call, deployment: Deployment, clock: Callable[[], float]) -> None:
        self._call = call
        self._deployment = deployment
        self._clock = clock
        self._sends = Sendings()
        self._exchange: Exchange | None = None
        self.measurement = Measurement(clock())
        self.answer: AnswerStream | None = None
        self.ended_at = 0.0

    async def run(self) -> UpstreamError | None:
        """Send the request and read its answer; return the error."""
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        clocks = AttemptClocks(self._deployment.clocks, task, self._clock, loop, Pauses())
        error: UpstreamError | None = None
        try:
            await self._read(clocks)
        except UpstreamError as broken:
            if self._sends.failed is not None:  # the key ring does not read the events
                self._sends.failed(broken)
            error = self._unless_complete(broken.without_frames())
        except asyncio.CancelledError:
            expired = clocks.take_expiry()
            if expired is None:
                raise
            error = self._unless_complete(expired)
        finally:
            clocks.forget()
            self.ended_at = self._clock()
            if self._exchange is not None and (error is not None or self.answer is None):
                self._exchange.abort()
        if error is None and self._exchange is not None and not self._exchange.ended:
            await drain(self._exchange)  # so that the connection is used again
        return error

    def record(self, key: Key, error: UpstreamError | None, in_flight: int) -> AttemptRecord:
        """Return the record of the attempt."""
        start = AttemptStart(
            id=self._call.caller.id,
            number=1,
            started_at=self._call.caller.started_at,
            role=Role.PRIMARY,
            provider=self._deployment.provider,
            deployment=key.deployment,
            launch_offset_ms=0.0,
            in_flight=in_flight - 1,
        )
        outcome, sends = Outcome.WON if error is None else outcome_of(error), self._sends
        ending = Ending(outcome, self._clock(), sends.times, sends.key_name, error)
        return attempt_record(self._call, start, ending, self.measurement, exchange=self._exchange, censored_at=None)

    async def _read(self, clocks: AttemptClocks) -> None:
        deployment, call = self._deployment, self._call
        request = request_of(deployment, call, call.caller.id, self._sends)
        raw = await step_by_step(lambda: deployment.upstream.stream(request), self._sends)
        exchange = self._exchange = translated(raw, request, deployment, call, clocks)
        measurement = self.measurement
        measurement.headers_at, measurement.connect_ms = self._clock(), exchange.connect_ms
        answered_by = exchange.headers.get(_ANSWERED_BY)
        if answered_by is not None and answered_by != self._deployment.name:
            raise UpstreamError(ErrorKind.NOT_FOUND, f"the gateway asked {answered_by} instead")
        answer = self.answer = AnswerStream(self._call, measurement, clocks, self._clock)
        answer.reader.mask(exchange.secrets)
        while not answer.reader.done:
            data = await exchange.read()
            block = answer.read(data, self._clock(), finishing=exchange.finishing)
            if block.error is not None:
                raise block.error
            if not data:
                break
        clocks.stop()
        answer.check_whole()

    def _unless_complete(self, error: UpstreamError) -> UpstreamError | None:
        """Return None if the answer was complete when ``error`` came, as in a race."""
        complete = self.answer is not None and self.answer.reader.finished
        return None if complete and error.kind in _ENDS else error


def _rendered(parsed: ParsedRequest, deployment: Deployment) -> Mapping[str, RenderedRequest]:
    """Return how the request is sent to ``deployment``, where that differs from what it says.

    Raises:
        ApiError: it cannot answer this request.

    """
    question = Question(parsed.model, parsed.dialect, parsed.fields, parsed.needs, DataPolicy())
    return fitted(question, [deployment]).rendered


def _priced(record: AttemptRecord, deployment: Deployment, parsed: ParsedRequest) -> AttemptRecord:
    """Return the record with its cost, computed as for an attempt of a call."""
    winner = record if record.outcome is Outcome.WON else None
    needs = parsed.needs
    asked = RequestParameters(needs.max_tokens)
    bill = settle([record], winner, {record.deployment: deployment}, needs.prompt_tokens, asked)
    return bill.attempts[0]


def _sample(
    key: Key, record: AttemptRecord, request: _Request, *, sitting: int, began_s: float, in_flight: int
) -> BenchSample:
    return BenchSample(
        key=key,
        sitting=sitting,
        began_s=round(began_s, 3),
        total_ms=record.last_token_ms,
        ended_ms=request.measurement.since_start_ms(request.ended_at) or 0.0,
        connect_ms=record.connect_ms,
        ttft_ms=record.ttft_ms,
        ttft_answer_ms=record.ttft_answer_ms,
        sentence_ms=record.sentence_ms,
        speech_pause_ms=record.speech_pause_ms,
        spoken_s=None if record.sentence_ms is None else round(_said(request.measurement) / SPOKEN_CHARS_S, 3),
        decode_tps=record.decode_tps,
        e2e_tps=record.e2e_tps,
        itl_p50_ms=record.itl_p50_ms,
        itl_p95_ms=record.itl_p95_ms,
        itl_max_ms=record.itl_max_ms,
        prompt_tokens=record.prompt_tokens,
        completion_tokens=record.completion_tokens,
        reasoning_tokens=record.reasoning_tokens,
        cached_tokens=record.cached_tokens,
        tokens_source=record.tokens_source,
        finish_reason=record.finish_reason,
        in_flight=in_flight,
        as_asked=_as_asked(kind_of(key.kind), request) if record.error_kind is None else None,
        cost_usd=record.cost_usd,
        cost_high_usd=record.cost_high_usd,
        error_kind=record.error_kind,
        status_code=record.status_code,
    )


def _said(measurement: Measurement) -> int:
    """Return the characters of an answer that a voice says."""
    return measurement.chars - measurement.reasoning_chars


def _as_asked(kind: PromptKind, request: _Request) -> bool | None:
    """Whether the answer has the requested form; None if none was requested, or if the token limit cut it off."""
    reported, answer = request.measurement.reported, request.answer
    if reported.finish_reason in CUT_SHORT:
        return None
    if kind is PromptKind.TOOL_CALL:
        tools = reported.tool_calls
        return False if tools is None or not tools.number() else tools.valid()
    if kind is PromptKind.JSON and answer is not None and answer.text is not None:
        text = answer.text.whole()
        return None if text is None else _is_object(text)
    return None


def _is_object(text: str) -> bool:
    try:
        return isinstance(_anything.decode(text), dict)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
