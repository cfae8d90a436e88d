"""Each column of ``attempts``: what it must be."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.truth.course import asks_tools, key_of, prices
from benchmarks.truth.facts import Attempt
from benchmarks.truth.fleet import SAID, VERSION, Seen
from benchmarks.truth.rules import NEAR_MS, Rule, Truth, at_most, bound, mean, near, same, speed
from benchmarks.truth.truths import OK, api, bill, flaw, kind, left, mode_of, saved, tool_calls, usage, valid, win_on


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


def _is_whole(one: Attempt) -> bool:
    """Tell whether it is an answer that can be judged; whether its client's limit cut it is another matter."""
    return one.seen is not None and _has_won(one) and one.seen.status == OK and kind(one) not in {"cut", "truncated"}


def _has_told(one: Attempt) -> bool:
    return one.seen is not None and one.seen.is_told


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


def _is_billed(one: Attempt) -> bool:
    return _has_told(one) and _has_won(one) and one.persona.overstates == 1 and len(one.requests) == 1


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
        same(
            lambda _: SAID,
            only=lambda one: _arrived(one) and one.seen.status in {500, 429},
        ),
        same(lambda _: None, only=lambda one: _arrived(one) and _error(one) is None),
    ],
    **{
        column: [same(usage(column), only=lambda one: _has_told(one) and _has_won(one))]
        for column in ("prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens", "cache_write_tokens")
    },
    "tokens_source": [same(lambda _: "reported", only=lambda one: _has_told(one) and _has_won(one))],
    "reported_tokens": [same(lambda _: None)],
    "decode_tps": [speed(_tps, only=_is_stream)],
    "e2e_tps": [speed(_e2e_tps, only=_is_stream)],
    "itl_p50_ms": [near(lambda one: _gaps_ms(one, 0.5), only=_chunky, ms=0.5)],
    "itl_p95_ms": [near(lambda one: _gaps_ms(one, 0.95), only=_chunky, ms=1)],
    "sentence_ms": [same(lambda _: None)],
    "speech_pause_ms": [same(lambda _: None)],
    "continues": [same(lambda _: None)],
    "valid_ms": [same(lambda _: None)],
    "would_take_over": [same(lambda _: False, only=lambda one: one.row["would_take_over"] is not None, off=0.05)],
    "would_take_over_ms": [same(lambda _: None, off=0.05)],
    "is_kept": [same(lambda _: None)],
    "itl_max_ms": [near(lambda one: _gaps_ms(one, 1.0), only=_chunky, ms=1)],
    "itl": [same(_counts, only=_is_stream)],
    "cost_usd": [same(lambda one: bill([one]), only=_is_billed)],
    "cost_low_usd": [same(lambda one: bill([one]), only=_is_billed, name=" of an answer"), _side("low")],
    "cost_high_usd": [same(lambda one: bill([one]), only=_is_billed, name=" of an answer"), _side("high")],
    "cost_is_lower_bound": [same(_is_least)],
    "wasted_low_tokens": [bound("low", _generated, only=_has_lost)],
    "wasted_high_tokens": [bound("high", _generated, only=_has_lost)],
    "cache_saved_usd": [same(saved, only=lambda one: _is_billed(one) and one.persona.cached_usd is not None)],
    "chars": [same(lambda one: sum(one.seen.chars), only=_is_stream)],
    "chunks": [same(lambda one: len(one.seen.writes), only=_is_stream)],
    "first_chars": [same(lambda one: one.seen.chars[0], only=_is_stream, off=0.02)],
    "finish_reason": [same(lambda one: one.seen.finish_reason, only=_arrived, off=0.001)],
    "tool_calls": [same(lambda one: tool_calls(kind(one), one.seen), only=_arrived, off=0.001)],
    "tool_calls_valid": [same(lambda one: valid(kind(one), one.seen), only=_arrived)],
    "judged_as": [
        same(lambda one: "tools" if asks_tools(one.made.job) else "plain", only=_is_whole),
        same(lambda _: None, only=lambda one: _arrived(one) and not _has_won(one), name=", of others"),
    ],
    "flaw": [same(lambda one: flaw(kind(one), one.seen), only=_is_whole)],
    "key_name": [same(_key_name, only=_arrived)],
    "model_version": [same(lambda _: VERSION, only=_has_told)],
    "provider_request_id": [same(lambda one: one.seen.id if one.seen.headers_at else None, only=_arrived, off=0.02)],
    "in_flight": [mean(lambda one: one.seen.in_flight, 0.5, only=_arrived)],
    "sends": [same(lambda one: len(one.requests), only=_arrived)],
    "is_overtaken": [same(_was_overtaken, only=_arrived, off=0.02)],
    "overtaken_at_ms": [near(_overtaken_ms, only=_arrived)],
    "predicted_ms": [
        at_most(lambda _: 60_000.0, only=lambda one: one.row["is_overtaken"] and one.row["number"] == 1, off=0.2)
    ],
    "price": [same(lambda one: prices(one.persona))],
}
