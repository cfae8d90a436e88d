"""Each column of ``calls`` and ``attempts``, and what it must be by what clients and providers saw."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from benchmarks.truth.course import MAX_TOKENS, REGION, REPLICA, TEMPERATURE, Made, asks_tools, key_of, prices
from benchmarks.truth.facts import (
    OK,
    Attempt,
    Called,
    Facts,
    api,
    bill,
    flaw,
    kind,
    left,
    mode_of,
    saved,
    tool_calls,
    usage,
    valid,
    win_on,
)
from benchmarks.truth.fleet import SAID, VERSION, Seen, fingerprint
from benchmarks.truth.rules import NEAR_MS, Figure, One, Rule, Truth, at_most, bound, mean, near, same, speed
from gateway.core.rules import BROKEN, has_failed

SLOW_S = 5.0  # for which a stream must be slow
ON_THE_WAY = 32  # tokens, beside twice those received, of a provider that stops when it is hung up on
TOO_MANY = 2  # times as many as there are, at most, by a count of characters


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
    "profile": [same(lambda _: None)],
    "replica": [same(lambda _: REPLICA)],
    "region": [same(lambda _: REGION)],
    "request_id": [same(lambda call: str(call.made.job.number))],
    "answered_model": [same(lambda call: "pool" if call.made.job.scenario.name == "fallback" else None)],
    "extras": [
        same(lambda call: sum(bool(one.row["is_extra"]) for one in call.attempts)),
        same(lambda _: 0, only=lambda call: call.row["launched"] == 1, name=", of one attempt"),
    ],
    "width_asked": [same(lambda call: 2 if mode_of(call) == "race" else 1)],
    "failed": [same(lambda one: has_failed(one.row["status_code"], one.row["error_kind"]))],
    "narrowed": [same(lambda _: None, off=0.05)],  # of races, whose budget may be used up for a moment
    "takeover": [same(lambda _: None)],  # calls that have one, and other modes: figures.py, modes.py
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


def _arrived(one: Attempt) -> bool:
    return one.seen is not None


def _age(instant: Callable[[Seen], float | None]) -> Truth:
    """Return how long after a request came something happened, milliseconds; None where it did not."""

    def of(one: Attempt) -> float | None:
        assert one.seen is not None
        at = instant(one.seen)
        return None if at is None or at > one.seen.ended_at else (at - one.seen.arrived_at) * 1000

    return of


def _has_won(one: Attempt) -> bool:
    return one.persona.name == one.made.provider and not left(one)


def _can_be_judged(one: Attempt) -> bool:
    """Tell whether it is an answer that can be judged; whether its client's limit cut it is another matter."""
    return one.seen is not None and _has_won(one) and one.seen.status == OK and kind(one) not in {"cut", "truncated"}


def _has_told(one: Attempt) -> bool:
    return one.seen is not None and one.seen.is_told


def _answered(one: Attempt) -> bool:
    """Return whether an attempt won, and its provider has told its end."""
    return _has_told(one) and _has_won(one)


def _outcome(one: Attempt) -> str:
    assert one.seen is not None
    if left(one):
        return "client_gone"
    if one.seen.status != OK or kind(one) == "truncated":
        return "failed"
    if _has_won(one):
        return "won"
    if one.seen.first_at is None:
        return "lost"
    # Cut while its first token was on the way: which of the two came first, the gateway's clock decides.
    is_close = not one.row["audited"] and one.seen.ended_at - one.seen.first_at < NEAR_MS / 1000
    return "lost" if is_close and one.row["outcome"] == "lost" else "superseded"


def _role(one: Attempt) -> set[str]:
    if one.row["number"] == 1 or one.made.job.scenario.name == "fallback":
        return {"primary"}
    return {
        "race": {"race", "explore", "probe"},
        "thoughtful": {"race", "explore", "probe"},
        "hedged": {"hedge", "explore", "probe"},
    }.get(one.made.job.scenario.model, {"failover"})


def _one_of(truth: Callable[[Any], set[str]]) -> Rule:
    return same(lambda one: one.row["role"] if one.row["role"] in truth(one) else truth(one))


def _gaps_ms(one: Attempt, share: float) -> float | None:
    writes = one.seen.writes if one.seen is not None else []
    gaps = sorted((after - before) * 1000 for before, after in itertools.pairwise(writes))
    return gaps[round((len(gaps) - 1) * share)] if gaps else None


def _counts(one: Attempt) -> dict[str, int]:
    """Return the gaps as they were written: whole answers whose counted gaps are as many, and about as long."""
    counted: dict[str, int] = one.row["itl"] or {}
    assert one.seen is not None
    return counted if sum(counted.values()) == len(one.seen.writes) - 1 else {"all": len(one.seen.writes) - 1}


def _tps(one: Attempt) -> float:
    """Return the speed at which a provider wrote, after its first chunk."""
    assert one.seen is not None
    writes, persona = one.seen.writes, one.persona
    return (one.seen.draw.tokens - persona.per_chunk) / (writes[-1] - writes[0])


def _e2e_tps(one: Attempt) -> float:
    assert one.seen is not None
    return one.seen.draw.tokens / (one.seen.writes[-1] - one.seen.arrived_at)


def _is_stream(one: Attempt) -> bool:
    """Return whether an attempt is an honest answer streamed to its end."""
    whole = _has_told(one) and one.made.job.scenario.streamed and one.persona.overstates == 1
    return whole and _has_won(one) and kind(one) == "text"


def _chunky(one: Attempt) -> bool:
    return _is_stream(one) and one.persona.per_chunk in {8, 32}


def _side(side: str) -> Rule:
    return bound(side, lambda one: bill([one]), only=lambda one: _arrived(one) and one.persona.overstates == 1)


def _has_lost(one: Attempt) -> bool:
    return _arrived(one) and one.row["outcome"] in {"lost", "superseded"} and one.persona.overstates == 1


def _generated(one: Attempt) -> int:
    """Return the tokens of its answer, sent or not."""
    return sum(seen.draw.tokens if one.persona.bills_on and seen.is_cut else seen.sent for seen in one.requests)


def _most_generated(one: Attempt) -> int:
    """Return how many tokens a loser can have generated: all that it may, or those on the way when it was cut."""
    may_go_on = one.persona.bills_on or one.persona.thinks
    return MAX_TOKENS if may_go_on else 2 * TOO_MANY * sum(seen.sent for seen in one.requests) + ON_THE_WAY


def _crawls(one: Attempt) -> bool:
    return kind(one) == "crawl"


def _slow_since_ms(one: Attempt) -> float | None:
    """Return the age at which a stream had nearly stopped for as long as that takes to be told."""
    first_ms: float | None = _age(lambda seen: seen.first_at)(one)
    return None if first_ms is None else first_ms + SLOW_S * 1000


def _is_billed(one: Attempt) -> bool:
    return _answered(one) and one.persona.overstates == 1 and len(one.requests) == 1


def _is_least(one: Attempt) -> bool:
    """Return whether the figure of a cut one is the least of its bounds, and its vendor may have billed more."""
    row = one.row
    known = row["cost_usd"] is not None and row["cost_low_usd"] is not None and row["cost_high_usd"] is not None
    is_cut = row["outcome"] in {"lost", "superseded", "client_gone"}
    stops = is_cut and not one.persona.bills_on
    return (
        known
        and row["outcome"] != "won"
        and not stops
        and row["cost_usd"] <= row["cost_low_usd"] < row["cost_high_usd"]
    )


def _key_name(one: Attempt) -> str | None:
    assert one.seen is not None
    return next((name for name in one.persona.keys if key_of(name, one.persona) == one.seen.key), None)


def _error(one: Attempt) -> str | None:
    assert one.seen is not None
    return {500: "server_error", 429: "rate_limited"}.get(
        one.seen.status, "disconnected" if kind(one) == "truncated" else None
    )


def _place(one: Attempt) -> int:
    """Return the place of a request among those of its call, by when it came."""
    return 1 if one.row["number"] == 1 else 2


def _ran_on(one: Attempt) -> bool:
    """Return whether a loser ran on for long after its client had its first token."""
    late_s = 0.1
    return (
        not _has_won(one)
        and mode_of(one) == "race"
        and one.seen is not None
        and one.made.first_at is not None
        and one.seen.ended_at > one.made.first_at + late_s
    )


def _model(one: Attempt) -> str:
    fell_back = one.made.job.scenario.name == "fallback" and one.persona.name != "broken"
    return "pool" if fell_back else one.made.job.scenario.model


def _token_ms(one: Attempt) -> float | None:
    is_answer = win_on(one) == "answer"
    found: float | None = _age(lambda seen: seen.answer_at if is_answer else seen.first_at)(one)
    return found


def _censored_ms(one: Attempt) -> float | None:
    assert one.seen is not None
    cut = one.seen.status == OK and one.seen.is_cut and _token_ms(one) is None
    return (one.seen.ended_at - one.seen.arrived_at) * 1000 if cut else None


def _was_overtaken(one: Attempt) -> bool:
    token_ms = _token_ms(one)
    if _has_won(one) or left(one) or one.seen is None or one.seen.status != OK or one.made.first_at is None:
        return False
    return token_ms is None or one.seen.arrived_at + token_ms / 1000 > one.made.first_at


def _overtaken_ms(one: Attempt) -> float | None:
    if not _was_overtaken(one) or one.seen is None or one.made.first_at is None:
        return None
    return (one.made.first_at - one.seen.arrived_at) * 1000


ATTEMPTS: Mapping[str, Sequence[Rule]] = {
    "id": [same(lambda one: one.row["id"] if len(one.row["id"]) == 36 else "a UUID")],
    "call_id": [same(lambda one: one.made.id, only=lambda one: one.made.id is not None)],
    "number": [same(_place, only=_arrived, off=0.02)],
    "started_at": [near(lambda one: one.seen.arrived.timestamp() * 1000, only=_arrived, share=0)],
    "role": [_one_of(_role)],
    "audited": [same(lambda _: True, only=lambda one: _arrived(one) and _ran_on(one), off=0.05)],
    "provider": [same(lambda one: one.seen.name, only=_arrived)],
    "deployment": [same(lambda one: f"{one.persona.name}/m")],
    "model": [same(_model)],
    "client": [same(lambda one: one.made.job.client)],
    "api": [same(api)],
    "size_class": [same(lambda _: 0)],
    "win_on": [same(win_on)],
    "launch_offset_ms": [
        near(
            lambda one: (one.seen.arrived_at - one.made.sent_at) * 1000,
            only=lambda one: _arrived(one) and one.row["role"] == "hedge",
        )
    ],
    "connect_ms": [
        same(lambda _: None, only=lambda one: _arrived(one) and not one.seen.is_first and len(one.requests) == 1),
        at_most(
            lambda one: one.row["headers_ms"] or 1000,
            only=lambda one: _arrived(one) and one.row["connect_ms"] is not None,
        ),
    ],
    "headers_ms": [near(_age(lambda seen: seen.headers_at), only=_arrived)],
    "first_event_ms": [near(_age(lambda seen: seen.event_at), only=_arrived)],
    "ttft_ms": [near(_age(lambda seen: seen.first_at), only=_arrived)],
    "ttft_answer_ms": [near(_age(lambda seen: seen.answer_at), only=_arrived)],
    "token_ms": [near(_token_ms, only=_arrived)],
    "last_token_ms": [near(_age(lambda seen: seen.writes[-1] if seen.writes else None), only=_arrived)],
    "outcome": [same(_outcome, only=_arrived, off=0.02)],
    "censored_at_ms": [near(_censored_ms, only=_arrived)],
    "status_code": [same(lambda one: one.seen.status if one.seen.headers_at else None, only=_arrived, off=0.02)],
    "error_kind": [same(_error, only=_arrived)],
    "error_message": [
        same(lambda _: SAID, only=lambda one: _arrived(one) and one.seen.status in {500, 429}),
        same(lambda _: None, only=lambda one: _arrived(one) and _error(one) is None),
    ],
    **{
        column: [same(usage(column), only=_answered)]
        for column in ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens", "cache_write_tokens")
    },
    "tokens_source": [same(lambda _: "reported", only=_answered)],
    "reported_tokens": [same(lambda _: None)],
    "decode_tps": [speed(_tps, only=_is_stream)],
    "e2e_tps": [speed(_e2e_tps, only=_is_stream)],
    "itl_p50_ms": [near(lambda one: _gaps_ms(one, 0.5), only=_chunky, ms=0.5)],
    "itl_p95_ms": [near(lambda one: _gaps_ms(one, 0.95), only=_chunky, ms=1)],
    "sentence_ms": [same(lambda _: None)],
    "speech_pause_ms": [same(lambda _: None)],
    "continues": [same(lambda _: None)],
    "replaces": [same(lambda _: None)],  # no persona has several keys
    "counts_as": [same(lambda _: None)],
    "is_extra": [
        same(lambda _: False, only=lambda one: one.row["number"] == 1),
        same(lambda _: True, only=lambda one: one.row["role"] == "race", off=0.02, name=", of racers"),
    ],
    "valid_ms": [same(lambda _: None)],
    "would_take_over": [
        same(lambda _: True, only=_crawls),
        same(lambda _: False, only=lambda one: one.row["would_take_over"] is not None, off=0.05, name=", of all"),
    ],
    "would_take_over_ms": [
        near(_slow_since_ms, only=_crawls),
        same(lambda _: None, only=lambda one: not _crawls(one), off=0.05),
    ],
    "is_kept": [same(lambda _: None)],
    "itl_max_ms": [near(lambda one: _gaps_ms(one, 1.0), only=_chunky, ms=1)],
    "text_gap_max_ms": [
        near(lambda one: _gaps_ms(one, 1.0), only=lambda one: _chunky(one) and not asks_tools(one.made.job), ms=1)
    ],
    "itl": [same(_counts, only=_is_stream)],
    "cost_usd": [same(lambda one: bill([one]), only=_is_billed)],
    "cost_low_usd": [same(lambda one: bill([one]), only=_is_billed, name=" of an answer"), _side("low")],
    "cost_high_usd": [same(lambda one: bill([one]), only=_is_billed, name=" of an answer"), _side("high")],
    "cost_is_lower_bound": [same(_is_least)],
    "wasted_low_tokens": [bound("low", _generated, only=_has_lost)],
    "wasted_high_tokens": [bound("high", _generated, only=_has_lost), at_most(_most_generated, only=_has_lost)],
    "cache_saved_usd": [same(saved, only=lambda one: _is_billed(one) and one.persona.cached_usd is not None)],
    "chars": [same(lambda one: sum(one.seen.chars), only=_is_stream)],
    "chunks": [same(lambda one: len(one.seen.writes), only=_is_stream)],
    "first_chars": [same(lambda one: one.seen.chars[0], only=_is_stream, off=0.02)],
    "finish_reason": [same(lambda one: one.seen.finish_reason, only=_arrived, off=0.001)],
    "tool_calls": [same(lambda one: tool_calls(kind(one), one.seen), only=_arrived, off=0.001)],
    "tool_calls_valid": [same(lambda one: valid(kind(one), one.seen), only=_arrived)],
    "judged_as": [
        same(lambda one: "tools" if asks_tools(one.made.job) else "plain", only=_can_be_judged),
        same(lambda _: None, only=lambda one: _arrived(one) and not _has_won(one), name=", of others"),
    ],
    "flaw": [same(lambda one: flaw(kind(one), one.seen), only=_can_be_judged)],
    "key_name": [same(_key_name, only=_arrived)],
    "model_version": [same(lambda _: VERSION, only=_has_told)],
    "system_fingerprint": [
        same(lambda one: None if api(one) == "messages" else fingerprint(one.persona), only=_answered)
    ],
    "provider_request_id": [same(lambda one: one.seen.id if one.seen.headers_at else None, only=_arrived, off=0.02)],
    "in_flight": [mean(lambda one: one.seen.in_flight, 0.5, only=_arrived)],
    "sends": [same(lambda one: len(one.requests), only=_arrived)],
    "is_overtaken": [same(_was_overtaken, only=_arrived, off=0.02)],
    "overtaken_at_ms": [near(_overtaken_ms, only=_arrived)],
    "predicted_ms": [
        at_most(lambda _: 60_000.0, only=lambda one: one.row["is_overtaken"] and one.row["number"] == 1, off=0.2)
    ],
    "price": [same(lambda one: prices(one.persona))],
    "failed": [same(lambda one: one.row["outcome"] in BROKEN)],
    # Calls that have any: units.py.
    **{name: [same(lambda _: None)] for name in ("tier_asked", "tier_served", "units_cost_usd", "units")},
    "thoughts_dropped": [same(lambda _: None)],  # no persona drops any: tests/app/vendors
}


RULES: Mapping[str, Mapping[str, Sequence[Rule]]] = {"calls": CALLS, "attempts": ATTEMPTS}


def columns(facts: Facts, only: str | None = None) -> Iterator[Figure]:
    """Compare all columns, or one: ``calls.ttft_ms``."""
    for table, rows in (("calls", facts.calls), ("attempts", facts.attempts)):
        for column, rules in RULES[table].items():
            for rule in rules if only in {None, f"{table}.{column}"} else ():
                for figure in rule(column, rows):
                    yield msgspec.structs.replace(figure, name=f"{table}.{figure.name}")
