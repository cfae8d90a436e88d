"""``holeshot prune``: deletes rows that are too old, now."""

import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.configuration import ConfigOption, read_settings
from gateway.cli.terminal import fail, say, write_json
from gateway.terminal_text import counted

if TYPE_CHECKING:
    from gateway.ledger.retention import Retention


def prune(
    config: ConfigOption = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the rows that would be deleted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Delete rows that are older than `ledger:` says.

    It says so with `keep_calls_days`, `keep_attempts_days`, `keep_rollups_days`, `keep_refusals_days` and
    `keep_outages_days`. A running gateway does this every
    hour. Use this command to do it at once, or to see what would be deleted. On Postgres a whole day is deleted
    together (a week, if rows are kept for more than three months), and its space is free at once. On SQLite, and for
    rows from before partitioning, rows are deleted in small batches.

    Example: holeshot prune --dry-run
    """
    settings, _ = read_settings(config)
    from gateway.ledger.errors import LedgerError  # noqa: PLC0415 - SQLAlchemy only here
    from gateway.ledger.retention import Retention  # noqa: PLC0415 - likewise

    retention = Retention.of(settings.ledger)
    if retention.keeps_all:
        say("all calls are kept: set ledger.keep_calls_days, keep_attempts_days or keep_rollups_days", err=True)
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
    from gateway.ledger import retention as rows  # noqa: PLC0415 - as above
    from gateway.ledger.database import create_engine  # noqa: PLC0415 - as above

    engine = create_engine(url)
    now = datetime.now(UTC)
    gone: dict[str, int] = {}

    def tell(table: str, number: int) -> None:
        gone[table] = gone.get(table, 0) + number
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{table}: {counted(gone[table], 'row')} ")

    try:
        return await (rows.expired(engine, retention, now) if dry_run else rows.prune(engine, retention, now, tell))
    finally:
        await engine.dispose()
        if gone and sys.stderr.isatty():
            sys.stderr.write("\r")
