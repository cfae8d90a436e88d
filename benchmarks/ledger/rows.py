"""Made rows: races of two spread evenly over 60 days, with failures, losers that were cut, audits, clients and tags."""

import asyncio
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.core.attempts import AttemptRecord, Outcome, Role, TokensSource, WinOn
from gateway.core.calls import CallRecord, Mode, Objective
from gateway.core.ids import uuid7
from gateway.ledger import Finished, Retention, prune
from gateway.ledger.entries import Entry
from gateway.ledger.inserts import insert

DAYS = 60
SLICE = 50_000  # calls made in one statement; what is summed up of them is held in memory meanwhile
BATCH = 1000  # calls shipped at a time, as the gateway does
GAPS = {str(bucket): 12 for bucket in range(-4, 12)}  # 16 buckets: the gaps of a usual answer
PRICE = {"input": 0.5, "output": 1.5}

# As our own: they sort by time.
_ID = (
    "(lpad(to_hex((extract(epoch from {at}) * 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 3) "
    "|| '8' || substr(md5(random()::text), 1, 15))::uuid"
)
_CALLS = """
insert into calls (id, started_at, client, model, endpoint, api, size_class, streamed, mode, objective, prompt_class,
  launched, winner_attempt_id, status_code, error_kind, ttft_ms, total_ms, overhead_ms, prompt_tokens,
  completion_tokens, cost_usd, cost_low_usd, cost_high_usd, duplicate_cost_usd, tags, replica, win_on, request_id,
  alone_ms, alone_predicted_ms, alone_age_ms, tokens_source, finish_reason, is_empty, is_truncated)
select {id}, at, 'client-' || (i % 8),
  'model-' || (i % 5), 'chat.completions', 'chat.completions', i % 3, true, 'race', 'first_token', i % 3, 2,
  case when i % 50 > 0 then {id} end, case when i % 50 > 0 then 200 else 502 end,
  case when i % 50 = 0 then 'all_failed' end, case when i % 50 > 0 then 100 + 400 * random() end, 2000 * random(), 0.4,
  700, 200, 0.002, 0.0015, 0.003, 0.0005, jsonb_build_object('variant', chr(97 + i % 2)), 'r1', 'any', 'req-' || i,
  case when i % 2 = 0 then 300 end, case when i % 2 > 0 then 500 + 100 * random() end, case when i % 2 > 0 then 200 end,
  'reported', 'stop', false, false
from generate_series({first}, {last}) as i
cross join lateral (select now() - make_interval(secs => {seconds} * (1 - i / {number}.0)) as at) as times
"""
_ATTEMPTS = """
insert into attempts (id, call_id, number, started_at, role, audited, provider, deployment, launch_offset_ms, outcome,
  connect_ms, headers_ms, ttft_ms, token_ms, last_token_ms, censored_at_ms, status_code, error_kind, prompt_tokens,
  completion_tokens, tokens_source, decode_tps, e2e_tps, itl_p50_ms, itl_p95_ms, itl_max_ms, cost_usd, cost_low_usd,
  cost_high_usd, cost_is_lower_bound, model, client, api, size_class, win_on, chars, chunks, first_chars, is_overtaken,
  overtaken_at_ms, predicted_ms, price, itl, sends, in_flight)
select case when n = 1 and calls.winner_attempt_id is not null then calls.winner_attempt_id else {id} end,
  calls.id, n, calls.started_at, case when n = 1 then 'primary' else 'race' end, random() < 0.05,
  'provider-' || place, 'provider-' || place || '/m', 0.5,
  case when calls.winner_attempt_id is null then 'failed' when n = 1 then 'won' else 'lost' end,
  null, 50, case when n = 1 then calls.ttft_ms end, case when n = 1 then calls.ttft_ms end,
  case when n = 1 then calls.total_ms end, case when n = 2 then calls.ttft_ms end, 200,
  case when calls.winner_attempt_id is null then 'server_error' end, 700, case when n = 1 then 200 end,
  case when n = 1 then 'reported' else 'estimated' end, case when n = 1 then 60 + 60 * random() end, 50, 12, 20, 90,
  0.001, 0.0008, 0.002, n = 2, calls.model, calls.client, calls.api, calls.size_class, 'any', 800, 190, 4, n = 2,
  case when n = 2 then calls.ttft_ms end, case when n = 2 then 500 end, '{price}',
  case when n = 1 then '{gaps}'::json end, 1, 3
from calls
cross join lateral (
  select n, (hashtext(calls.id::text || n) & 1023) % 12 as place from generate_series(1, 2) as n
) as launched
where calls.request_id in (select 'req-' || i from generate_series({first}, {last}) as i)
"""


async def fill_postgres(url: str, engine: AsyncEngine, number: int, made: Callable[[int], None]) -> None:
    """Make ``number`` calls in SQL, in partitions as a gateway of that time would have made them."""
    connection: Any = await asyncpg.connect(url)
    await make_partitions(connection, engine, datetime.now(UTC))
    gaps = str(GAPS).replace("'", '"').replace(" ", "")
    price = str(PRICE).replace("'", '"').replace(" ", "")
    seconds = f"{DAYS * 86400.0}"
    for first in range(1, number + 1, SLICE):
        last = min(number, first + SLICE - 1)
        known = {"first": first, "last": last, "number": number, "seconds": seconds, "gaps": gaps, "price": price}
        await connection.execute(_CALLS.format(id=_ID.format(at="at"), **known))
        await connection.execute(_ATTEMPTS.format(id=_ID.format(at="calls.started_at"), **known))
        while await connection.fetchval("select taken from roll_up_fresh($1)", 4 * SLICE):  # a slice in one fold
            pass
        made(last - first + 1)
    await connection.execute("vacuum analyze")
    await connection.close()


async def make_partitions(connection: Any, engine: AsyncEngine, now: datetime) -> None:
    """Make the partitions of ``DAYS`` days."""
    for table in ("calls", "attempts"):  # without the first partition, which would have all of them
        await connection.execute(f"drop table {table}_first")
        begin = (now - timedelta(days=DAYS + 7)).replace(hour=0, minute=0, second=0, microsecond=0)
        await connection.execute(
            f"create table {table}_begin partition of {table} for values from (minvalue) to ('{begin.isoformat()}')"
        )
    for day in range(DAYS + 7, -1, -1):
        await prune(engine, Retention(), now - timedelta(days=day))


async def fill_by_shipping(engine: AsyncEngine, number: int, made: Callable[[int], None]) -> None:
    """Make ``number`` calls as the gateway ships them."""
    draw = random.Random(1)
    now = datetime.now(UTC)
    for first in range(0, number, BATCH):
        ages = (DAYS * 86400.0 * (1 - (first + at) / number) for at in range(min(BATCH, number - first)))
        await insert(engine, [call(draw, now - timedelta(seconds=age)) for age in ages])
        made(BATCH)


async def ship(engine: AsyncEngine, calls_a_second: int, taken_s: list[float]) -> None:
    """Ship so many calls each second, until cancelled; ``taken_s`` learns how long each second's took."""
    draw = random.Random(2)
    while True:
        due = time.monotonic() + 1.0
        batch = []
        for _ in range(calls_a_second):
            batch.append(call(draw, datetime.now(UTC)))
            if not len(batch) % 50:
                await asyncio.sleep(0)  # who asks meanwhile is timed
        begun = time.monotonic()
        await insert(engine, batch)
        taken_s.append(time.monotonic() - begun)
        await asyncio.sleep(max(0.0, due - time.monotonic()))


def call(draw: random.Random, at: datetime) -> Entry:
    """Return a race of two that its primary won, or one in fifty that failed."""
    unix_ms = int(at.timestamp() * 1000)
    call_id, first_id, second_id = (uuid7(unix_ms, draw.getrandbits(74)) for _ in range(3))
    number = draw.randrange(1000)
    is_won = number % 50 > 0
    ttft_ms = draw.uniform(100, 500)
    known: dict[str, Any] = {
        "started_at": at, "model": f"model-{number % 5}", "client": f"client-{number % 8}", "api": "chat.completions",
        "size_class": number % 3,
    }  # fmt: skip
    both: dict[str, Any] = known | {
        "call_id": call_id, "launch_offset_ms": 0.5, "headers_ms": 50.0, "status_code": 200, "prompt_tokens": 700,
        "cost_usd": 0.001, "cost_low_usd": 0.0008, "cost_high_usd": 0.002, "win_on": WinOn.ANY, "price": PRICE,
        "sends": 1, "in_flight": 3,
    }  # fmt: skip
    places = draw.sample(range(12), 2)
    names: list[dict[str, Any]] = [
        {"provider": f"provider-{place}", "deployment": f"provider-{place}/m"} for place in places
    ]
    answered: dict[str, Any] = {
        "outcome": Outcome.WON, "ttft_ms": ttft_ms, "token_ms": ttft_ms, "last_token_ms": 2000.0,
        "completion_tokens": 200, "tokens_source": TokensSource.REPORTED, "decode_tps": draw.uniform(60, 120),
        "e2e_tps": 50.0, "itl_p50_ms": 12.0, "itl_p95_ms": 20.0, "itl_max_ms": 90.0, "chars": 800, "chunks": 190,
        "first_chars": 4, "itl": GAPS,
    }  # fmt: skip
    broken: dict[str, Any] = {"outcome": Outcome.FAILED, "error_kind": "server_error"}
    primary = AttemptRecord(
        id=first_id, number=1, role=Role.PRIMARY, **both, **names[0], **(answered if is_won else broken)
    )
    cut: dict[str, Any] = {"outcome": Outcome.LOST, "censored_at_ms": ttft_ms, "is_overtaken": True}
    other = AttemptRecord(id=second_id, number=2, role=Role.RACE, **both, **names[1], **(cut if is_won else broken))
    record = CallRecord(
        id=call_id, endpoint="chat.completions", streamed=True, mode=Mode.RACE, objective=Objective.FIRST_TOKEN,
        win_on=WinOn.ANY, prompt_class=number % 3, launched=2, winner_attempt_id=first_id if is_won else None,
        status_code=200 if is_won else 502, error_kind=None if is_won else "all_failed",
        ttft_ms=ttft_ms if is_won else None, total_ms=2000.0, overhead_ms=0.4, prompt_tokens=700, completion_tokens=200,
        cost_usd=0.002, cost_low_usd=0.0015, cost_high_usd=0.003, duplicate_cost_usd=0.0005,
        tags={"variant": "ab"[number % 2]}, replica="r1", region=None, request_id=f"req-{number}",
        alone_ms=ttft_ms if is_won else None, tokens_source=TokensSource.REPORTED, finish_reason="stop",
        is_empty=False, is_truncated=False, attempts=(primary, other), **known,
    )  # fmt: skip
    return Finished(record)
