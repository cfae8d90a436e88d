"""``holeshot sql``: queries the ledger, read-only."""

import asyncio
import csv
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.configuration import ConfigOption, DatabaseOption, read_clickhouse, read_database_url
from gateway.cli.terminal import (
    MISUSED,
    fail,
    json_text,
    on_a_terminal,
    read_standard_input,
    say,
    write_json,
    write_table,
)
from gateway.core.terminal_text import counted, visible

if TYPE_CHECKING:
    from gateway.ledger import queries


EXCEL = "excel"  # CSV without formulas
_STREAMED = frozenset({"csv", EXCEL, "jsonl"})
# The characters that begin a formula in spreadsheets, also in their wide forms.
_FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "\N{FULLWIDTH EQUALS SIGN}",
    "\N{FULLWIDTH PLUS SIGN}",
    "\N{FULLWIDTH HYPHEN-MINUS}",
    "\N{FULLWIDTH COMMERCIAL AT}",
)


class ResultError(Exception):
    """A result that cannot be written; the message says why."""


class AskedStore(StrEnum):
    """The store to query: the SQL database, or ClickHouse."""

    SQL = "sql"
    CLICKHOUSE = "clickhouse"


def sql(
    query: Annotated[str | None, typer.Argument(help="One SELECT; - reads it from standard input.")] = None,
    config: ConfigOption = None,
    *,
    database_url: DatabaseOption = None,
    on: Annotated[
        AskedStore, typer.Option(help="Which store of the ledger: SQL, or the ClickHouse of ledger.clickhouse.")
    ] = AskedStore.SQL,
    reader_role: Annotated[
        bool, typer.Option("--reader-role", help="Print the SQL that makes a Postgres role which can only read.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")] = False,
    as_jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print one JSON object per line, streamed; no time limit.")
    ] = False,
    as_csv: Annotated[
        bool,
        typer.Option("--csv", help="Print CSV with a header, streamed; no time limit. The default when piped."),
    ] = False,
    excel: Annotated[
        bool,
        typer.Option(
            "--excel", help="With --csv, for spreadsheets: text that one would run as a formula gets a ' before it."
        ),
    ] = False,
    limit: Annotated[int, typer.Option(min=0, help="Rows shown in a table; 0 shows all.")] = 200,
) -> None:
    """Query the ledger in SQL, read-only.

    On Postgres, use a role that can only read: --reader-role prints the SQL for one, HOLESHOT_SQL_URL uses it.

    On a terminal it prints a table; when piped, CSV, in which nulls are empty, lists and objects are JSON.

    The page 'Tables and views of the ledger' of the documentation explains each column. On SQLite too times may be
    written as 2026-11-22T14:00:00Z, and there are date_trunc('hour', started_at) and percentile_cont(0.95) within
    group (order by ttft_ms).


    \b
    Tables: calls, attempts, refusals, outages, slowdowns, alerts, alert_messages,
      stored_names, buckets, client_keys, key_changes, and sums: target_counts,
      and of calls and attempts rollup_...
    Views: leaderboard, samples, throughput_5m, load_5m, load_peaks,
      tag_differences, speed_by_hour, speed_days, rollup_pending,
      client_usage_by_month, team_usage_by_month, end_user_usage_by_month
    Views of all time, and in brackets of the last hour, day or month:
      race_value (_1h, _24h, _30d), throughput (_1h, _24h, _30d),
      provider_errors (_24h, _30d), client_usage (_24h, _30d), slo (_30d),
      tag_values (_30d), cache_value (_30d)
    Only lately: waste_24h, waste_30d, answer_quality_24h, answer_quality_30d,
      gaps_24h, cache_latency_24h, regions_1h, regions_24h, refusals_24h,
      wrong_keys_24h, would_win_24h, outages_30d

    Example: holeshot sql "select * from race_value_24h"

    With --on clickhouse the query is ClickHouse's SQL, over what the page
    'Years of calls in ClickHouse' of the documentation lists.


    Example: holeshot sql --on clickhouse "select * from throughput_30d"
    """  # noqa: D301 - \b itself keeps the lines of the list
    if as_json + as_jsonl + as_csv > 1:
        fail("one of --json, --jsonl and --csv", MISUSED)
    if query is None and not reader_role:
        fail("give a query, or - to read it from standard input", MISUSED)
    if on is AskedStore.CLICKHOUSE:
        if query is None:
            fail("ClickHouse has its own roles: leave out --reader-role", MISUSED)
        _ask_clickhouse(config, _statement(query), _form(as_json, as_jsonl, as_csv, excel), limit)
        return
    url = database_url or read_database_url(config, for_reports=not reader_role)
    from gateway.ledger import LedgerError, is_sqlite, parse_url, reader_sql  # noqa: PLC0415 - likewise

    try:
        if reader_role:
            if is_sqlite(parsed := parse_url(url)):
                fail("SQLite has no roles; its file is opened read-only", MISUSED)
            typer.echo(reader_sql(parsed), nl=False)
            return
        asyncio.run(_answer(url, _statement(query), _form(as_json, as_jsonl, as_csv, excel), limit))
    except (LedgerError, ResultError) as error:
        fail(str(error))


def _statement(query: str | None) -> str:
    statement = read_standard_input() if query == "-" else str(query)
    if not statement.strip():
        fail("the query is empty", MISUSED)
    return statement


def _form(as_json: bool, as_jsonl: bool, as_csv: bool, excel: bool) -> str:
    if excel:
        if as_json or as_jsonl or not (as_csv or not on_a_terminal()):
            fail("--excel needs --csv", MISUSED)
        return EXCEL
    return "json" if as_json else "jsonl" if as_jsonl else "csv" if as_csv or not on_a_terminal() else "table"


def _ask_clickhouse(config: Path | None, statement: str, form: str, limit: int) -> None:
    """Run the query in the ledger's second store, and write its rows."""
    settings = read_clickhouse(config)
    if settings is None:
        fail("ledger.clickhouse is not set: there is no ClickHouse to ask", MISUSED)
    from gateway.ledger import ClickHouse, LedgerError, queries  # noqa: PLC0415 - as above

    async def asked(url: str) -> None:
        timeout_s = None if form in _STREAMED else queries.QUERY_TIMEOUT_S
        server = ClickHouse(url)
        try:
            async with server.asked(statement, timeout_s) as answer:
                await _write(answer, form, limit)
        finally:
            await server.aclose()

    try:
        asyncio.run(asked(settings.url.get_secret_value()))
    except (LedgerError, ResultError) as error:
        fail(str(error))


async def _answer(url: str, statement: str, form: str, limit: int) -> None:
    """Run the query and write its rows; with CSV and JSON lines at most one batch is in memory."""
    from gateway.ledger import queries  # noqa: PLC0415 - as above

    timeout_s = None if form in _STREAMED else queries.QUERY_TIMEOUT_S
    async with queries.asked(url, statement, timeout_s=timeout_s, examine_role=True) as answer:
        _warn_of_role(answer)
        await _write(answer, form, limit)


def _warn_of_role(answer: "queries.ResultStream") -> None:
    if answer.role_may is not None:
        typer.echo(
            f"holeshot: {answer.role_may}; use a reader role: holeshot sql --reader-role prints the SQL for one",
            err=True,
        )


async def _write(answer: "queries.ResultStream", form: str, limit: int) -> None:
    if form in {"json", "jsonl"}:
        _check_columns(answer.columns)
    if form in {"csv", EXCEL}:
        await _write_csv(answer, _unmarked if form == "csv" else _marked)
    elif form == "jsonl":
        async for batch in answer.batches:
            sys.stdout.writelines(f"{json_text(dict(zip(answer.columns, row, strict=True)))}\n" for row in batch)
    elif form == "json":
        rows = [row async for batch in answer.batches for row in batch]
        write_json([dict(zip(answer.columns, row, strict=True)) for row in rows])
    else:
        await _write_table(answer, limit)
    sys.stdout.flush()  # a closed pipe (`| head`) is handled here; at exit Python would report it


def _check_columns(columns: Sequence[str]) -> None:
    """Check that each of ``columns`` has a name of its own: an object has one value of a name, the others were lost.

    Raises:
        ResultError: several have one name.

    """
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise ResultError(f"several columns are named {', '.join(twice)}: rename them with AS")


async def _write_csv(answer: "queries.ResultStream", cell: Callable[[object], object]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(map(cell, answer.columns))
    async for batch in answer.batches:
        writer.writerows(map(cell, row) for row in batch)


async def _write_table(answer: "queries.ResultStream", limit: int) -> None:
    shown: list[tuple[Any, ...]] = []
    number = 0
    async for batch in answer.batches:
        number += len(batch)
        shown += batch[: limit - len(shown)] if limit else batch
    write_table(answer.columns, shown)
    if hidden := number - len(shown):
        say(f"{counted(hidden, 'more row')}; --limit 0 shows all")


def _unmarked(value: object) -> object:
    """Return a value for CSV; control characters are escaped as in a table."""
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    return visible(value, lines=True) if isinstance(value, str) else value


def _marked(value: object) -> object:
    """Return a value for CSV in a spreadsheet: a ' is put before text that would count as a formula, like ``=1+1``."""
    cell = _unmarked(value)
    is_formula = isinstance(cell, str) and cell.lstrip().startswith(_FORMULA)
    return f"'{cell}" if is_formula else cell
