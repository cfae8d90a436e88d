"""Inserts rows into the tables, each exactly once, even after several tries; outages get their ends.

Of stored names the latest row is kept; a name that is cleared stays so.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.core.columns import Sql
from gateway.ledger.database import DATABASE_ERRORS, check_file, unreachable
from gateway.ledger.entries import (
    ATTEMPT_COLUMNS,
    CALL_COLUMNS,
    NAME_COLUMNS,
    OUTAGE_COLUMNS,
    REFUSAL_COLUMNS,
    TABLES,
    Entry,
    Named,
    OutageChange,
    RefusedRequests,
    Row,
    attempt_rows,
    call_rows,
    name_rows,
    outage_rows,
    refusal_rows,
)
from gateway.ledger.errors import is_sqlite
from gateway.ledger.folding import ADD_UP_SQLITE

INSERT_TIMEOUT_S = 15.0  # a thousand calls take some milliseconds; on a timeout a new connection is tried
TRIES = 5  # of a batch that met another transaction, and was not stored
_ALL: Mapping[str, datetime] = {}
_LARGEST = 2**31 - 1  # of an integer column


def _of_type(sql: Sql) -> frozenset[str]:
    return frozenset(each.name for columns in TABLES.values() for each in columns.declared if each.sql is sql)


_WIDE = _of_type(Sql.BIGINT)  # columns for larger numbers, which are bounded earlier
_INSTANTS = _of_type(Sql.INSTANT)
SLICE_ROWS = 16  # encoded without a pause, in about 30 µs; then the event loop runs other tasks

# Errors that rows cause. All others (no connection, no table, no permission) are a state of the database that will
# change.
_BAD_ROWS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    sqlite3.DataError,
    sqlite3.IntegrityError,
    OverflowError,
    TypeError,
    ValueError,
)
_OVERFLOW = "integer overflow"  # SQLite's words when a sum overflows although each number fits its column


# A row for a partition that is being changed (the schema has no other checks), or a deadlock.
_CROSSED = (asyncpg.CheckViolationError, asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


class RowsRejectedError(Exception):
    """The database works, but rejects these rows; none was stored."""


async def insert(engine: AsyncEngine, entries: Sequence[Entry], kept_since: Mapping[str, datetime] = _ALL) -> int:
    """Store the rows of ``entries`` in one transaction; existing rows stay as they are.

    ``kept_since``: by table, the instant since which rows are kept. Return the number of older rows, which are not
    stored.

    Raises:
        RowsRejectedError: at least one row is invalid.
        DatabaseUnreachableError: any other failure; perhaps the rows are stored, so try again.

    """
    try:
        async with engine.connect() as connection:
            raw = await connection.get_raw_connection()
            tries, clamps, is_new = 0, False, True
            while True:
                tables = [
                    _Table(name, columns, _clamped(rows, columns) if clamps else rows, kept_since.get(name))
                    for name, columns, rows in _tables(entries)
                ]
                try:
                    if is_sqlite(engine.url):
                        await _insert_sqlite(connection, raw.driver_connection, tables)
                    else:
                        await _copy_postgres(connection, raw.driver_connection, tables, is_new=is_new)
                except asyncpg.UniqueViolationError:
                    is_new = False
                except RowsRejectedError:
                    if clamps:
                        raise
                    clamps = True  # perhaps a number is too large for its column; the row must not be lost for that
                except _CROSSED:
                    tries += 1
                    if tries == TRIES:
                        raise
                else:
                    return sum(table.expired for table in tables)
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error


async def _copy_postgres(connection: AsyncConnection, driver: Any, tables: Sequence["_Table"], *, is_new: bool) -> None:
    """Copy rows into the tables. COPY fails on existing rows: if some may exist, rows go through a temporary table.

    A temporary table costs as much as a dozen stored calls, and is rare: after a COMMIT without an answer.

    Raises:
        asyncpg.UniqueViolationError: a row existed; none was stored.

    """
    aside = [table.name for table in tables if not is_new or table.name in _UPDATED]
    begin = ";".join(("begin", _server_timeouts(), *(_MAKE_ROOM[name] for name in aside)))
    end = ";".join((*(_TAKE_OVER[name] for name in aside), "commit"))
    usable = False
    try:
        try:
            await driver.execute(begin)
            for table in tables:
                place = f"incoming_{table.name}" if table.name in aside else table.name
                await driver.copy_records_to_table(place, records=_in_slices(iter(table)), columns=table.columns)
            await driver.execute(end)
        except (*_CROSSED, *_BAD_ROWS) as error:
            await driver.execute("rollback")
            usable = True
            if isinstance(error, _CROSSED) or (is_new and isinstance(error, asyncpg.UniqueViolationError)):
                raise
            raise RowsRejectedError(_first_line(error)) from error
        usable = True
    finally:
        if not usable:  # timeout, cancellation or lost server: the transaction's state is unknown
            driver.terminate()
            await connection.invalidate()


def _server_timeouts() -> str:
    """Return SQL with timeouts for the server: work for a disconnected client would block the next attempt."""
    timeout_ms = int(INSERT_TIMEOUT_S * 1000)
    return f"set local statement_timeout = {timeout_ms};set local idle_in_transaction_session_timeout = {timeout_ms}"


async def _in_slices(rows: Iterator[Row]) -> AsyncIterator[Row]:
    """Yield ``rows`` with pauses for the event loop. A thread would block the loop for longer (GIL)."""
    while some := list(islice(rows, SLICE_ROWS)):
        for row in some:
            yield row
        await asyncio.sleep(0)


async def _insert_sqlite(connection: AsyncConnection, driver: Any, tables: Sequence["_Table"]) -> None:
    # Directly with the driver: each call is a round trip to the driver's thread, so a batch of any size takes four.
    # Without a commit the pool rolls back.
    try:
        for table in tables:
            await driver.executemany(_INSERT_SQLITE[table.name], _for_sqlite(table, table.instants))
        await driver.execute(ADD_UP_SQLITE)
        try:
            check_file(connection)
        except OSError:
            await connection.invalidate()
            raise
        await driver.commit()
    except _BAD_ROWS as error:
        raise RowsRejectedError(_first_line(error)) from error
    except sqlite3.OperationalError as error:
        if _OVERFLOW not in str(error):
            raise
        await driver.rollback()  # otherwise the next try would find these rows
        raise RowsRejectedError(_first_line(error)) from error


def _for_sqlite(rows: Iterable[Row], positions: Sequence[int]) -> Iterator[Row]:
    """Format instants for SQLite's functions: UTC, without a time zone."""
    for row in rows:
        for position in positions:
            if (instant := row[position]) is not None:
                text = instant.astimezone(UTC).isoformat(" ", "microseconds").removesuffix("+00:00")
                row = (*row[:position], text, *row[position + 1 :])  # noqa: PLW2901 - one of its values is another
        yield row


def _tables(entries: Sequence[Entry]) -> Iterator[tuple[str, tuple[str, ...], Iterator[Row]]]:
    yield "calls", CALL_COLUMNS, call_rows(entries)
    yield "attempts", ATTEMPT_COLUMNS, attempt_rows(entries)
    kinds = {*map(type, entries)}
    if RefusedRequests in kinds:  # in one batch a minute, at most
        yield "refusals", REFUSAL_COLUMNS, refusal_rows(entries)
    if OutageChange in kinds:
        yield "outages", OUTAGE_COLUMNS, outage_rows(entries)
    if Named in kinds:
        yield "stored_names", NAME_COLUMNS, name_rows(entries)


def _clamped(rows: Iterator[Row], columns: Sequence[str]) -> Iterator[Row]:
    """Yield ``rows`` with numbers bounded to what the columns can hold."""
    for row in rows:
        yield tuple(
            min(value, _LARGEST) if type(value) is int and column not in _WIDE else value
            for column, value in zip(columns, row, strict=True)
        )


class _Table:
    """The rows of one table that are not too old; older rows are counted only."""

    def __init__(self, name: str, columns: tuple[str, ...], rows: Iterator[Row], since: datetime | None) -> None:
        self.name = name
        self.columns = columns
        self.instants = [at for at, column in enumerate(columns) if column in _INSTANTS]
        self.expired = 0
        self._rows = rows
        self._since = since

    def __iter__(self) -> Iterator[Row]:
        if self._since is None:
            yield from self._rows
            return
        began = self.instants[0]
        for row in self._rows:
            if row[began] >= self._since:
                yield row
            else:
                self.expired += 1


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


_NAMES = {table: ", ".join(columns.names) for table, columns in TABLES.items()}
_CONFLICT = dict.fromkeys(_NAMES, "do nothing") | {
    "outages": "do update set ended_at = excluded.ended_at "
    "where outages.ended_at is null and excluded.ended_at is not null",
    "stored_names": "do update set expires_at = excluded.expires_at, client = excluded.client, known = excluded.known, "
    "sealed = excluded.sealed "
    "where stored_names.known <> '' and excluded.expires_at >= stored_names.expires_at",
}

_UPDATED = frozenset({"outages", "stored_names"})  # existing rows may get an end, or a later one

# Columns of a newer schema, which this version does not know, have their defaults in temporary tables, too.
_MAKE_ROOM = {
    table: f"create temporary table incoming_{table} (like {table} including defaults) on commit drop"
    for table in _NAMES
}
_TAKE_OVER = {
    table: f"insert into {table} ({names}) select {names} from incoming_{table} on conflict "  # noqa: S608 - our names
    + ("(id) " * (table in _UPDATED) + _CONFLICT[table])
    for table, names in _NAMES.items()
}
_INSERT_SQLITE = {
    table: f"insert into {table} ({names}) values ({', '.join('?' * len(names.split(', ')))}) "  # noqa: S608 - our names
    f"on conflict (id) {_CONFLICT[table]}"
    for table, names in _NAMES.items()
}
