"""Alerts, the newest first."""

from datetime import datetime

from gateway.alerts import ModelHour, OpenSlowdown, StatedModel
from gateway.core.reports import SlowdownsWanted, Table
from gateway.ledger.reports.reader import Reader, Words, rows

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
    """Return the open alerts, and the newest of the resolved ones."""
    return Table(rows(await reader.run(LISTED)), LISTED)


# Slowdowns for the list.

_MOST = 500
_OPEN = """\
select deployment, model, metric, began_at, ratio, low, high, n, evidence_sql
from slowdowns
where ended_at is null"""


async def slowdowns(reader: Reader, wanted: SlowdownsWanted, now: datetime) -> Table:
    """Return the wanted slowdowns, the newest first."""
    sql = slowdowns_sql(reader.words, wanted, now)
    return Table(rows(await reader.run(sql)), sql)


async def open_slowdowns(reader: Reader) -> list[OpenSlowdown]:
    """Return the slowdowns that have not ended."""
    return [OpenSlowdown(**row) for row in rows(await reader.run(_OPEN))]


async def stated_models(reader: Reader, sql: str) -> list[StatedModel]:
    """Return the models that deployments state, selected by ``sql``."""
    return [StatedModel(**row) for row in rows(await reader.run(sql))]


async def lengths(reader: Reader, sql: str) -> list[ModelHour]:
    """Return the lengths of prompts and answers by hour, selected by ``sql``."""
    return [ModelHour(**row) for row in rows(await reader.run(sql))]


def slowdowns_sql(words: Words, wanted: SlowdownsWanted, now: datetime) -> str:
    """Return the statement for slowdowns within the window."""
    filters = {"model": wanted.model, "deployment": wanted.deployment, "metric": wanted.metric}
    which = "".join(f" and {name} = {words.text(value)}" for name, value in filters.items() if value is not None)
    since = words.instant(now - wanted.window.length)
    return (
        "select id, deployment, model, metric, began_at, noticed_at, ended_at, ending, ratio, low, high, n, "  # noqa: S608 - quoted
        f"evidence_sql from slowdowns where (ended_at is null or ended_at >= {since})"
        f"{which} order by began_at desc, id limit {_MOST}"
    )
