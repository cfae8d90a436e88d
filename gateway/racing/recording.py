"""Builds a call's records: its start, and its end with all attempts and their costs.

Fields are written out: copying the fields that two records share by name costs up to eight times as much, and this is
the hot path.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from gateway.attempt_records import AttemptRecord, AttemptStart, Outcome, WinOn
from gateway.calls import Call, CallRecord, CallStart
from gateway.fleet.deployment import Deployment
from gateway.prompt_classes import encoded_class
from gateway.racing.alone import UNKNOWN, Alone
from gateway.racing.costs import settle
from gateway.racing.judging import CUT_SHORT, UNJUDGED, Judgement
from gateway.racing.measurement import Measurement
from gateway.racing.milliseconds import milliseconds
from gateway.racing.requested import requested
from gateway.racing.watch import Overtaken
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Exchange
from providers.rate_limits import headroom
from providers.redaction import redact, redact_word
from providers.sendings import Sendings

MOST_CHARS = 128  # of a text from a provider
_REQUEST_IDS = (
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "x-generation-id",
    "x-ms-request-id",
    "apim-request-id",
)


def call_start(call: Call, attempts: tuple[AttemptStart, ...]) -> CallStart:
    """Return the start record of ``call``, with the ``attempts`` launched at once."""
    return CallStart(
        id=call.id,
        started_at=call.started_at,
        client=call.client,
        model=call.asked_model or call.model,
        endpoint=call.endpoint,
        streamed=call.streamed,
        mode=call.mode,
        objective=call.objective,
        prompt_class=encoded_class(call.prompt_class),
        tags=call.tags,
        replica=call.replica,
        region=call.region,
        win_on=call.win_on,
        request_id=call.request_id,
        deadline_ms=call.deadline_ms,
        attempts=attempts,
    )


def outcome_of(error: UpstreamError) -> Outcome:
    """Return the outcome of an attempt that failed with ``error``. A lack of local resources is not its fault."""
    return _OUTCOMES.get(error.kind, Outcome.FAILED)


def attempt_record(
    call: Call,
    start: AttemptStart,
    outcome: Outcome,
    measurement: Measurement,
    *,
    exchange: Exchange | None,
    sendings: Sendings,
    error: UpstreamError | None,
    censored_at: float | None,
    overtaken: Overtaken | None = None,
    judgement: Judgement = UNJUDGED,
) -> AttemptRecord:
    """Return the record of an attempt without its cost, which may depend on the winner's usage.

    ``censored_at`` is when it was cut; ``overtaken`` is set if another attempt won before its first token.
    """
    since_start_ms = measurement.since_start_ms
    ttft_ms, answer_ms = since_start_ms(measurement.first_at), since_start_ms(measurement.answer_at)
    tokens, tools = measurement.tokens(), measurement.reported.tool_calls
    gaps = measurement.gaps.figures()
    secrets = exchange.secrets if exchange is not None else ()
    return AttemptRecord(
        id=start.id,
        call_id=call.id,
        number=start.number,
        started_at=start.started_at,
        role=start.role,
        provider=start.provider,
        deployment=start.deployment,
        launch_offset_ms=start.launch_offset_ms,
        outcome=outcome,
        audited=start.audited,
        connect_ms=measurement.connect_ms,
        headers_ms=since_start_ms(measurement.headers_at),
        first_event_ms=since_start_ms(measurement.first_event_at),
        ttft_ms=ttft_ms,
        ttft_answer_ms=answer_ms,
        last_token_ms=since_start_ms(measurement.last_at),
        censored_at_ms=since_start_ms(censored_at),
        is_overtaken=overtaken is not None,
        overtaken_at_ms=None if overtaken is None else since_start_ms(overtaken.at),
        predicted_ms=None if overtaken is None or overtaken.expected_s is None else milliseconds(overtaken.expected_s),
        status_code=exchange.status if exchange is not None else (error.status if error else None),
        error_kind=error.kind if error else None,
        error_message=error.message if error else None,
        retry_after_s=error.retry_after_s if error else None,
        headroom=headroom(exchange.headers) if exchange is not None else None,
        asked_tokens=start.asked_tokens,
        prompt_tokens=tokens.prompt if tokens else None,
        completion_tokens=tokens.completion if tokens else None,
        reasoning_tokens=tokens.reasoning if tokens else None,
        cached_tokens=tokens.cached if tokens else None,
        cache_write_tokens=tokens.cache_write if tokens else None,
        tokens_source=tokens.source if tokens else None,
        decode_tps=measurement.decode_tps(tokens),
        e2e_tps=measurement.e2e_tps(tokens),
        itl_p50_ms=gaps.p50_ms if gaps is not None else None,
        itl_p95_ms=gaps.p95_ms if gaps is not None else None,
        itl_max_ms=gaps.max_ms if gaps is not None else None,
        itl=gaps.counts if gaps is not None else None,
        model=start.model,
        client=call.client,
        api=call.endpoint,
        size_class=call.prompt_class.size,
        win_on=call.win_on,
        token_ms=answer_ms if call.win_on is WinOn.ANSWER else ttft_ms,
        in_flight=start.in_flight,
        finish_reason=short(measurement.reported.finish_reason, secrets),
        tool_calls=None if measurement.reported.finish_reason is None else tools.number() if tools is not None else 0,
        tool_calls_valid=None if tools is None or measurement.reported.finish_reason is None else tools.valid(),
        key_name=sendings.key_name,
        model_version=short(measurement.reported.model_version, secrets),
        provider_request_id=_request_id(exchange, measurement),
        sends=sendings.times,
        chars=measurement.chars if measurement.meaningful else None,
        chunks=measurement.meaningful or None,
        first_chars=measurement.first_chars if measurement.meaningful else None,
        is_narrowed=call.is_narrowed,
        judged_as=judgement.judged_as,
        flaw=judgement.flaw,
    )


def call_record(
    call: Call,
    attempts: Sequence[AttemptRecord],
    winner: AttemptRecord | None,
    deployments: Mapping[str, Deployment],
    *,
    launched: int,
    status_code: int,
    error_kind: str | None,
    ttft_ms: float | None,
    total_ms: float,
    overhead_ms: float | None,
    alone: Alone = UNKNOWN,
    answered_model: str | None = None,
    dropped: tuple[str, ...] = (),
) -> CallRecord:
    """Return the record of ``call``, with its attempts priced.

    ``launched`` may exceed the number of ``attempts``: audited ones may still run. ``answered_model`` is the fallback
    that answered, if one did; ``dropped`` are the fields that were left out for the winner.
    """
    asked = requested(call.fields, call.dialect)
    bill = settle(attempts, winner, deployments, call.prompt_tokens, asked.max_tokens)
    counted = _counted(bill.attempts, winner)
    return CallRecord(
        id=call.id,
        started_at=call.started_at,
        client=call.client,
        model=call.asked_model or call.model,
        endpoint=call.endpoint,
        streamed=call.streamed,
        mode=call.mode,
        objective=call.objective,
        prompt_class=encoded_class(call.prompt_class),
        tags=call.tags,
        replica=call.replica,
        region=call.region,
        win_on=call.win_on,
        request_id=call.request_id,
        answered_model=answered_model,
        launched=launched,
        winner_attempt_id=winner.id if winner is not None else None,
        status_code=status_code,
        error_kind=error_kind,
        ttft_ms=ttft_ms,
        total_ms=total_ms,
        overhead_ms=overhead_ms,
        prompt_tokens=counted.prompt_tokens if counted is not None else None,
        completion_tokens=counted.completion_tokens if counted is not None else None,
        reasoning_tokens=counted.reasoning_tokens if counted is not None else None,
        cached_tokens=counted.cached_tokens if counted is not None else None,
        cache_write_tokens=counted.cache_write_tokens if counted is not None else None,
        cost_usd=bill.total.usd,
        cost_low_usd=bill.total.low_usd,
        cost_high_usd=bill.total.high_usd,
        duplicate_cost_usd=bill.duplicate.usd,
        duplicate_cost_low_usd=bill.duplicate.low_usd,
        duplicate_cost_high_usd=bill.duplicate.high_usd,
        abandoned_cost_low_usd=bill.abandoned.low_usd,
        abandoned_cost_high_usd=bill.abandoned.high_usd,
        cache_saved_usd=bill.cache_saved_usd,
        api=call.endpoint,
        size_class=call.prompt_class.size,
        tokens_source=counted.tokens_source if counted is not None else None,
        finish_reason=winner.finish_reason if winner is not None else None,
        tool_calls=winner.tool_calls if winner is not None else None,
        tool_calls_valid=winner.tool_calls_valid if winner is not None else None,
        is_empty=None if winner is None or overhead_ms is None else winner.chunks is None,
        is_truncated=None if winner is None or overhead_ms is None else _is_truncated(winner),
        max_tokens=asked.max_tokens,
        temperature=asked.temperature,
        tools=asked.tools,
        alone_ms=alone.seen_ms,
        alone_predicted_ms=alone.predicted_ms,
        alone_age_ms=alone.age_ms,
        deadline_ms=call.deadline_ms,
        deadline_met=_is_met(call.deadline_ms, ttft_ms, total_ms, status_code),
        dropped=dropped,
        attempts=bill.attempts,
        kind=call.kind,
    )


def _is_met(deadline_ms: float | None, ttft_ms: float | None, total_ms: float, status_code: int) -> bool | None:
    """Whether the client had its first token in time. A failed call has missed its deadline.

    None without a deadline, for an invalid request, and if the client left before the deadline.
    """
    if deadline_ms is None:
        return None
    if ttft_ms is not None and (status_code < 400 or status_code == CLIENT_GONE):  # noqa: PLR2004 - HTTP's first error
        return ttft_ms <= deadline_ms
    if status_code == CLIENT_GONE:
        return None if total_ms < deadline_ms else False
    return None if status_code in _OWN_FAULT else False


def _is_truncated(winner: AttemptRecord) -> bool:
    """Whether the answer ended at a limit or broke off, unless its client left."""
    if winner.outcome is Outcome.WON or winner.outcome is Outcome.CLIENT_GONE:
        return winner.finish_reason in CUT_SHORT
    return True


def short(said: str | None, secrets: Sequence[str]) -> str | None:
    """Return a text from a provider as stored in a column: with limited length and without ``secrets``."""
    return None if said is None else _clean(said[:MOST_CHARS], tuple(secrets))


@lru_cache(maxsize=1024)
def _clean(said: str, secrets: tuple[str, ...]) -> str:
    return redact(said, secrets)


def _request_id(exchange: Exchange | None, measurement: Measurement) -> str | None:
    """Return the provider's id of the request: the one its support asks for, else the answer's id."""
    headers: Mapping[str, str] = {} if exchange is None else exchange.headers
    found, answer_id = request_id(headers), measurement.reported.answer_id
    if found is None and answer_id is not None:
        found = redact_word(answer_id[:MOST_CHARS], exchange.secrets if exchange is not None else ())
    return found


def request_id(headers: Mapping[str, str]) -> str | None:
    """Return the provider's request id in its masked ``headers``; None without one."""
    for name in _REQUEST_IDS:
        if name in headers:
            return headers[name][:MOST_CHARS] or None
    return None


def _counted(priced: Sequence[AttemptRecord], winner: AttemptRecord | None) -> AttemptRecord | None:
    """Return the attempt whose token counts are the call's: the winner, else the first that was sent the prompt."""
    if winner is not None:
        return next((one for one in priced if one.id == winner.id), winner)
    return next((one for one in priced if one.prompt_tokens is not None), None)


CLIENT_GONE = 499
_OWN_FAULT = frozenset(range(400, CLIENT_GONE)) - {424, 429}  # 424: the operator's fault; 429: no answer either

_OUTCOMES = {
    ErrorKind.CONNECT_TIMEOUT: Outcome.TIMEOUT,
    ErrorKind.TTFT_TIMEOUT: Outcome.TIMEOUT,
    ErrorKind.TOTAL_TIMEOUT: Outcome.TIMEOUT,
    ErrorKind.STALL_TIMEOUT: Outcome.STALLED,
    ErrorKind.LOCAL_RESOURCES: Outcome.INTERRUPTED,
}
