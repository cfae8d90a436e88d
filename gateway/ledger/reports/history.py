"""History: the figures of deployments step by step, and by hour of the week."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import msgspec

from gateway.ledger.reports import shapes
from gateway.ledger.reports.reader import Reader
from gateway.ledger.reports.spans import Steps, first
from gateway.ledger.reports.words import Words, quantile
from gateway.reports import HeatMetric, HeatWanted, History, HistoryWanted, Table

_COUNTS = ("n", "errors", "rate_limited", "won", "first_tokens")
# Of speeds p95 is what 95 % reach, as in the views.
_QUANTILES = {
    "ttft_p50_ms": ("ttft", "0.50"),
    "ttft_p95_ms": ("ttft", "0.95"),
    "ttft_p99_ms": ("ttft", "0.99"),
    "tps_p50": ("tps", "0.50"),
    "tps_p95": ("tps", "0.05"),
    "itl_p50_ms": ("itl", "0.50"),
    "itl_p95_ms": ("itl", "0.95"),
}
_FIGURES = (*_COUNTS, *_QUANTILES)
_KEY = ("model", "deployment", "provider")
_LASTS, _LONGEST = timedelta(days=1), timedelta(days=30)  # an outage without an end, and one with an end
_MOST_OUTAGES = 500  # the newest ones


async def history(reader: Reader, wanted: HistoryWanted, now: datetime) -> History:
    """Return the series of all deployments that are wanted and had attempts."""
    steps = Steps.of(wanted.window, now)
    sql = _history_sql(reader.words, wanted, steps)
    answer = await reader.run(sql)
    series = []
    for key, rows in groupby(answer.rows, key=lambda row: tuple(row[: len(_KEY)])):
        series.append(await _series(key, rows, steps))
    outages_sql = _outages_sql(reader.words, wanted, steps)
    outages = shapes.rows(await reader.run(outages_sql))
    return History(steps.since, steps.until, steps.minutes * 60, series, outages, sql, outages_sql)


async def _series(key: tuple[Any, ...], rows: Iterable[Sequence[Any]], steps: Steps) -> msgspec.Raw:
    """Return one deployment's columns as JSON: a value for each step, of what is counted 0 where nothing was."""
    starts = steps.starts
    columns: dict[str, list[Any]] = {name: [0 if name in _COUNTS else None] * steps.number for name in _FIGURES}
    for row in rows:
        place = (row[len(_KEY)] - starts.start) // starts.step
        if 0 <= place < steps.number:
            for name, value in zip(_FIGURES, row[len(_KEY) + 1 :], strict=True):
                columns[name][place] = value
    await asyncio.sleep(0)  # a series takes a quarter of a millisecond; there may be hundreds
    model, deployment, provider = key
    known = {"model": model, "deployment": deployment, "provider": provider, "t": list(starts)}
    return msgspec.Raw(msgspec.json.encode(known | columns))


async def heat(reader: Reader, wanted: HeatWanted, now: datetime) -> Table:
    """Return a figure for each deployment, weekday and hour in which there were attempts."""
    sql = _heat_sql(reader.words, wanted, now)
    return Table(shapes.rows(await reader.run(sql)), sql)


def _history_sql(words: Words, wanted: HistoryWanted, steps: Steps) -> str:
    sums = _sums_of_rows if wanted.client is not None else _sums
    quantiles = ",\n    ".join(f"{quantile(metric, q)} as {name}" for name, (metric, q) in _QUANTILES.items())
    return f"""\
with {sums(words, wanted, steps)},
ordered as (
  select
    *,
    sum(n) over (so_many rows unbounded preceding) as so_far,
    sum(n) over (so_many rows between unbounded preceding and unbounded following) as total
  from counts
  window so_many as (partition by window_start, place, metric order by bucket)
),
quantiles as (
  select
    o.window_start, o.place,
    {quantiles}
  from ordered as o
  join buckets as b on b.bucket = o.bucket
  group by o.window_start, o.place
)
select
  places.model, places.deployment, places.provider, {words.epoch("sums.window_start")} as t,
  n, errors, rate_limited, won, first_tokens,
  {", ".join(_QUANTILES)}
from sums
join places on places.place = sums.place
left join quantiles on quantiles.window_start = sums.window_start and quantiles.place = sums.place
order by places.model, places.deployment, places.provider, t"""  # noqa: S608 - values are quoted by ``Words``


def _sums(words: Words, wanted: HistoryWanted, steps: Steps) -> str:
    """Return the tables sums and counts, of the database's sums of each step."""
    of_step = f"r.minutes = {steps.minutes} and r.window_start >= {words.window(steps.since)}"
    return f"""\
series as (  -- numbers are grouped in half the time that names take
  select id, min(id) over (partition by model, deployment, provider) as place from rollup_series
  where {_which(words, wanted)}
),
places as (
  select id as place, model, deployment, provider from rollup_series where id in (select place from series)
),
sums as (
  select
    r.window_start, series.place, cast(sum(r.n) as bigint) as n, cast(sum(r.n_errors) as bigint) as errors,
    cast(sum(r.n_rate_limited) as bigint) as rate_limited, cast(sum(r.n_won) as bigint) as won,
    cast(sum(r.n_first_token) as bigint) as first_tokens
  from rollup_attempts as r
  join series on series.id = r.series_id
  where {of_step}
  group by r.window_start, series.place
),
counts as (
  select r.window_start, series.place, r.metric, r.bucket, sum(cast(r.n as double precision)) as n
  from rollup_histograms as r
  join series on series.id = r.series_id
  where {of_step} and r.metric in ('ttft', 'tps', 'itl')
  group by r.window_start, series.place, r.metric, r.bucket
)"""  # noqa: S608 - values are quoted by ``Words``


def _sums_of_rows(words: Words, wanted: HistoryWanted, steps: Steps) -> str:
    """Return the same of one client's attempts, of which there are no sums."""
    client = f"client = {words.text(wanted.client)}" if wanted.client else "client is null and number > 0"  # no probes
    seconds = steps.minutes * 60
    step = words.moment(f"{words.epoch('started_at')} / {seconds} * {seconds}")
    reported = "tokens_source = 'reported'"
    broken = "outcome in ('failed', 'timeout', 'stalled')"
    error = f"{broken} and coalesce(error_kind, '') not in ('rate_limited', 'bad_request')"
    return f"""\
taken as (
  select
    {step} as window_start, model, deployment, provider, outcome, error_kind, ttft_ms, decode_tps, tokens_source, itl
  from attempts
  where started_at >= {words.instant(steps.since)} and {client} and {_which(words, wanted)}
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
    window_start, place, count(*) as n, count(*) filter (where {error}) as errors,
    count(*) filter (where error_kind = 'rate_limited') as rate_limited,
    count(*) filter (where outcome = 'won') as won, count(ttft_ms) as first_tokens
  from placed
  group by window_start, place
),
counts as (
  select window_start, place, metric, bucket, cast(sum(n) as double precision) as n
  from (
    select window_start, place, 'ttft' as metric, {words.bucket("ttft_ms")} as bucket, 1 as n
    from placed where ttft_ms is not null
    union all
    select window_start, place, 'tps', {words.bucket("decode_tps")}, 1
    from placed where {reported} and decode_tps > 0
    union all
    select window_start, place, 'itl', cast(gap.key as smallint), cast(gap.value as bigint)
    from placed cross join {words.pairs("itl")} as gap where itl is not null
  ) as points
  group by window_start, place, metric, bucket
)"""  # noqa: S608 - values are quoted by ``Words``


def _outages_sql(words: Words, wanted: HistoryWanted, steps: Steps) -> str:
    """Return a statement over the outages that went on in these steps.

    One without an end may still last, or its process was killed: it counts for a day.
    """
    lasting = f"ended_at is null and began_at >= {words.instant(steps.since - _LASTS)}"
    which = "" if wanted.deployment is None else f"\n  and deployment = {words.text(wanted.deployment)}"
    if wanted.model is not None:
        of_model = f"select deployment from rollup_series where model = {words.text(wanted.model)}"  # noqa: S608 - quoted
        which += f"\n  and deployment in ({of_model})"
    return f"""\
select deployment, began_at, ended_at, reason, replica
from outages
where began_at >= {words.instant(steps.since - _LONGEST)}
  and (ended_at >= {words.instant(steps.since)} or ({lasting})){which}
order by began_at desc, id limit {_MOST_OUTAGES}"""  # noqa: S608 - values are quoted by ``Words``


def _heat_sql(words: Words, wanted: HeatWanted, now: datetime) -> str:
    """Return a statement over the sums of hours: the database keeps them for a month (rollup_periods)."""
    of_hours = f"r.minutes = 60 and r.window_start >= {words.window(first(wanted.window, now))}"
    tables = f"""\
with series as (
  select id, min(id) over (partition by model, deployment) as place from rollup_series where {_which(words, wanted)}
),
hours as (  -- both databases find their sums best one hour after the other
  select window_start, {words.weekday("window_start")} as weekday, {words.hour("window_start")} as hour
  from (select distinct r.window_start from rollup_attempts as r where {of_hours}) as windows
),
sums as (
  select
    series.place, weekday, hour, cast(sum(r.n) as bigint) as n,
    cast(sum(r.n_errors) as double precision) / nullif(sum(r.n_errors + r.n_first_token), 0) as error_rate
  from rollup_attempts as r
  join series on series.id = r.series_id
  join hours on hours.window_start = r.window_start
  where r.minutes = 60
  group by series.place, weekday, hour
)"""  # noqa: S608 - values are quoted by ``Words``
    if wanted.metric in {HeatMetric.N, HeatMetric.ERROR_RATE}:
        value, joined = f"sums.{wanted.metric}", ""
    else:
        metric, q = _QUANTILES[wanted.metric]
        value, joined = "quantiles.value", "left join quantiles using (place, weekday, hour)\n"
        tables += f""",
ordered as (
  select
    *,
    sum(n) over (so_many rows unbounded preceding) as so_far,
    sum(n) over (so_many rows between unbounded preceding and unbounded following) as total
  from (
    select series.place, weekday, hour, r.metric, r.bucket, sum(cast(r.n as double precision)) as n
    from rollup_histograms as r
    join series on series.id = r.series_id
    join hours on hours.window_start = r.window_start
    where r.minutes = 60 and r.metric = '{metric}'
    group by series.place, weekday, hour, r.metric, r.bucket
  ) as counts
  window so_many as (partition by place, weekday, hour order by bucket)
),
quantiles as (
  select o.place, o.weekday, o.hour, {quantile(metric, q)} as value
  from ordered as o
  join buckets as b on b.bucket = o.bucket
  group by o.place, o.weekday, o.hour
)"""  # noqa: S608 - values are quoted by ``Words``
    return f"""\
{tables}
select s.deployment, s.model, sums.weekday, sums.hour, {value} as value, sums.n
from sums
join rollup_series as s on s.id = sums.place
{joined}order by s.deployment, s.model, sums.weekday, sums.hour"""  # noqa: S608 - values are quoted by ``Words``


def _which(words: Words, wanted: HistoryWanted | HeatWanted) -> str:
    """Return what is true of the series, or attempts, that are wanted."""
    asked = {"model": wanted.model, "deployment": wanted.deployment}
    given = [f"{name} = {words.text(value)}" for name, value in asked.items() if value is not None]
    return " and ".join(["deployment <> ''", *given])
