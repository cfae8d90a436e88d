"""History: the figures of deployments step by step, and by hour of the week."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import msgspec

from gateway.core.records import PROBES
from gateway.core.reports import (
    By,
    DeploymentHistory,
    Gaps,
    HeatFilter,
    HeatMetric,
    HistoryFilter,
    HistorySeries,
    Table,
    Window,
)
from gateway.ledger.reports import reader as shapes
from gateway.ledger.reports.reader import FAILED, Reader, Words, conditions, floor
from gateway.ledger.schema import first_of, report_sql
from gateway.ledger.steps import BucketPlaces, StepTables, of_sums, stepped
from gateway.ledger.sums import all_cost
from providers import raw_json

# The length of a history's steps in minutes, and for how long the database keeps windows of that length
# (rollup_periods).
_KEPT = ((5, timedelta(days=2)), (60, timedelta(days=31)), (1440, None))
_MOST_STEPS = 600  # of less than a day
_MINUTELY = timedelta(hours=2)  # the longest range with steps of a minute; these are made from rows
_MOST_ROWS = 50_000  # of attempts: adding up so many takes about a second


class Steps(msgspec.Struct, frozen=True):
    """The steps of a history; the last step has not ended."""

    since: datetime
    number: int
    minutes: int

    @classmethod
    def of(cls, window: Window, now: datetime) -> "Steps":
        """Return the steps of a window that ends now."""
        return cls.between(now - window.length, now, now)

    @classmethod
    def between(cls, since: datetime, until: datetime, now: datetime, minutes: int | None = None) -> "Steps":
        """Return the shortest steps that the database has for a range, or steps of ``minutes``."""
        if minutes is None:
            minutes = next(
                each
                for each, keep in _KEPT
                if keep is None or (now - since <= keep and until - since <= _MOST_STEPS * timedelta(minutes=each))
            )
        first_start, last = floor(since, minutes), floor(until, minutes)
        return cls(first_start, (last - first_start) // timedelta(minutes=minutes) + 1, minutes)

    @property
    def until(self) -> datetime:
        """The end of the last step."""
        return self.since + self.number * timedelta(minutes=self.minutes)

    @property
    def starts(self) -> range:
        """The start of each step, in Unix seconds."""
        return range(int(self.since.timestamp()), int(self.until.timestamp()), self.minutes * 60)


_COUNTS = ("n", "n_errors", "n_rate_limited", "n_won", "n_first_token")
_QUANTILES = {
    "ttft_p50_ms": ("ttft", "0.50"),
    "ttft_p95_ms": ("ttft", "0.95"),
    "ttft_p99_ms": ("ttft", "0.99"),
    "decode_p50_tps": ("tps", "0.50"),
    "decode_p05_tps": ("tps", "0.05"),
    "itl_p50_ms": ("itl", "0.50"),
    "itl_p95_ms": ("itl", "0.95"),
}
_FIGURES = (*_COUNTS, *_QUANTILES)
_KEY = ("model", "deployment", "provider")
_LASTS, _LONGEST = timedelta(days=1), timedelta(days=30)  # the longest outages: without an end, and with an end
_MOST_OUTAGES = 500  # the newest ones


async def history(reader: Reader, wanted: HistoryFilter, now: datetime) -> DeploymentHistory:
    """Return the series of all wanted deployments that have attempts."""
    steps = await _steps(reader, wanted, now)
    sql = _history_sql(reader.words, wanted, steps)
    answer = await reader.run(sql)
    series = []
    for key, rows in groupby(answer.rows, key=lambda row: tuple(row[: len(_KEY)])):
        series.append(await _series(key, rows, steps))
    gone_on = await _outages(reader, wanted, steps, now)
    return DeploymentHistory(steps.since, steps.until, steps.minutes * 60, series, gone_on.rows, sql, gone_on.sql)


async def _steps(reader: Reader, wanted: HistoryFilter, now: datetime) -> Steps:
    """Return the steps of the wanted range of time; without one, of the window."""
    since = wanted.since
    if since is None:
        return Steps.of(wanted.window, now)
    # A range that ends at the start of a step is without that step; a range until now has it.
    until, words = now if wanted.until is None else wanted.until - timedelta(microseconds=1), reader.words
    if until - since <= _MINUTELY:
        fine = Steps.between(since, until, now, 1)
        sql = (
            f"select count(*) from (select 1 from attempts where started_at >= {words.instant(fine.since)} "  # noqa: S608 - quoted
            f"and started_at < {words.instant(fine.until)} and {_which(words, wanted)} limit {_MOST_ROWS + 1}) as taken"
        )
        [[number]] = (await reader.run(sql)).rows
        if 0 < number <= _MOST_ROWS:  # 0: the rows may have been deleted, and the sums not
            return fine
    return Steps.between(since, until, now)


async def _series(key: tuple[Any, ...], rows: Iterable[Sequence[Any]], steps: Steps) -> msgspec.Raw:
    """Return one deployment's columns as JSON, with a value for each step; without attempts, counts are 0."""
    starts = steps.starts
    columns: dict[str, list[Any]] = {name: [0 if name in _COUNTS else None] * steps.number for name in _FIGURES}
    for row in rows:
        place = (row[len(_KEY)] - starts.start) // starts.step
        if 0 <= place < steps.number:
            for name, value in zip(_FIGURES, row[len(_KEY) + 1 :], strict=True):
                columns[name][place] = value
    await asyncio.sleep(0)  # a series takes a quarter of a millisecond; there may be hundreds
    model, deployment, provider = key
    series = HistorySeries(model=model, deployment=deployment, provider=provider, t=list(starts), **columns)
    return raw_json(series)


async def outages(reader: Reader, now: datetime) -> Table:
    """Return the outages of the last day, the newest first; an outage that several processes saw is listed once."""
    table = await _outages(reader, HistoryFilter(window=Window.DAY), Steps.of(Window.DAY, now), now)
    merged: list[dict[str, Any]] = []
    last: dict[str, dict[str, Any]] = {}  # by deployment
    for row in reversed(table.rows):
        ended_at, may_last = row["ended_at"], row["may_last"]
        entry = last.get(row["deployment"])
        if entry is not None and (entry["may_last"] or (entry["to"] is not None and row["began_at"] <= entry["to"])):
            entry["may_last"] = entry["may_last"] or may_last
            entry["to"] = None if entry["may_last"] or ended_at is None else max(entry["to"], ended_at)
            entry["replicas"] = sorted({*entry["replicas"], row["replica"]})
            continue
        one = {"deployment": row["deployment"], "reason": row["reason"], "from": row["began_at"], "to": ended_at}
        last[row["deployment"]] = one | {"may_last": may_last, "replicas": [row["replica"]]}
        merged.append(last[row["deployment"]])
    return Table(merged[::-1], table.sql)


async def heat(reader: Reader, wanted: HeatFilter, now: datetime) -> Table:
    """Return a figure for each deployment, weekday and hour with attempts."""
    sql = _heat_sql(reader.words, wanted, now)
    return Table(shapes.rows(await reader.run(sql)), sql)


def _history_sql(words: Words, wanted: HistoryFilter, steps: Steps) -> str:
    are_rows = wanted.client is not None or steps.minutes == 1
    source = (_of_rows if are_rows else _of_sums)(words, wanted, steps)
    return f"""\
with {source.tables}
select
  model, deployment, provider, slot as t,
  {", ".join(_COUNTS)},
  {", ".join(_QUANTILES)}
from {source.joined}
order by model, deployment, provider, t"""  # noqa: S608 - values are quoted by ``Words``


def _of_sums(words: Words, wanted: HistoryFilter, steps: Steps) -> StepTables:
    return of_sums(
        words,
        minutes=steps.minutes,
        within=f"window_start >= {words.window(steps.since)} and window_start < {words.window(steps.until)}",
        slot=words.epoch("window_start"),
        which=_which(words, wanted),
        key=", ".join(_KEY),
        quantiles=_QUANTILES,
    )


def _of_rows(words: Words, wanted: HistoryFilter, steps: Steps) -> StepTables:
    """Return the steps from rows, for one client or steps of a minute, as there are no sums for these."""
    matches = f"client = {words.text(wanted.client)}" if wanted.client else "client is null and number > 0"  # no probes
    client = "" if wanted.client is None else f" and {matches}"
    seconds = steps.minutes * 60
    error, is_own = (conditions()[name] for name in ("error", "own"))
    tables = f"""\
taken as (
  select
    {words.epoch("started_at")} / {seconds} * {seconds} as slot, model, deployment, provider, outcome, error_kind,
    key_name, ttft_ms, decode_tps, tokens_source, itl as gaps
  from attempts
  where started_at >= {words.instant(steps.since)} and started_at < {words.instant(steps.until)}{client}
    and {_which(words, wanted)}
),
places as (
  select row_number() over (order by model, deployment, provider) as place, model, deployment, provider
  from taken group by model, deployment, provider
),
placed as (
  select taken.*, places.place from taken join places using (model, deployment, provider)
),
sums as (
  select
    slot, place, count(*) as n, count(*) filter (where {error} and {is_own}) as n_errors,
    count(*) filter (where error_kind = 'rate_limited' and {is_own}) as n_rate_limited,
    count(*) filter (where outcome = 'won') as n_won, count(ttft_ms) as n_first_token
  from placed
  group by slot, place
)"""  # noqa: S608 - values are quoted by ``Words``
    points = {
        "ttft": (words.bucket("ttft_ms"), "1", "placed where ttft_ms is not null"),
        "tps": (words.bucket("decode_tps"), "1", "placed where tokens_source = 'reported' and decode_tps > 0"),
        "itl": (
            "cast(gap.key as smallint)",
            "cast(gap.value as bigint)",
            f"placed cross join {words.pairs('gaps')} as gap where gaps is not null",
        ),
    }
    counts = {
        metric: BucketPlaces(f"""\
select slot, place, bucket, cast(sum(n) as double precision) as n
      from (select slot, place, {bucket} as bucket, {n} as n from {there}) as points
      group by slot, place, bucket""")  # noqa: S608 - values are quoted by ``Words``
        for metric, (bucket, n, there) in points.items()
    }
    return stepped(tables, _QUANTILES, counts)


async def _outages(reader: Reader, wanted: HistoryFilter, steps: Steps, now: datetime) -> Table:
    """Return the outages in these steps; by the view's ``state``, an outage without an end may last."""
    words = reader.words
    lasting = f"ended_at is null and began_at >= {words.instant(steps.since - _LASTS)}"
    which = "" if wanted.deployment is None else f"\n  and deployment = {words.text(wanted.deployment)}"
    if wanted.model is not None:
        of_model = f"select deployment from rollup_series where model = {words.text(wanted.model)}"  # noqa: S608 - quoted
        which += f"\n  and deployment in ({of_model})"
    viewed = report_sql("outages_30d", words, Window.MONTH, now, since=words.instant(steps.since - _LONGEST))
    sql = f"""\
select deployment, began_at, ended_at, reason, replica, state
from (
{viewed}
) as seen
where began_at < {words.instant(steps.until)} and (ended_at >= {words.instant(steps.since)} or ({lasting})){which}
order by began_at desc, deployment, replica limit {_MOST_OUTAGES}"""  # noqa: S608 - values are quoted by ``Words``
    rows = shapes.rows(await reader.run(sql))
    return Table([{**row, "may_last": row["state"] == "out"} for row in rows], sql)


def _heat_sql(words: Words, wanted: HeatFilter, now: datetime) -> str:
    """Return a statement over the sums of hours, which the database keeps for a month (rollup_periods)."""
    quantiles = {name: quantile for name, quantile in _QUANTILES.items() if name == wanted.metric}
    source = of_sums(
        words,
        minutes=60,
        within=f"window_start >= {first_of(words, wanted.window, now)}",
        slot=f"({words.weekday('window_start')}) * 24 + {words.hour('window_start')}",
        which=_which(words, wanted),
        key="model, deployment",
        quantiles=quantiles,
    )
    error_rate = "cast(n_errors as double precision) / nullif(n_errors + n_first_token, 0)"
    value = error_rate if wanted.metric is HeatMetric.ERROR_RATE else wanted.metric
    return f"""\
with {source.tables}
select deployment, model, slot / 24 as weekday, slot % 24 as hour, {value} as value, n
from {source.joined}
order by deployment, model, slot"""  # noqa: S608 - values are quoted by ``Words``


def _which(words: Words, wanted: HistoryFilter | HeatFilter) -> str:
    """Return the SQL condition for the wanted series, or for attempts."""
    filters = {"model": wanted.model, "deployment": wanted.deployment}
    criteria = [f"{name} = {words.text(value)}" for name, value in filters.items() if value is not None]
    return " and ".join(["deployment <> ''", *criteria])


# Reports that are sums over a window: the value of racing, refusals, and the usage of clients.

MOST_REFUSALS = 500  # rows; there are few reasons, but perhaps many clients
MOST_ADDRESSES = 100  # of unknown senders, who may use any number
MOST_END_USERS = 10  # of each team
MOST_PAYERS = 2000  # rows; before teams existed, clients could make up tags of that name
# The column by which race_value is grouped, and its name in the answer.
_KEYS = {
    By.MODEL: {"key": "model", "named key": "model"},
    By.CLIENT: {"key": "client", "named key": "nullif(model, '') as client"},
}
_VIEWED = frozenset({Window.HOUR, Window.DAY, Window.MONTH})  # with a view of race value


async def race_value(reader: Reader, window: Window, by: By, now: datetime) -> Table:
    """Return what racing saved and cost, by model or client; from the view, if there is one."""
    if by is By.MODEL and window in _VIEWED:
        sql = f"select * from race_value_{window} order by model"  # noqa: S608 - our own values
    else:
        sql = f"{report_sql('race_value', reader.words, window, now, **_KEYS[by])}\norder by 1"
    return await _table(reader, sql)


async def refusals(reader: Reader, window: Window, now: datetime) -> tuple[Table, Table]:
    """Return refusals by client, reason and model, and addresses with unknown keys; the most frequent first."""
    refused, guessed = (report_sql(name, reader.words, window, now) for name in ("refusals", "wrong_keys"))
    refused += f"\norder by n desc, client, status_code, reason, model limit {MOST_REFUSALS}"
    guessed += f"\norder by n desc, address limit {MOST_ADDRESSES}"
    return await _table(reader, refused), await _table(reader, guessed)


async def usage(reader: Reader, window: Window, now: datetime) -> Table:
    """Return the usage of clients, the most expensive first."""
    sql = f"""\
select
  client, cast(sum(n) as bigint) as calls, cast(sum(n_failed) as bigint) as failed,
  cast(sum(prompt_tokens) as bigint) as prompt_tokens, cast(sum(completion_tokens) as bigint) as completion_tokens,
  sum(cost_usd) as cost_usd, sum(duplicate_cost_usd) as duplicate_cost_usd
from (
{report_sql("client_usage", reader.words, window, now)}
) as used
group by client
having sum(n) > 0
order by coalesce(sum(cost_usd), 0) desc, client"""  # noqa: S608 - our own values
    return await _table(reader, sql)


async def payers(reader: Reader, window: Window, now: datetime) -> Table:
    """Return the usage of teams, the most expensive first, each with the most expensive end users.

    Reads the rows of calls, as sums are by single tags, not by end users of a team.
    """
    words = reader.words
    figures = ("calls", "failed", "prompt_tokens", "completion_tokens", "cost_usd")
    added = ", ".join(
        f"sum({name}) as {name}" if name == "cost_usd" else f"cast(sum({name}) as bigint) as {name}" for name in figures
    )
    sql = f"""\
with used as (
  select
    {words.tag("team")} as team, {words.tag("end_user")} as end_user,
    case when {words.tag("team")} is null then client end as client,
    count(*) as calls, count(*) filter (where {FAILED}) as failed, sum(prompt_tokens) as prompt_tokens,
    sum(completion_tokens) as completion_tokens, sum({all_cost(words, "c.cost_usd")}) as cost_usd
  from calls as c
  where started_at >= {words.instant(now - window.length)}
    and ({words.tag("team")} is not null or {words.tag("end_user")} is not null)
  group by 1, 2, 3
),
ranked as (
  select
    *, row_number() over (partition by team order by coalesce(cost_usd, 0) desc, calls desc, end_user) as place
  from used
  where end_user is not null
)
select * from (
  select team, null as client, null as end_user, count(distinct end_user) as end_users, {added}
  from used
  group by team
  union all
  select team, client, end_user, 1, {", ".join(figures)}
  from ranked
  where place <= {MOST_END_USERS}
) as shown
order by end_user is not null, coalesce(cost_usd, 0) desc, calls desc, team, end_user
limit {MOST_PAYERS}"""  # noqa: S608 - our own values
    return await _table(reader, sql)


async def sums_trail_s(reader: Reader) -> float | None:
    """Return the age in seconds of the oldest row that is not in the sums; None: there is one, on SQLite."""
    (row,) = shapes.rows(await reader.run("select trails_s from rollup_pending"))
    return None if row["trails_s"] is None else float(row["trails_s"])


# A connected replica that has replayed all it received is not behind, even if the last change is old. A replica that
# has lost its primary has replayed all, too: then only the age of the last change bounds its lag.
_LAG = """\
select
  case
    when not pg_is_in_recovery() then 0
    when pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() and exists (select from pg_stat_wal_receiver) then 0
    else greatest(0, extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp()))
  end as lag_s"""


async def replica_lag_s(reader: Reader) -> float | None:
    """Return at most how far a replica is behind, in seconds; None: unknown, as it received nothing since its start."""
    (row,) = shapes.rows(await reader.run(_LAG))
    return None if row["lag_s"] is None else float(row["lag_s"])


async def spent(reader: Reader, now: datetime) -> dict[str | None, tuple[float, float]]:
    """Return the US dollars that clients have spent in this UTC day and month."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    of_day, of_month = reader.words.window(day), reader.words.window(day.replace(day=1))
    sql = f"""\
select
  nullif(client, '') as client,
  coalesce(sum(case when window_start >= {of_day} then usd end), 0) as day_usd,
  coalesce(sum(usd), 0) as month_usd
from (select client, minutes, window_start, {reader.words.paid("cost_usd")} as usd from rollup_calls) as r
where minutes = 1440 and window_start >= {of_month}
group by client"""  # noqa: S608 - our own values
    rows = shapes.rows(await reader.run(sql))
    return {row["client"]: (float(row["day_usd"]), float(row["month_usd"])) for row in rows}


async def spent_by_teams(reader: Reader, now: datetime) -> dict[str | None, tuple[float, float]]:
    """Return the US dollars that teams have spent in this UTC day and month, counted as by limits.

    For days with too many tags for sums, the rows are read.
    """
    words = reader.words
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    of_day, of_month = words.window(day), words.window(day.replace(day=1))
    ended = "wide.window_start + interval '24 hours'" if words.is_postgres else "datetime(wide.window_start, '+1 day')"
    most = "greatest" if words.is_postgres else "max"
    sql = f"""\
with wide as (
  select distinct window_start from rollup_wide_tags
  where minutes = 1440 and window_start >= {of_month} and tag in ('team', '')
)
select
  team,
  coalesce(sum(case when window_start >= {of_day} then cost_usd end), 0) as day_usd,
  coalesce(sum(cost_usd), 0) as month_usd
from (
  select value as team, window_start, {most}(cost_usd, coalesce(all_cost_usd, 0)) as cost_usd
  from rollup_tags
  where minutes = 1440 and window_start >= {of_month} and tag = 'team'
    and window_start not in (select window_start from wide)
  union all
  select {words.tag("team")}, wide.window_start, {all_cost(words)}
  from wide
  cross join calls as c
  where started_at >= wide.window_start and started_at < {ended}
    and {words.tag("team")} is not null
) as spent
group by team"""  # noqa: S608 - our own values
    rows = shapes.rows(await reader.run(sql))
    return {row["team"]: (float(row["day_usd"]), float(row["month_usd"])) for row in rows}


async def spent_by_models(reader: Reader, now: datetime) -> dict[str, float]:
    """Return the US dollars that attempts of each model have cost in this UTC day, also as a fallback."""
    of_day = reader.words.window(now.replace(hour=0, minute=0, second=0, microsecond=0))
    sql = f"""\
select s.model, coalesce(sum(r.cost_usd), 0) as day_usd
from rollup_attempts as r
join rollup_series as s on s.id = r.series_id
where r.minutes = 1440 and r.window_start >= {of_day} and s.api <> '{PROBES}'
group by s.model"""  # noqa: S608 - our own values
    return {row["model"]: float(row["day_usd"]) for row in shapes.rows(await reader.run(sql))}


async def gaps(reader: Reader, now: datetime) -> Gaps:
    """Return the gaps between chunks in the last 24 hours, and the pauses of speech in the last hour."""
    rows = shapes.rows(await reader.run("select model, deployment, itl_p50_ms, itl_p95_ms from gaps_24h"))
    between = {(row["model"], row["deployment"]): (row["itl_p50_ms"], row["itl_p95_ms"]) for row in rows}
    since = reader.words.instant(now - timedelta(hours=1))
    rows = shapes.rows(await reader.run(_SILENCES.format(since=since)))
    silences = {(row["model"], row["deployment"]): row["silence_p95_ms"] for row in rows}
    return {key: (*between.get(key, (None, None)), silences.get(key)) for key in {**between, **silences}}


# A pause counts for the deployment that was silent: so not for answers that continued another's. Of answers that
# another continued, only the pause for which they were replaced counts.
_SILENCES = """\
with heard as (
  select coalesce(a.model, c.model) as model, a.deployment, a.speech_pause_ms
  from attempts as a
  left join calls as c on c.id = a.call_id
  where a.started_at >= {since} and a.speech_pause_ms is not null and a.continues is null and (
    (a.outcome = 'won' and not coalesce(a.is_kept, false))
    or a.outcome = 'stalled'
    or (a.outcome = 'superseded' and c.takeover = 'rescued' and not coalesce(a.is_kept, false))
  )
),
ordered as (
  select
    *,
    row_number() over (partition by model, deployment order by speech_pause_ms) as place,
    count(*) over (partition by model, deployment) as n
  from heard
)
select model, deployment, min(speech_pause_ms) as silence_p95_ms from ordered
where place >= 0.95 * n
group by model, deployment"""


async def _table(reader: Reader, sql: str) -> Table:
    return Table(shapes.rows(await reader.run(sql)), sql)
