"""The book of alerts in Postgres or SQLite, which all replicas share."""

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row, Select, and_, delete, exists, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.alerts.alert import Alert, Delivery, Event, Message, Scope
from gateway.alerts.book import MESSAGES_AT_ONCE, BookAway
from gateway.alerts.condition import Kind, Severity
from gateway.ledger.own_connection import OwnConnection
from gateway.ledger.tables import alert_messages, alerts

TIMEOUT_S = 5.0  # of everything that is asked; each takes some milliseconds
MESSAGES_KEPT = timedelta(days=30)
ALERTS_KEPT = timedelta(days=400)
_EARLIER = alert_messages.alias("earlier")


class SqlAlertBook:
    """The tables ``alerts`` and ``alert_messages``; it connects when first used."""

    def __init__(self, url: str, *, new_id: Callable[[], str], timeout_s: float = TIMEOUT_S) -> None:
        """Use the ledger's database at ``url``, with a connection of its own: the ledger may be busy shipping.

        Raises:
            DatabaseUrlError: ``url`` is invalid.

        """
        self._database = OwnConnection(url, BookAway)
        self._instant = self._database.instant
        self._new_id = new_id
        self._timeout_s = timeout_s

    async def current(self, since: datetime) -> list[Alert]:
        """Return the alerts that are open, and those resolved after ``since``."""
        query = select(alerts).where(or_(alerts.c.resolved_at.is_(None), alerts.c.resolved_at > self._instant(since)))
        async with self._database.open(self._timeout_s) as connection:
            return [_alert(row) for row in await connection.execute(query.order_by(alerts.c.opened_at, alerts.c.id))]

    async def open(self, alert: Alert, webhooks: Collection[str]) -> bool:
        """Store an alert and its messages; delete very old ones."""
        into = sqlite.insert(alerts) if self._database.is_sqlite else postgresql.insert(alerts)
        async with self._database.open(self._timeout_s, writes=True) as connection:
            stored = await connection.execute(into.values(self._values(alert)).on_conflict_do_nothing())
            if stored.rowcount != 1:
                return False
            await self._queue(connection, alert.id, Event.OPENED, webhooks, alert.opened_at)
            await self._forget(connection, alert.opened_at)
            await connection.commit()
        return True

    async def note_seen(self, ids: Collection[str], at: datetime) -> None:
        """Note that the conditions of these alerts held."""
        seen = update(alerts).where(alerts.c.id.in_(ids), alerts.c.seen_at < self._instant(at))
        async with self._database.open(self._timeout_s, writes=True) as connection:
            await connection.execute(seen.values(seen_at=self._instant(at)))
            await connection.commit()

    async def resolve(self, alert: Alert, *, unseen_since: datetime, at: datetime, webhooks: Collection[str]) -> bool:
        """End an alert and store the messages."""
        ended = update(alerts).where(
            alerts.c.id == alert.id,
            alerts.c.resolved_at.is_(None),
            alerts.c.seen_at <= self._instant(unseen_since),
        )
        async with self._database.open(self._timeout_s, writes=True) as connection:
            stored = await connection.execute(ended.values(resolved_at=self._instant(at)))
            if stored.rowcount != 1:
                return False
            await self._queue(connection, alert.id, Event.RESOLVED, webhooks, at)
            await connection.commit()
        return True

    async def take_due(self, now: datetime, *, lease: timedelta, webhooks: Collection[str]) -> list[Message]:
        """Return messages that are to be sent now. Nothing is locked while there are none."""
        due = self._due(now, webhooks)
        async with self._database.open(self._timeout_s) as connection:
            if (await connection.execute(due.limit(1))).first() is None:
                return []
        if not self._database.is_sqlite:
            due = due.with_for_update(skip_locked=True, of=alert_messages)
        async with self._database.open(self._timeout_s, writes=True) as connection:
            ids = [row.id for row in await connection.execute(due)]
            leased = update(alert_messages).where(alert_messages.c.id.in_(ids))
            await connection.execute(leased.values(due_at=self._instant(now + lease)))
            found = await connection.execute(
                select(alert_messages.c.id.label("message_id"), *_OF_MESSAGES, *alerts.c)
                .join(alerts, alerts.c.id == alert_messages.c.alert_id)
                .where(alert_messages.c.id.in_(ids))
                .order_by(alert_messages.c.created_at, alert_messages.c.id)
            )
            taken = [_message(row) for row in found]
            await connection.commit()
        return taken

    async def settle(self, message: Message, delivery: Delivery, *, at: datetime, retry_at: datetime | None) -> None:
        """Note what became of an attempt."""
        values: dict[str, Any] = {"tries": message.tries + 1, "answer": delivery.answer}
        if retry_at is None:
            values |= {"done_at": self._instant(at), "is_sent": delivery.ok}
        else:
            values |= {"due_at": self._instant(retry_at)}
        async with self._database.open(self._timeout_s, writes=True) as connection:
            await connection.execute(update(alert_messages).where(alert_messages.c.id == message.id).values(values))
            await connection.commit()

    async def aclose(self) -> None:
        """Dispose of the engine; a server that hangs does not delay this for long."""
        await self._database.aclose(self._timeout_s)

    def _due(self, now: datetime, webhooks: Collection[str]) -> Select[Any]:
        """Return the query of messages that are due, those apart whose incident's beginning was not said yet."""
        waits = and_(
            _EARLIER.c.alert_id == alert_messages.c.alert_id,
            _EARLIER.c.webhook == alert_messages.c.webhook,
            _EARLIER.c.event == Event.OPENED.value,
            _EARLIER.c.done_at.is_(None),
        )
        return (
            select(alert_messages.c.id)
            .where(
                alert_messages.c.done_at.is_(None),
                alert_messages.c.due_at <= self._instant(now),
                alert_messages.c.webhook.in_(list(webhooks)),
                or_(alert_messages.c.event != Event.RESOLVED.value, ~exists().where(waits)),
            )
            .order_by(alert_messages.c.due_at, alert_messages.c.id)
            .limit(MESSAGES_AT_ONCE)
        )

    async def _queue(
        self, connection: AsyncConnection, alert_id: str, event: Event, webhooks: Collection[str], at: datetime
    ) -> None:
        instant = self._instant(at)
        rows = [
            {
                "id": self._new_id(),
                "alert_id": alert_id,
                "webhook": webhook,
                "event": event.value,
                "created_at": instant,
                "due_at": instant,
                "tries": 0,
            }
            for webhook in sorted(webhooks)
        ]
        if rows:
            await connection.execute(insert(alert_messages), rows)

    async def _forget(self, connection: AsyncConnection, now: datetime) -> None:
        old, very_old = self._instant(now - MESSAGES_KEPT), self._instant(now - ALERTS_KEPT)
        await connection.execute(delete(alert_messages).where(alert_messages.c.created_at < old))
        await connection.execute(delete(alerts).where(alerts.c.resolved_at < very_old))

    def _values(self, alert: Alert) -> dict[str, Any]:
        return {
            "id": alert.id,
            "key": alert.key,
            "kind": alert.kind.value,
            "subject": alert.subject,
            "severity": alert.severity.value,
            "summary": alert.summary,
            "figures": dict(alert.figures),
            "sql": alert.sql,
            "opened_at": self._instant(alert.opened_at),
            "seen_at": self._instant(alert.seen_at),
            "resolved_at": None if alert.resolved_at is None else self._instant(alert.resolved_at),
            "replica": alert.replica,
            "scope": alert.scope.value,
        }


_OF_MESSAGES = (
    alert_messages.c.webhook,
    alert_messages.c.event,
    alert_messages.c.created_at,
    alert_messages.c.tries,
)


def _alert(row: Row[Any]) -> Alert:
    return Alert(
        id=row.id,
        kind=Kind(row.kind),
        subject=row.subject,
        severity=Severity(row.severity),
        summary=row.summary,
        figures=row.figures,
        sql=row.sql,
        opened_at=_utc(row.opened_at),
        seen_at=_utc(row.seen_at),
        resolved_at=None if row.resolved_at is None else _utc(row.resolved_at),
        replica=row.replica,
        scope=Scope(row.scope),
    )


def _message(row: Row[Any]) -> Message:
    return Message(
        id=row.message_id,
        alert=_alert(row),
        webhook=row.webhook,
        event=Event(row.event),
        created_at=_utc(row.created_at),
        tries=row.tries,
    )


def _utc(instant: datetime) -> datetime:
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant
