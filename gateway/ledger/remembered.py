"""What the sums by hour remember of each deployment, for a gateway that starts."""

from datetime import UTC, datetime, timedelta

from gateway.calls import HourlySum
from gateway.ledger import queries

HOURS = 24  # whoever has answered none of them is new again

# Of answers of any size; a histogram's metric is that of its values. Both databases read an instant written like this.
_QUERY = """
with hours as (
  select id, model, deployment, api, size_class from rollup_series where deployment <> ''
)
select
  hours.model, hours.deployment, hours.size_class, sums.window_start, 'ttft' as metric, sums.bucket, sum(sums.n) as n
from rollup_histograms as sums join hours on hours.id = sums.series_id
where sums.minutes = 60 and sums.window_start >= '{since}' and sums.metric = 'ttft' and hours.api in {answers}
group by hours.model, hours.deployment, hours.size_class, sums.window_start, sums.bucket
union all
select hours.model, hours.deployment, 0, sums.window_start, 'tps', sums.bucket, sum(sums.n)
from rollup_histograms as sums join hours on hours.id = sums.series_id
where sums.minutes = 60 and sums.window_start >= '{since}' and sums.metric = 'tps' and hours.api in {answers}
group by hours.model, hours.deployment, sums.window_start, sums.bucket
union all
select hours.model, hours.deployment, 0, sums.window_start, 'n', 0, sum(sums.n_first_token + sums.n_errors)
from rollup_attempts as sums join hours on hours.id = sums.series_id
where sums.minutes = 60 and sums.window_start >= '{since}' and hours.api in {answers}
group by hours.model, hours.deployment, sums.window_start
union all
select hours.model, hours.deployment, 0, sums.window_start, 'err', 0, sum(sums.n_errors)
from rollup_attempts as sums join hours on hours.id = sums.series_id
where sums.minutes = 60 and sums.window_start >= '{since}' and hours.api in {answers}
group by hours.model, hours.deployment, sums.window_start
"""
_ANSWERS = "('', 'chat.completions', 'completions', 'messages', 'responses')"


async def remembered(url: str, now: datetime) -> list[HourlySum]:
    """Return the counts of the last day, by hour.

    Raises:
        QueryError: it takes too long, or the ledger has no sums yet.
        DatabaseUnreachableError: there is no database to ask.
        DatabaseUrlError: as ``parse_url``.

    """
    since = (now - timedelta(hours=HOURS)).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S+00")
    result = await queries.run(url, _QUERY.format(since=since, answers=_ANSWERS))
    return [
        HourlySum(model, deployment, size, _middle_s(start), metric, bucket, float(n))
        for model, deployment, size, start, metric, bucket, n in result.rows
        if n
    ]


def _middle_s(window_start: datetime | str) -> float:
    start = datetime.fromisoformat(window_start) if isinstance(window_start, str) else window_start
    return (start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp() + 1800.0
