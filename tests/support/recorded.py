"""Calls as the gateway records them: two attempts each, one that won and one that was cut, with the usual fields."""

from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random

from gateway.core.attempts import AttemptRecord, AttemptStart, Outcome, Role, TokensSource
from gateway.core.calls import CallRecord, CallStart, Mode, Objective
from gateway.core.ids import new_id
from gateway.core.prompt_classes import answer_class
from gateway.steering import Steering

MODEL = "llama-70b"
SHORT = answer_class(0)
Race = tuple[CallStart, CallRecord]


def deployments(number: int) -> list[str]:
    return [f"provider-{at}/llama-3.3-70b-versatile" for at in range(number)]


def races(number: int, random: Random, names: list[str]) -> Iterator[tuple[CallStart, CallRecord]]:
    """Races of two, each with ids of its own: how it began and how it ended."""
    for _ in range(number):
        yield race(random, names)


def race(random: Random, names: list[str]) -> tuple[CallStart, CallRecord]:
    call_id, now = new_id(), datetime.now(UTC)
    first, second = random.sample(names, 2)
    ttft_ms, tokens = round(random.lognormvariate(5.9, 0.5), 3), random.randint(20, 500)
    last_ms = round(ttft_ms + tokens * 12.5, 3)
    winner = AttemptRecord(
        id=new_id(), call_id=call_id, number=1, started_at=now, role=Role.PRIMARY, provider=first.partition("/")[0],
        deployment=first, launch_offset_ms=0.11, outcome=Outcome.WON, headers_ms=ttft_ms - 1.5,
        first_event_ms=ttft_ms - 1.25, ttft_ms=ttft_ms, ttft_answer_ms=ttft_ms, last_token_ms=last_ms, status_code=200,
        prompt_tokens=812, completion_tokens=tokens, cached_tokens=0, tokens_source=TokensSource.REPORTED,
        decode_tps=79.998, e2e_tps=61.203, itl_p50_ms=12.41, itl_p95_ms=19.077, itl_max_ms=48.206, cost_usd=0.000713,
    )  # fmt: skip
    loser = AttemptRecord(
        id=new_id(), call_id=call_id, number=2, started_at=now, role=Role.RACE, provider=second.partition("/")[0],
        deployment=second, launch_offset_ms=0.23, outcome=Outcome.LOST, connect_ms=31.25, censored_at_ms=ttft_ms,
        cost_usd=0.000471, cost_is_lower_bound=True,
    )  # fmt: skip
    starts = tuple(
        AttemptStart(one.id, one.number, now, one.role, one.provider, one.deployment, one.launch_offset_ms)
        for one in (winner, loser)
    )
    start = CallStart(
        id=call_id, started_at=now, client="team-a", model=MODEL, endpoint="chat.completions", streamed=True,
        mode=Mode.AUTO, objective=Objective.FIRST_TOKEN, prompt_class=0, tags={"variant": "b"}, replica="gateway-1",
        region=None, attempts=starts,
    )  # fmt: skip
    record = CallRecord(
        id=call_id, started_at=now, client="team-a", model=MODEL, endpoint="chat.completions", streamed=True,
        mode=Mode.AUTO, objective=Objective.FIRST_TOKEN, prompt_class=0, tags={"variant": "b"}, replica="gateway-1",
        region=None, launched=2, winner_attempt_id=winner.id, status_code=200, error_kind=None,
        ttft_ms=round(ttft_ms + 0.11, 3), total_ms=last_ms, overhead_ms=0.31, prompt_tokens=812,
        completion_tokens=tokens, cached_tokens=0, cost_usd=0.001184, duplicate_cost_usd=0.000471,
        attempts=(winner, loser),
    )  # fmt: skip
    return start, record


def begun(steering: Steering, start: CallStart) -> None:
    """Have steering hear how a call begins."""
    steering.call_started(start)
    for attempt in start.attempts:
        steering.attempt_started(MODEL, attempt)


def ended(steering: Steering, start: CallStart, record: CallRecord) -> None:
    """Have steering hear how it ends."""
    for launched, attempt in zip(start.attempts, record.attempts, strict=True):
        if attempt.outcome is Outcome.WON and attempt.ttft_ms is not None:
            steering.first_token(MODEL, SHORT, launched, attempt.ttft_ms / 1000)
        steering.attempt_ended(MODEL, SHORT, attempt)
    steering.call_finished(record)
