"""``holeshot slowdowns``: when deployments were slower than usual, or failed more often."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.configuration import ConfigOption, read_database_url
from gateway.cli.terminal import MISUSED, fail, say, write_json, write_table

if TYPE_CHECKING:
    from gateway.reports import SlowdownsWanted

_WINDOWS = ("1h", "24h", "7d", "30d")
_METRICS = {"ttft": "first token", "tps": "speed", "itl": "gaps", "errors": "errors"}


def slowdowns(
    config: ConfigOption = None,
    *,
    since: Annotated[str, typer.Option(metavar="30d", help="How far back: 1h, 24h, 7d or 30d.")] = "30d",
    model: Annotated[str | None, typer.Option(help="Only this model.")] = None,
    deployment: Annotated[str | None, typer.Option(help="Only this deployment.")] = None,
    now: Annotated[bool, typer.Option("--now", help="Only those that go on.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list, with the SQL that shows each.")] = False,
) -> None:
    """Show when deployments were slower or failed more than usual.

    A running gateway compares each deployment every five minutes with its own earlier weeks and with the model's other
    deployments. docs/detector.md says how, and how soon it notices what.

    Example: holeshot slowdowns --now
    """
    if since not in _WINDOWS:
        fail(f"--since {since!r} is none of {', '.join(_WINDOWS)}", MISUSED)
    url = read_database_url(config)
    from gateway.ledger.errors import LedgerError  # noqa: PLC0415 - SQLAlchemy only where it is needed
    from gateway.reports import SlowdownsWanted, Window  # noqa: PLC0415 - likewise

    wanted = SlowdownsWanted(window=Window(since), model=model, deployment=deployment)
    try:
        rows = asyncio.run(_read(url, wanted))
    except LedgerError as error:
        fail(str(error))
    rows = [row for row in rows if row["ended_at"] is None or not now]
    if as_json:
        write_json(rows)
    elif rows:
        write_table(
            ("deployment", "model", "what", "times", "95 %", "from", "noticed", "to"), [_line(row) for row in rows]
        )
    else:
        say("no deployment was slower than usual" if not now else "no deployment is slower than usual")


async def _read(url: str, wanted: "SlowdownsWanted") -> list[dict[str, Any]]:
    from datetime import UTC, datetime  # noqa: PLC0415 - as above

    from gateway.ledger import queries  # noqa: PLC0415 - likewise
    from gateway.ledger.database import is_sqlite, parse_url  # noqa: PLC0415 - likewise
    from gateway.ledger.reports import shapes  # noqa: PLC0415 - likewise
    from gateway.ledger.reports.reader import Answer  # noqa: PLC0415 - likewise
    from gateway.ledger.reports.slowdowns import slowdowns_sql  # noqa: PLC0415 - likewise
    from gateway.ledger.reports.words import Words  # noqa: PLC0415 - likewise

    words = Words(is_postgres=not is_sqlite(parse_url(url)))
    result = await queries.run(url, slowdowns_sql(words, wanted, datetime.now(UTC)))
    return shapes.rows(Answer(result.columns, result.rows))


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    def when(name: str) -> str:
        return f"{row[name]:%Y-%m-%d %H:%M}" if row[name] is not None else "it goes on"

    return (
        row["deployment"],
        row["model"],
        _METRICS.get(row["metric"], row["metric"]),
        f"{row['ratio']:.2f}",
        f"{row['low']:.2f} to {row['high']:.2f}",
        when("began_at"),
        when("noticed_at"),
        when("ended_at"),
    )
