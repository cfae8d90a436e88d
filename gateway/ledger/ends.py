"""Rows of ends that a process has taken from ``stored_names``: kept beside the name until they are among the calls.

The process that takes an end keeps its row in the same transaction, and then spools it. If it is killed in between,
another finds the row here, and writes it: with the ids and the instant that it had, so that it is stored once.
"""

from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.core.calls import CallRecord
from gateway.ledger.database import DATABASE_ERRORS, unreachable
from gateway.ledger.entries import Finished, decode, encode
from gateway.ledger.errors import is_sqlite
from gateway.ledger.tables import calls, stored_names
from providers import UNREADABLE

AFTER = timedelta(seconds=30)  # who has taken an end spools its row at once: after this time it was killed
AT_ONCE = 500


def kept_end(row: CallRecord) -> str:
    """Return the row of an end as it is kept."""
    return encode(Finished(row)).decode()


async def kept_ends(engine: AsyncEngine) -> tuple[dict[str, CallRecord], list[str]]:
    """Return the rows that are kept and not among the calls, by the name's id, and the ids of those that are.

    Raises:
        DatabaseUnreachableError: the database is away.

    """
    name = stored_names.c
    wanted = select(name.id, name.ended).where(name.ended.is_not(None)).limit(AT_ONCE)
    rows: dict[str, CallRecord] = {}
    try:
        async with engine.connect() as connection:
            for each, ended in await connection.execute(wanted):
                with suppress(*UNREADABLE):  # of a later version
                    entry = decode(ended.encode())
                    if isinstance(entry, Finished):
                        rows[str(each)] = entry.call
            if not rows:
                return {}, []
            began = [_instant(engine, row.started_at) for row in rows.values()]
            among = calls.c.id.in_([row.id for row in rows.values()])
            then = calls.c.started_at.between(min(began), max(began))  # few partitions
            stored = {str(each) for each in await connection.scalars(select(calls.c.id).where(among, then))}
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error
    written = [each for each, row in rows.items() if row.id in stored]
    return {each: row for each, row in rows.items() if row.id not in stored}, written


def _instant(engine: AsyncEngine, at: datetime) -> datetime:
    return at.astimezone(UTC).replace(tzinfo=None) if is_sqlite(engine.url) else at


async def forget_ends(engine: AsyncEngine, names: Collection[str]) -> None:
    """Keep the rows of these names no longer: they are stored.

    Raises:
        DatabaseUnreachableError: the database is away.

    """
    try:
        async with engine.begin() as connection:
            of_them = stored_names.c.id.in_(names)
            await connection.execute(update(stored_names).where(of_them).values(ended=None))
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error
