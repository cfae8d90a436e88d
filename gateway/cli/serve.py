"""``holeshot serve``: starts the gateway."""

import asyncio
import errno
import os
import resource
import sys
import tempfile
from contextlib import ExitStack
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.configuration import ConfigOption, read_clickhouse, read_database_url, read_settings, report
from gateway.cli.terminal import MISUSED, fail, prose, say, write_json
from gateway.core.processes import collect_less
from gateway.core.terminal_text import counted

if TYPE_CHECKING:
    from gateway.ledger import Retention
    from gateway.settings import ClickHouseSettings


def serve(
    config: ConfigOption = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; any other than loopback needs clients.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on. [default: 4000]")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes; more than one needs Postgres and Redis.")
    ] = None,
) -> None:
    """Start the gateway.

    Without a configuration file there are the models that `init` would write for the keys in the environment. Without
    any key, simulated providers are started.

    Example: GROQ_API_KEY=gsk-... holeshot serve --port 4000
    """
    collect_less()  # before the import of the gateway
    _import_without("rich", "structlog")  # three megabytes, for drawn traces, which the gateway does not draw
    from gateway.settings import ConfigurationError, References, load  # noqa: PLC0415 - pydantic only where it is needed

    overrides, references = {"host": host, "port": port, "workers": workers}, References()
    settings, path = read_settings(config, overrides, exit_code=MISUSED, references=references)
    if settings.redis_url is not None:
        _import_without("opentelemetry", "redis")  # four megabytes, for redis's own metrics
    from gateway.ledger import LedgerError  # noqa: PLC0415 - likewise
    from gateway.server import ConfigurationSource, DemoFailedError, TlsError, run  # noqa: PLC0415 - imports the whole gateway, so only here
    from gateway.topology import UnusableTopologyError  # noqa: PLC0415 - likewise

    try:
        with ExitStack() as stack:
            if settings.workers > 1:
                # Workers share their metrics in this folder, each in its own file.
                folder = tempfile.TemporaryDirectory(prefix="holeshot-metrics-", ignore_cleanup_errors=True)
                os.environ["PROMETHEUS_MULTIPROC_DIR"] = stack.enter_context(folder)
            source = ConfigurationSource(
                path, lambda: load(path, os.environ, overrides, references=references), references
            )
            run(settings, source)
    except TlsError as error:
        fail(str(error), MISUSED)
    except ConfigurationError as error:  # problems that show only when providers are opened
        report(error)
        raise typer.Exit(MISUSED) from None
    except (DemoFailedError, LedgerError, UnusableTopologyError) as error:
        fail(str(error))
    except OSError as error:
        fail(_explained(error))


def _import_without(other: str, module: str) -> None:
    """Import ``module`` as if its optional dependency ``other`` were not installed."""
    if other in sys.modules:
        return
    sys.modules[other] = None  # type: ignore[assignment] # its import fails meanwhile
    try:
        import_module(module)
    finally:
        del sys.modules[other]


_SCARCE = {
    errno.ENFILE: "this machine has no open files left: raise fs.file-max, or stop programs that hold many",
    errno.EAGAIN: "no process can be started: raise how many this user (`ulimit -u`) or the container may have",
    errno.ENOMEM: "this machine has not enough free memory for the gateway: free some, or set fewer `workers`",
}


def _explained(error: OSError) -> str:
    """Return why the gateway cannot start, in a sentence that says what to do."""
    from gateway.server import ListenError  # noqa: PLC0415 - imports the whole gateway, so only here

    if isinstance(error, ListenError):
        return error.strerror or str(error)
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"{limit} open files are too few for the gateway: raise the limit, for example with `ulimit -n 4096`"
    if error.errno in _SCARCE:
        return _SCARCE[error.errno]
    if error.errno == errno.ENOSPC:
        return f"there is no space left on the disk{_of(error)}: free some, and start again"
    return f"the gateway cannot start: {error.strerror or error}{_of(error)}"


def _of(error: OSError) -> str:
    return f" ({error.filename})" if error.filename else ""


# ``holeshot migrate``: updates the ledger's tables and views.


def migrate(
    config: ConfigOption = None,
    down_to: Annotated[
        str | None,
        typer.Option(metavar="REVISION", help="Go back to an older schema; 'base' drops every row."),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", min=0, metavar="SECONDS", help="Give up after waiting this long for others' transactions."
        ),
    ] = 600.0,
) -> None:
    """Update the ledger's tables and views.

    Run it before `serve` on Postgres, once per release; `serve` itself migrates SQLite, and ClickHouse if
    ledger.clickhouse is set. It reads only these two settings, so it needs no provider's key.

    If another transaction holds a table for more than two seconds, the command says whose, every ten seconds. After
    --wait it gives up, and nothing has changed.

    Example: HOLESHOT_DATABASE_URL=postgresql://... holeshot migrate
    """
    url = read_database_url(config)
    from alembic.util import CommandError  # noqa: PLC0415 - SQLAlchemy and Alembic only here
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - likewise

    from gateway.ledger import LedgerError, Patience, demand_ledger, downgrade, head_revision  # noqa: PLC0415 - likewise
    from gateway.ledger import migrate as upgrade  # noqa: PLC0415 - likewise

    patience = Patience(wait, lambda words: say(f"holeshot: {words}", err=True))
    try:
        if down_to is None:
            asyncio.run(upgrade(url, patience))
        else:
            demand_ledger(url)
            asyncio.run(downgrade(url, down_to, patience))
    except (LedgerError, CommandError) as error:
        fail(str(error))
    except SQLAlchemyError as error:
        fail(f"the database refuses: {str(getattr(error, 'orig', None) or error).partition(chr(10))[0]}")
    say(f"the ledger's schema is {down_to or head_revision()}")
    if down_to is None and (clickhouse := read_clickhouse(config)) is not None:
        _prepare(clickhouse)


def _prepare(settings: "ClickHouseSettings") -> None:
    """Make or update the tables and views in ClickHouse; while ClickHouse is away, a gateway makes them later."""
    from gateway.ledger import ClickHouse, LedgerError, prepare_clickhouse  # noqa: PLC0415 - an HTTP client only here

    async def prepared() -> int:
        server = ClickHouse(settings.url.get_secret_value())
        try:
            return await prepare_clickhouse(server, settings.keep_days)
        finally:
            await server.aclose()

    try:
        say(f"the schema in ClickHouse is {asyncio.run(prepared())}")
    except LedgerError as error:
        say(f"holeshot: {error}; a gateway makes the tables there when it can", err=True)


# ``holeshot prune``: deletes rows that are too old, now.


def prune(
    config: ConfigOption = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the rows that would be deleted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Delete rows that are older than `ledger:` says.

    A running gateway does this every hour. On Postgres a whole day is deleted together (a week, if rows are kept for
    more than three months). Rows that are in no sum yet are added up first.


    Example: holeshot prune --dry-run
    """
    settings, _ = read_settings(config)
    from gateway.ledger import LedgerError, Retention  # noqa: PLC0415 - SQLAlchemy only here

    retention = Retention.of(settings.ledger)
    if retention.keeps_all:
        prose("all calls are kept: set ledger.keep_calls_days, keep_attempts_days or keep_rollups_days", err=True)
    try:
        counts = asyncio.run(_prune(settings.database_url.get_secret_value(), retention, dry_run=dry_run))
    except LedgerError as error:
        fail(str(error))
    if counts is None:
        fail("another gateway is deleting at this moment; there is nothing to do")
    if as_json:
        write_json({"dry_run": dry_run, "rows": counts})
        return
    for table, number in counts.items():
        say(f"{table}: {counted(number, 'row')} {'would be deleted' if dry_run else 'deleted'}")


async def _prune(url: str, retention: "Retention", *, dry_run: bool) -> dict[str, int] | None:
    from gateway.ledger import check_schema, create_engine, demand_ledger, expired, fold_all  # noqa: PLC0415 - as above
    from gateway.ledger import prune as delete  # noqa: PLC0415 - as above

    demand_ledger(url)
    engine = create_engine(url)
    gone: dict[str, int] = {}

    def tell(table: str, number: int) -> None:
        gone[table] = gone.get(table, 0) + number
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{table}: {counted(gone[table], 'row')} ")

    try:
        await check_schema(engine)
        if dry_run:
            return await expired(engine, retention)
        await fold_all(engine)  # even if no row is ever deleted
        return await delete(engine, retention, deleted=tell, waits=_tell_of_waiting)
    finally:
        await engine.dispose()
        if gone and sys.stderr.isatty():
            sys.stderr.write("\r")


def _tell_of_waiting(table: str, until: datetime, _: bool) -> None:
    """Say that rows which are too old stay for now."""
    say(
        f"{table}: all rows are too old, or the clock has jumped: nothing is deleted before {until:%Y-%m-%d %H:%M} "
        "UTC; check the clock of the database's machine",
        err=True,
    )
