"""A book in memory: for one process while the database is away, and for simulations."""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta

import msgspec

from gateway.alerts.alert import MESSAGES_AT_ONCE, Alert, AlertEvent, AlertMessage, DeliveryResult

MOST_OPEN = 1000  # more than there are deployments, models and clients
MOST_RESOLVED = 200
MOST_MESSAGES = 500  # beyond this number the oldest messages are dropped


class QueuedMessage(msgspec.Struct):
    """A message that is not delivered yet."""

    message: AlertMessage
    due_at: datetime
    is_under_way: bool = False


class MemoryBook:
    """A bounded book: old alerts are forgotten, and old messages dropped, which ``dropped`` counts."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self.dropped = 0
        self._new_id = new_id
        self._open: dict[str, Alert] = {}  # by key
        self._resolved: deque[Alert] = deque(maxlen=MOST_RESOLVED)
        self._messages: dict[str, QueuedMessage] = {}  # by id, the oldest first

    @property
    def waiting(self) -> int:
        """The number of undelivered messages."""
        return len(self._messages)

    @property
    def alerts(self) -> list[Alert]:
        """All alerts in the book, the oldest first."""
        return sorted([*self._open.values(), *self._resolved], key=lambda each: each.opened_at)

    def forget(self, alert: Alert) -> None:
        """Remove an alert, but not its messages."""
        if self._open.get(alert.key) is alert:
            del self._open[alert.key]
        elif alert in self._resolved:
            self._resolved.remove(alert)

    def withdraw(self, alert: Alert) -> list[QueuedMessage]:
        """Remove and return queued messages that an alert has opened, except those that are being sent."""
        if alert.resolved_at is not None:
            return []
        own = [each for each in self._messages.values() if each.message.alert.id == alert.id and not each.is_under_way]
        for each in own:
            del self._messages[each.message.id]
        return own

    def put_back(self, messages: Iterable[QueuedMessage]) -> None:
        """Undo ``withdraw``."""
        self._messages = {each.message.id: each for each in messages} | self._messages

    async def current(self, since: datetime) -> list[Alert]:
        """Return the open alerts, and alerts resolved after ``since``."""
        late = [each for each in self._resolved if each.resolved_at is not None and each.resolved_at > since]
        return [*self._open.values(), *late]

    async def open(self, alert: Alert, webhooks: Collection[str]) -> bool:
        """Store an alert and its messages."""
        if alert.resolved_at is not None:  # from another book's past
            self._resolved.append(alert)
            return True
        if alert.key in self._open or len(self._open) >= MOST_OPEN:
            return False
        self._open[alert.key] = alert
        self._queue(alert, AlertEvent.OPENED, webhooks, alert.opened_at)
        return True

    async def note_seen(self, ids: Collection[str], at: datetime) -> None:
        """Note that the conditions of these alerts hold."""
        for key, alert in self._open.items():
            if alert.id in ids and alert.seen_at < at:
                self._open[key] = msgspec.structs.replace(alert, seen_at=at)

    async def resolve(self, alert: Alert, *, unseen_since: datetime, at: datetime, webhooks: Collection[str]) -> bool:
        """End an alert."""
        found = self._open.get(alert.key)
        if found is None or found.id != alert.id or found.seen_at > unseen_since:
            return False
        ended = msgspec.structs.replace(self._open.pop(alert.key), resolved_at=at)
        self._resolved.append(ended)
        self._queue(ended, AlertEvent.RESOLVED, webhooks, at)
        return True

    async def take_due(
        self, now: datetime, *, lease: timedelta, webhooks: Collection[str], most: int = MESSAGES_AT_ONCE
    ) -> list[AlertMessage]:
        """Return the messages that are due."""
        taken: list[AlertMessage] = []
        for queued in self._messages.values():
            message = queued.message
            if queued.due_at > now or message.webhook not in webhooks or self._is_early(message):
                continue
            queued.due_at, queued.is_under_way = now + lease, True
            taken.append(message)
            if len(taken) == most:
                break
        return taken

    async def settle(
        self,
        message: AlertMessage,
        delivery: DeliveryResult,  # noqa: ARG002 - Book's signature
        *,
        at: datetime,  # noqa: ARG002 - likewise
        retry_at: datetime | None,
    ) -> None:
        """Store the result of an attempt."""
        if retry_at is None:
            self._messages.pop(message.id, None)
        elif message.id in self._messages:
            again = msgspec.structs.replace(message, tries=message.tries + 1)
            self._messages[message.id] = QueuedMessage(again, retry_at)

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""

    def _is_early(self, message: AlertMessage) -> bool:
        """Whether the message of the incident's beginning is not delivered yet."""
        return message.event is AlertEvent.RESOLVED and any(
            each.message.alert.id == message.alert.id
            and each.message.webhook == message.webhook
            and each.message.event is AlertEvent.OPENED
            for each in self._messages.values()
        )

    def _queue(self, alert: Alert, event: AlertEvent, webhooks: Collection[str], at: datetime) -> None:
        for webhook in sorted(webhooks):
            while len(self._messages) >= MOST_MESSAGES:
                del self._messages[next(iter(self._messages))]
                self.dropped += 1
            message = AlertMessage(id=self._new_id(), alert=alert, webhook=webhook, event=event, created_at=at)
            self._messages[message.id] = QueuedMessage(message, at)
