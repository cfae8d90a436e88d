"""Reports that are sums over a window: the value of racing, refusals, and what clients have used."""

import re
from datetime import datetime
from functools import cache

from gateway.ledger.database import migrations_folder
from gateway.ledger.reports import shapes
from gateway.ledger.reports.reader import Reader
from gateway.ledger.reports.spans import windows
from gateway.ledger.reports.words import paid
from gateway.reports import By, Table, Window

MOST_REFUSALS = 500  # rows; there are few reasons, but clients may be many
MOST_ADDRESSES = 100  # strangers make as many as they like
_VIEWED = frozenset({Window.HOUR, Window.DAY, Window.MONTH})  # there are views of race value of these


async def race_value(reader: Reader, window: Window, by: By, now: datetime) -> Table:
    """Return what racing saved and cost, by model or client: the view where there is one."""
    if by is By.MODEL and window in _VIEWED:
        sql = f"select * from race_value_{window} order by model"  # noqa: S608 - our own values
    else:
        sql = _race_value(by).replace("{windows}", windows(reader.words, window, now))
    return await _table(reader, sql)


async def refusals(reader: Reader, window: Window, now: datetime) -> tuple[Table, Table]:
    """Return what was refused whom, and who tried keys that nobody has; the most frequent first."""
    since = f"started_at >= {reader.words.instant(now - window.length)}"
    refused = f"""\
select
  client, status_code, reason, cast(sum(n) as bigint) as n, count(distinct address) as n_addresses,
  min(started_at) as first_seen_at, max(started_at) as last_seen_at
from refusals
where {since}
group by client, status_code, reason
order by n desc, client, status_code, reason limit {MOST_REFUSALS}"""  # noqa: S608 - our own values
    guessed = f"""\
select
  address, cast(sum(n) as bigint) as n, count(*) as n_minutes, max(n) as peak_per_minute,
  min(started_at) as first_seen_at, max(started_at) as last_seen_at
from (
  select address, started_at, cast(sum(n) as bigint) as n
  from refusals
  where reason = 'invalid_api_key' and {since}
  group by address, started_at
) as minutes
group by address
order by n desc, address limit {MOST_ADDRESSES}"""  # noqa: S608 - our own values
    return await _table(reader, refused), await _table(reader, guessed)


async def usage(reader: Reader, window: Window, now: datetime) -> Table:
    """Return what clients have used, the dearest first."""
    sql = f"""\
select
  nullif(r.client, '') as client, cast(sum(r.n) as bigint) as calls, cast(sum(r.n_failed) as bigint) as failed,
  cast(sum(r.prompt_tokens) as bigint) as prompt_tokens,
  cast(sum(r.completion_tokens) as bigint) as completion_tokens,
  sum({paid("cost_usd")}) as cost_usd, sum({paid("duplicate_cost_usd")}) as duplicate_cost_usd
from rollup_calls as r
where {windows(reader.words, window, now)}
group by r.client
having sum(r.n) > 0
order by coalesce(sum({paid("cost_usd")}), 0) desc, client"""  # noqa: S608 - our own values
    return await _table(reader, sql)


async def spent(reader: Reader, now: datetime) -> dict[str | None, tuple[float, float]]:
    """Return what clients have spent in this UTC day and month, US dollars."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    of_day, of_month = reader.words.window(day), reader.words.window(day.replace(day=1))
    sql = f"""\
select
  nullif(client, '') as client,
  coalesce(sum(case when window_start >= {of_day} then usd end), 0) as day_usd,
  coalesce(sum(usd), 0) as month_usd
from (select client, minutes, window_start, {paid("cost_usd")} as usd from rollup_calls) as r
where minutes = 1440 and window_start >= {of_month}
group by client"""  # noqa: S608 - our own values
    rows = shapes.rows(await reader.run(sql))
    return {row["client"]: (float(row["day_usd"]), float(row["month_usd"])) for row in rows}


async def gaps(reader: Reader) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    """Return p50 and p95 of the gaps between chunks of the last 24 hours, by model and deployment; ms."""
    rows = shapes.rows(await reader.run("select model, deployment, itl_p50_ms, itl_p95_ms from gaps_24h"))
    return {(row["model"], row["deployment"]): (row["itl_p50_ms"], row["itl_p95_ms"]) for row in rows}


async def _table(reader: Reader, sql: str) -> Table:
    return Table(shapes.rows(await reader.run(sql)), sql)


@cache
def _race_value(by: By) -> str:
    """Return the statement of race_value, with ``{windows}`` in it, by model or by client: that of the view."""
    view = (migrations_folder() / "views" / "0026" / "race_value.sql").read_text("utf-8")
    statement = view.partition("create view {view} as\n")[2].rstrip()
    if by is By.CLIENT:  # what is summed up by is called model inside
        statement = re.sub(r"group by ([rs])\.model\b", r"group by \1.client", statement)
        statement = re.sub(r"\b([rs])\.model,", r"\1.client as model,", statement)
        statement = statement.replace(
            "\nselect\n  model,\n  calls,", "\nselect\n  nullif(model, '') as client,\n  calls,"
        )
    return f"{statement}\norder by 1"
