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
    query: Annotated[str | None, typer.Argument(help="One SELECT; - reads it from standard input.")] = None,
    config: ConfigOption = None,
    *,
    database_url: Annotated[
        str | None,
        typer.Option(
            envvar="HOLESHOT_SQL_URL",
            metavar="URL",
            help="Whom to ask as, instead of database_url; in the variable others do not see its password.",
        ),
    ] = None,
    reader_role: Annotated[
        bool, typer.Option("--reader-role", help="Print the SQL that makes a Postgres role which can only read.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Comma-separated, with a header; the default when piped.")
    ] = False,
    limit: Annotated[int, typer.Option(min=0, help="Rows shown in a table; 0 shows all.")] = 200,
) -> None:
    """Ask the ledger in SQL, read-only: no function that does more is run, and no other file of SQLite's.

    On Postgres, ask as a role that can only read: --reader-role prints the SQL for one, HOLESHOT_SQL_URL uses it.

    A table on a terminal, CSV when piped, so that `| head` and `> file` do what they should; nulls are empty in CSV,
    lists and objects JSON. Control characters are shown, not sent.
    Tables: calls, attempts, buckets. Views: samples, leaderboard, throughput, throughput_5m, race_value, slo,
    provider_errors.

    Example: holeshot sql "select * from throughput"
    """
    if as_json and as_csv:
        fail("--json or --csv, not both", MISUSED)
    if query is None and not reader_role:
        fail("give a query, or - to read it from standard input", MISUSED)
    url = database_url or read_database_url(config)
    from gateway.ledger import queries, roles  # noqa: PLC0415 - SQLAlchemy only where it is needed
    from gateway.ledger.database import is_sqlite, parse_url  # noqa: PLC0415 - likewise
    from gateway.ledger.errors import LedgerError  # noqa: PLC0415 - likewise

    try:
        if reader_role:
            if is_sqlite(parsed := parse_url(url)):
                fail("SQLite has no roles; its file is opened for reading alone", MISUSED)
            typer.echo(roles.reader_sql(parsed), nl=False)
            return
        statement = sys.stdin.read() if query == "-" else str(query)
        result = asyncio.run(queries.run(url, statement, examine_role=True))
    except LedgerError as error:
        fail(str(error))
    if result.role_may is not None:
        typer.echo(f"holeshot: {result.role_may}; ask as a reader: holeshot sql --reader-role makes one", err=True)
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
