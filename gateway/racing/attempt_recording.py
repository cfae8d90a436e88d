"""Builds the record of an attempt, without its costs, which may depend on the winner's usage.

Fields are written out, as in ``recording.py``.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from gateway.attempt_records import AttemptRecord, AttemptStart, Outcome, WinOn
from gateway.calls import Call
from gateway.racing.judging import UNJUDGED, Judgement, valid_calls
from gateway.racing.measurement import Measurement
from gateway.racing.milliseconds import milliseconds
from gateway.racing.pace import UNKNOWN, Dribble
from gateway.racing.watch import Overtaken
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Exchange
from providers.rate_limits import headroom
from providers.redaction import redact, redact_word

MOST_CHARS = 128  # of a text from a provider
_REQUEST_IDS = (
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "x-generation-id",
    "x-ms-request-id",
    "apim-request-id",
)
_OUTCOMES = {
    ErrorKind.CONNECT_TIMEOUT: Outcome.TIMEOUT,
    ErrorKind.TTFT_TIMEOUT: Outcome.TIMEOUT,
    ErrorKind.TOTAL_TIMEOUT: Outcome.TIMEOUT,
    ErrorKind.STALL_TIMEOUT: Outcome.STALLED,
    ErrorKind.LOCAL_RESOURCES: Outcome.INTERRUPTED,
}


class Ending(msgspec.Struct, frozen=True):
    """How an attempt has ended, as noted in that instant."""

    outcome: Outcome
    at: float
    sends: int | None  # how often it was sent; None: unknown
    key_name: str | None
    error: UpstreamError | None = None
    had_won: bool = False


def outcome_of(error: UpstreamError) -> Outcome:
    """Return the outcome of an attempt that failed with ``error``. A lack of local resources is not its fault."""
    return _OUTCOMES.get(error.kind, Outcome.FAILED)


def attempt_record(
    call: Call,
    start: AttemptStart,
    ending: Ending,
    measurement: Measurement,
    *,
    exchange: Exchange | None,
    censored_at: float | None,
    overtaken: Overtaken | None = None,
    kept: bool | None = None,
    judgement: Judgement = UNJUDGED,
    dribble: Dribble = UNKNOWN,
) -> AttemptRecord:
    """Return the record of an attempt without its cost, which may depend on the winner's usage.

    ``censored_at`` is when it was cut; ``overtaken`` is set if another attempt won before its first token; ``kept`` if
    it ran on behind a winner, None where nobody may.
    """
    since_start_ms = measurement.since_start_ms
    ttft_ms, answer_ms = since_start_ms(measurement.first_at), since_start_ms(measurement.answer_at)
    tokens, tools = measurement.tokens(), measurement.reported.tool_calls
    gaps, error = measurement.gaps.figures(), ending.error
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
        outcome=ending.outcome,
        audited=start.audited,
        continues=start.continues,
        connect_ms=measurement.connect_ms,
        headers_ms=since_start_ms(measurement.headers_at),
        first_event_ms=since_start_ms(measurement.first_event_at),
        ttft_ms=ttft_ms,
        ttft_answer_ms=answer_ms,
        sentence_ms=None if measurement.spoken_at is None else since_start_ms(measurement.spoken_at),
        valid_ms=None if measurement.valid_at is None else since_start_ms(measurement.valid_at),
        last_token_ms=since_start_ms(measurement.last_at),
        censored_at_ms=since_start_ms(censored_at),
        is_overtaken=overtaken is not None,
        is_kept=kept,
        would_take_over=dribble.found,
        would_take_over_ms=None if dribble.at is None else since_start_ms(dribble.at),
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
        speech_pause_ms=None if measurement.pause_s is None else milliseconds(measurement.pause_s),
        itl=gaps.counts if gaps is not None else None,
        model=start.model,
        client=call.client,
        api=call.endpoint,
        size_class=call.prompt_class.size,
        win_on=call.win_on,
        token_ms=ttft_ms if call.win_on is WinOn.ANY else since_start_ms(measurement.claims_at(call.win_on)),
        in_flight=start.in_flight,
        finish_reason=short(measurement.reported.finish_reason, secrets),
        tool_calls=None if measurement.reported.finish_reason is None else tools.number() if tools is not None else 0,
        tool_calls_valid=None
        if tools is None or measurement.reported.finish_reason is None
        else valid_calls(call, tools),
        key_name=ending.key_name,
        model_version=short(measurement.reported.model_version, secrets),
        provider_request_id=_request_id(exchange, measurement),
        sends=ending.sends,
        chars=measurement.chars if measurement.meaningful else None,
        chunks=measurement.meaningful or None,
        first_chars=measurement.first_chars if measurement.meaningful else None,
        is_narrowed=call.is_narrowed,
        judged_as=judgement.judged_as,
        flaw=judgement.flaw,
    )


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
