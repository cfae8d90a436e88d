"""The book of alerts: who may open one, and which messages are due. ``gateway.ledger.alert_book`` keeps it in SQL."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Protocol

from gateway.alerts.alert import Alert, Delivery, Message


class BookAway(Exception):
    """The book cannot be read or written now."""


class Book(Protocol):
    """Alerts and messages that all replicas share. Every method raises ``BookAway`` if it cannot be reached."""

    async def current(self, since: datetime) -> list[Alert]:
        """Return the alerts that are open, and those resolved after ``since``."""

    async def open(self, alert: Alert, webhooks: Collection[str]) -> bool:
        """Store an alert and its messages to ``webhooks``, together.

        Return False, and store nothing, if another one with its key is open.
        """

    async def note_seen(self, ids: Collection[str], at: datetime) -> None:
        """Note that the conditions of these alerts held at ``at``."""

    async def resolve(self, alert: Alert, *, unseen_since: datetime, at: datetime, webhooks: Collection[str]) -> bool:
        """End an alert and store the messages to ``webhooks``, together.

        Return False, and change nothing, if it is not open, or its condition was seen after ``unseen_since``.
        """

    async def take_due(self, now: datetime, *, lease: timedelta, webhooks: Collection[str]) -> list[Message]:
        """Return messages that are to be sent now, each to one caller within ``lease``; some of them at a time.

        Whoever dies with one leaves it to others. What is said of the end follows what was said of the beginning.
        """

    async def settle(self, message: Message, delivery: Delivery, *, at: datetime, retry_at: datetime | None) -> None:
        """Note what became of an attempt; ``retry_at`` None: it was the last one."""

    async def aclose(self) -> None:
        """Close what is open."""


MESSAGES_AT_ONCE = 32  # of what is asked for, each up to ten seconds
