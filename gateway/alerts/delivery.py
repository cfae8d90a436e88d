"""Delivers messages, again after failures: the book remembers them, so a restart loses none."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from typing import Protocol

import structlog

from gateway.alerts.alert import Message
from gateway.alerts.book import Book, BookAway
from gateway.alerts.sender import Answered
from gateway.settings.alerts import WebhookSettings

# After each failure it is tried again this much later; about 17 hours in all, then it is given up.
RETRIES_S = (10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0)
SPREAD = 0.2  # of a wait, at random, so that receivers that are back are not met by all at once
LEASE = timedelta(seconds=60)  # longer than an attempt takes: then its process is dead, and others may send it

_log = structlog.get_logger(__name__)


class Sends(Protocol):
    """Sends one message once."""

    async def send(self, webhook: WebhookSettings, message: Message) -> Answered:
        """Return what became of it."""


class Listener(Protocol):
    """Hears of attempts."""

    def alert_message(self, webhook: str, result: str) -> None:
        """An attempt ended: ``sent``, ``failed`` (and is repeated) or ``given_up``."""


class Delivery:
    """Sends the messages of ``books`` that are due; ``deliver`` must be called every some seconds."""

    def __init__(
        self,
        books: Sequence[Book],
        sender: Sends,
        *,
        webhooks: Callable[[], Mapping[str, WebhookSettings]],
        utc_now: Callable[[], datetime],
        random: Random,
        listener: Listener,
    ) -> None:
        self._books = books
        self._sender = sender
        self._webhooks = webhooks
        self._utc_now = utc_now
        self._random = random
        self._listener = listener

    async def deliver(self) -> None:
        """Send what is due, some of each book and webhook, all at once; a receiver that hangs delays no other."""
        webhooks = self._webhooks()
        if not webhooks:
            return
        due: list[tuple[Book, Message]] = []
        for book in self._books:
            with suppress(BookAway):  # it was logged; its messages wait
                for name in webhooks:  # each for itself: what waits for a dead one must not be all that is taken
                    taken = await book.take_due(self._utc_now(), lease=LEASE, webhooks=[name])
                    due += [(book, each) for each in taken]
        async with asyncio.TaskGroup() as sending:
            for book, message in due:
                sending.create_task(self._send(book, message, webhooks[message.webhook]))

    async def _send(self, book: Book, message: Message, webhook: WebhookSettings) -> None:
        delivery = (await self._sender.send(webhook, message)).delivery
        last = delivery.ok or delivery.final or message.tries >= len(RETRIES_S)
        now = self._utc_now()
        retry_at = None if last else now + self._wait(message.tries)
        result = "sent" if delivery.ok else "given_up" if last else "failed"
        self._listener.alert_message(message.webhook, result)
        if not delivery.ok:
            with suppress(OSError):  # the log may be on a full disk
                _log.warning(
                    "alerts.given_up" if last else "alerts.not_sent",
                    webhook=message.webhook,
                    message=message.id,
                    alert=message.alert.id,
                    answer=delivery.answer,
                    tries=message.tries + 1,
                )
        with suppress(BookAway):  # its lease ends, and it is sent again with the same id
            await book.settle(message, delivery, at=now, retry_at=retry_at)

    def _wait(self, failed_before: int) -> timedelta:
        spread = 1 + SPREAD * (2 * self._random.random() - 1)
        return timedelta(seconds=RETRIES_S[failed_before] * spread)
