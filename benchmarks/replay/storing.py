"""Puts a fleet's calls into a ledger, as the gateway would have."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks.replay.worlds import RATE_S
from gateway.core.attempts import AttemptRecord, Outcome, Role, TokensSource
from gateway.core.calls import CallRecord, Mode, Objective
from gateway.core.ids import new_id
from gateway.ledger import Ledger
from gateway.replay.rows import Call, Try

_BATCH = 1_000  # calls


async def store(url: str, spool: Path, calls: Sequence[Call], *, model: str, until: datetime) -> None:
    """Store ``calls`` as those of ``model``, the last of them at ``until``; the ledger has its tables."""
    ledger = Ledger(url, spool, "replay")
    for number, call in enumerate(calls, start=1):
        ledger.call_finished(_record(call, model, until - timedelta(seconds=RATE_S * (len(calls) - number))))
        if number % _BATCH == 0:
            await ledger.flush()
    await ledger.flush()
    await ledger.close()


def _record(call: Call, model: str, at: datetime) -> CallRecord:
    call_id = new_id()
    attempts = tuple(_attempt(each, call_id, number, model, at) for number, each in enumerate(call.tries, start=1))
    winner = next((each for each in attempts if each.outcome is Outcome.WON), None)
    return CallRecord(
        id=call_id,
        started_at=at,
        client=None,
        model=model,
        endpoint="chat.completions",
        streamed=True,
        mode=Mode.AUTO,
        objective=Objective.FIRST_TOKEN,
        prompt_class=0,
        tags={},
        replica="replay",
        region=None,
        launched=len(attempts),
        winner_attempt_id=None if winner is None else winner.id,
        status_code=200 if winner is not None else 502,
        error_kind=None if winner is not None else "all_providers_failed",
        ttft_ms=call.ttft_ms,
        total_ms=1_000.0 if call.total_ms is None else call.total_ms,
        overhead_ms=0.5,
        prompt_tokens=call.prompt_tokens,
        completion_tokens=call.answer_tokens,
        tokens_source=TokensSource.REPORTED,
        attempts=attempts,
    )


def _attempt(each: Try, call_id: str, number: int, model: str, at: datetime) -> AttemptRecord:
    outcome = Outcome.SUPERSEDED if each.token_ms is not None else Outcome.LOST
    if each.won:
        outcome = Outcome.WON
    elif each.failed:
        outcome = Outcome.FAILED
    return AttemptRecord(
        id=new_id(),
        call_id=call_id,
        number=number,
        started_at=at + timedelta(milliseconds=each.offset_ms),
        role=Role(each.role),
        provider=each.provider,
        deployment=each.deployment,
        model=model,
        launch_offset_ms=each.offset_ms,
        outcome=outcome,
        audited=each.audited,
        headers_ms=each.failed_ms,
        ttft_ms=each.token_ms,
        token_ms=each.token_ms,
        censored_at_ms=each.cut_ms,
        is_overtaken=each.overtaken_ms is not None,
        overtaken_at_ms=each.overtaken_ms,
        decode_tps=each.decode_tps,
        error_kind="server_error" if each.failed else None,
        cost_usd=6e-4 if each.won else 3e-4,
        cost_low_usd=6e-4 if each.won else 0.0,
        cost_high_usd=6e-4,
        price={"input": 0.6, "output": 0.9},  # 800 and 120 tokens: 0.0006 dollars
    )
