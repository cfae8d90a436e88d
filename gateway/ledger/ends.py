"""Rows of ended calls, kept in ``stored_names`` until they are among the calls.

The process that takes an end keeps the row in the same transaction, and then spools the row. If this process is killed
in between, another process finds the row here and writes it, with the same ids and instants, so that the row is stored
once. Also the responses that have no end so far.
"""

from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.core.calls import CallRecord
from gateway.core.records import StoredName
from gateway.ledger.database import DATABASE_ERRORS, unreachable
from gateway.ledger.entries import Finished, decode, encode
from gateway.ledger.errors import is_sqlite
from gateway.ledger.tables import calls, stored_names
from providers import UNREADABLE

AFTER = timedelta(seconds=30)  # a row is spooled at once after its end is taken; if not by now, the process was killed
AT_ONCE = 500
MOST_UNENDED = 1_000  # the newest responses in the background that a process counts and asks for after its start


def kept_end(row: CallRecord) -> str:
    """Return the row of an ended call as text for ``stored_names``."""
    return encode(Finished(row)).decode()


async def kept_ends(engine: AsyncEngine) -> tuple[dict[str, CallRecord], list[str], int]:
    """Return by the name's id the kept rows that are not among the calls; the ids of stored ones; unreadable ones.

    At most 500 rows are read at once; the third value is how many rows on the way could not be read.

    Raises:
        DatabaseUnreachableError: the database cannot be reached.

    """
    name = stored_names.c
    query = select(name.id, name.ended).where(name.ended.is_not(None)).order_by(name.id).limit(AT_ONCE)
    rows: dict[str, CallRecord] = {}
    unreadable = 0
    try:
        async with engine.connect() as connection:
            page = (await connection.execute(query)).all()
            while page:
                ends = {str(each): _read(ended) for each, ended in page}
                rows |= {each: row for each, row in ends.items() if row is not None}
                unreadable += sum(row is None for row in ends.values())
                if rows or len(page) < AT_ONCE:
                    break
                page = (await connection.execute(query.where(name.id > page[-1].id))).all()
            if not rows:
                return {}, [], unreadable
            began = [_instant(engine, row.started_at) for row in rows.values()]
            among = calls.c.id.in_([row.id for row in rows.values()])
            then = calls.c.started_at.between(min(began), max(began))  # reads few partitions
            stored = {str(each) for each in await connection.scalars(select(calls.c.id).where(among, then))}
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error
    written = [each for each, row in rows.items() if row.id in stored]
    return {each: row for each, row in rows.items() if row.id not in stored}, written, unreadable


async def unended(engine: AsyncEngine, now: datetime) -> list[StoredName]:
    """Return the newest responses that some process left running, without an end so far, at most 1,000.

    Raises:
        DatabaseUnreachableError: the database cannot be reached.

    """
    row = stored_names.c
    runs = (row.sealed.is_not(None), row.known != "", row.expires_at > _instant(engine, now))
    query = select(row.id, row.expires_at, row.client, row.known, row.sealed).where(*runs)
    query = query.order_by(row.expires_at.desc()).limit(MOST_UNENDED)
    try:
        async with engine.connect() as connection:
            return [StoredName(**found) for found in (await connection.execute(query)).mappings()]
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error


def _read(ended: str) -> CallRecord | None:
    """Return a kept row; None if a later version has written it in another form."""
    with suppress(*UNREADABLE):
        entry = decode(ended.encode())
        if isinstance(entry, Finished):
            return entry.call
    return None


def _instant(engine: AsyncEngine, at: datetime) -> datetime:
    return at.astimezone(UTC).replace(tzinfo=None) if is_sqlite(engine.url) else at


async def forget_ends(engine: AsyncEngine, names: Collection[str]) -> None:
    """Clear the kept rows of these names, which are among the calls now.

    Raises:
        DatabaseUnreachableError: the database cannot be reached.

    """
    try:
        async with engine.begin() as connection:
            is_named = stored_names.c.id.in_(names)
            await connection.execute(update(stored_names).where(is_named).values(ended=None))
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error
