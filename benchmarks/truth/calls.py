"""Each column of ``calls``: what it must be."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.truth.course import MAX_TOKENS, REGION, REPLICA, TEMPERATURE, Made, asks_tools
from benchmarks.truth.facts import Attempt, Called
from benchmarks.truth.fleet import Seen
from benchmarks.truth.rules import One, Rule, Truth, at_most, bound, near, same
from benchmarks.truth.truths import OK, api, bill, kind, left, mode_of, saved, tool_calls, usage, valid, win_on


def _left_early(one: One) -> bool:
    return left(one) and one.made.first_at is None


def _is_whole(call: Called) -> bool:
    """Return whether the client got an answer to its end, usage and all."""
    return _of_winner(lambda seen: seen.is_told)(call) is True


def _of_winner(truth: Callable[[Seen], Any]) -> Truth:
    """Return what is true of the request that answered, None where none did."""

    def of(call: Called) -> Any:
        winner = None if _left_early(call) else call.winner
        return None if winner is None or winner.seen is None or winner.seen.status != OK else truth(winner.seen)

    return of


def _since_sent_ms(instant: Callable[[Made], float | None]) -> Truth:
    def of(one: One) -> float | None:
        at = instant(one.made)
        return None if at is None else (at - one.made.sent_at) * 1000

    return of


def _winners(truth: Truth) -> Truth:
    return lambda call: truth(call.winner)


def _error_of_call(call: Called) -> str | None:
    if left(call):
        return "client_disconnected"
    return "disconnected" if kind(call) == "truncated" else None


def _objective(call: Called) -> str:
    return "completion" if not call.made.job.scenario.streamed or asks_tools(call.made.job) else "reading"


def _streams(call: Called) -> bool:
    return bool(call.made.job.scenario.streamed)


def _honest(call: Called) -> bool:
    return all(one.persona.overstates == 1 for one in call.attempts)


def _is_one_answer(call: Called) -> bool:
    return len(call.attempts) == 1 and len(call.attempts[0].requests) == 1 and _is_whole(call) and _honest(call)


def _is_settled(call: Called) -> bool:
    """Return whether all its attempts had ended with the call, so that its row has them all."""
    return _honest(call) and not any(one.row["audited"] for one in call.attempts)


def losers(call: Called) -> list[Attempt]:
    """Return the attempts that the call alone would not have had, or not beside its winner."""
    beside = {"race", "hedge", "explore", "probe"}
    winner = call.winner
    won_beside = winner is not None and winner.row["role"] in beside
    return [
        one
        for one in call.attempts
        if one is not winner and (one.row["role"] in beside or (won_beside and one.row["outcome"] != "failed"))
    ]


def _gone(call: Called) -> list[Attempt]:
    return list(call.attempts) if left(call) else []


def _sums(column: str, some: Callable[[Called], Sequence[Attempt]]) -> Rule:
    """See that a sum of a call is that of its attempts' rows."""
    return same(
        lambda call: float(sum(one.row[column] or 0.0 for one in some(call))),
        only=lambda call: _is_settled(call) and _has_price(call),
        name=" is its attempts'",
    )


def _has_price(call: Called) -> bool:
    return any(one.row[f"cost_{bound}_usd"] is not None for one in call.attempts for bound in ("low", "high"))


def _within(side: str, some: Callable[[Called], Sequence[Attempt]]) -> Rule:
    return bound(side, lambda call: bill(some(call)), only=lambda call: _is_settled(call) and _has_price(call))


def _all(call: Called) -> Sequence[Attempt]:
    return call.attempts


def _outside_ms(call: Called) -> float:
    """Return how much of the first byte's time no provider took: the gateway's, and the way there and back."""
    winner = call.winner
    assert winner is not None
    assert winner.seen is not None
    first_at = winner.seen.event_at or winner.seen.headers_at or 0.0
    return (call.made.byte_at - call.made.sent_at - (first_at - winner.seen.arrived_at)) * 1000 + 1  # type: ignore[operator]


def _is_overtaken(call: Called) -> bool:
    """Return whether the client had read another's words before the primary's were written."""
    first = call.attempts[0]
    return call.winner is not first and not (
        first.seen and first.seen.first_at and call.made.first_at and first.seen.first_at < call.made.first_at
    )


def _alone_ms(call: Called) -> float | None:
    return None if _is_overtaken(call) else _since_sent_ms(lambda made: made.first_at)(call)


def _predicted_ms(call: Called) -> float | None:
    primary = call.attempts[0].row
    return None if primary["predicted_ms"] is None else primary["launch_offset_ms"] + primary["predicted_ms"]


def _age_ms(call: Called) -> float | None:
    seen = call.attempts[0].seen
    if seen is None or call.made.first_at is None or not _is_overtaken(call):
        return None
    return (call.made.first_at - seen.arrived_at) * 1000


def _waited_ms(call: Called) -> float:
    """Return how long the client waited for its first token, or without one until it was told of a failure or left."""
    made = call.made
    return ((made.ended_at if made.first_at is None else made.first_at) - made.sent_at) * 1000


def _is_clear(call: Called) -> bool:
    """Return whether the client saw the first token, and no difference between two clocks decides if it was in time."""
    deadline_ms = call.made.job.deadline_ms
    return deadline_ms is None or (call.made.job.scenario.streamed and abs(_waited_ms(call) - deadline_ms) > _CLOCKS_MS)


def _deadline_met(call: Called) -> bool | None:
    deadline_ms, made = call.made.job.deadline_ms, call.made
    if deadline_ms is None:
        return None
    in_time = _waited_ms(call) <= deadline_ms
    if made.first_at is None and left(call):
        return None if in_time else False
    return made.first_at is not None and in_time


_CLOCKS_MS = 50.0  # what a client may read later than the gateway


CALLS: Mapping[str, Sequence[Rule]] = {
    "id": [same(lambda call: call.made.id, only=lambda call: call.made.id is not None)],
    "started_at": [near(lambda call: call.made.sent.timestamp() * 1000, share=0)],
    "client": [same(lambda call: call.made.job.client)],
    "model": [same(lambda call: call.made.job.scenario.model)],
    "endpoint": [same(api)],
    "api": [same(api)],
    "streamed": [same(lambda call: call.made.job.scenario.streamed)],
    "mode": [same(mode_of)],
    "objective": [same(_objective)],
    "prompt_class": [same(lambda _: 0)],
    "size_class": [same(lambda _: 0)],
    "win_on": [same(win_on)],
    "launched": [
        same(lambda call: len(call.asked.keys() | {one.persona.name for one in call.attempts if not one.row["sends"]}))
    ],
    "winner_attempt_id": [
        same(lambda call: None if _left_early(call) or call.winner is None else call.winner.row["id"])
    ],
    "status_code": [same(lambda call: call.made.status)],
    "error_kind": [same(_error_of_call)],
    "ttft_ms": [near(_since_sent_ms(lambda made: made.first_at))],
    "total_ms": [near(_since_sent_ms(lambda made: made.ended_at))],
    "overhead_ms": [at_most(_outside_ms, only=_of_winner(lambda seen: seen.first_at is not None))],
    **{
        column: [same(_winners(usage(column)), only=_is_whole)]
        for column in ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens", "cache_write_tokens")
    },
    "tokens_source": [same(lambda call: "reported" if _is_whole(call) else "estimated")],
    "finish_reason": [same(_of_winner(lambda seen: seen.finish_reason))],
    "max_tokens": [same(lambda _: MAX_TOKENS)],
    "temperature": [same(lambda call: TEMPERATURE if call.made.job.number % 2 else None)],
    "tools": [same(lambda call: 1 if asks_tools(call.made.job) else None)],
    "tool_calls": [same(lambda call: _of_winner(lambda seen: tool_calls(kind(call), seen))(call))],
    "tool_calls_valid": [same(lambda call: _of_winner(lambda seen: valid(kind(call), seen))(call))],
    "is_empty": [same(lambda call: _of_winner(lambda _: kind(call) == "empty")(call))],
    "is_truncated": [same(lambda call: _of_winner(lambda _: kind(call) in {"cut", "truncated"})(call))],
    "dropped": [same(lambda call: ["seed"] if call.made.job.scenario.name == "narrow" else None)],
    "tags": [same(lambda call: dict(call.made.job.tags))],
    "profile": [same(lambda _: None)],  # none is configured here
    "replica": [same(lambda _: REPLICA)],
    "region": [same(lambda _: REGION)],
    "request_id": [same(lambda call: str(call.made.job.number))],
    "answered_model": [same(lambda call: "pool" if call.made.job.scenario.name == "fallback" else None)],
    "takeover": [same(lambda _: None)],  # off in this fleet's gateway, as are win_on sentence and valid
    "takeovers": [same(lambda _: None)],
    "first_was_invalid": [same(lambda _: None)],
    # No stream asks for it; whole answers may be held.
    **{name: [same(lambda _: None, only=_streams)] for name in ("held_ms", "held_for", "held_gain_ms")},
    "cache_saved_usd": [
        same(_winners(saved), only=lambda call: _is_one_answer(call) and call.winner.persona.cached_usd)
    ],
    "cost_usd": [same(lambda call: bill(call.attempts), only=_is_one_answer), _sums("cost_usd", _all)],
    "cost_low_usd": [_within("low", _all), _sums("cost_low_usd", _all)],
    "cost_high_usd": [_within("high", _all), _sums("cost_high_usd", _all)],
    "duplicate_cost_usd": [_sums("cost_usd", losers)],
    "duplicate_cost_low_usd": [_within("low", losers), _sums("cost_low_usd", losers)],
    "duplicate_cost_high_usd": [_within("high", losers), _sums("cost_high_usd", losers)],
    "abandoned_cost_low_usd": [_within("low", _gone), _sums("cost_low_usd", _gone)],
    "abandoned_cost_high_usd": [_within("high", _gone), _sums("cost_high_usd", _gone)],
    "alone_ms": [near(_alone_ms, only=lambda call: mode_of(call) == "race", off=0.05)],
    "alone_predicted_ms": [near(_predicted_ms, only=lambda call: mode_of(call) == "race", ms=0.1)],
    "deadline_ms": [same(lambda call: call.made.job.deadline_ms)],
    "deadline_met": [same(_deadline_met, only=_is_clear, off=0.01)],
    "alone_age_ms": [near(_age_ms, only=lambda call: mode_of(call) == "race", off=0.05)],
}
