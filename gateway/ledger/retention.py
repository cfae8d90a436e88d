"""How long rows are kept: what is older is deleted, a little at a time, by one replica at a time."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.ledger.database import DATABASE_ERRORS, is_sqlite, unreachable

BATCH_ROWS = 2000  # deleted in one transaction: shipping never waits long for it
PAUSE_S = 0.05  # between two of them, so that others come first

TABLES = ("calls", "attempts")
# A transaction's lock, taken anew for each step: a session's would outlive a failure, or be left behind in a pooler.
_LOCK = "hashtext('holeshot.prune')"


class Retention(msgspec.Struct, frozen=True):
    """Days for which rows are kept; None: for good."""

    calls_days: float | None = None
    attempts_days: float | None = None

    @property
    def keeps_all(self) -> bool:
        """Whether there is nothing to delete, ever."""
        return self.calls_days is None and self.attempts_days is None

    def cutoffs(self, now: datetime) -> Mapping[str, datetime]:
        """Return, by table, the instant before which rows are too old."""
        days = {"calls": self.calls_days, "attempts": self.attempts_days}
        return {table: now - timedelta(days=kept) for table, kept in days.items() if kept is not None}


async def expired(engine: AsyncEngine, retention: Retention, now: datetime) -> dict[str, int]:
    """Return how many rows of each table are too old.

    Raises:
        DatabaseUnreachableError: the database cannot be asked.

    """
    try:
        async with engine.connect() as connection:
            counts = {}
            for table, before in retention.cutoffs(now).items():
                count = text(f"select count(*) from {table} where started_at < :before")  # noqa: S608 - our names
                counts[table] = int(await connection.scalar(count, {"before": _instant(engine, before)}) or 0)
            return counts
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error


async def prune(
    engine: AsyncEngine, retention: Retention, now: datetime, deleted: Callable[[str, int], None] = lambda *_: None
) -> dict[str, int] | None:
    """Delete the rows that are too old; return how many of each table, None while somebody else is at it.

    ``deleted`` hears of each step: the table, and how many rows went.

    Raises:
        DatabaseUnreachableError: the database is away; what was deleted so far stays so.

    """
    try:
        async with engine.connect() as connection:
            if not await _is_elected(engine, connection):
                return None
            return {
                table: await _prune(engine, connection, table, before, deleted)
                for table, before in retention.cutoffs(now).items()
            }
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error


async def _is_elected(engine: AsyncEngine, connection: AsyncConnection) -> bool:
    """Return whether nobody else deletes at the moment. Two processes on one SQLite file do no harm."""
    return is_sqlite(engine.url) or bool(await connection.scalar(text(f"select pg_try_advisory_xact_lock({_LOCK})")))


async def _prune(
    engine: AsyncEngine,
    connection: AsyncConnection,
    table: str,
    before: datetime,
    deleted: Callable[[str, int], None],
) -> int:
    place = "rowid" if is_sqlite(engine.url) else "ctid"
    some = f"select {place} from {table} where started_at < :before order by started_at limit {BATCH_ROWS}"  # noqa: S608 - our names
    statement = text(f"delete from {table} where {place} in ({some})")  # noqa: S608 - likewise
    if place == "ctid":
        statement = text(f"delete from {table} where ctid = any(array({some}))")  # noqa: S608 - likewise
    total = 0
    while True:
        if place == "ctid":
            await connection.execute(text(f"select pg_advisory_xact_lock({_LOCK})"))
        result = await connection.execute(statement, {"before": _instant(engine, before)})
        await connection.commit()
        total += result.rowcount
        deleted(table, result.rowcount)
        if result.rowcount < BATCH_ROWS:
            return total
        await asyncio.sleep(PAUSE_S)


def _instant(engine: AsyncEngine, instant: datetime) -> datetime | str:
    """Return an instant as the database compares it with its own."""
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f") if is_sqlite(engine.url) else instant
