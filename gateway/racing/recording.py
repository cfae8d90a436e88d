"""Builds the records of calls: of its start, and of its end with all attempts and their costs.

Fields are written out: copying the fields that two records share by name costs up to eight times as much, and this is
the hot path.
"""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.attempt_records import AttemptRecord, AttemptStart, Outcome, TokensSource, WinOn
from gateway.calls import Call, CallRecord, CallStart
from gateway.fleet.deployment import Deployment
from gateway.prompt_classes import encoded_class
from gateway.racing.alone import UNKNOWN, Alone
from gateway.racing.costs import settle
from gateway.racing.hold import Held
from gateway.racing.judging import CUT_SHORT
from gateway.racing.requested import requested
from gateway.racing.validity import first_was_invalid


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
        profile=call.profile,
        attempts=attempts,
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
    held: Held | None = None,
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
        first_was_invalid=first_was_invalid(bill.attempts) if call.win_on is WinOn.VALID else None,
        answered_model=answered_model,
        launched=launched,
        winner_attempt_id=winner.id if winner is not None else None,
        status_code=status_code,
        error_kind=error_kind,
        ttft_ms=ttft_ms,
        total_ms=total_ms,
        overhead_ms=overhead_ms,
        held_ms=None if held is None else held.ms,
        held_for=None if held is None else held.awaited,
        held_gain_ms=None if held is None else held.gain_ms,
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
        profile=call.profile,
        deadline_met=_is_met(call.deadline_ms, ttft_ms, total_ms, status_code),
        dropped=dropped,
        attempts=bill.attempts,
        kind=call.kind,
        trace=call.trace,
    )


def taken_over(record: CallRecord, parts: Sequence[AttemptRecord], end: str | None) -> CallRecord:
    """Return the record of a call whose answer others went on with: ``parts`` are the attempts that broke.

    Its tokens are the first prompt and all that was delivered, so they are estimated.
    """
    if not parts:
        return msgspec.structs.replace(record, takeover=end)
    delivered = [each.completion_tokens or 0 for each in parts]
    last = record.completion_tokens if record.winner_attempt_id not in {None, parts[-1].id} else 0
    first = next((each for each in record.attempts if each.id == parts[0].id), parts[0])
    return msgspec.structs.replace(
        record,
        takeover=end,
        takeovers=len(parts),
        prompt_tokens=first.prompt_tokens,
        completion_tokens=sum(delivered) + (last or 0),
        tokens_source=TokensSource.ESTIMATED,
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


def _counted(priced: Sequence[AttemptRecord], winner: AttemptRecord | None) -> AttemptRecord | None:
    """Return the attempt whose token counts are the call's: the winner, else the first that was sent the prompt."""
    if winner is not None:
        return next((one for one in priced if one.id == winner.id), winner)
    return next((one for one in priced if one.prompt_tokens is not None), None)


CLIENT_GONE = 499
_OWN_FAULT = frozenset(range(400, CLIENT_GONE)) - {424, 429}  # 424: the operator's fault; 429: no answer either
