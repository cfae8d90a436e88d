"""Read-only queries of the ledger, in the user's own SQL."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
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
_NEVER_S = 10.0**9  # the caller has its own timeout, or wants none
_TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?(?:\*/|\Z)|\w+|\s+|[<>!=]=|<>|.""", re.DOTALL
)
_COMPARISONS = frozenset({"=", "==", "<", ">", "<=", ">=", "<>", "!="})
_STORED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d(\.\d+)?)?")


class Result(msgspec.Struct, frozen=True):
    """A result: column names, and rows with the driver's values."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    role_may: str | None = None  # what the role may do besides reading, in words, if requested


class Answer(msgspec.Struct, frozen=True):
    """A result as a stream: at most one batch of it is in memory."""

    columns: tuple[str, ...]
    batches: AsyncIterator[list[tuple[Any, ...]]]  # raises QueryError if the rest cannot be read
    role_may: str | None = None  # as in Result
    types: tuple[str, ...] = ()  # of the columns, in Postgres' terms; SQLite has none


async def run(url: str, sql: str, *, timeout_s: float = QUERY_TIMEOUT_S, examine_role: bool = False) -> Result:
    """Run one read-only statement and return its whole result. For the rest see ``asked``."""
    async with asked(url, sql, timeout_s=timeout_s, examine_role=examine_role) as answer:
        rows = [row async for batch in answer.batches for row in batch]
        return Result(answer.columns, rows, answer.role_may)


@asynccontextmanager
async def asked(
    url: str, sql: str, *, timeout_s: float | None = QUERY_TIMEOUT_S, examine_role: bool = False
) -> AsyncIterator[Answer]:
    """Run one read-only statement; ``examine_role`` reports what else its role might do.

    Raises:
        QueryError: it would write, could do more than read, is not a query, has several statements, is wrong, or
            takes longer than ``timeout_s`` (None: no limit).
        DatabaseUnreachableError: the database cannot be reached.
        SchemaOutdatedError: it uses a table or view that a missing migration would make.
        DatabaseUrlError: as for ``parse_url``.

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
    """Raise SchemaOutdatedError if a migration is missing; otherwise the server's own message says more."""
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
                # Our own timeout comes first. JIT compilation takes longer than most queries. Users of a cursor want
                # the first rows soon, even if the rest takes longer.
                limit_ms = 0 if timeout_s is None else int(2000 * timeout_s)
                await driver.execute(f"set local statement_timeout = {limit_ms}")
                await driver.execute("set local jit = off; set local cursor_tuple_fraction = 1")
                await refuse_side_effects(driver, sql)
                with _as_query_error(driver):
                    statement = await driver.prepare(sql)
                    attributes = statement.get_attributes()
                    columns = tuple(attribute.name for attribute in attributes)
                    types = tuple(attribute.type.name for attribute in attributes)
                    if not columns:  # COPY, COMMIT, SET, DO: "read-only" does not stop these
                        raise QueryError("only statements that return rows are run")
                    cursor = await statement.cursor(timeout=_NEVER_S)
                try:
                    yield Answer(columns, _batches_of_postgres(engine.url, driver, cursor), role_may, types)
                except BaseException as error:
                    not_ours = error  # a closed pipe of the reader is not the database's fault
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
    """Convert the server's errors to QueryError, if the connection still works."""
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
    """Open a file for reading. Its thread always ends with this, even if a timeout comes while it opens."""
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
                async with connection.execute(in_sqlite_time(sql)) as cursor:
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


def in_sqlite_time(sql: str) -> str:
    """Return ``sql`` with instants in the form in which SQLite's rows have them, where one is compared with a column.

    SQLite compares times as text: ``started_at > '2026-11-22T00:00:00Z'`` finds nothing of that day, as "T" comes after
    a blank. Only literals that are compared with a column of times are changed.
    """
    tokens = _TOKEN.findall(sql)
    words = [index for index, token in enumerate(tokens) if not (token.isspace() or token.startswith(("--", "/*")))]
    plain = [tokens[index].strip('"`[]').lower() for index in words]
    for place, index in enumerate(words):
        if tokens[index].startswith("'") and (column := _compared(plain, place)) is not None:
            tokens[index] = _in_form(tokens[index], column)
    return "".join(tokens)


def _compared(plain: list[str], place: int) -> str | None:
    """Return the column of times that the token at ``place`` is compared with; None without one."""
    before = ["", "", *plain[:place]]
    after = [*plain[place + 1 : place + 5], "", "", "", ""]
    if before[-1] in _COMPARISONS:
        return _time_column(before[-2])
    if after[0] in _COMPARISONS:
        return _time_column(after[3] if after[2] == "." else after[1])
    if before[-1] == "and":  # the second end of a range, whatever the first is
        depth = 0
        while before and (depth or before[-1] != "between"):
            depth += (before[-1] == ")") - (before[-1] == "(")
            if depth < 0:
                return None
            before.pop()
    if before and before[-1] == "between":
        return _time_column(before[-3] if before[-2] == "not" else before[-2])
    return None


def _time_column(name: str) -> str | None:
    return name if name in {"at", "window_start"} or name.endswith("_at") else None


def _in_form(literal: str, column: str) -> str:
    """Return a literal in the form of that column: UTC, with a blank; anything but an instant as it is."""
    value = literal[1:-1].strip()
    if len(value) <= len("2026-11-22") or _STORED.fullmatch(value):
        return literal
    try:
        at = datetime.fromisoformat(value.upper())
    except ValueError:
        return literal
    at = at.astimezone(UTC) if at.tzinfo else at
    return f"'{at:%Y-%m-%d %H:%M:%S}'" if column == "window_start" else f"'{at:%Y-%m-%d %H:%M:%S.%f}'"
