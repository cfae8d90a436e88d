"""``holeshot sql``: a question to the ledger, read-only."""

import asyncio
import csv
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.configuration import ConfigOption, read_database_url
from gateway.cli.terminal import MISUSED, fail, json_text, on_a_terminal, say, write_json, write_table
from gateway.terminal_text import visible

if TYPE_CHECKING:
    from gateway.ledger.queries import Result


def sql(
    query: Annotated[str, typer.Argument(help="One SELECT; - reads it from standard input.")],
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Comma-separated, with a header; the default when piped.")
    ] = False,
    limit: Annotated[int, typer.Option(min=0, help="Rows shown in a table; 0 shows all.")] = 200,
) -> None:
    """Ask the ledger in SQL, read-only.

    A table on a terminal, CSV when piped, so that `| head` and `> file` do what they should; nulls are empty in CSV,
    lists and objects JSON. Control characters are shown, not sent.
    Tables: calls, attempts, buckets. Views: samples, leaderboard, throughput, throughput_5m, race_value, slo,
    provider_errors.

    Example: holeshot sql "select * from throughput"
    """
    if as_json and as_csv:
        fail("--json or --csv, not both", MISUSED)
    statement = sys.stdin.read() if query == "-" else query
    url = read_database_url(config)
    from gateway.ledger import queries  # noqa: PLC0415 - SQLAlchemy only where it is needed
    from gateway.ledger.errors import LedgerError  # noqa: PLC0415 - likewise

    try:
        result = asyncio.run(queries.run(url, statement))
    except LedgerError as error:
        fail(str(error))
    _write(result, as_json=as_json, as_csv=as_csv or not on_a_terminal(), limit=limit)


def _write(result: "Result", *, as_json: bool, as_csv: bool, limit: int) -> None:
    if as_json:
        write_json([dict(zip(result.columns, row, strict=True)) for row in result.rows])
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(_csv_cell, result.columns))
        writer.writerows(map(_csv_cell, row) for row in result.rows)
    else:
        shown = result.rows[:limit] if limit else result.rows
        write_table(result.columns, shown)
        if hidden := len(result.rows) - len(shown):
            say(f"{hidden} more rows; --limit 0 shows all")


def _csv_cell(value: object) -> object:
    """Return a value for CSV, which has no escapes of its own: control characters are shown, as in a table."""
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    return visible(value, lines=True) if isinstance(value, str) else value
