"""Builds the records of calls: the start's, and the end's with all attempts and their costs.

Fields are written out. To copy by name the fields that two records share costs up to eight times as much, and every
call comes by here.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Any, Protocol

import msgspec

from gateway.core.attempts import (
    IN_PROGRESS,
    REPEATING,
    AttemptRecord,
    AttemptStart,
    Narrowed,
    Outcome,
    TokensSource,
    WinOn,
)
from gateway.core.calls import AS_ASKED, TENANT, Call, CallHead, CallRecord, CallStart
from gateway.core.columns import places_of
from gateway.core.rules import CLIENT_LEFT, FIRST_ERROR, is_own_fault
from gateway.fleet import Deployment
from gateway.racing.caches import with_caches
from gateway.racing.costs import BESIDE, settle
from gateway.racing.hold import HoldResult
from gateway.racing.measurement import (
    UNKNOWN,
    Dribble,
    Measurement,
    OvertakeTimes,
    milliseconds,
)
from gateway.racing.services import ServedTiers
from gateway.racing.validation import (
    CUT_SHORT,
    NOTHING_ASKED,
    STILL_READ,
    UNJUDGED,
    Judgement,
    first_was_invalid,
    requested,
    valid_calls,
)
from providers import (
    LARGEST_REQUEST_BYTES,
    About,
    ClientSecrets,
    Clock,
    ErrorKind,
    Exchange,
    Form,
    UpstreamError,
    VendorsWords,
    decide_by_request,
    headroom,
    keep,
    kinds,
    mark,
    quotable,
    redact,
    redact_word,
    request_id,
)

# Builds the record of an attempt without its costs: some depend on the winner's usage. Fields are written out here too.

MOST_CHARS = 128  # of a text from a provider
_OF_CLOCKS = {Clock.STALL: Outcome.STALLED, None: Outcome.FAILED}  # all others are time-outs
_OUTCOMES = {kind: _OF_CLOCKS.get(kind.facts.clock, Outcome.TIMEOUT) for kind in ErrorKind} | dict.fromkeys(
    kinds(lambda facts: facts.about is About.GATEWAY), Outcome.INTERRUPTED
)


class Ending(msgspec.Struct, frozen=True):
    """How and when an attempt ended, recorded at once."""

    outcome: Outcome
    at: float
    sends: int | None  # how often the request was sent; None: unknown
    key_name: str | None
    error: UpstreamError | None = None
    had_won: bool = False


def outcome_of(error: UpstreamError) -> Outcome:
    """Return the outcome of an attempt that failed with ``error``; if the gateway lacked resources: ``INTERRUPTED``."""
    return _OUTCOMES.get(error.kind, Outcome.FAILED)


def mark_words(error: UpstreamError, call: Call, deployment: Deployment, form: Form | None = None) -> None:
    """Mark in an attempt's ``error`` which words are the provider's, and which a client's; ``form`` as below."""
    if error.words is not None and not error.is_marked:
        forms = _held(call, deployment, form)
        texts = () if forms is None else _texts(call, form)
        mark(error, VendorsWords(None) if forms is None else VendorsWords(*forms, texts=texts))


def decide_within(error: UpstreamError, call: Call, deployment: Deployment) -> None:
    """Blame this request alone for an ``error`` within an answer, if the error is about one of the request's fields.

    The upstream has done the same for an error with a status.
    """
    fields, own = call.sent_to(deployment.name), deployment.extra_body
    asked = {name: raw for name, raw in fields.items() if name not in own} if own else fields
    decide_by_request(error, deployment.model, asked)


def keep_words(error: UpstreamError, call: Call, deployment: Deployment, form: Form | None = None) -> None:
    """Remove the words that others must not read, and those that the caller must not read, from an attempt's ``error``.

    Others must not read quotes from the request. Quotes are looked for in ``form``, else in the call's fields, unless
    the prompt is forgotten already. The caller must not read the operator's addresses.
    """
    if error.words is None:
        error.keep()
    else:
        forms = _held(call, deployment, form)
        keep(
            error,
            forms,
            texts=() if forms is None else _texts(call, form),
            models=(deployment.model, call.decision.model, call.request.model),
        )
    deployment.hide_addresses(error)


def _held(call: Call, deployment: Deployment, form: Form | None) -> tuple[Mapping[str, msgspec.Raw], ...] | None:
    """Return the fields of a request in each form; None: the prompt is forgotten, or too large to be searched."""
    sent = call.sent_to(deployment.name)
    is_held = not sent.keys() <= STILL_READ if form is None else len(form.body) <= LARGEST_REQUEST_BYTES
    return (call.request.fields, sent) if is_held else None


def _texts(call: Call, form: Form | None) -> list[str]:
    """Return the texts besides the fields that an error may quote from a request: headers and parts of a form."""
    return [*quotable(call.caller.envelope.headers), *(() if form is None else form.texts())]


_NOTHING_ELSE = (None,) * 4


def attempt_record(
    call: Call,
    start: AttemptStart,
    ending: Ending,
    measurement: Measurement,
    *,
    exchange: Exchange | None,
    censored_at: float | None,
    overtaken: OvertakeTimes | None = None,
    kept: bool | None = None,
    judgement: Judgement = UNJUDGED,
    dribble: Dribble = UNKNOWN,
    whole: bool = False,
) -> AttemptRecord:
    """Return the record of an attempt without its cost, which may depend on the winner's usage.

    ``censored_at``: when the attempt was cut. ``overtaken``: set if another attempt won before this one's first token.
    ``kept``: whether the attempt ran on behind a winner, None if none may. ``whole``: the provider did not stream.
    """
    since_start_ms, caller, decision = measurement.since_start_ms, call.caller, call.decision
    headers_ms, first_event_ms, ttft_ms, answer_ms, last_ms = measurement.times_ms()
    if whole:  # a whole answer has one time, that of its end
        ttft_ms = answer_ms = None
    reported, error = measurement.reported, ending.error
    tokens, tools = measurement.tokens(), reported.tool_calls
    gaps = measurement.gaps.figures() if measurement.meaningful else None
    text_gap_s = measurement.text_gap_s  # as ``milliseconds`` rounds, without a call
    text_gap_max_ms = None if text_gap_s == -inf else round(max(0.0, text_gap_s) * 1_000_000) / 1000
    secrets = exchange.secrets if exchange is not None else ()
    finish_reason = reported.finish_reason
    if finish_reason is not None:
        finish_reason = short(finish_reason, secrets)
    elif call.request.runs_on and ending.outcome is Outcome.CLIENT_GONE:
        finish_reason = IN_PROGRESS
    # Most attempts have none of these fields, and each field that is named costs 400 instructions.
    dropped = reported.thoughts_dropped
    rare: dict[str, Any] = {} if dropped is None else {"thoughts_dropped": dropped}
    if error is not None:
        rare |= {"error_kind": error.kind, "error_message": error.kept, "retry_after_s": error.retry_after_s}
        rare["is_certain"] = error.findings.is_certain
    if censored_at is not None:
        rare["censored_at_ms"] = since_start_ms(censored_at)
    if overtaken is not None:
        rare["overtaken_at_ms"] = since_start_ms(overtaken.at)
        rare["predicted_ms"] = None if overtaken.expected_s is None else milliseconds(overtaken.expected_s)
    if (win_on := decision.win_on) is not WinOn.ANY:
        rare["sentence_ms"] = since_start_ms(measurement.spoken_at)
        rare["valid_ms"] = since_start_ms(measurement.valid_at)
        rare["speech_pause_ms"] = _silence_ms(measurement, ending)
    if dribble.at is not None:
        rare["would_take_over_ms"] = since_start_ms(dribble.at)
    if tokens is not None and (tokens.reported, tokens.tier, tokens.units, tokens.stated_usd) != _NOTHING_ELSE:
        rare |= {"reported_tokens": tokens.reported, "other_units": tokens.units, "stated_usd": tokens.stated_usd}
        rare["tier"] = tokens.tier and short(tokens.tier, secrets)
    return AttemptRecord(
        *msgspec.structs.astuple(start),
        call_id=caller.id,
        outcome=ending.outcome,
        connect_ms=measurement.connect_ms,
        headers_ms=headers_ms,
        first_event_ms=first_event_ms,
        ttft_ms=ttft_ms,
        ttft_answer_ms=answer_ms,
        last_token_ms=last_ms,
        is_overtaken=overtaken is not None,
        is_kept=kept,
        would_take_over=dribble.found,
        status_code=exchange.status if exchange is not None else (error.status if error else None),
        headroom=headroom(exchange.headers) if exchange is not None else None,
        prompt_tokens=tokens.prompt_tokens if tokens else None,
        completion_tokens=tokens.completion_tokens if tokens else None,
        reasoning_tokens=tokens.reasoning_tokens if tokens else None,
        cached_tokens=tokens.cached_tokens if tokens else None,
        cache_write_tokens=tokens.cache_write_tokens if tokens else None,
        tokens_source=tokens.source if tokens else None,
        decode_tps=measurement.decode_tps(tokens) if tokens else None,
        e2e_tps=measurement.e2e_tps(tokens) if tokens else None,
        itl_p50_ms=gaps.p50_ms if gaps is not None else None,
        itl_p95_ms=gaps.p95_ms if gaps is not None else None,
        itl_max_ms=gaps.max_ms if gaps is not None else None,
        text_gap_max_ms=text_gap_max_ms,
        itl=gaps.counts if gaps is not None else None,
        client=caller.client,
        api=decision.endpoint,
        size_class=call.traits.prompt_class.size,
        win_on=win_on,
        token_ms=ttft_ms if whole or win_on is WinOn.ANY else since_start_ms(measurement.claims_at(win_on)),
        finish_reason=finish_reason,
        tool_calls=None if reported.finish_reason is None else tools.number() if tools is not None else 0,
        tool_calls_valid=None if tools is None or reported.finish_reason is None else valid_calls(call, tools),
        key_name=ending.key_name if start.learnt_as is None else TENANT,
        model_version=short(reported.model_version, secrets) if reported.model_version is not None else None,
        system_fingerprint=short(reported.fingerprint, secrets) if reported.fingerprint is not None else None,
        provider_request_id=_request_id(exchange, reported.answer_id)
        if exchange is not None
        else (error.request_id if error else None),
        sends=ending.sends,
        chars=measurement.chars if measurement.meaningful else None,
        chunks=measurement.meaningful or None,
        first_chars=measurement.first_chars if measurement.meaningful else None,
        is_restricted=call.traits.is_restricted,
        judged_as=judgement.judged_as,
        flaw=judgement.flaw,
        **rare,
    )


def _silence_ms(measurement: Measurement, ending: Ending) -> float | None:
    """Return a listener's longest silence in ms; if the answer broke off, the silence before its end counts too."""
    listener = measurement.listener
    if listener is None:
        return None
    if ending.had_won and ending.outcome is not Outcome.WON:
        listener.cut(ending.at)
    return milliseconds(listener.pause_s)


def short(text: str | None, secrets: Sequence[str]) -> str | None:
    """Return a text from a provider as stored in a column: with limited length and without ``secrets``."""
    if text is None:
        return None
    if type(secrets) is ClientSecrets:
        return redact(text[:MOST_CHARS], secrets)
    return _clean(text[:MOST_CHARS], tuple(secrets))


@lru_cache(maxsize=1024)
def _clean(text: str, secrets: tuple[str, ...]) -> str:
    return redact(text, secrets)


_NAMES_AN_ANSWER, _SHOWN_CHARS = "resp_", 12


def _request_id(exchange: Exchange, answer_id: str | None) -> str | None:
    """Return the provider's id of the request, for the provider's support; without such an id, the answer's id.

    With an id like ``resp_…`` a client can continue the conversation, and decrypt what Redis keeps of it. Of such an id
    only the beginning is returned.
    """
    id_of_request = request_id(exchange.headers)
    if id_of_request is not None:
        return id_of_request[:MOST_CHARS]
    if answer_id is None:
        return None
    shown = f"{answer_id[:_SHOWN_CHARS]}…" if answer_id.startswith(_NAMES_AN_ANSWER) else answer_id[:MOST_CHARS]
    return redact_word(shown, exchange.secrets)


# What racing gained one call: an estimate of when the primary alone would have given the first token. The view
# ``race_value`` adds the gains up. An overtaken primary is usually cut, so only a prediction is known. Audited
# primaries run on to their first token, and show how wrong the predictions are (docs/steering.md, "What racing saves").


class MeasuredAttempt(Protocol):
    """The fields of an attempt that the estimate reads."""

    measurement: Measurement
    overtaken: OvertakeTimes | None
    start: AttemptStart
    refused: Any  # the attempt whose request is repeated; None: no repetition
    failed_at: float | None
    claimed_at: float | None  # when the attempt bid with its first token, whether or not it won

    def token_at(self) -> float | None:
        """Return the time of the delta with which the attempt can bid; None before that delta."""


class PrimaryTtft(msgspec.Struct, frozen=True):
    """When the primary alone would have given its first token: ms since the call came, ``age_ms`` since the launch."""

    seen_ms: float | None = None
    predicted_ms: float | None = None  # of an overtaken primary
    age_ms: float | None = None  # the primary's age when another attempt overtook it


NOT_KNOWN = PrimaryTtft()


def alone(
    attempts: Sequence[MeasuredAttempt],
    winner: MeasuredAttempt | None,
    first_at: float | None,
    since_received_ms: Callable[[float], float],
    *,
    streamed: bool,
    held: bool = False,
) -> PrimaryTtft:
    """Return what is known about a call whose client had its first token at ``first_at``, after a hold if ``held``.

    Without racing the primary runs alone. Only its failure launches the next attempt, which then wins at the same time
    as here. A ``streamed`` answer begins with the first token: if the stream breaks later, the client has had that
    token. A whole answer that breaks is replaced.
    """
    if winner is None or first_at is None:
        return NOT_KNOWN
    primary = attempts[0]
    if len(attempts) > 1:
        for each in attempts:
            if each.start.role in REPEATING and each.refused is primary:  # the primary, asked once more
                primary = each
    if (overtaken := primary.overtaken) is not None:
        age_ms = primary.measurement.since_start_ms(overtaken.at)
        if overtaken.expected_s is None:
            return PrimaryTtft(age_ms=age_ms)
        return PrimaryTtft(None, since_received_ms(primary.measurement.started + overtaken.expected_s), age_ms)
    if primary.failed_at is None:  # not overtaken: racing gained nothing, but a hold may have cost time
        token_at = primary.token_at() if held else None
        return PrimaryTtft(since_received_ms(first_at if token_at is None else token_at))
    if streamed and primary.claimed_at is not None:
        return PrimaryTtft(since_received_ms(primary.claimed_at))
    waited_s = max(0.0, primary.failed_at - winner.measurement.started)
    own_at = winner.token_at() or first_at  # the winner may have been held, or stood by
    return PrimaryTtft(since_received_ms(min(own_at, first_at) + waited_s))


# Compiled once, as ``namedtuple`` does: the interpreter then remembers where each part is. An ``attrgetter`` looks each
# part up again, which costs seven times as much.
_head: Callable[[Call], tuple[Any, ...]] = eval(  # noqa: S307 - of the house's own names
    f"lambda call: ({', '.join(f'call.{place}' for place in places_of(CallHead))},)"
)


def call_start(call: Call, attempts: tuple[AttemptStart, ...]) -> CallStart:
    """Return the start record of ``call``, with the ``attempts`` launched at once."""
    return CallStart(*_head(call), attempts=attempts)


class Breadth(msgspec.Struct, frozen=True, gc=False):
    """How many attempts a call had, and should have had."""

    launched: int  # more than have ended, where audited ones still run
    extras: int  # how many of the attempts started while another one ran
    width_asked: int | None  # to start with, as the plan says; None: no race
    narrowed: Narrowed | None  # why there were fewer


class CallTimes(msgspec.Struct, frozen=True):
    """When a call's client had its first token, and the gateway's part of that time."""

    ttft_ms: float | None = None
    overhead_ms: float | None = None
    alone: PrimaryTtft = NOT_KNOWN  # what the first model's primary would have taken alone
    held: HoldResult | None = None  # the hold before the win


NO_TIMES = CallTimes()


def call_record(  # noqa: PLR0917 - what is known of a call
    call: Call,
    start: CallStart,
    attempts: Sequence[AttemptRecord],
    winner: AttemptRecord | None,
    deployments: Mapping[str, Deployment],
    breadth: Breadth,
    *,
    status_code: int,
    error_kind: str | None,
    total_ms: float,
    times: CallTimes,
    tiers: ServedTiers | None = None,
    cached: Mapping[str, int] | None = None,
) -> CallRecord:
    """Return the record of ``call``, which began as ``start``, with its attempts priced.

    ``cached``: as for ``with_caches``.
    """
    ttft_ms, overhead_ms, alone, held = times.ttft_ms, times.overhead_ms, times.alone, times.held
    parameters = requested(call.request.fields, call.request.dialect, writes=call.traits.kind is not None)
    is_text = call.traits.inline_bytes is not None
    bill = settle(attempts, winner, deployments, call.traits.prompt_tokens, parameters, is_text=is_text, seen=tiers)
    bill = (
        with_caches(bill, winner, cached)
        if cached or (winner is not None and (winner.counts_as or winner.role) in BESIDE)
        else bill
    )
    counted = _counted(bill.attempts, winner)
    is_unread = winner is not None and winner.chunks is None and winner.ttft_ms is not None
    read = None if is_unread else winner
    rare: dict[str, Any] = {}  # as in ``attempt_record``
    if call.decision.win_on is WinOn.VALID:
        rare["first_was_invalid"] = first_was_invalid(bill.attempts)
    if held is not None:
        rare |= {"held_ms": held.ms, "held_for": held.awaited, "held_gain_ms": held.gain_ms}
    if parameters is not NOTHING_ASKED:
        rare |= {"max_tokens": parameters.max_tokens, "temperature": parameters.temperature, "tools": parameters.tools}
    if alone.age_ms is not None:
        rare |= {"alone_predicted_ms": alone.predicted_ms, "alone_age_ms": alone.age_ms}
    if call.traits.deadline_ms is not None:
        # An answer that came whole has no first token: the client had the answer when the call ended.
        answered_ms = _answered_ms(winner, ttft_ms, total_ms)
        rare["deadline_met"] = _is_met(call.traits.deadline_ms, answered_ms, total_ms, status_code)
    if winner is not None and call.decision.model != call.request.model:
        rare["answered_model"] = call.decision.model
    if winner is not None and call.rendered:
        rare["dropped"] = call.rendered.get(winner.deployment, AS_ASKED).dropped
    if breadth.narrowed is not None:
        rare["narrowed"] = breadth.narrowed
    if call.caller.trace is not None:
        rare["trace"] = call.caller.trace
    return CallRecord(
        *msgspec.structs.astuple(start)[:-1],  # all but the start's attempts
        launched=breadth.launched,
        extras=breadth.extras,
        width_asked=breadth.width_asked,
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
        api=call.decision.endpoint,
        size_class=call.traits.prompt_class.size,
        tokens_source=counted.tokens_source if counted is not None else None,
        finish_reason=winner.finish_reason if winner is not None else None,
        tool_calls=winner.tool_calls if winner is not None else None,
        tool_calls_valid=winner.tool_calls_valid if winner is not None else None,
        is_empty=None if read is None or overhead_ms is None else read.chunks is None,
        is_truncated=None if read is None or overhead_ms is None else _is_truncated(read),
        alone_ms=alone.seen_ms,
        attempts=bill.attempts,
        kind=call.traits.kind,
        **rare,
    )


def taken_over(record: CallRecord, parts: Sequence[tuple[AttemptRecord, int]], end: str | None) -> CallRecord:
    """Return the record of a call whose answer other deployments continued.

    ``parts``: each attempt that broke, with the number of its tokens that the next attempt has written again. The
    call's tokens are those of the first prompt and of all delivered text, and so are estimates.
    """
    if not parts:
        return msgspec.structs.replace(record, takeover=end)
    (first, _), (last, again) = parts[0], parts[-1]
    tokens = sum((each.completion_tokens or 0) - again for each, again in parts) + again
    if record.winner_attempt_id not in {None, last.id}:
        tokens += max(0, (record.completion_tokens or 0) - again)
    first = next((each for each in record.attempts if each.id == first.id), first)
    return msgspec.structs.replace(
        record,
        takeover=end,
        takeovers=len(parts),
        prompt_tokens=first.prompt_tokens,
        completion_tokens=tokens,
        tokens_source=TokensSource.ESTIMATED,
    )


def _answered_ms(winner: AttemptRecord | None, ttft_ms: float | None, total_ms: float) -> float | None:
    """Return when the client had the first token, or what counts as such, in ms since the call was received."""
    if ttft_ms is not None or winner is None:
        return ttft_ms
    if winner.chunks is not None:
        return total_ms
    return None if winner.ttft_ms is None else winner.launch_offset_ms + winner.ttft_ms  # of a relayed answer


def _is_met(deadline_ms: float, ttft_ms: float | None, total_ms: float, status_code: int) -> bool | None:
    """Whether the client had the first token before the deadline. A failed call has missed its deadline.

    None: the request was invalid, or the client left before the deadline.
    """
    if ttft_ms is not None and (status_code < FIRST_ERROR or status_code == CLIENT_LEFT):
        return ttft_ms <= deadline_ms
    if status_code == CLIENT_LEFT:
        return None if total_ms < deadline_ms else False
    return None if is_own_fault(status_code) else False


def _is_truncated(winner: AttemptRecord) -> bool:
    """Whether the answer ended at a limit or broke off. An answer whose client left does not count."""
    if winner.outcome is Outcome.WON or winner.outcome is Outcome.CLIENT_GONE:
        return winner.finish_reason in CUT_SHORT
    return True


def _counted(priced: Sequence[AttemptRecord], winner: AttemptRecord | None) -> AttemptRecord | None:
    """Return the attempt whose tokens are the call's: the winner, else the first attempt that was sent the prompt."""
    if winner is not None:
        for one in priced:
            if one.id == winner.id:
                return one
        return winner
    return next((one for one in priced if one.prompt_tokens is not None), None)
