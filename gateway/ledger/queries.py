"""Questions to the ledger in the asker's own SQL, read-only."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiosqlite
import asyncpg
import msgspec
from sqlalchemy.engine import URL

from gateway.ledger.database import DATABASE_ERRORS, check_schema, create_engine, is_sqlite, parse_url, unreachable
from gateway.ledger.errors import DatabaseUnreachableError, QueryError, SchemaTooNewError
from gateway.ledger.guards import SqliteGuard, refuse_side_effects
from gateway.ledger.roles import powers

QUERY_TIMEOUT_S = 60.0
BATCH_ROWS = 1000  # in memory at a time
_NEVER_S = 10.0**9  # who asks has a clock of his own, or wants none


class Result(msgspec.Struct, frozen=True):
    """An answer: the names of its columns, and its rows with values as the driver gives them."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    role_may: str | None = None  # what it could do besides reading, in words, where that was asked for


class Answer(msgspec.Struct, frozen=True):
    """An answer as it comes: never more than a batch of it is in memory."""

    columns: tuple[str, ...]
    batches: AsyncIterator[list[tuple[Any, ...]]]  # raises QueryError where the rest cannot be had
    role_may: str | None = None  # as of Result
    types: tuple[str, ...] = ()  # of the columns, as Postgres calls them; SQLite's have none


async def run(url: str, sql: str, *, timeout_s: float = QUERY_TIMEOUT_S, examine_role: bool = False) -> Result:
    """Run one statement that only reads, and return all of its answer. Otherwise as ``asked``."""
    async with asked(url, sql, timeout_s=timeout_s, examine_role=examine_role) as answer:
        rows = [row async for batch in answer.batches for row in batch]
        return Result(answer.columns, rows, answer.role_may)


@asynccontextmanager
async def asked(
    url: str, sql: str, *, timeout_s: float | None = QUERY_TIMEOUT_S, examine_role: bool = False
) -> AsyncIterator[Answer]:
    """Run one statement that only reads; ``examine_role`` looks at what else the role it runs as might do.

    Raises:
        QueryError: it would write, could do more than read, is no query, is more than one statement, is wrong, or
            takes longer than ``timeout_s`` (None: it may take as long as it does).
        DatabaseUnreachableError: there is no database to ask.
        SchemaOutdatedError: it names a table or view that the database lacks for want of a migration.
        DatabaseUrlError: as ``parse_url``.

    """
    parsed = parse_url(url)
    try:
        async with asyncio.timeout(timeout_s):
            if is_sqlite(parsed):
                async with _asked_sqlite(_existing(Path(str(parsed.database))), sql) as answer:
                    yield answer
            else:
                async with _asked_postgres(url, sql, timeout_s, examine_role=examine_role) as answer:
                    yield answer
    except TimeoutError as error:
        raise QueryError(f"the query took longer than {timeout_s:g} s and was stopped") from error
    except QueryError as error:
        if isinstance(error.__cause__, asyncpg.UndefinedTableError):
            await _look_at_schema(url)
        raise


async def _look_at_schema(url: str) -> None:
    """Raise SchemaOutdatedError where a migration is missing; return where the server's own words say more."""
    engine = create_engine(url)
    try:
        with suppress(DatabaseUnreachableError, SchemaTooNewError):
            await check_schema(engine)
    finally:
        await engine.dispose()


@asynccontextmanager
async def _asked_postgres(url: str, sql: str, timeout_s: float | None, *, examine_role: bool) -> AsyncIterator[Answer]:
    engine = create_engine(url)
    not_ours: BaseException | None = None
    try:
        async with engine.connect() as connection:
            raw = await connection.get_raw_connection()
            driver: Any = raw.driver_connection
            role_may = None
            if examine_role:
                with suppress(asyncpg.PostgresError):  # not quite a Postgres
                    role_may = await powers(driver)
            async with driver.transaction(readonly=True):
                # Our clock comes first. Compiling takes longer than most questions, and gains nothing for the others;
                # who asks by a cursor is taken to want the first rows soon, at the cost of the rest.
                limit_ms = 0 if timeout_s is None else int(2000 * timeout_s)
                await driver.execute(f"set local statement_timeout = {limit_ms}")
                await driver.execute("set local jit = off; set local cursor_tuple_fraction = 1")
                await refuse_side_effects(driver, sql)
                with _as_query_error(driver):
                    statement = await driver.prepare(sql)
                    attributes = statement.get_attributes()
                    columns = tuple(attribute.name for attribute in attributes)
                    types = tuple(attribute.type.name for attribute in attributes)
                    if not columns:  # COPY, COMMIT, SET, DO: what "read-only" does not stop
                        raise QueryError("only statements that return rows are run")
                    cursor = await statement.cursor(timeout=_NEVER_S)
                try:
                    yield Answer(columns, _batches_of_postgres(engine.url, driver, cursor), role_may, types)
                except BaseException as error:
                    not_ours = error  # a pipe that nobody reads any more is no fault of the database
                    raise
    except DATABASE_ERRORS as error:
        if error is not_ours:
            raise
        raise unreachable(engine.url, error) from error
    finally:
        await engine.dispose()


async def _batches_of_postgres(url: URL, driver: Any, cursor: Any) -> AsyncIterator[list[tuple[Any, ...]]]:
    while True:
        try:
            with _as_query_error(driver):
                records = await cursor.fetch(BATCH_ROWS, timeout=_NEVER_S)
        except DATABASE_ERRORS as error:
            raise unreachable(url, error) from error
        if not records:
            return
        yield [tuple(record) for record in records]


@contextmanager
def _as_query_error(driver: Any) -> Iterator[None]:
    """Blame the question for what the server says, as long as it is still there to say it."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        if driver.is_closed():
            raise
        raise QueryError(str(error)) from error


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


@asynccontextmanager
async def _asked_sqlite(path: Path, sql: str) -> AsyncIterator[Answer]:
    guard = SqliteGuard()
    try:
        async with _opened(path) as connection:
            await connection.execute("pragma query_only = on")
            await connection.set_authorizer(guard)
            try:
                async with connection.execute(sql) as cursor:
                    columns = tuple(column[0] for column in cursor.description or ())
                    yield Answer(columns, _batches_of_sqlite(cursor))
            except asyncio.CancelledError:
                await connection.interrupt()
                raise
    except aiosqlite.Error as error:
        raise QueryError(guard.refused or str(error)) from error


async def _batches_of_sqlite(cursor: aiosqlite.Cursor) -> AsyncIterator[list[tuple[Any, ...]]]:
    while rows := await cursor.fetchmany(BATCH_ROWS):
        yield [tuple(row) for row in rows]
