"""The hourly sums of each deployment, for a gateway that starts."""

from datetime import UTC, datetime, timedelta

from gateway.calls import HourlySum
from gateway.ledger import queries
from gateway.probe_records import PROBES
from providers.dialects.index import DIALECTS

HOURS = 24  # a deployment without answers in this time counts as new
BOARD_MINUTES = 10  # the most recent ones are the board's: other replicas may have counted them already

# Answers of any size: a histogram's metric is named after its values. Whole hours, and after them windows of five
# minutes. Instants are text, which both databases accept.
_QUERY = """
with of_interest as (
  select id, model, deployment, size_class from rollup_series where deployment <> '' and api in {answers}
),
sums as (
  select minutes, window_start, series_id, metric, bucket, n from rollup_histograms where metric in ('ttft', 'tps')
  union all select minutes, window_start, series_id, 'n', 0, n_first_token + n_errors from rollup_attempts
  union all select minutes, window_start, series_id, 'err', 0, n_errors from rollup_attempts
)
select model, deployment, size_class, minutes, window_start, metric, bucket, sum(n)
from sums join of_interest on of_interest.id = sums.series_id
where (minutes = 60 and window_start > '{since}' and window_start <= '{hour}')
   or (minutes = 5 and window_start > '{hour}' and window_start <= '{until}')
group by model, deployment, size_class, minutes, window_start, metric, bucket
"""
_ANSWERS = str(("", PROBES, *(dialect.endpoint for dialect in DIALECTS.values())))  # older attempts have no API


async def remembered(url: str, now: datetime) -> list[HourlySum]:
    """Return the counts of the last day by hour, without the last ten minutes.

    Raises:
        QueryError: it takes too long.
        SchemaOutdatedError, or QueryError: the ledger has no sums yet.
        DatabaseUnreachableError: the database cannot be reached.
        DatabaseUrlError: as for ``parse_url``.

    """
    until = (now.astimezone(UTC) - timedelta(minutes=BOARD_MINUTES)).replace(second=0, microsecond=0)
    until -= timedelta(minutes=until.minute % 5)
    hour = until.replace(minute=0)
    since, first, last = (_written(instant) for instant in (hour - timedelta(hours=HOURS), hour, until))
    result = await queries.run(url, _QUERY.format(since=since, hour=first, until=last, answers=_ANSWERS))
    return [
        HourlySum(model, deployment, size, _middle_s(start, minutes), metric, bucket, float(n))
        for model, deployment, size, minutes, start, metric, bucket, n in result.rows
        if n
    ]


def _written(instant: datetime) -> str:
    """Return the second before an instant as text: SQLite compares text, and window starts have no offset there."""
    return (instant - timedelta(seconds=1)).strftime("%Y-%m-%d %H:%M:%S+00")


def _middle_s(window_start: datetime | str, minutes: int) -> float:
    start = datetime.fromisoformat(window_start) if isinstance(window_start, str) else window_start
    return (start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp() + minutes * 30.0
