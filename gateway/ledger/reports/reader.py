"""Reads for reports, each statement with a time limit; nothing that writes waits for a report."""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import asyncpg
import msgspec
import structlog
from sqlalchemy import JSON, Boolean, Column, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.core import rules
from gateway.core.calls import TENANT
from gateway.core.reports import RETRY_S, ReportsUnreachable, ReportTooSlow
from gateway.ledger import tables
from gateway.ledger.connections import (
    Database,
    engine_of,
    release,
    report_turn,
    url_of,
)
from gateway.ledger.database import DATABASE_ERRORS, check_file, interrupt_sqlite, unreachable
from gateway.ledger.errors import is_sqlite, parse_url
from gateway.ledger.turns import read_instant

# The differences between the SQL of both databases, and values as literals: a report shows the very statement that it
# runs, so there are no parameters. Only here text from requests is quoted.


def listed(values: Iterable[str | int]) -> str:
    """Return our own values as a list in SQL."""
    return f"({', '.join(map(repr, values))})"


def has_failed(of: str) -> str:
    """Return the condition for a failed call, without parentheses."""
    status, not_clients = f"{of}status_code", listed(rules.NOT_ITS_CLIENTS)
    clients = f"{status} not between {rules.FIRST_ERROR} and {rules.CLIENT_LEFT}"
    return f"{of}error_kind is not null and ({status} in {not_clients} or {clients})"


def _own_fault(of: str) -> str:
    status, not_clients = f"{of}status_code", listed(rules.NOT_ITS_CLIENTS)
    return f"({status} between {rules.FIRST_ERROR} and {rules.CLIENT_LEFT - 1} and {status} not in {not_clients})"


def conditions(of: str = "") -> dict[str, str]:
    """Return the rules of ``gateway.core.rules`` as SQL, by name; ``of`` is written before each column, e.g. ``c.``."""
    broken = f"{of}outcome in {listed(rules.BROKEN)}"
    return {
        "broken": broken,
        "beaten": f"{of}outcome in {listed(rules.BEATEN)}",
        "cut": f"{of}outcome in {listed(rules.CUT)}",
        "error": f"{broken} and coalesce({of}error_kind, '') not in {listed(rules.NO_ERRORS)}",
        "raced": f"{of}endpoint in {listed(rules.RACED)}",
        "failed": f"({has_failed(of)})",
        "own_fault": _own_fault(of),
        # Attempts with the operator's keys. Clients who bring a key pay for it, and its failures are their own.
        "own": f"coalesce({of}key_name, '') <> '{TENANT}'",
    }


FAILED, OWN_FAULT, RACED = (conditions("c.")[name] for name in ("failed", "own_fault", "raced"))
LOWEST, HIGHEST = -56, 111  # numbers of the ledger's buckets


_NOW_S = "cast(strftime('%s', 'now') as integer)"  # on SQLite


class Words:
    """The SQL dialect of Postgres, or of SQLite."""

    def __init__(self, *, is_postgres: bool) -> None:
        self.is_postgres = is_postgres

    def text(self, value: str) -> str:
        """Return text as a literal, without NUL characters, which neither database stores."""
        quoted = "'" + value.replace("\x00", "").replace("'", "''") + "'"
        if self.is_postgres and "\\" in quoted:  # independent of standard_conforming_strings
            return "E" + quoted.replace("\\", "\\\\")
        return quoted

    def instant(self, at: datetime) -> str:
        """Return an instant as a literal that compares with instants in rows: SQLite compares text, digit by digit."""
        return self._instant(at, "%Y-%m-%d %H:%M:%S.%f")

    def window(self, at: datetime) -> str:
        """Return an instant as a literal that compares with the starts of windows, which have no fractions."""
        return self._instant(at, "%Y-%m-%d %H:%M:%S")

    def _instant(self, at: datetime, form: str) -> str:
        written = at.astimezone(UTC).strftime(form)
        return f"'{written}+00'" if self.is_postgres else f"'{written}'"

    def epoch(self, instant: str) -> str:
        """Return the Unix seconds of an instant in a row, rounded down; SQLite would round to milliseconds first."""
        if self.is_postgres:
            return f"cast(floor(extract(epoch from {instant})) as bigint)"
        return f"cast(strftime('%s', substr({instant}, 1, 19)) as integer)"

    @property
    def now_s(self) -> str:
        """The Unix seconds of now, rounded down."""
        return "cast(floor(extract(epoch from now())) as bigint)" if self.is_postgres else _NOW_S

    def moment(self, epoch: str) -> str:
        """Return the instant of Unix seconds."""
        return f"to_timestamp({epoch})" if self.is_postgres else f"datetime({epoch}, 'unixepoch')"

    def hour(self, instant: str) -> str:
        """Return the hour of the day, UTC."""
        if self.is_postgres:
            return f"cast(extract(hour from {instant} at time zone 'UTC') as integer)"
        return f"cast(strftime('%H', {instant}) as integer)"

    def month(self, instant: str) -> str:
        """Return the calendar month, UTC, as ``2026-11``."""
        if self.is_postgres:
            return f"to_char({instant} at time zone 'UTC', 'YYYY-MM')"
        return f"strftime('%Y-%m', {instant})"

    def weekday(self, instant: str) -> str:
        """Return the day of the week, UTC; 0 is Monday."""
        if self.is_postgres:
            return f"cast(extract(isodow from {instant} at time zone 'UTC') as integer) - 1"
        return f"(cast(strftime('%w', {instant}) as integer) + 6) % 7"

    def has_tag(self, name: str, value: str) -> str:
        """Return the condition for calls with this tag; on Postgres an index serves it."""
        if self.is_postgres:
            return f"tags @> {self.text(msgspec.json.encode({name: value}).decode())}"
        is_it = f"tag.key = {self.text(name)} and tag.value = {self.text(value)}"
        return f"exists (select 1 from json_each(tags) as tag where {is_it})"  # noqa: S608 - quoted

    def tag(self, name: str) -> str:
        """Return the value of a call's tag; null without the tag."""
        return f"tags ->> {self.text(name)}" if self.is_postgres else f"json_extract(tags, {self.text('$.' + name)})"

    def bucket(self, value: str) -> str:
        """Return the number of a value's bucket; a value beyond the first or last bucket is in that bucket."""
        if self.is_postgres:
            index = f"floor(8 * ln(greatest({value}, 0.01) / 10) / ln(2) + 1e-9)"
            return f"cast(greatest({LOWEST}, least({HIGHEST}, {index})) as smallint)"
        edge = f"{value} * 1.0000000001 order by from_ms desc limit 1"
        return f"coalesce((select bucket from buckets where from_ms <= {edge}), {LOWEST})"  # noqa: S608 - our names

    def paid(self, column: str, of: str = "") -> str:
        """Return a cost column of ``rollup_calls``, with attempts that ended after the call."""
        greatest, charged, races = "greatest" if self.is_postgres else "max", f"{of}{column}", f"{of}race_{column}"
        return f"{greatest}(coalesce({races}, {charged}), coalesce({charged}, {races}))"

    def pairs(self, json: str) -> str:
        """Return the table function for the keys and values of a JSON object."""
        return f"json_each_text({json})" if self.is_postgres else f"json_each({json})"

    def entries_of(self, column: str, kind: str) -> str:
        """Return the table function for the keys and values of a JSON column; no rows if it has no object.

        ``kind``: the column's type on Postgres, json or jsonb.
        """
        if self.is_postgres:
            return f"{kind}_each_text(case when {kind}_typeof({column}) = 'object' then {column} end)"
        is_object = f"case json_type({column}) when 'object' then {column} end"
        return f"json_each(case when json_valid({column}) then {is_object} end)"


def words_of(database: Database) -> Words:
    """Return the words of a database's SQL.

    Raises:
        DatabaseUrlError: as for ``parse_url``.

    """
    return Words(is_postgres=not is_sqlite(parse_url(url_of(database))))


def floor(at: datetime, minutes: int) -> datetime:
    """Return the start of the window of sums around ``at``."""
    seconds = minutes * 60
    return datetime.fromtimestamp(int(at.timestamp()) // seconds * seconds, UTC)


def quantile(q: str, metric: str = "") -> str:
    """Return the quantile ``q`` of a metric: a place within the bucket, between its edges."""
    of_metric = f"o.metric = '{metric}' and " if metric else ""
    is_there = f"{of_metric}o.so_far >= {q} * o.total and o.so_far - o.n < {q} * o.total"
    inside = f"b.from_ms + (b.to_ms - b.from_ms) * ({q} * o.total - (o.so_far - o.n)) / o.n"
    return f"max(case when {is_there} then {inside} end)"


CONNECTIONS = 3  # at most; one more may be opened while all are busy
TIMEOUT_S = 8.0  # of one statement, and the wait for a connection
SILENT_S = 5.0  # after such a silence the database is asked first whether it answers
ANSWERS_IN_S = 0.8  # so that nobody waits longer than a second to learn that the database does not answer
_NO_SUCH = (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.InsufficientPrivilegeError)
_AWAY = "the database does not answer, so there is no report now; calls go on, and the gateway's log says why"
_AWAY_REPLICA = (
    "the replica of reports_database_url does not answer, so there is no report now; calls go on, and the gateway's log"
    " says why"
)
_CONFLICT = (
    "the replica stopped this report, as it kept changes from being replayed: ask again, or set hot_standby_feedback or"
    " max_standby_streaming_delay there"
)
_LACKING = "the ledger lacks a table, or a right to read it: run `holeshot migrate`; the gateway's log says more"


class ResultRows(msgspec.Struct, frozen=True):
    """The names of columns, and rows with values of the driver."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]


class Reader:
    """Runs the statements of reports; connects when first used."""

    def __init__(
        self,
        database: Database,
        *,
        timeout_s: float | None = None,
        is_replica: bool = False,
        heard_s_ago: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Read from the ledger at a URL, or through a shared pool.

        ``is_replica``: the database follows another database, perhaps some seconds behind. ``heard_s_ago``: returns for
        how many seconds the database has not answered other parts; None if they have not asked.

        Raises:
            DatabaseUrlError: the URL is invalid.

        """
        self.is_replica = is_replica
        parsed = parse_url(url_of(database), "reports_database_url" if is_replica else "database_url")
        self.words = Words(is_postgres=not is_sqlite(parsed))
        self._database = database
        self._timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
        self._engine: AsyncEngine | None = None
        self._heard_s_ago = heard_s_ago
        self._answered_at_s: float | None = None  # on the loop's clock
        self._log = structlog.get_logger()

    async def run(self, sql: str) -> ResultRows:
        """Run one statement that only reads.

        Raises:
            ReportsUnreachable: the database does not answer, or lacks a table.
            ReportTooSlow: the statement took too long, and was stopped.

        """
        engine = self._engine = self._engine or self._connecting()
        run = _run_postgres if self.words.is_postgres else _run_sqlite
        try:
            if self._is_silent():
                await self._check_answers(engine)
            async with asyncio.timeout(self._timeout_s), report_turn(self._database), engine.connect() as connection:
                answer = await run(connection, sql, self._timeout_s)
        except (TimeoutError, asyncpg.QueryCanceledError) as error:
            # Event report.too_slow: A report was stopped after `limit_s` seconds. `sql` is the statement.
            # Do: Ask for less, keep fewer attempts (`ledger.keep_attempts_days`), or use a faster database.
            self._log.warning("report.too_slow", limit_s=self._timeout_s, sql=sql)
            raise ReportTooSlow(
                f"the database took longer than {self._timeout_s:g} s for this: ask for a shorter window, or for less"
            ) from error
        except DATABASE_ERRORS as error:
            if _is_our_fault(error):
                raise
            # Event report.failed: A report could not be made (`cause`). The caller gets 503.
            # Do: Make the database reachable. If a table is missing, run `holeshot migrate`.
            self._log.warning("report.failed", cause=str(unreachable(engine.url, error)))
            raise ReportsUnreachable(self._said(error), headers={"retry-after": str(RETRY_S)}) from error
        else:
            self._answered_at_s = asyncio.get_running_loop().time()
            return answer

    def _is_silent(self) -> bool:
        """Whether the database's last answer is some seconds old, perhaps as it was not asked."""
        now_s, heard_s_ago = asyncio.get_running_loop().time(), self._heard_s_ago()
        known_s_ago = [] if heard_s_ago is None else [heard_s_ago]
        if self._answered_at_s is not None:
            known_s_ago.append(now_s - self._answered_at_s)
        return bool(known_s_ago) and min(known_s_ago) >= SILENT_S

    async def _check_answers(self, engine: AsyncEngine) -> None:
        """Check with an empty query that the database answers, so that a report need not wait for its own limit.

        Raises:
            ReportsUnreachable: no answer at once.

        """
        run = _run_postgres if self.words.is_postgres else _run_sqlite
        try:
            async with asyncio.timeout(ANSWERS_IN_S), report_turn(self._database), engine.connect() as connection:
                await run(connection, "select 1", ANSWERS_IN_S)
        except (TimeoutError, asyncpg.QueryCanceledError) as error:
            cause = f"the database did not answer within {ANSWERS_IN_S:g} s"
            self._log.warning("report.failed", cause=cause)
            raise ReportsUnreachable(self._said(error), headers={"retry-after": str(RETRY_S)}) from error

    async def aclose(self) -> None:
        """Close the connections; a server that hangs delays this only briefly."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await release(self._database, engine)

    def _said(self, error: Exception) -> str:
        if _lacks(error):
            return _LACKING
        if not self.is_replica:
            return _AWAY
        return _CONFLICT if isinstance(error, asyncpg.SerializationError) else _AWAY_REPLICA

    def _connecting(self) -> AsyncEngine:
        engine = engine_of(self._database, pool_size=CONNECTIONS)
        if not self.words.is_postgres:

            @event.listens_for(engine.sync_engine, "connect")
            def _only_read(connection: Any, _record: Any) -> None:
                cursor = connection.cursor()
                cursor.execute("pragma query_only = on")
                cursor.close()

        return engine


async def _run_postgres(connection: AsyncConnection, sql: str, timeout_s: float) -> ResultRows:
    raw = await connection.get_raw_connection()
    driver: Any = raw.driver_connection
    transaction = driver.transaction(readonly=True)  # no context manager: its exit would wait for a server that hangs
    usable = False
    try:
        await transaction.start()
        # JIT compilation takes longer than these statements. The server's limit is for gateways that have died.
        await driver.execute(f"set local statement_timeout = {int(timeout_s * 1000)};set local jit = off")
        statement = await driver.prepare(sql)
        rows = await statement.fetch()
        columns = tuple(attribute.name for attribute in statement.get_attributes())
        await transaction.rollback()
        usable = True
        return ResultRows(columns, rows)
    finally:
        if not usable:
            driver.terminate()
            await connection.invalidate()


async def _run_sqlite(connection: AsyncConnection, sql: str, _timeout_s: float) -> ResultRows:
    raw = await connection.get_raw_connection()
    driver: Any = raw.driver_connection
    try:
        check_file(connection)
        cursor = await driver.execute(sql)  # no context manager: its exit would wait for a statement that does not end
        rows = await cursor.fetchall()
        columns = tuple(column[0] for column in cursor.description)
        await cursor.close()
        return ResultRows(columns, rows)
    except asyncio.CancelledError:
        await interrupt_sqlite(driver)  # otherwise the driver's thread would go on
        raise
    except OSError:
        await connection.invalidate()
        raise


def _is_our_fault(error: Exception) -> bool:
    """Whether the statement itself is wrong: a defect of the gateway, to be logged."""
    wrong = isinstance(error, asyncpg.SyntaxOrAccessError | asyncpg.DataError) and not isinstance(error, _NO_SUCH)
    return wrong or (isinstance(error, sqlite3.OperationalError) and "syntax error" in str(error))


def _lacks(error: Exception) -> bool:
    return isinstance(error, _NO_SUCH) or (isinstance(error, sqlite3.OperationalError) and "no such" in str(error))


# Rows in the form of reports: JSON's types, the same from both databases and from records in memory.

_COLUMNS: tuple[Column[Any], ...] = (*tables.calls.columns, *tables.attempts.columns, *tables.alerts.columns)
_BOOLEANS = frozenset(column.name for column in _COLUMNS if isinstance(column.type, Boolean))
_COUNTED = frozenset(("failed",))  # a count in reports that are not about single calls and attempts
_JSONS = frozenset(column.name for column in _COLUMNS if isinstance(column.type, JSON))
_encode = msgspec.json.Encoder(enc_hook=dict).encode


def rows(answer: ResultRows) -> list[dict[str, Any]]:
    """Return each row as a mapping by column; SQLite's text and numbers become instants, booleans and JSON."""
    booleans = _BOOLEANS if "error_kind" in answer.columns else _BOOLEANS - _COUNTED
    return [
        {name: _value(name, value, booleans) for name, value in zip(answer.columns, row, strict=True)}
        for row in answer.rows
    ]


def of_record(record: msgspec.Struct, names: Iterable[str]) -> dict[str, Any]:
    """Return the columns among a record's fields, with the values of the future row."""
    return {name: _field(name, getattr(record, name, None)) for name in names}


def _value(name: str, value: Any, booleans: Collection[str]) -> Any:
    match value:
        case Decimal():  # Postgres' sum of integers
            return int(value) if value == value.to_integral_value() else float(value)
        case str() if name in _JSONS:
            return msgspec.Raw(value.encode())
        case str() if name.endswith("_at"):
            return read_instant(value)
        case int() if name in booleans:
            return bool(value)
        case _:
            return value


def _field(name: str, value: Any) -> Any:
    if name not in _JSONS:
        return value
    return msgspec.Raw(_encode(value)) if value or name == "tags" else None  # as gateway.ledger.entries stores them
