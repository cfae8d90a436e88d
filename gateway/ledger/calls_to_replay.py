"""Calls and attempts of the ledger for a replay: a bounded sample of any number of rows.

Calls are drawn by the last digits of their ids, which are random. Audited calls are drawn apart, and more of them, as
the tail is known from audited calls. A call's weight is the number of calls that it stands for.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from gateway.core.attempts import Outcome
from gateway.core.rules import STEPS
from gateway.ledger import queries
from gateway.ledger.reports.reader import listed, words_of
from gateway.ledger.turns import read_instant
from gateway.replay import ReplayedCall, Try

MOST_CALLS = 50_000  # of a model; half of them may be audited
TIMEOUT_S = 600.0
_DIGITS = 4
_LEVELS = 16**_DIGITS
_OF_CALL = "id, started_at, status_code, ttft_ms, total_ms, prompt_tokens, completion_tokens"
# Where keys or forms were refused, the last attempt counts: an earlier one was no try of the deployment.
_OF_ATTEMPT = (
    "call_id, case when counts_as = 'primary' then 1 else number end, deployment, provider, coalesce(counts_as, role),"
    " launch_offset_ms, audited, outcome, token_ms, censored_at_ms,"
    " overtaken_at_ms, decode_tps, cost_usd, cost_low_usd, cost_high_usd, price, headers_ms"
)
_TRIED = f"coalesce(error_kind, '') not in {listed(STEPS)}"
# Calls that were raced, or could have been. Left out are invalid requests, APIs that are not raced, and calls that got
# fewer attempts than their settings ask for, such as by a limit in dollars (``narrowed``).
_PLAYABLE = (
    "launched > 0 and total_ms is not null and prompt_class < 10 and answered_model is null"
    " and status_code not in (400, 401, 403, 404, 413, 422)"
    " and (narrowed is null or narrowed = 'no_rival_worth_it')"
)


async def models(url: str, since: datetime) -> dict[str, int]:
    """Return the models called since ``since`` with the number of calls, the busiest first.

    Raises:
        LedgerError: as for ``queries.run``.

    """
    words = words_of(url)
    result = await queries.run(
        url,
        f"select model, count(*) from calls where started_at >= {words.instant(since)} and {_PLAYABLE}"  # noqa: S608
        " group by model order by count(*) desc, model",
        timeout_s=TIMEOUT_S,
    )
    return {str(model): int(count) for model, count in result.rows}


async def raced_calls(
    url: str,
    model: str,
    since: datetime,
    *,
    count: int,
    most: int = MOST_CALLS,
    progress: Callable[[int], None] = lambda _: None,
) -> list[ReplayedCall]:
    """Return a sample of a model's ``count`` calls; ``progress`` is called with the number of rows read so far.

    Raises:
        LedgerError: as for ``queries.run``.

    """
    words = words_of(url)
    begun = words.instant(since)
    of_model = f"started_at >= {begun} and (model = {words.text(model)} or model is null)"
    drawn = f"select call_id from attempts where {of_model} and number = 1 and audited"  # noqa: S608 - quoted
    usual = audited = _LEVELS
    if count > most:
        result = await queries.run(
            url,
            f"select count(*) from attempts where {of_model} and number = 1 and audited",  # noqa: S608 - quoted
            timeout_s=TIMEOUT_S,
        )
        n_audited = int(result.rows[0][0])
        audited = min(_LEVELS, max(1, _LEVELS * (most // 2) // max(1, n_audited)))
        usual = min(audited, max(1, _LEVELS * (most - min(n_audited, most // 2)) // max(1, count - n_audited)))

    def chosen(column: str) -> str:
        if usual == _LEVELS:
            return "true"
        digits = f"right({column}::text, {_DIGITS})" if words.is_postgres else f"substr({column}, -{_DIGITS})"
        few, many = (f"{digits} < '{level:04x}'" if level < _LEVELS else "true" for level in (usual, audited))
        return f"({few} or ({many} and {column} in ({drawn})))"

    calls: dict[str, ReplayedCall] = {}
    rows = 0
    sql = f"select {_OF_CALL} from calls where started_at >= {begun} and model = {words.text(model)} and {_PLAYABLE} and {chosen('id')}"  # noqa: S608,E501 - quoted
    async with queries.asked(url, sql, timeout_s=TIMEOUT_S) as answer:
        async for batch in answer.batches:
            for row in batch:
                calls[str(row[0])] = _call(row)
            rows += len(batch)
            progress(rows)
    tries: dict[str, list[tuple[int, Try, float | None]]] = {}
    sql = f"select {_OF_ATTEMPT} from attempts where {of_model} and {_TRIED} and {chosen('call_id')}"  # noqa: S608 - quoted
    async with queries.asked(url, sql, timeout_s=TIMEOUT_S) as answer:
        async for batch in answer.batches:
            for row in batch:
                if (call_id := str(row[0])) in calls:
                    tries.setdefault(call_id, []).append((row[1], _try(row), row[16]))
            rows += len(batch)
            progress(rows)
    return [
        _whole(calls[call_id], those, _LEVELS / audited, _LEVELS / usual) for call_id, those in sorted(tries.items())
    ]


def _whole(
    call: ReplayedCall, those: list[tuple[int, Try, float | None]], if_audited: float, otherwise: float
) -> ReplayedCall:
    those.sort(key=lambda each: each[0])
    attempts = [each for _, each, _ in those]
    for place, (_, each, headers_ms) in enumerate(those):
        if each.failed:
            later = [other.offset_ms for other in attempts[place + 1 :] if other.role == "failover"]
            later = [offset for offset in later if offset >= each.offset_ms]
            each.failed_ms = min(later) - each.offset_ms if later else headers_ms or 0.0
    call.tries = attempts
    call.weight = if_audited if those[0][0] == 1 and attempts[0].audited else otherwise
    return call


def _call(row: tuple[Any, ...]) -> ReplayedCall:
    at = read_instant(row[1])
    return ReplayedCall(at.timestamp(), (), row[3], row[4], row[5], row[6], left=row[2] == 499 and row[3] is None)  # noqa: PLR2004


def _try(row: tuple[Any, ...]) -> Try:
    outcome, token_ms = row[7], row[8]
    return Try(
        row[2],
        row[3],
        row[4],
        row[5],
        audited=bool(row[6]),
        token_ms=token_ms,
        cut_ms=row[9],
        overtaken_ms=row[10],
        failed=Outcome(outcome).failed and token_ms is None,
        won=outcome == "won",
        decode_tps=row[11],
        cost_usd=row[12],
        cost_low_usd=row[13],
        cost_high_usd=row[14],
        price=_price(row[15]),
    )


def _price(stored: object) -> tuple[float, float] | None:
    price = msgspec.json.decode(stored) if isinstance(stored, str) else stored
    if not isinstance(price, Mapping) or "input" not in price or "output" not in price:
        return None
    return float(price["input"]), float(price["output"])
