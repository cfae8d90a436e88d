"""Read-only queries of the ledger, in the user's own SQL."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import asyncpg
import msgspec
from sqlalchemy.engine import URL

from gateway.ledger.connections import Database, engine_of, release, url_of
from gateway.ledger.database import (
    DATABASE_ERRORS,
    check_can_be_updated,
    check_schema,
    create_engine,
    demand_ledger,
    interrupt_sqlite,
    open_sqlite,
    unreachable,
)
from gateway.ledger.errors import (
    DatabaseUnreachableError,
    QueryError,
    SchemaOutdatedError,
    SchemaTooNewError,
    is_sqlite,
    parse_url,
)
from gateway.ledger.migration_files import head_revision
from gateway.ledger.near_names import LISTED, LISTED_ON_SQLITE, advice, is_of_a_name
from gateway.ledger.revision import REVISION_OF_A_FILE
from gateway.ledger.sqlite_words import TOKEN, SqliteWords, with_percentiles

if TYPE_CHECKING:
    import aiosqlite

# Restrictions of ``holeshot sql`` beyond a read-only transaction. Such a transaction cannot write tables, but functions
# in it may read and write the server's files, end other sessions, hold locks or reach other databases, and SQLite's
# ATTACH may read and create other files. A restricted role protects better (``reader_sql``); this is for queries with
# the owner's role.

# Functions that do more than return a value are volatile in Postgres; few volatile functions are harmless.
_HARMLESS = (
    "clock_timestamp", "gen_random_uuid", "random", "random_normal", "setseed", "timeofday", "uuidv4", "uuidv7",
    "pg_blocking_pids", "pg_current_wal_lsn", "pg_is_in_recovery", "pg_last_wal_receive_lsn", "pg_last_wal_replay_lsn",
    "pg_last_xact_replay_timestamp", "pg_sleep", "pg_sleep_for", "pg_sleep_until",
    "pg_database_size", "pg_indexes_size", "pg_relation_size", "pg_table_size", "pg_tablespace_size",
    "pg_total_relation_size",
)  # fmt: skip
_VOLATILE = """
select proname from pg_catalog.pg_proc
where provolatile = 'v' and proname = any($1::text[]) and not proname = any($2::text[])
  and not 'pg_catalog.internal'::pg_catalog.regtype = any(proargtypes)
order by proname limit 1
"""
_SECRETS = frozenset(
    {"pg_authid", "pg_largeobject", "pg_shadow", "pg_subscription", "pg_user_mapping", "pg_user_mappings"}
)
# Functions that read a table, or all tables, named by a string, perhaps put together from pieces.
_BY_NAME = re.compile(r"(table|query|cursor|schema|database)_to_xml(schema|_and_xmlschema)?")
_WORD = re.compile(r"[^\W\d][\w$]*")  # anywhere in the text: some functions run SQL in a string
_ESCAPED_NAME = re.compile(r'\bu&"', re.IGNORECASE)
_NAME_MAX_BYTES = 63  # Postgres cuts longer names

_SQLITE_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})
_SQLITE_PRAGMAS = frozenset(
    {
        "compile_options", "database_list", "foreign_key_list", "function_list", "index_info", "index_list",
        "index_xinfo", "pragma_list", "table_info", "table_list", "table_xinfo",
    }
)  # fmt: skip


async def refuse_side_effects(driver: Any, sql: str) -> None:
    """Check in Postgres' catalog the functions that ``sql`` may call; ``driver`` is asyncpg's connection.

    Raises:
        QueryError: one of the functions can do more than return a value.

    """
    if _ESCAPED_NAME.search(sql):
        raise QueryError('names with escapes, U&"...", are refused: write plain names')
    words = {word.encode()[:_NAME_MAX_BYTES].decode(errors="ignore") for word in _WORD.findall(sql)}
    words |= {word.lower() for word in words}
    if secret := min(words & _SECRETS, default=None):
        raise QueryError(f"{secret} is not read: it holds passwords or other people's data; use psql for it")
    if by_name := min((word for word in words if _BY_NAME.fullmatch(word)), default=None):
        raise QueryError(f"{by_name} is not run: it reads what a string names; select from the table itself")
    function = await driver.fetchval(_VOLATILE, sorted(words), _HARMLESS)
    if function is not None:
        raise QueryError(
            f"{function} is not run: it can do more than read the ledger; use psql for it. "
            "A function of your own that only reads must be declared stable"
        )


class SqliteGuard:
    """SQLite's authorizer: denies other files, extensions, and changes of the connection; ``refused``: why."""

    def __init__(self) -> None:
        self.refused: str | None = None

    def __call__(self, action: int, first: str | None, second: str | None, *_where: str | None) -> int:
        """Return SQLite's code for whether a statement may do ``action``; called while the statement is prepared."""
        refusal = _sqlite_refusal(action, first, second)
        if refusal is None:
            return sqlite3.SQLITE_OK
        self.refused = self.refused or refusal
        return sqlite3.SQLITE_DENY


def _sqlite_refusal(action: int, first: str | None, second: str | None) -> str | None:
    match action:
        case sqlite3.SQLITE_ATTACH | sqlite3.SQLITE_DETACH:
            return "other files are not attached or written: queries read the ledger only"
        case sqlite3.SQLITE_PRAGMA if (first or "").lower() not in _SQLITE_PRAGMAS:
            return f"pragma {first} is not run: it can do more than read the ledger"
        case sqlite3.SQLITE_FUNCTION if (second or "").lower() in _SQLITE_FUNCTIONS:
            return f"{second} is not run: it can do more than read the ledger"
        case sqlite3.SQLITE_TRANSACTION | sqlite3.SQLITE_SAVEPOINT:
            return "only statements that return rows are run"
        case _:
            return None


# The rights of a query's Postgres role besides reading, and the SQL that makes a role that can only read.

READER = "holeshot_reader"

# With CREATE in a schema of the search path a role can shadow functions; a member of a role can become that role.
_ASK = """
with me as (select * from pg_catalog.pg_roles where rolname = current_user),
ledger as (
  select oid, relowner from pg_catalog.pg_class
  where relkind in ('r', 'p')
    and relnamespace = (select relnamespace from pg_catalog.pg_class where oid = to_regclass('calls'))
)
select
  current_user::text as role,
  rolsuper as superuser,
  coalesce(
    (select bool_or(has_table_privilege(oid, 'insert, update, delete, truncate') or pg_has_role(relowner, 'member'))
     from ledger),
    false
  ) as writes,
  has_database_privilege(current_database(), 'create')
    or exists(select from unnest(current_schemas(false)) as name where has_schema_privilege(name, 'create')) as creates,
  rolcreaterole as makes_roles,
  array(
    select rolname::text from pg_catalog.pg_roles where rolname = any($1::text[]) and pg_has_role(oid, 'member')
  ) as roles
from me
"""
_PREDEFINED = {
    "pg_write_all_data": "write the ledger",
    "pg_read_server_files": "read the server's files",
    "pg_write_server_files": "write the server's files",
    "pg_execute_server_program": "run programs on the server",
    "pg_signal_backend": "end other sessions",
}


async def powers(driver: Any) -> str | None:
    """Return in words what else the role of ``driver`` (asyncpg's connection) may do besides reading; None: nothing."""
    rights = await driver.fetchrow(_ASK, list(_PREDEFINED))
    if rights["superuser"]:
        return f"the role {rights['role']} is a superuser: it may write anything, run programs, read any file"
    may = ["write the ledger"] if rights["writes"] else []
    may += ["create tables and functions"] if rights["creates"] else []
    may += ["make roles"] if rights["makes_roles"] else []
    may += [words for name, words in _PREDEFINED.items() if name in rights["roles"] and words not in may]
    return f"the role {rights['role']} may {', '.join(may)}" if may else None


def reader_sql(url: URL) -> str:
    """Return the SQL, for the owner or a superuser, that makes a role that can only read the ledger at ``url``."""
    database, owner = _quoted(url.database or "holeshot"), _quoted(url.username or "holeshot")
    return f"""\
-- A role that can only read the ledger. Run this as {owner} or a superuser, give the role a password
-- (in psql: \\password {READER}), and let its users set
-- HOLESHOT_SQL_URL=postgresql://{READER}:PASSWORD@HOST/{url.database}
create role {READER} login;
alter role {READER} set default_transaction_read_only = on;
grant connect on database {database} to {READER};
grant usage on schema public to {READER};
grant select on all tables in schema public to {READER};
alter default privileges for role {owner} in schema public grant select on tables to {READER};
-- Before PostgreSQL 15 everybody may create in the schema public; then also:
-- grant create on schema public to {owner}; revoke create on schema public from public;
"""  # noqa: S608 - printed for the operator; names are quoted


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


QUERY_TIMEOUT_S = 60.0
BATCH_ROWS = 1000  # in memory at a time
_NAMES_WITHIN_S = 5.0  # then a wrong name is reported without near names
_NEVER_S = 10.0**9  # the caller has another timeout, or wants none
_COMPARISONS = frozenset({"=", "==", "<", ">", "<=", ">=", "<>", "!="})
_NOW = re.compile(
    r"now \( \)(?: (?P<sign>[-+]) interval '(?P<n>\d+) (?P<unit>second|minute|hour|day|month|year)s?')?", re.IGNORECASE
)
_STORED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d(\.\d+)?)?")


class Result(msgspec.Struct, frozen=True):
    """A result: column names, and rows with values of the driver."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    role_may: str | None = None  # what else the role may do besides reading, in words, if requested


class ResultStream(msgspec.Struct, frozen=True):
    """A result as a stream, with at most one batch in memory."""

    columns: tuple[str, ...]
    batches: AsyncIterator[list[tuple[Any, ...]]]  # raises QueryError if the rest cannot be read
    role_may: str | None = None  # as in Result


async def run(url: Database, sql: str, *, timeout_s: float = QUERY_TIMEOUT_S, examine_role: bool = False) -> Result:
    """Run one read-only statement and return the whole result; otherwise as ``asked``."""
    async with asked(url, sql, timeout_s=timeout_s, examine_role=examine_role) as answer:
        rows = [row async for batch in answer.batches for row in batch]
        return Result(answer.columns, rows, answer.role_may)


@asynccontextmanager
async def asked(
    url: Database, sql: str, *, timeout_s: float | None = QUERY_TIMEOUT_S, examine_role: bool = False
) -> AsyncIterator[ResultStream]:
    """Run one read-only statement; with ``examine_role`` the answer says what else the role may do.

    Raises:
        QueryError: the statement would write, could do more than read, is not a query, has several statements, is
            wrong, or takes longer than ``timeout_s`` (None: no limit).
        DatabaseUnreachableError: the database cannot be reached.
        SchemaOutdatedError: a table or view is missing that a migration would make.
        DatabaseUrlError: as for ``parse_url``.

    """
    parsed = parse_url(url_of(url))
    try:
        async with asyncio.timeout(timeout_s):
            if is_sqlite(parsed):
                demand_ledger(url_of(url))
                async with _asked_sqlite(Path(str(parsed.database)), sql) as answer:
                    yield answer
            else:
                async with _asked_postgres(url, sql, timeout_s, examine_role=examine_role) as answer:
                    yield answer
    except TimeoutError as error:
        raise QueryError(f"the query took longer than {timeout_s:g} s and was stopped") from error
    except QueryError as error:
        if isinstance(error.__cause__, asyncpg.UndefinedTableError):
            await _look_at_schema(url_of(url))
        if is_sqlite(parsed) and str(error).startswith("no such table"):
            await _look_at_file(Path(str(parsed.database)))
        if is_of_a_name(str(error)):
            raise QueryError(await _advised(url, str(error), sql)) from error
        raise


async def _advised(url: Database, said: str, sql: str) -> str:
    """Return an error about a name with near names; without these if the database does not answer."""
    parsed = parse_url(url_of(url))
    listed: list[tuple[str, str, bool]] = []
    with suppress(*DATABASE_ERRORS, QueryError, DatabaseUnreachableError, TimeoutError):
        async with asyncio.timeout(_NAMES_WITHIN_S):
            if is_sqlite(parsed):
                async with _opened(Path(str(parsed.database))) as connection:
                    listed = [(row[0], row[1], row[2]) for row in await connection.execute_fetchall(LISTED_ON_SQLITE)]
            else:
                async with _asked_postgres(url, LISTED, None, examine_role=False) as answer:
                    listed = [(row[0], row[1], row[2]) async for batch in answer.batches for row in batch]
    columns: dict[str, list[str]] = {}
    for name, column, _ in listed:
        columns.setdefault(name, []).append(column)
    return advice(said, sql, columns, {name for name, _, is_view in listed if is_view})


async def _look_at_schema(url: str) -> None:
    """Raise SchemaOutdatedError if a migration is missing; otherwise the server's message is the better one."""
    engine = create_engine(url)
    try:
        with suppress(DatabaseUnreachableError, SchemaTooNewError):
            await check_schema(engine)
    finally:
        await engine.dispose()


@asynccontextmanager
async def _asked_postgres(
    url: Database, sql: str, timeout_s: float | None, *, examine_role: bool
) -> AsyncIterator[ResultStream]:
    engine = engine_of(url, pool_size=1)
    not_ours: BaseException | None = None
    try:
        async with engine.connect() as connection:
            raw = await connection.get_raw_connection()
            driver: Any = raw.driver_connection
            role_may = None
            if examine_role:
                with suppress(asyncpg.PostgresError):  # a server that only resembles Postgres
                    role_may = await powers(driver)
            async with driver.transaction(readonly=True):
                # Our own timeout comes first. JIT compilation takes longer than most queries. Readers of a cursor want
                # the first rows soon, even if the rest takes longer then.
                limit_ms = 0 if timeout_s is None else int(2000 * timeout_s)
                await driver.execute(f"set local statement_timeout = {limit_ms}")
                await driver.execute("set local jit = off; set local cursor_tuple_fraction = 1")
                await refuse_side_effects(driver, sql)
                with _as_query_error(driver):
                    statement = await driver.prepare(sql)
                    columns = tuple(attribute.name for attribute in statement.get_attributes())
                    if not columns:  # COPY, COMMIT, SET, DO: "read-only" does not stop these
                        raise QueryError("only statements that return rows are run")
                    cursor = await statement.cursor(timeout=_NEVER_S)
                try:
                    yield ResultStream(columns, _batches_of_postgres(engine.url, driver, cursor), role_may)
                except BaseException as error:
                    not_ours = error  # a pipe that the reader closed is not the database's fault
                    raise
    except DATABASE_ERRORS as error:
        if error is not_ours:
            raise
        raise unreachable(engine.url, error) from error
    finally:
        await release(url, engine)


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


async def _look_at_file(path: Path) -> None:
    """Raise SchemaOutdatedError if a migration is missing in a SQLite file, which is opened for reading only."""
    revision: str | None = None
    for statement in REVISION_OF_A_FILE:
        with suppress(sqlite3.Error):
            async with _opened(path) as connection, connection.execute(statement) as rows:
                revision = revision or next(iter(await rows.fetchone() or ()), None)
    if revision is None:
        raise SchemaOutdatedError(f"{path} has no ledger yet; run: holeshot migrate")
    check_can_be_updated(revision)
    if revision < head_revision():
        raise SchemaOutdatedError(
            f"the ledger's schema is {revision}, this version needs {head_revision()}; run: holeshot migrate"
        )


@asynccontextmanager
async def _opened(path: Path, words: SqliteWords | None = None) -> AsyncIterator["aiosqlite.Connection"]:
    """Open a file for reading. The connection's thread ends with the context, even after a timeout of the opening."""
    options = {} if words is None else {"factory": words.connection}
    connection = await open_sqlite(f"file:{quote(str(path))}?mode=ro", uri=True, **options)
    try:
        yield connection
    finally:
        await connection.close()


# SQLite's words for a problem with the file, not with the query.
_OF_THE_FILE = ("file is not a database", "unable to open database file", "attempt to write a readonly database")


@asynccontextmanager
async def _asked_sqlite(path: Path, sql: str) -> AsyncIterator[ResultStream]:
    guard, words = SqliteGuard(), SqliteWords()
    try:
        async with _opened(path, words) as connection:
            await connection.execute("pragma query_only = on")
            await connection.set_authorizer(guard)
            try:
                cursor = await connection.execute(
                    with_percentiles(in_sqlite_time(sql))
                )  # no context manager: its exit would wait
                columns = tuple(column[0] for column in cursor.description or ())
                yield ResultStream(columns, _batches_of_sqlite(cursor))
            except asyncio.CancelledError:
                await interrupt_sqlite(connection)  # otherwise the driver's thread would go on
                raise
    except sqlite3.Error as error:
        where = f"{path}: " if str(error).startswith(_OF_THE_FILE) else ""
        raise QueryError(guard.refused or words.wrong or f"{where}{error}") from error


async def _batches_of_sqlite(cursor: "aiosqlite.Cursor") -> AsyncIterator[list[tuple[Any, ...]]]:
    while rows := await cursor.fetchmany(BATCH_ROWS):
        yield [tuple(row) for row in rows]


def in_sqlite_time(sql: str) -> str:
    """Return ``sql`` with the literals that are compared with a column of times in the form of SQLite's rows.

    SQLite compares times as text: ``started_at > '2026-11-22T00:00:00Z'`` finds nothing of that day, as "T" comes after
    a blank. Literals in other places stay. SQLite has no ``now()``: ``now() - interval '1 day'``, which other databases
    have, becomes ``datetime('now', '-1 day')``.
    """
    tokens = TOKEN.findall(sql)
    words = [index for index, token in enumerate(tokens) if not (token.isspace() or token.startswith(("--", "/*")))]
    plain = [tokens[index].strip('"`[]').lower() for index in words]
    for place, index in enumerate(words):
        if tokens[index].startswith("'") and (column := _compared(plain, place)) is not None:
            tokens[index] = _in_form(tokens[index], column)
        elif plain[place] == "now" and (now := _NOW.match(" ".join(tokens[at] for at in words[place : place + 6]))):
            is_shifted = now["n"] is not None
            tokens[index] = _shifted(now["sign"] + now["n"], now["unit"]) if is_shifted else "datetime('now')"
            for gone in words[place + 1 : place + len(now[0].split(" ")) - is_shifted]:
                tokens[gone] = ""
    return "".join(tokens)


def _shifted(number: str, unit: str) -> str:
    """Return the expression of an instant before or after now; in a shorter month the last day, as in Postgres.

    By SQLite's own rule a month before 31 March is the 31st of February, which is 3 March.
    """
    shifted = f"datetime('now', '{number} {unit}')"
    if unit.lower() not in {"month", "year"}:
        return shifted
    last_day = f"date('now', 'start of month', '{number} {unit}', '+1 month', '-1 day')"
    return f"min({shifted}, {last_day} || ' ' || time('now'))"


def _compared(plain: list[str], place: int) -> str | None:
    """Return the column of times with which the token at ``place`` is compared; None without one."""
    before = ["", "", *plain[:place]]
    after = [*plain[place + 1 : place + 5], "", "", "", ""]
    if before[-1] in _COMPARISONS:
        return _time_column(before[-2])
    if after[0] in _COMPARISONS:
        return _time_column(after[3] if after[2] == "." else after[1])
    if before[-1] == "and":  # the upper end of a range
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
    """Return a literal in the column's form: UTC, with a blank; a literal that is no instant stays as it is."""
    value = literal[1:-1].strip()
    if len(value) <= len("2026-11-22") or _STORED.fullmatch(value):
        return literal
    try:
        at = datetime.fromisoformat(value.upper())
    except ValueError:
        return literal
    at = at.astimezone(UTC) if at.tzinfo else at
    return f"'{at:%Y-%m-%d %H:%M:%S}'" if column == "window_start" else f"'{at:%Y-%m-%d %H:%M:%S.%f}'"
