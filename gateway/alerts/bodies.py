"""Messages as JSON, and as Slack's incoming webhooks take them."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.alerts.alert import Alert, Event, Message, Scope
from gateway.alerts.condition import Severity
from gateway.settings.alerts import Format

MOST_TEXT = 2800  # characters of a block of Slack's, which takes 3000
_ALONE = "The database is away, so each process says this by itself: the message may come several times."


def body(message: Message, form: Format) -> bytes:
    """Return the body of a message."""
    return msgspec.json.encode(_slack(message) if form is Format.SLACK else _json(message))


def _json(message: Message) -> dict[str, Any]:
    alert = message.alert
    return {
        "type": message.event,
        "timestamp": _instant(message.created_at),
        "data": {
            "id": alert.id,
            "key": alert.key,
            "kind": alert.kind,
            "subject": alert.subject,
            "severity": alert.severity,
            "summary": alert.summary,
            "figures": dict(alert.figures),
            "opened_at": _instant(alert.opened_at),
            "resolved_at": None if alert.resolved_at is None else _instant(alert.resolved_at),
            "replica": alert.replica,
            "scope": alert.scope,
            "sql": alert.sql,
        },
    }


def _slack(message: Message) -> dict[str, Any]:
    """Return a text for notifications, and blocks for the channel."""
    alert = message.alert
    head = f"{_sign(message)} {_escaped(alert.summary)}"
    facts = f"{alert.severity} · {alert.kind} · opened {alert.opened_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if alert.resolved_at is not None:
        facts += f" · lasted {_lasted(alert, alert.resolved_at)}"
    if alert.scope is Scope.PROCESS:
        facts += f"\n{_ALONE}"
    return {
        "text": head[:MOST_TEXT],
        "blocks": [
            {"type": "section", "text": {"type": "mrkdwn", "text": head[:MOST_TEXT]}},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": _escaped(facts)[:MOST_TEXT]}]},
            {"type": "section", "text": {"type": "mrkdwn", "text": f"```{_escaped(alert.sql)[:MOST_TEXT]}```"}},
        ],
    }


def _sign(message: Message) -> str:
    if message.event is Event.TEST:
        return "*Test:*"
    if message.event is Event.RESOLVED:
        return "*Resolved:*"
    return "*Look now:*" if message.alert.severity is Severity.PAGE else "*Look today:*"


def _lasted(alert: Alert, until: datetime) -> str:
    minutes = max(0, round((until - alert.opened_at).total_seconds() / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"  # noqa: PLR2004 - an hour


def _escaped(text: str) -> str:
    """Return text in which Slack sees no mention or link: a name from outside must not call everybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("```", "'''")


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
