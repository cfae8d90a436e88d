"""Slowdowns, as they are listed."""

from datetime import datetime

from gateway.alerts.sources.slowdowns import Slowdown
from gateway.ledger.reports import shapes
from gateway.ledger.reports.reader import Reader
from gateway.ledger.reports.words import Words
from gateway.reports import SlowdownsWanted, Table

_MOST = 500
_OPEN = """\
select deployment, model, metric, began_at, ratio, low, high, n, evidence_sql
from slowdowns
where ended_at is null"""


async def slowdowns(reader: Reader, wanted: SlowdownsWanted, now: datetime) -> Table:
    """Return the slowdowns that are wanted, the newest first."""
    sql = slowdowns_sql(reader.words, wanted, now)
    return Table(shapes.rows(await reader.run(sql)), sql)


async def open_slowdowns(reader: Reader) -> list[Slowdown]:
    """Return the slowdowns that have not ended."""
    return [Slowdown(**row) for row in shapes.rows(await reader.run(_OPEN))]


def slowdowns_sql(words: Words, wanted: SlowdownsWanted, now: datetime) -> str:
    """Return a statement over the slowdowns that went on in the window."""
    asked = {"model": wanted.model, "deployment": wanted.deployment, "metric": wanted.metric}
    which = "".join(f" and {name} = {words.text(value)}" for name, value in asked.items() if value is not None)
    since = words.instant(now - wanted.window.length)
    return (
        "select id, deployment, model, metric, began_at, noticed_at, ended_at, ending, ratio, low, high, n, "  # noqa: S608 - quoted
        f"evidence_sql from slowdowns where (ended_at is null or ended_at >= {since})"
        f"{which} order by began_at desc, id limit {_MOST}"
    )
