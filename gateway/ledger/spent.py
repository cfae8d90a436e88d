"""What clients have spent, for a gateway that starts: limits go on counting from there."""

from datetime import UTC, datetime

from gateway.calls import Spent
from gateway.ledger import queries
from gateway.ledger.reports.words import paid

# A day's hours, and a month's days. Instants are text, which both databases accept.
_QUERY = f"""
select client, model,
       coalesce(sum(case when minutes = 60 then usd end), 0) as day_usd,
       coalesce(sum(case when minutes = 1440 then usd end), 0) as month_usd
from (select client, model, minutes, window_start, {paid("cost_usd")} as usd from rollup_calls) as r
where (minutes = 60 and window_start >= '{{day}}') or (minutes = 1440 and window_start >= '{{month}}')
group by client, model
"""  # noqa: S608 - our own values
TIMEOUT_S = 10.0


async def spent(url: str, now: datetime) -> list[Spent]:
    """Return what has been spent since the UTC day, and the UTC month, around ``now`` began.

    Raises:
        LedgerError: the database is away, or has no sums.

    """
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    query = _QUERY.format(day=_written(day), month=_written(day.replace(day=1)))
    result = await queries.run(url, query, timeout_s=TIMEOUT_S)
    return [
        Spent(client or None, model, float(of_day), float(of_month)) for client, model, of_day, of_month in result.rows
    ]


def _written(instant: datetime) -> str:
    """Return an instant as text: SQLite compares text, and window starts have no offset there."""
    return instant.strftime("%Y-%m-%d %H:%M:%S")
