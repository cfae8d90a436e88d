"""``python -m benchmarks.ledger.clickhouse``: how fast a day of five million calls answers in ClickHouse's engine.

The engine runs in this process (chdb: install tests/clickhouse/requirements.lock). Calls and their attempts, two and a
half each, are made by its own SQL. Asked are the views and the questions of docs/sql.md that are answered there, as
``holeshot sql`` asks them: each twice, and the second time is shown.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from benchmarks.harness.report import grid
from gateway.ledger.clickhouse.schema import TABLES, WINDOWED, table_sql, views_sql
from tests.clickhouse.test_answers import QUESTIONS

CALLS = 5_000_000
SLICE = 500_000  # calls made in one statement
# As those of the gateway: they sort by time.
_ID = (
    "reinterpretAsUUID(reverse(concat(substring(reverse(reinterpretAsFixedString(toUInt64(at_ms))), 3), "
    "unhex('7000'), substring(reinterpretAsFixedString(sipHash128(i, {salt})), 1, 8))))"
)
# Of ten calls three are not raced, one fails, and in three another attempt than the primary wins; a fifth of those is
# audited. First tokens have long tails.
_CALLS = """
insert into calls (id, started_at, client, model, endpoint, api, size_class, streamed, mode, objective, prompt_class,
  launched, winner_attempt_id, status_code, error_kind, ttft_ms, total_ms, overhead_ms, prompt_tokens,
  completion_tokens, cost_usd, cost_low_usd, cost_high_usd, duplicate_cost_usd, tags, replica, win_on, request_id,
  alone_ms, alone_predicted_ms, alone_age_ms, tokens_source, finish_reason, is_empty, is_truncated)
select id, at, concat('client-', toString(i % 40)), concat('model-', toString(i % 12)), 'chat.completions',
  'chat.completions', i % 3, true, if(launched > 1, 'race', 'single'), 'first_token', i % 3, launched,
  if(failed, null, winner), if(failed, 502, 200), if(failed, 'all_failed', null), if(failed, null, ms), ms + 3000 * u,
  0.4,
  toInt64(exp(randNormal(7, 1, i))), toInt64(exp(randNormal(5.5, 0.8, i))), 0.003 * u, 0.002 * u, 0.004 * u,
  if(launched > 1, 0.0005 * u, null), '{{"variant":"a"}}', concat('gw-', toString(i % 4)), 'any',
  concat('req-', toString(i)), if(failed or beaten, null, ms), if(beaten, ms * 1.6, null), if(beaten, ms, null),
  'reported', 'stop', false, false
from (
  select number as i, {now} - toIntervalMillisecond(toInt64(86400000 * (1 - i / {number}))) as at,
    toUnixTimestamp64Milli(at) as at_ms, {id} as id, {winner} as winner, rand(i) / 4294967296 as u,
    exp(randNormal(5.7, 0.6, i)) as ms, if(i % 10 < 3, 1, if(i % 10 < 8, 3, 3 + i % 2)) as launched,
    i % 10 = 9 as failed, i % 10 in (3, 4, 5) as beaten
  from numbers({first}, {count})
)
"""
_ATTEMPTS = """
insert into attempts (id, call_id, number, started_at, role, audited, provider, deployment, launch_offset_ms, outcome,
  connect_ms, headers_ms, ttft_ms, token_ms, last_token_ms, censored_at_ms, status_code, error_kind, error_message,
  prompt_tokens, completion_tokens, tokens_source, decode_tps, e2e_tps, itl_p50_ms, itl_p95_ms, itl_max_ms, cost_usd,
  cost_low_usd, cost_high_usd, cost_is_lower_bound, model, client, api, size_class, win_on, chars, chunks, first_chars,
  is_overtaken, overtaken_at_ms, predicted_ms, price, itl, sends, in_flight, key_name, provider_request_id)
select if(won, assumeNotNull(winner_attempt_id), generateUUIDv7(n)), id, n, started_at, if(n = 1, 'primary', 'race'),
  audited, concat('provider-', toString(place)), concat('provider-', toString(place), '/', model), 0.5,
  multiIf(won, 'won', failed, 'failed', n = 1, 'superseded', 'lost'), null, 50, if(told, told_ms, null),
  if(told, told_ms, null), if(won, total_ms, null), if(told or failed, null, ttft_ms), if(failed, 502, 200),
  if(failed, 'server_error', null), if(failed, concat('upstream said ', toString(place)), null), prompt_tokens,
  if(won, completion_tokens, null), if(won, 'reported', 'estimated'), if(won, 40 + 100 * u, null),
  if(won, 20 + 60 * u, null), 12 * u, 25 * u, 90 * u, 0.001 * u, 0.0008 * u, 0.002 * u, not won, model, client, api,
  size_class, 'any', if(won, completion_tokens * 4, null), if(won, completion_tokens, null), 4, not won and not failed,
  if(won or failed, null, ttft_ms), if(n = 1 and beaten and not failed, ttft_ms * 1.6, null),
  '{{"input":0.5,"output":1.5}}', if(won, '{{"-2":14,"0":31,"1":40,"2":52,"3":30,"4":12,"5":4,"9":1}}', null), 1,
  toInt64(10 * u), '#1', concat('chatcmpl-', lower(hex(cityHash64(id, n))))
from (
  select *, arrayJoin(range(1, assumeNotNull(launched) + 1)) as n, cityHash64(id, n) % 15 as place,
    alone_age_ms is not null as beaten, winner_attempt_id is null as failed,
    not failed and n = if(beaten, 2, 1) as won, n = 1 and beaten and cityHash64(id) % 5 = 0 as audited,
    won or audited as told, (cityHash64(n, id) % 1000) / 1000 as u, if(won, ttft_ms, ttft_ms * (1 + u)) as told_ms
  from calls where started_at > {now} - toIntervalMillisecond(toInt64(86400000 * (1 - {after} / {number})))
    and started_at <= {now} - toIntervalMillisecond(toInt64(86400000 * (1 - {last} / {number})))
)
"""
_SETTINGS = {
    "final": "1",
    "do_not_merge_across_partitions_select_final": "1",
    "prefer_column_name_to_alias": "1",
}


class Asked(msgspec.Struct, frozen=True):
    """What one question took."""

    name: str
    seconds: float
    rows_read: int
    rows: int


def main() -> None:
    """Make the rows, ask, and show."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ledger.clickhouse", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--folder", type=Path, help="where the rows stay; those of an earlier run are asked again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = options.folder or Path(folder)
        is_new = not database.exists() or not any(database.iterdir())
        session: Any = import_module("chdb.session").Session(str(database))
        session.query("create database if not exists ledger")
        session.query("use ledger")
        console = Console(width=140)
        if is_new:
            begun = time.monotonic()
            fill(session, options.calls)
            console.print(f"made {options.calls:,} calls in {time.monotonic() - begun:,.0f} s")
        for statement in views_sql():
            session.query(statement)
        for name, value in _SETTINGS.items():
            session.query(f"set {name} = {value}")
        found = list(ask(session))
        rows = ((each.name, f"{each.seconds:.2f}", f"{each.rows_read:,}", f"{each.rows:,}") for each in found)
        console.print(grid("a day of calls", ("question", "s", "rows read", "rows"), rows))
        for name in TABLES:
            count, size = _numbers(
                session,
                f"select sum(rows), sum(bytes_on_disk) from system.parts "
                f"where active and database = 'ledger' and table = '{name}'",
            )
            console.print(f"{name}: {count:,} rows, {size / count:,.0f} bytes a row")
        peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        console.print(f"at most {peak_gb:.1f} GB of memory")
        session.close()


def fill(session: Any, number: int) -> None:
    """Make ``number`` calls of the last day."""
    for name in TABLES:
        session.query(table_sql(name))
    now = f"fromUnixTimestamp64Micro({time.time_ns() // 1_000}, 'UTC')"  # one for all, so that slices fit together
    known = {"id": _ID.format(salt=1), "winner": _ID.format(salt=2), "number": number, "now": now}
    for first in range(0, number, SLICE):
        count = min(SLICE, number - first)
        session.query(_CALLS.format(first=first, count=count, **known))
        session.query(_ATTEMPTS.format(after=first - 1, last=first + count - 1, number=number, now=now))


def ask(session: Any) -> Iterator[Asked]:
    """Yield what each view and each question took."""
    views = (*(f"{name}{window}" for name in WINDOWED for window in ("_1h", "")), "leaderboard")
    for name, statement in {**{view: f"select * from {view}" for view in views}, **QUESTIONS}.items():
        session.query(statement.strip(), "JSON")
        begun = time.monotonic()
        answer = msgspec.json.decode(bytes(session.query(statement.strip(), "JSON").bytes()))
        yield Asked(name, time.monotonic() - begun, answer["statistics"]["rows_read"], answer["rows"])


def _numbers(session: Any, statement: str) -> list[int]:
    return [int(each) for each in bytes(session.query(statement, "TabSeparated").bytes()).split()]


if __name__ == "__main__":
    main()
