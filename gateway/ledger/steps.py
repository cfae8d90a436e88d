"""SQL for how fast and reliable deployments were, step by step: for the views of speed, histories and heat maps.

A step is a slot: windows of sums that are added up together, named by a number or an instant.
"""

from collections.abc import Mapping

import msgspec

from gateway.ledger.reports.reader import Words, quantile

_COUNTS = ("n", "n_first_token", "n_errors", "n_rate_limited", "n_won")
Quantiles = Mapping[str, tuple[str, str]]  # by column: the metric, and the part of values below the quantile


class StepTables(msgspec.Struct, frozen=True):
    """The tables of steps, to write after ``with``, and their join, to write after ``from``.

    The join has the columns slot, model, deployment, provider, the counts, and one for each quantile.
    """

    tables: str
    joined: str


class BucketPlaces(msgspec.Struct, frozen=True):
    """The SELECT of a metric's buckets by place: of all slots, or for one row of the table ``slots`` (``of_each``)."""

    sql: str
    of_each: bool = False


def of_sums(
    words: Words, *, minutes: int, within: str, slot: str, which: str, key: str, quantiles: Quantiles
) -> StepTables:
    """Return the steps of the windows of ``minutes`` length that meet ``within``; ``key``: the columns of a place."""
    added = ", ".join(f"cast(sum(r.{name}) as bigint) as {name}" for name in _COUNTS)
    summed = _summed(words, "rollup_attempts", f"r.minutes = {minutes}", added)
    tables = f"""\
series as (  -- numbers are grouped in half the time that names take
  select id, min(id) over (partition by {key}) as place from rollup_series
  where {which}
),
places as (
  select id as place, model, deployment, provider from rollup_series where id in (select place from series)
),
{_slots(words, minutes, within, slot)},
sums as (
  select slot, place, {", ".join(_COUNTS)}
  from {_each(summed)}(
      {summed.sql}
  ) as summed
)"""  # noqa: S608 - values are quoted by ``Words``
    metrics = dict.fromkeys(metric for metric, _ in quantiles.values())
    return stepped(tables, quantiles, {metric: _histogram(words, minutes, metric) for metric in metrics})


def stepped(tables: str, quantiles: Quantiles, counts: Mapping[str, BucketPlaces]) -> StepTables:
    """Return the steps from the tables ``places`` and ``sums``, and the quantiles of the metrics in ``counts``."""
    of_metrics = [
        _of_metric(metric, {name: q for name, (of, q) in quantiles.items() if of == metric}, each)
        for metric, each in counts.items()
    ]
    joins = [f"left join {metric} using (slot, place)" for metric in counts]
    return StepTables(",\n".join([tables, *of_metrics]), "\n".join(["sums", "join places using (place)", *joins]))


def _of_metric(metric: str, asked: Mapping[str, str], counts: BucketPlaces) -> str:
    """Return the table with a metric's quantiles by slot and place."""
    key = "" if counts.of_each else "slot, "
    columns = ",\n    ".join(f"{quantile(q)} as {name}" for name, q in asked.items())
    return f"""\
{metric} as (
  select
    slot, place,
    {columns}
  from {_each(counts)}(
    select
      *,
      sum(n) over (so_many rows unbounded preceding) as so_far,
      sum(n) over (so_many rows between unbounded preceding and unbounded following) as total
    from (
      {counts.sql}
    ) as counts
    window so_many as (partition by {key}place order by bucket)
  ) as o
  join buckets as b on b.bucket = o.bucket
  where o.so_far >= {min(asked.values())} * o.total and o.so_far - o.n < {max(asked.values())} * o.total
  group by slot, place
)"""  # noqa: S608 - our own values


def _each(counts: BucketPlaces) -> str:
    return "slots cross join lateral " if counts.of_each else ""


def _slots(words: Words, minutes: int, within: str, slot: str) -> str:
    """Return the table of slots: windows of sums that are added up together."""
    starts = f"select distinct window_start from rollup_attempts where minutes = {minutes} and {within}"  # noqa: S608 - our own values
    windows = f"select window_start, {slot} as slot from ({starts}) as windows"  # noqa: S608 - likewise
    if words.is_postgres:
        windows = f"select slot, array_agg(window_start) as windows from ({windows}) as numbered group by slot"  # noqa: S608 - likewise
    return f"slots as (\n  {windows}\n)"


def _summed(words: Words, table: str, condition: str, columns: str, by: str = "") -> BucketPlaces:
    """Return the SELECT that adds up a table of sums (r) by slot and place.

    SQLite finds sums fastest one window after the other. Postgres adds up slot after slot: all slots together would
    group and sort more than a processor's caches hold, and take up to twice as long. More ``work_mem`` does not help.
    """
    if words.is_postgres:
        slot, joined, is_in = "", "", " and r.window_start = any (slots.windows)"
    else:
        slot, joined, is_in = "slot, ", " join slots on slots.window_start = r.window_start", ""
    sql = f"""\
select {slot}series.place, {columns}
      from {table} as r join series on series.id = r.series_id{joined}
      where {condition}{is_in}
      group by {slot}series.place{by}"""  # noqa: S608 - our own values
    return BucketPlaces(sql, words.is_postgres)


def _histogram(words: Words, minutes: int, metric: str) -> BucketPlaces:
    condition = f"r.minutes = {minutes} and r.metric = '{metric}'"
    columns = "r.bucket, sum(cast(r.n as double precision)) as n"
    return _summed(words, "rollup_histograms", condition, columns, ", r.bucket")
