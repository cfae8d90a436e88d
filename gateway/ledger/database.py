"""The ledger's database: its URL, its engine, and the check of the schema's version."""

import asyncio
import errno
import os
import secrets
import socket
import sqlite3
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import asyncpg
import structlog
from sqlalchemy import event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool
from sqlalchemy.util import await_only

from gateway.core import processes
from gateway.core.addresses import Address, text_of
from gateway.ledger.blocked import PATIENCE, Patience
from gateway.ledger.errors import (
    DatabaseUnreachableError,
    DatabaseUrlError,
    SchemaOutdatedError,
    SchemaTooNewError,
    is_sqlite,
    parse_url,
    tls_parameters,
)
from gateway.ledger.folders import make_private
from gateway.ledger.migration_files import first_revision, head_revision, migrations_folder
from gateway.ledger.revision import revision_of
from gateway.ledger.turns import MIGRATE

if TYPE_CHECKING:
    from queue import SimpleQueue

    import aiosqlite

CONNECT_TIMEOUT_S = 5.0
COMMAND_TIMEOUT_S = 60.0
SQLITE_BUSY_TIMEOUT_MS = 10_000  # another process may write: a migration, a second gateway
SIGNING_KEY_CHARS = 64  # 256 random bits
POOL_SIZE = 2  # one connection ships this worker's rows, the other a dead worker's

# Everything that an unavailable database, or the connection to it, can raise.
DATABASE_ERRORS = (
    OSError,
    SQLAlchemyError,
    sqlite3.Error,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)

_INTERRUPTED_EVERY_S = 0.01
_FILE = "file"  # by this key a SQLite connection notes its open file


def create_engine(
    url: str | Address,
    *,
    patient: bool = False,
    pool_size: int = POOL_SIZE,
    spare: int = 1,
    pool: type[AsyncAdaptedQueuePool] = AsyncAdaptedQueuePool,
) -> AsyncEngine:
    """Return an engine for ``url``, not yet connected. The caller disposes of it.

    A new connection to Postgres uses the login that an ``Address`` has at that time; if the server refuses the login, a
    renewed one. ``patient``: statements have no time limit, for changes of large tables. ``spare``: connections beyond
    ``pool_size``, opened while all of these are busy. ``pool``: the class of the pool for Postgres.

    Raises:
        DatabaseUrlError: as for ``parse_url``, a file of TLS is not there, or the folder of a SQLite file cannot be
            made.

    """
    parsed = parse_url(text_of(url))
    if is_sqlite(parsed):
        return _closing_late_returns(_sqlite_engine(parsed, pool_size))
    tls = tls_parameters(parsed)
    application = str(parsed.query.get("application_name", "holeshot"))
    engine = create_async_engine(
        parsed.difference_update_query([*tls, *(["ssl"] if tls else []), "application_name"]),
        pool_size=pool_size,
        max_overflow=spare,
        pool_pre_ping=True,
        pool_use_lifo=True,  # so that connections that are seldom needed stay idle
        poolclass=pool,
        hide_parameters=True,
        connect_args={
            # asyncpg takes libpq's parameters only in an address; its other arguments come first.
            "dsn": f"postgresql:///?{urlencode(tls)}" if tls else None,
            "timeout": CONNECT_TIMEOUT_S,
            "command_timeout": None if patient else COMMAND_TIMEOUT_S,
            # A pooler may use another server connection for each transaction, so no prepared statement may outlive one.
            "statement_cache_size": 0,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": str,  # "": the unnamed statement
            "server_settings": {"application_name": application, "timezone": "UTC"},
        },
    )

    @event.listens_for(engine.sync_engine, "handle_error")
    def _leave_read_only(context: Any) -> None:
        if getattr(context.original_exception, "sqlstate", None) == asyncpg.ReadOnlySQLTransactionError.sqlstate:
            context.is_disconnect = True  # the connection stays read-only, even if the server takes rows again

    if isinstance(url, Address):
        _renew_login(engine, url)
    return _closing_late_returns(engine)


_INVALID_LOGIN = "28"  # class of SQLSTATE: a wrong or expired password, or a role that may not log in


def _renew_login(engine: AsyncEngine, address: Address) -> None:
    """Connect with the current login of ``address``; if the server refuses it, once more with a renewed login."""

    @event.listens_for(engine.sync_engine, "do_connect")
    def _connect(dialect: Any, _record: Any, arguments: Any, options: dict[str, Any]) -> Any:
        def connected() -> Any:
            login = parse_url(address.url)
            given = {"user": login.username, "password": login.password}
            return dialect.connect(*arguments, **options, **{name: each for name, each in given.items() if each})

        for name in ("user", "password"):
            options.pop(name, None)
        refused = address.url
        try:
            return connected()
        except dialect.loaded_dbapi.Error as error:
            is_login = (sqlstate_of(error) or "").startswith(_INVALID_LOGIN)
            if not is_login or not await_only(address.is_renewed(refused)):
                raise
        return connected()


CLOSE_TIMEOUT_S = 3.0


async def dispose(engine: AsyncEngine, within_s: float) -> None:
    """Close the connections; if a server hangs, abort its connections after ``within_s``."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await engine.dispose()


def _closing_late_returns(engine: AsyncEngine) -> AsyncEngine:
    """Close connections that are returned after ``dispose``; SQLAlchemy would keep them open in the disposed pool.

    A connection returns late after two timeouts, e.g. while the gateway stops.
    """
    disposed = False

    @event.listens_for(engine.sync_engine, "checkin")
    def _close_late(_: Any, record: Any) -> None:
        if disposed:
            record.invalidate()

    @event.listens_for(engine.sync_engine, "engine_disposed")
    def _note(_: Any) -> None:
        nonlocal disposed
        disposed = True

    return engine


async def current_revision(engine: AsyncEngine) -> str | None:
    """Return the schema's revision; None if the database has no ledger yet.

    Raises:
        DatabaseUnreachableError: the database cannot be asked.

    """
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(revision_of)
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error


async def check_schema(engine: AsyncEngine, needed: str | None = None) -> None:
    """Check that the database has the tables that this version needs: of the revision ``needed``, else the newest.

    Raises:
        SchemaOutdatedError: the tables are missing or old.
        SchemaTooNewError: a later version made the tables, and this version cannot use them.
        DatabaseUnreachableError: the database cannot be asked.

    """
    revision, needed = await current_revision(engine), needed or head_revision()
    if revision is None:
        raise SchemaOutdatedError("the database has no ledger yet; run: holeshot migrate")
    check_can_be_updated(revision)
    if revision < needed:
        raise SchemaOutdatedError(
            f"the ledger's schema is {revision}, this version needs {needed}; run: holeshot migrate"
        )
    if revision > needed and not await _takes(engine, needed):
        raise SchemaTooNewError(
            f"the ledger's schema is {revision}, newer than this version's {needed}, and not usable for it; start the "
            "version of Holeshot that migrated it, "
            f"or go back with that version: holeshot migrate --down-to {needed}"
        )


def check_can_be_updated(found: str) -> None:
    """Check that this version has migrations from the revision ``found`` on.

    Raises:
        SchemaOutdatedError: the revision is older than the first published one.

    """
    if found < (first := first_revision()):
        raise SchemaOutdatedError(
            f"the ledger's schema is {found}, and this version updates those from {first} on: first run "
            f"`holeshot migrate` of the version whose schema is {first}, or name an empty database"
        )


async def prepare_schema(url: str) -> bool:
    """Check the ledger's tables: SQLite is migrated automatically, Postgres only by the operator.

    Return whether the database answered: a gateway starts without it.

    Raises:
        SchemaOutdatedError, SchemaTooNewError: Postgres has another schema; the message has the command to run.
        DatabaseUrlError: the file is not a SQLite database.

    """
    engine = create_engine(url)
    try:
        await check_schema(engine)
    except SchemaOutdatedError:
        if not is_sqlite(engine.url):
            raise
        # In a child process, so that a serving process does not import the modules of migrations.
        process = await asyncio.create_subprocess_exec(
            *processes.command("gateway.cli", "migrate"),
            stdout=asyncio.subprocess.DEVNULL,
            env={**processes.environment(), "HOLESHOT_DATABASE_URL": url},
        )
        if await process.wait():
            raise
    except DatabaseUnreachableError as error:
        if is_no_database(error):  # the file would never become one, and calls would go on without a ledger
            raise DatabaseUrlError(f"database_url: {error}") from error
        structlog.get_logger().warning("ledger.database_unreachable", error=str(error), effect="rows wait in the spool")
        return False
    finally:
        await engine.dispose()
    return True


async def _takes(engine: AsyncEngine, revision: str) -> bool:
    """Whether a newer schema accepts everything that code of ``revision`` writes."""
    try:
        async with engine.connect() as connection:
            if not await connection.run_sync(lambda sync: engine.dialect.has_table(sync, "ledger_readers")):
                return False
            oldest: str | None = await connection.scalar(text("select oldest from ledger_readers"))
            return oldest is not None and oldest <= revision
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error


async def migrate(url: str, patience: Patience = PATIENCE) -> None:
    """Migrate the schema to this version's, if it is older. Several processes may do so at the same time.

    Raises:
        DatabaseUrlError: as for ``parse_url``.
        SchemaOutdatedError: the schema is older than the first published one.
        SchemaBlockedError: another transaction has blocked the change for longer than ``patience`` allows.
        DatabaseUnreachableError: the database cannot be asked.

    """
    await _run_alembic(url, "upgrade", "head", patience)


async def downgrade(url: str, revision: str, patience: Patience = PATIENCE) -> None:
    """Migrate the schema back to ``revision``; ``base`` drops the ledger with all its rows.

    Raises:
        SchemaOutdatedError: the schema is, or would be, older than the first published one.
        SchemaBlockedError: as for ``migrate``.

    """
    if revision.isdigit() and revision < first_revision():
        raise SchemaOutdatedError(
            f"the first schema is {first_revision()}: go back to that one, or to 'base', which drops every row"
        )
    await _run_alembic(url, "downgrade", revision, patience)


def check_file(connection: AsyncConnection) -> None:
    """Check that ``connection`` has the current SQLite file open, as writes to a deleted file succeed.

    Raises:
        FileNotFoundError: the file was deleted or replaced; the next connection opens it again.

    """
    path = str(connection.engine.url.database)
    if _file_at(path) != connection.info[_FILE]:
        raise FileNotFoundError(
            errno.ENOENT, "the file was deleted or replaced; holeshot migrate makes a new one", path
        )


def own_signing_key(url: str) -> str:
    """Return the random key in the file beside a SQLite database, made if it is missing; empty for Postgres.

    All processes that use the database get the same key. If the file can be neither made nor read, only this process
    knows the key. Blocks for a moment.

    Raises:
        DatabaseUrlError: as for ``parse_url``.

    """
    parsed = parse_url(url)
    if not is_sqlite(parsed):
        return ""
    path = Path(f"{parsed.database}.signing-key")
    fresh = secrets.token_hex(SIGNING_KEY_CHARS // 2)
    try:
        if not path.exists():
            _write_once(path, fresh)
        _close_to_others(path)
        key = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        key, problem = fresh, str(error)
    else:
        problem = "" if len(key) >= SIGNING_KEY_CHARS else f"it has less than {SIGNING_KEY_CHARS} characters"
    if problem:
        # Event ledger.signing_key_unusable: The file with the key that signs the page's sessions, and seals reasoning
        # for clients of other APIs, can be neither made nor read: both hold at one process, until it ends.
        # Do: Make it readable, delete it, or set `page.signing_key`.
        structlog.get_logger().warning(
            "ledger.signing_key_unusable",
            file=str(path),
            problem=problem,
            effect="people who sign in at the page are signed in at this process alone, and until it ends; likewise"
            " only it opens the reasoning that it has sealed",
            hint="make the file readable, delete it for a new one, or set page.signing_key",
        )
        return fresh
    return key


def _write_once(path: Path, text: str) -> None:
    """Write a file for this user only, complete from the moment it is visible; an existing file stays."""
    make_private(path.parent)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(text)
        with suppress(FileExistsError):
            os.link(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _close_to_others(path: Path) -> None:
    """Remove the rights of users outside the file's group; the owner may have opened the file to the group."""
    with suppress(OSError):  # missing, or owned by another user
        mode = S_IMODE(path.stat().st_mode)
        if mode & 0o007:
            path.chmod(mode & ~0o007)


def _file_at(path: str) -> tuple[int, int] | None:
    try:
        facts = Path(path).stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def unreachable(url: URL, error: Exception, at: str = "") -> DatabaseUnreachableError:
    """Return an error that says in one line, without a password, which database failed and how; ``at``: its tables."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    words = _in_words(cause)
    place = f" at {at}" if at else ""
    hint = _HINTS.get(sqlstate_of(error) or "", "") or _of_the_way_there(cause)
    if is_no_database(error):
        hint = "; name another file in database_url, or move this one away"
    shown = url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)  # in the operator's words
    return DatabaseUnreachableError(f"the database {shown} cannot be used{place}: {words}{hint}")


def _in_words(cause: BaseException) -> str:
    """Return the error in one line: for a failed connection the system's word, not Python's tuple of an address."""
    if isinstance(cause, ConnectionRefusedError | TimeoutError) and (cause.errno or not str(cause)):
        return os.strerror(cause.errno or errno.ETIMEDOUT)
    return " ".join(str(cause).split()) or type(cause).__name__


def _of_the_way_there(cause: BaseException) -> str:
    """Return advice about a server that cannot be reached; empty for other errors."""
    match cause:
        case ConnectionRefusedError() | FileNotFoundError():  # the latter for a socket's folder
            return "; start Postgres there, or correct the host and port of database_url"
        case socket.gaierror():
            return "; correct the host of database_url"
        case TimeoutError():
            return "; is the host of database_url right, and may this machine reach it?"
    return ""


def is_no_database(error: BaseException | None) -> bool:
    """Whether SQLite says that a file is not its own: of another kind, or encrypted."""
    while error is not None:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
            return True
        error = getattr(error, "orig", None) or error.__cause__
    return False


# The server's words are in the operator's language; the code has the meaning.
_HINTS = {
    "28P01": "; correct the user or the password of database_url",  # invalid_password
    "28000": "; correct the user or the password of database_url, or let it in: pg_hba.conf",
    "3D000": "; create it (create database …), or name another in database_url",  # invalid_catalog_name
    "22P05": "; if the database's encoding is not UTF8: create database … encoding 'UTF8' template template0",
    "2BP01": "; views of your own read it: drop those first",  # dependent_objects_still_exist
    "57014": "; somebody cancelled it, or a limit did: alter role … set statement_timeout = 0",  # query_canceled
    "55P03": "; another session holds a lock: see pg_locks, and try again",  # lock_not_available
    "53300": "; raise max_connections, or run fewer workers",  # too_many_connections
}


def sqlstate_of(error: BaseException | None) -> str | None:
    """Return the SQLSTATE of a Postgres error; None for other errors."""
    while error is not None:
        state = getattr(error, "sqlstate", None)
        if isinstance(state, str):
            return state
        error = getattr(error, "orig", None) or error.__cause__
    return None


# For one transaction, lift the time limits of the role or the database, which would end long work half way.
WITHOUT_LIMITS = (
    "select set_config(name, '0', true) from (values ('statement_timeout'), ('transaction_timeout')) as limits (name) "
    "where current_setting(name, true) is not null"  # before 17, Postgres has no transaction_timeout
)


async def without_limits(connection: AsyncConnection) -> None:
    """Lift the time limits for the transaction on Postgres; begin one if none is open."""
    if connection.dialect.name == "postgresql":
        await connection.exec_driver_sql(WITHOUT_LIMITS)


async def _run_alembic(url: str, command_name: str, revision: str, patience: Patience) -> None:
    from alembic import command  # noqa: PLC0415 - a serving gateway does not need it: saves memory
    from alembic.config import Config  # noqa: PLC0415 - likewise

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    engine = create_engine(url, patient=True)
    try:
        async with engine.begin() as connection, patience.watching(engine, connection):
            await _lock_schema(connection, patience)
            if (stored_revision := await connection.run_sync(revision_of)) is not None:
                check_can_be_updated(stored_revision)
            config.attributes |= {"connection": connection.sync_connection, "goes_back": command_name == "downgrade"}
            await connection.run_sync(lambda _: getattr(command, command_name)(config, revision))
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error
    finally:
        await engine.dispose()


async def _lock_schema(connection: AsyncConnection, patience: Patience) -> None:
    """Lock the schema, so that one process at a time changes it, completely or not at all."""
    if connection.dialect.name == "postgresql":
        await without_limits(connection)
        await MIGRATE.wait(connection)
    else:
        # Without this, each ALTER TABLE plans every view again, for a second or more.
        await connection.exec_driver_sql("pragma legacy_alter_table = on")
        await patience.begin(connection)


async def open_sqlite(*arguments: Any, **options: Any) -> "aiosqlite.Connection":
    """Open a file as ``aiosqlite.connect`` does; if cancelled meanwhile, close the file again, then raise.

    Each connection has a thread, which finishes the requested work even if the loop of the request is closed by then.
    """
    import aiosqlite  # noqa: PLC0415 - a gateway on Postgres does not need it

    connecting = aiosqlite.connect(*arguments, **options)
    # A daemon, as in SQLAlchemy: a process must not wait for the thread to end.
    connecting._thread = Thread(target=_work, args=(connecting._tx,), daemon=True)  # noqa: SLF001 - no public way
    opening = asyncio.ensure_future(connecting)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        with suppress(aiosqlite.Error):
            await (await opening).close()
        raise


def _work(asked: "SimpleQueue[Any]") -> None:
    """Run the work given to a connection until it is closed; a loop that was closed meanwhile gets no answer."""
    from aiosqlite.core import _connection_worker_thread  # noqa: PLC0415 - as above

    while True:
        try:
            _connection_worker_thread(asked)
        except RuntimeError:  # the loop is closed
            if not asked.empty():
                continue
        return


async def interrupt_sqlite(connection: "aiosqlite.Connection") -> None:
    """End the statement whose ``await`` was cancelled.

    SQLite interrupts only a running statement, and this one may not have begun yet in the connection's thread. So
    interrupt repeatedly, until the thread has done the rollback that was queued after the statement.
    """
    free = asyncio.ensure_future(connection.rollback())  # nothing was written
    while not free.done():
        await connection.interrupt()
        await asyncio.wait([free], timeout=_INTERRUPTED_EVERY_S)


def demand_ledger(url: str) -> None:
    """Check that the SQLite file of ``url`` exists, as SQLite would make an empty file. Postgres is not asked.

    Raises:
        DatabaseUrlError: as for ``parse_url``; or the path is a folder.
        DatabaseUnreachableError: there is no file.

    """
    if is_sqlite(parsed := parse_url(url)) and not (path := Path(str(parsed.database))).is_file():
        _check_is_no_folder(path)
        raise DatabaseUnreachableError(f"there is no ledger at {parsed.database}; run: holeshot migrate")


def _check_is_no_folder(path: Path) -> None:
    if path.is_dir():
        raise DatabaseUrlError(f"database_url: {path} is a folder: name a file in it")


def _sqlite_engine(url: URL, pool_size: int) -> AsyncEngine:
    path = Path(str(url.database))
    folder = path.parent
    _check_is_no_folder(path)
    try:
        make_private(folder)
    except OSError as error:
        raise DatabaseUrlError(
            f"database_url: the folder {folder.absolute()} cannot be made: {error.strerror}; name a file in another one"
        ) from error
    for suffix in ("", "-wal", "-shm", "-journal"):
        _close_to_others(path.with_name(path.name + suffix))
    options = {"async_creator_fn": open_sqlite, "timeout": SQLITE_BUSY_TIMEOUT_MS / 1000}
    engine = create_async_engine(url, pool_size=pool_size, max_overflow=1, hide_parameters=True, connect_args=options)
    logged = set[tuple[int, int] | None]()  # files whose journal mode is set, as the mode is stored in the file

    @event.listens_for(engine.sync_engine, "do_connect")
    def _make_private(*_: Any) -> None:
        # SQLite would use the umask's mode, readable by others; the WAL gets the file's mode. An existing file is not
        # opened here: closing it would release the locks of this process's other connections.
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    @event.listens_for(engine.sync_engine, "connect")
    def _configure(connection: Any, record: Any) -> None:
        record.info[_FILE] = file = _file_at(str(url.database))
        if file in logged:
            return
        cursor = connection.cursor()
        with suppress(sqlite3.OperationalError):  # locked: another process is setting it, permanently
            cursor.execute("pragma journal_mode = wal")
            logged.add(file)
        cursor.close()

    return engine
