"""Questions to the ledger in the asker's own SQL, read-only."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiosqlite
import asyncpg
import msgspec

from gateway.ledger.database import DATABASE_ERRORS, create_engine, is_sqlite, parse_url, unreachable
from gateway.ledger.errors import DatabaseUnreachableError, QueryError
from gateway.ledger.guards import SqliteGuard, refuse_side_effects
from gateway.ledger.roles import powers

QUERY_TIMEOUT_S = 60.0


class Result(msgspec.Struct, frozen=True):
    """An answer: the names of its columns, and its rows with values as the driver gives them."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    role_may: str | None = None  # what it could do besides reading, in words, where that was asked for


async def run(url: str, sql: str, *, timeout_s: float = QUERY_TIMEOUT_S, examine_role: bool = False) -> Result:
    """Run one statement that only reads; ``examine_role`` looks at what else the role it runs as might do.

    Raises:
        QueryError: it would write, could do more than read, is no query, is more than one statement, is wrong, or
            takes longer than ``timeout_s``.
        DatabaseUnreachableError: there is no database to ask.
        DatabaseUrlError: as ``parse_url``.

    """
    parsed = parse_url(url)
    try:
        async with asyncio.timeout(timeout_s):
            return await (
                _ask_sqlite(_existing(Path(str(parsed.database))), sql)
                if is_sqlite(parsed)
                else _ask_postgres(url, sql, timeout_s, examine_role=examine_role)
            )
    except TimeoutError as error:
        raise QueryError(f"the query took longer than {timeout_s:g} s and was stopped") from error


async def _ask_postgres(url: str, sql: str, timeout_s: float, *, examine_role: bool) -> Result:
    engine = create_engine(url)
    try:
        async with engine.connect() as connection:
            raw = await connection.get_raw_connection()
            driver: Any = raw.driver_connection
            role_may = None
            if examine_role:
                with suppress(asyncpg.PostgresError):  # not quite a Postgres
                    role_may = await powers(driver)
            async with driver.transaction(readonly=True):
                await driver.execute(f"set local statement_timeout = {int(2000 * timeout_s)}")  # our clock comes first
                await refuse_side_effects(driver, sql)
                try:
                    statement = await driver.prepare(sql)
                    columns = tuple(attribute.name for attribute in statement.get_attributes())
                    if not columns:  # COPY, COMMIT, SET, DO: what "read-only" does not stop
                        raise QueryError("only statements that return rows are run")
                    records = await statement.fetch(timeout=2 * timeout_s)  # the caller's clock comes first
                except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                    if driver.is_closed():
                        raise
                    raise QueryError(str(error)) from error
                return Result(columns, [tuple(record) for record in records], role_may)
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error
    finally:
        await engine.dispose()


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise DatabaseUnreachableError(f"there is no ledger at {path}; run: holeshot migrate")
    return path


@asynccontextmanager
async def _opened(path: Path) -> AsyncIterator[aiosqlite.Connection]:
    """Open a file to read it. Its thread never outlives this, also where a time-out comes while it opens."""
    opening = asyncio.ensure_future(aiosqlite.connect(f"file:{quote(str(path))}?mode=ro", uri=True))
    try:
        connection = await asyncio.shield(opening)
    except asyncio.CancelledError:
        with suppress(aiosqlite.Error):
            await (await opening).close()
        raise
    try:
        yield connection
    finally:
        await connection.close()


async def _ask_sqlite(path: Path, sql: str) -> Result:
    guard = SqliteGuard()
    try:
        async with _opened(path) as connection:
            await connection.execute("pragma query_only = on")
            await connection.set_authorizer(guard)
            try:
                async with connection.execute(sql) as cursor:
                    rows = [tuple(row) for row in await cursor.fetchall()]
                    return Result(tuple(column[0] for column in cursor.description or ()), rows)
            except asyncio.CancelledError:
                await connection.interrupt()
                raise
    except aiosqlite.Error as error:
        raise QueryError(guard.refused or str(error)) from error
