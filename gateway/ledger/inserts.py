"""Putting rows into the two tables, each exactly once however often it is tried."""

from collections.abc import Sequence
from datetime import UTC
from typing import Any

import asyncpg
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.ledger.database import DATABASE_ERRORS, is_sqlite, unreachable
from gateway.ledger.rows import ATTEMPT_COLUMNS, CALL_COLUMNS, Row, Rows

# What the rows themselves are to blame for. Anything else (no connection, no table, no permission) is a state of the
# database, and waiting mends it.
_BAD_ROWS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    DataError,
    IntegrityError,
    OverflowError,
    TypeError,
    ValueError,
)


class RowsRejectedError(Exception):
    """The database is well, and will not have these rows; nothing of them was stored."""


async def insert(engine: AsyncEngine, rows: Rows) -> None:
    """Store ``rows`` in one transaction; those already there stay as they are.

    Raises:
        RowsRejectedError: at least one of them is bad.
        DatabaseUnreachableError: anything else; they may or may not be stored, so try again.

    """
    store = _insert_sqlite if is_sqlite(engine.url) else _copy_postgres
    try:
        await store(engine, rows)
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error


async def _copy_postgres(engine: AsyncEngine, rows: Rows) -> None:
    async with engine.connect() as connection:
        raw = await connection.get_raw_connection()
        driver: Any = raw.driver_connection
        usable = False
        try:
            async with driver.transaction():
                await _copy_table(driver, "calls", CALL_COLUMNS, rows.calls)
                await _copy_table(driver, "attempts", ATTEMPT_COLUMNS, rows.attempts)
            usable = True
        except _BAD_ROWS as error:
            usable = True
            raise RowsRejectedError(_first_line(error)) from error
        finally:
            if not usable:  # a time-out, a cancellation, a server gone: what state it is in nobody knows
                driver.terminate()
                await connection.invalidate()


async def _copy_table(driver: Any, table: str, columns: Sequence[str], rows: list[Row]) -> None:
    if not rows:
        return
    incoming = f"incoming_{table}"
    names = ", ".join(columns)
    # A newer schema's columns, which this version does not name, take their defaults here too.
    await driver.execute(f"create temporary table {incoming} (like {table} including defaults) on commit drop")
    await driver.copy_records_to_table(incoming, records=rows, columns=columns)
    await driver.execute(
        f"insert into {table} ({names}) select {names} from {incoming} on conflict do nothing"  # noqa: S608 - our names
    )


async def _insert_sqlite(engine: AsyncEngine, rows: Rows) -> None:
    async with engine.begin() as connection:
        try:
            for table, columns, values in (
                ("calls", CALL_COLUMNS, rows.calls),
                ("attempts", ATTEMPT_COLUMNS, rows.attempts),
            ):
                if values:
                    marks = ", ".join("?" * len(columns))
                    statement = (
                        f"insert into {table} ({', '.join(columns)}) values ({marks}) "  # noqa: S608 - our names
                        "on conflict (id) do nothing"
                    )
                    position = columns.index("started_at")
                    await connection.exec_driver_sql(statement, [_for_sqlite(row, position) for row in values])
        except _BAD_ROWS as error:
            raise RowsRejectedError(_first_line(error)) from error


def _for_sqlite(row: Row, position: int) -> Row:
    """Write the instant as SQLite's own functions read it: UTC, without a zone."""
    instant = row[position].astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
    return (*row[:position], instant, *row[position + 1 :])


def _first_line(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    return str(cause).partition("\n")[0] or type(cause).__name__
