"""``holeshot alerts``: open and past alerts, conditions that are not alerts yet, and a test of the webhooks."""

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.configuration import (
    ConfigOption,
    KeyOption,
    LookUrlOption,
    gateway_url,
    read_database_url,
    read_settings,
)
from gateway.cli.terminal import FAILED, MISUSED, fail, json_text, say, write_json, write_table
from gateway.core.terminal_text import counted

if TYPE_CHECKING:
    from gateway.alerts import SendResult
    from gateway.settings import WebhookSettings

_NAMES = (
    "state", "id", "key", "kind", "subject", "severity", "summary", "figures", "sql",
    "since", "after_s", "opens_in_s",  # the last three: of a condition that is not an alert yet
    "opened_at", "seen_at", "resolved_at", "replica", "scope",
    "messages_sent", "messages_waiting", "messages_given_up",
)  # fmt: skip
_COLUMNS = ("opened_at", "resolved_at", "severity", "kind", "subject", "summary", "messages")


def alerts() -> typer.Typer:
    """Return the command with its verb."""
    app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)
    app.command("test")(_try)
    app.callback()(_alerts)
    return app


def _alerts(
    context: typer.Context,
    config: ConfigOption = None,
    url: LookUrlOption = None,
    key: KeyOption = None,
    *,
    open_only: Annotated[bool, typer.Option("--open", help="Without those that have ended.")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Also print the SQL that shows each one's evidence.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")] = False,
) -> None:
    """Show alerts, open ones first; with --url also near ones.

    When an alert opens and ends is on the page 'Alerts, monitoring and slowdowns' of the documentation. `holeshot
    alerts test` tries the webhooks. While the database is away, --url asks a running gateway.

    Example: holeshot alerts --open --sql
    """
    if context.invoked_subcommand is not None:
        if config is not None:
            fail("write --config after the verb: holeshot alerts test --config FILE", MISUSED)
        if as_json:
            fail("write --json after the verb: holeshot alerts test --json", MISUSED)
        return
    from gateway.cli.remote import GatewayError  # noqa: PLC0415 - only where it is needed
    from gateway.ledger import LedgerError  # noqa: PLC0415 - SQLAlchemy only where it is needed

    try:
        if url is not None:
            rows = _told(gateway_url(url, config), key)
        else:
            rows = [_stated(row) for row in asyncio.run(_rows(read_database_url(config)))]
    except (GatewayError, LedgerError) as error:
        fail(str(error))
    rows = [row for row in rows if row["state"] != "resolved" or not open_only]
    if as_json:
        write_json(rows)
        return
    _write(rows, sql=sql)
    if all(row["state"] == "resolved" for row in rows):
        more = " (with --url GATEWAY also conditions that are not alerts yet)" if url is None else ""
        say(f"no alert is open{more}")


def _write(rows: list[dict[str, Any]], *, sql: bool) -> None:
    if rows:
        write_table(_COLUMNS, [[_cell(row, column) for column in _COLUMNS] for row in rows])
    if sql:
        for row in rows:
            say(f"\n-- {row['kind']} {row['subject']}\n{row['sql']}")


def _try(
    config: ConfigOption = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")] = False,
) -> None:
    """Send a test message to each webhook, and say what it answered. Nothing is stored, and nothing is sent again.

    The exit code is 1 if one did not take it.

    Example: holeshot alerts test
    """
    settings, _ = read_settings(config)
    webhooks = settings.alerts.webhooks
    if not webhooks:
        fail(
            "no webhook is configured: add one to alerts.webhooks, as on the page 'Alerts, monitoring and slowdowns' of"
            " the documentation"
        )
    answers = asyncio.run(_send(webhooks, settings.replica or "test"))
    rows = [
        {"webhook": name, "ok": each.delivery.ok, "answer": each.delivery.answer, "said": each.reply}
        for name, each in answers.items()
    ]
    if as_json:
        write_json(rows)
    else:
        write_table(("webhook", "ok", "answer", "said"), [list(row.values()) for row in rows])
    refused = sum(not row["ok"] for row in rows)
    if refused:
        say(f"holeshot: {counted(refused, 'webhook')} did not take the message", err=True)
        raise typer.Exit(FAILED)


async def _rows(url: str) -> list[dict[str, Any]]:
    from gateway.ledger import LISTED, ResultRows, queries, rows  # noqa: PLC0415 - as above

    found = await queries.run(url, LISTED)
    return rows(ResultRows(found.columns, found.rows))


def _told(url: str, key: str | None) -> list[dict[str, Any]]:
    """Return the alerts that a gateway knows; while its database is away, without past alerts."""
    from gateway.cli.remote import told  # noqa: PLC0415 - only where it is needed

    found = told(f"{url}/api/alerts", key, "open", "building", "data")
    stored = {row["id"]: row for row in found["data"] or ()}
    lasting = [{**stored.pop(row["id"], {}), **row} for row in found["open"]]
    return [_stated(row) for row in (*found["building"], *lasting, *stored.values())]


def _stated(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its state and all names; an unknown value is null."""
    full = {**dict.fromkeys(_NAMES), **row}
    is_alert, is_over = full["opened_at"] is not None, full["resolved_at"] is not None
    return {**full, "state": "building" if not is_alert else "resolved" if is_over else "open"}


def _cell(row: dict[str, Any], column: str) -> object:
    value = row.get(column)
    if column == "opened_at" and row["state"] == "building":
        return f"in {row['opens_in_s']:.0f} s, if it goes on"
    if column == "summary" and row["state"] == "resolved":
        return f"over; at its start: {value}"
    if column.endswith("_at") and isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    if column != "messages":
        return value if isinstance(value, str) or value is None else json_text(value)
    named = {"sent": "messages_sent", "waiting": "messages_waiting", "given up": "messages_given_up"}
    return ", ".join(f"{row[name]} {words}" for words, name in named.items() if row[name]) or None


async def _send(webhooks: "dict[str, WebhookSettings]", replica: str) -> "dict[str, SendResult]":
    """Send all messages at once; a receiver that hangs delays no other."""
    from gateway import __version__  # noqa: PLC0415 - as above
    from gateway.alerts import Alert, AlertEvent, AlertKind, AlertMessage, Sender, Severity  # noqa: PLC0415 - 20 MB of an HTTP client
    from gateway.core.ids import new_id  # noqa: PLC0415 - as above

    now = datetime.now(UTC)
    alert = Alert(
        id=new_id(),
        kind=AlertKind.MODEL_OUT,
        subject="test",
        severity=Severity.TICKET,
        summary="This is a test of the webhook: nothing is wrong",
        figures={},
        sql="select 1",
        opened_at=now,
        seen_at=now,
        replica=replica,
    )
    sender = Sender(unix_clock=time.time, user_agent=f"holeshot/{__version__}")
    try:
        messages = {
            name: AlertMessage(id=new_id(), alert=alert, webhook=name, event=AlertEvent.TEST, created_at=now)
            for name in webhooks
        }
        results = await asyncio.gather(*(sender.send(webhook, messages[name]) for name, webhook in webhooks.items()))
        return dict(zip(webhooks, results, strict=True))
    finally:
        await sender.aclose()
