"""Alerts, the newest first."""

from gateway.ledger.reports import shapes
from gateway.ledger.reports.reader import Reader
from gateway.reports import Table

MOST = 200
LISTED = f"""\
select
  id, key, kind, subject, severity, summary, figures, sql, opened_at, seen_at, resolved_at, replica, scope,
  (select count(*) from alert_messages as m where m.alert_id = alerts.id and m.is_sent) as messages_sent,
  (select count(*) from alert_messages as m where m.alert_id = alerts.id and m.done_at is null) as messages_waiting,
  (select count(*) from alert_messages as m where m.alert_id = alerts.id and not m.is_sent) as messages_given_up
from alerts
order by case when resolved_at is null then 0 else 1 end, opened_at desc
limit {MOST}"""  # noqa: S608 - a number


async def listed(reader: Reader) -> Table:
    """Return the alerts that are open, and the newest of the others."""
    return Table(shapes.rows(await reader.run(LISTED)), LISTED)
