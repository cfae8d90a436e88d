"""Calls and attempts as the race would report them, and refusals, for tests."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.core.attempts import AttemptRecord, AttemptStart, Outcome, Role, TokensSource
from gateway.core.calls import CallRecord, CallStart, Mode, Objective
from gateway.core.records import RefusalRecord

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def new_id() -> str:
    return str(uuid.uuid4())


def attempt(call_id: str, number: int = 1, **facts: Any) -> AttemptRecord:
    known: dict[str, Any] = {
        "id": new_id(),
        "call_id": call_id,
        "number": number,
        "started_at": NOON,
        "role": Role.PRIMARY if number == 1 else Role.RACE,
        "provider": "groq",
        "deployment": "groq/llama",
        "launch_offset_ms": 0.0,
        "outcome": Outcome.WON,
    }
    return AttemptRecord(**(known | facts))


def won(call_id: str, number: int = 1, **facts: Any) -> AttemptRecord:
    known = {"ttft_ms": 200.0, "decode_tps": 60.0, "e2e_tps": 50.0, "tokens_source": TokensSource.REPORTED}
    return attempt(call_id, number, **(known | facts))


def lost(call_id: str, number: int = 2, **facts: Any) -> AttemptRecord:
    return attempt(call_id, number, **({"outcome": Outcome.LOST, "censored_at_ms": 200.0} | facts))


def failed(call_id: str, number: int = 1, **facts: Any) -> AttemptRecord:
    known = {"outcome": Outcome.FAILED, "error_kind": "server_error", "status_code": 503}
    return attempt(call_id, number, **(known | facts))


def call(*attempts: AttemptRecord, **facts: Any) -> CallRecord:
    """A finished call; its id is its attempts' unless given, the winner is the attempt that won."""
    winner = next((one for one in attempts if one.outcome is Outcome.WON), None)
    known: dict[str, Any] = {
        "id": attempts[0].call_id if attempts else new_id(),
        "started_at": NOON,
        "client": "tests",
        "model": "llama",
        "endpoint": "chat.completions",
        "streamed": True,
        "mode": Mode.AUTO,
        "objective": Objective.FIRST_TOKEN,
        "prompt_class": 0,
        "tags": {"variant": "b"},
        "replica": "r1",
        "region": None,
        "launched": len(attempts),
        "winner_attempt_id": winner.id if winner else None,
        "status_code": 200 if winner else 502,
        "error_kind": None if winner else "server_error",
        "ttft_ms": winner.launch_offset_ms + winner.ttft_ms if winner and winner.ttft_ms is not None else None,
        "total_ms": 900.0,
        "overhead_ms": 0.5,
        "attempts": attempts,
    }
    return CallRecord(**(known | facts))


def raced_call(**facts: Any) -> CallRecord:
    """A call of two attempts: the first won, the second was cut."""
    call_id = new_id()
    return call(won(call_id), lost(call_id, deployment="cerebras/llama", provider="cerebras"), **facts)


def start_of(record: CallRecord) -> CallStart:
    """How ``record`` looked when it began."""
    return CallStart(
        id=record.id,
        started_at=record.started_at,
        client=record.client,
        model=record.model,
        endpoint=record.endpoint,
        streamed=record.streamed,
        mode=record.mode,
        objective=record.objective,
        prompt_class=record.prompt_class,
        tags=record.tags,
        replica=record.replica,
        region=record.region,
        request_id=record.request_id,
        attempts=tuple(
            AttemptStart(
                one.id, one.number, one.started_at, one.role, one.provider, one.deployment, one.launch_offset_ms
            )
            for one in record.attempts
        ),
    )


def refusal(**facts: Any) -> RefusalRecord:
    """A wrong key, tried once by somebody at noon."""
    known: dict[str, Any] = {
        "id": new_id(),
        "started_at": NOON,
        "status_code": 401,
        "reason": "invalid_api_key",
        "client": None,
        "address": "192.0.2.1",
        "n": 1,
        "replica": "r1",
    }
    return RefusalRecord(**(known | facts))


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)
