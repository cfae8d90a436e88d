"""``make bench-ledger``: how fast a large ledger answers, and what a call takes on disk; made rows on a real Postgres.

The rows are made in SQL: races of two spread evenly over 60 days, with failures, losers that
were cut, clients and tags. Each view is asked three times after a first one; the median is shown.
"""

import argparse
import asyncio
import sys
import time
from statistics import median
from typing import Any

import asyncpg
import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from gateway.ledger.database import migrate
from tests.services.servers import postgres

CALLS, QUICK_CALLS = 2_000_000, 100_000
GOALS_MS = {"_1h": 100.0, "_24h": 300.0, "_30d": 300.0}

_CALLS = """
insert into calls (id, started_at, client, model, endpoint, api, size_class, streamed, mode, objective, prompt_class,
  launched, winner_attempt_id, status_code, error_kind, ttft_ms, total_ms, overhead_ms, prompt_tokens,
  completion_tokens, cost_usd, cost_low_usd, cost_high_usd, duplicate_cost_usd, tags, replica, win_on, request_id,
  alone_ms, alone_predicted_ms, alone_age_ms, tokens_source, finish_reason, is_empty, is_truncated)
select gen_random_uuid(), now() - make_interval(secs => 60 * 86400 * random()), 'client-' || (i % 8),
  'model-' || (i % 5), 'chat.completions', 'chat.completions', i % 3, true, 'race', 'first_token', i % 3, 2,
  case when i % 50 > 0 then gen_random_uuid() end, case when i % 50 > 0 then 200 else 502 end,
  case when i % 50 = 0 then 'all_failed' end, case when i % 50 > 0 then 100 + 400 * random() end, 2000 * random(), 0.4,
  700, 200, 0.002, 0.0015, 0.003, 0.0005, jsonb_build_object('variant', chr(97 + i % 2)), 'r1', 'any', 'req-' || i,
  case when i % 2 = 0 then 300 end, case when i % 2 > 0 then 500 + 100 * random() end, case when i % 2 > 0 then 200 end,
  'reported', 'stop', false, false
from generate_series(1, {number}) as i
"""
_ATTEMPTS = """
insert into attempts (id, call_id, number, started_at, role, audited, provider, deployment, launch_offset_ms, outcome,
  connect_ms, headers_ms, ttft_ms, token_ms, last_token_ms, censored_at_ms, status_code, error_kind, prompt_tokens,
  completion_tokens, tokens_source, decode_tps, e2e_tps, itl_p50_ms, itl_p95_ms, itl_max_ms, cost_usd, cost_low_usd,
  cost_high_usd, cost_is_lower_bound, model, client, api, size_class, win_on, chars, chunks, first_chars, is_overtaken,
  overtaken_at_ms, predicted_ms, price, itl, sends, in_flight)
select case when n = 1 and calls.winner_attempt_id is not null then calls.winner_attempt_id else gen_random_uuid() end,
  calls.id, n, calls.started_at, case when n = 1 then 'primary' else 'race' end, random() < 0.05,
  'provider-' || place, 'provider-' || place || '/m', 0.5,
  case when calls.winner_attempt_id is null then 'failed' when n = 1 then 'won' else 'lost' end,
  null, 50, case when n = 1 then calls.ttft_ms end, case when n = 1 then calls.ttft_ms end,
  case when n = 1 then calls.total_ms end, case when n = 2 then calls.ttft_ms end, 200,
  case when calls.winner_attempt_id is null then 'server_error' end, 700, case when n = 1 then 200 end,
  case when n = 1 then 'reported' else 'estimated' end, case when n = 1 then 60 + 60 * random() end, 50, 12, 20, 90,
  0.001, 0.0008, 0.002, n = 2, calls.model, calls.client, calls.api, calls.size_class, 'any', 800, 190, 4, n = 2,
  case when n = 2 then calls.ttft_ms end, case when n = 2 then 500 end, '{{"input": 0.5, "output": 1.5}}',
  case when n = 1 then '{{"0": 20, "4": 150, "9": 20}}'::jsonb end, 1, 3
from calls
cross join lateral (
  select n, (hashtext(calls.id::text || n) & 1023) % 12 as place from generate_series(1, 2) as n
) as launched
"""
_LOOK_UPS = {
    "a request id": "select * from calls where request_id = 'req-4711'",
    "a client's last hundred calls": "select * from calls where client = 'client-3' order by started_at desc limit 100",
    "the errors of a day": "select * from calls where error_kind is not null and started_at > now() - interval '1 day'",
    "a tag's calls of a day": (
        "select count(*) from calls where tags @> '{\"variant\": \"b\"}' and started_at > now() - interval '1 day'"
    ),
    "leaderboard": "select * from leaderboard",
    "load_5m": "select * from load_5m",
    "load_peaks": "select * from load_peaks",
    "tag_differences": "select * from tag_differences",
}


class Timing(msgspec.Struct, frozen=True):
    """How long one question took."""

    name: str
    ms: float
    goal_ms: float | None

    @property
    def holds(self) -> bool:
        """Whether it was quick enough."""
        return self.goal_ms is None or self.ms <= self.goal_ms


def main() -> None:
    """Make the rows, ask, and show."""
    parser = argparse.ArgumentParser(prog="make bench-ledger", description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, help=f"rows of calls; twice as many attempts (default {CALLS:,})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_CALLS:,} calls")
    parser.add_argument("--json", action="store_true", help="the timings as JSON")
    options = parser.parse_args()
    number = options.calls or (QUICK_CALLS if options.quick else CALLS)
    with postgres() as url:
        timings, bytes_per_call = asyncio.run(_measure(url, number))
    if options.json:
        told = {"calls": number, "bytes_per_call": bytes_per_call, "timings": timings}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n")
        return
    table = Table(title=f"A ledger of {number:,} calls", title_justify="left")
    for column in ("question", "ms", "goal", ""):
        table.add_column(column, justify="left" if column == "question" else "right")
    for each in timings:
        goal = "" if each.goal_ms is None else f"{each.goal_ms:.0f}"
        table.add_row(each.name, f"{each.ms:,.0f}", goal, "ok" if each.holds else "[red]missed[/red]")
    console = Console(width=100)
    console.print(table)
    console.print(f"{bytes_per_call:,.0f} bytes a call, its two attempts and all indexes included")


async def _measure(url: str, number: int) -> tuple[list[Timing], float]:
    await migrate(url)
    connection: Any = await asyncpg.connect(url)
    with Progress(console=Console(stderr=True)) as progress:
        making = progress.add_task("making rows", total=4)
        for statement in (
            _CALLS.format(number=number),
            _ATTEMPTS.format(),
            "vacuum analyze calls",
            "vacuum analyze attempts",
        ):
            await connection.execute(statement)
            progress.advance(making)
        await connection.execute("set jit = off")  # as holeshot sql does
        names = [row[0] for row in await connection.fetch("select viewname from pg_views where schemaname = 'public'")]
        views = {name: f"select * from {name}" for name in sorted(names) if name.endswith(tuple(GOALS_MS))}
        asking = progress.add_task("asking", total=len(views) + len(_LOOK_UPS))
        timings = []
        for name, sql in {**views, **_LOOK_UPS}.items():
            timings.append(Timing(name, await _time(connection, sql), _goal(name)))
            progress.advance(asking)
        size = await connection.fetchval("select pg_total_relation_size('calls') + pg_total_relation_size('attempts')")
    await connection.close()
    return timings, size / number


async def _time(connection: Any, sql: str) -> float:
    taken = []
    for _ in range(4):
        begun = time.perf_counter()
        await connection.fetch(sql)
        taken.append((time.perf_counter() - begun) * 1000)
    return median(taken[1:])


def _goal(name: str) -> float | None:
    if name in _LOOK_UPS:
        return 300.0
    return next(goal for suffix, goal in GOALS_MS.items() if name.endswith(suffix))


if __name__ == "__main__":
    main()
