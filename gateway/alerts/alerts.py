"""Alerts in a running gateway: two tasks, one that looks and one that delivers."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from gateway.alerts.alert import Alert
from gateway.alerts.book import Book
from gateway.alerts.delivery import Delivery
from gateway.alerts.memory_book import MemoryBook
from gateway.alerts.sender import Sender
from gateway.alerts.watch import Watch

FIRST_S = 1.0  # until the first look: a gateway that stops at once has asked nobody
LOOK_S = 15.0
DELIVER_S = 10.0

_log = structlog.get_logger(__name__)


class Alerts:
    """Owns the tasks; ``close`` ends them. Messages that were not delivered stay in the book."""

    def __init__(
        self,
        watch: Watch,
        delivery: Delivery,
        *,
        sender: Sender,
        book: Book,
        own: MemoryBook,
        enabled: Callable[[], bool],
    ) -> None:
        self._watch = watch
        self._delivery = delivery
        self._sender = sender
        self._book = book
        self._own = own
        self._enabled = enabled
        self._looking = asyncio.Lock()  # a look has several steps, and the next one builds on it
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def watch(self) -> Watch:
        """What looks."""
        return self._watch

    def start(self) -> None:
        """Start looking and delivering."""
        self._tasks = [
            asyncio.create_task(self._repeat(self.look, LOOK_S), name="alerts.look"),
            asyncio.create_task(self._repeat(self._delivery.deliver, DELIVER_S), name="alerts.deliver"),
        ]

    async def close(self) -> None:
        """End the tasks, an attempt to deliver included."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._own.waiting:
            _log.warning("alerts.messages_lost", messages=self._own.waiting, hint="the database is away")
        await self._sender.aclose()
        await self._book.aclose()

    async def open_alerts(self) -> list[Alert]:
        """Return the open alerts, the newest first."""
        return await self._watch.open_alerts()

    async def look(self) -> None:
        """Look once, unless alerts are off."""
        if self._enabled():
            async with self._looking:
                await self._watch.look()

    async def _repeat(self, action: Callable[[], Awaitable[None]], every_s: float) -> None:
        await asyncio.sleep(FIRST_S)
        while True:
            try:
                await action()
            except Exception:  # noqa: BLE001 - a defect in one round must not stop all later ones
                with suppress(OSError):  # the log may be on a full disk
                    _log.exception("alerts.task_failed")
            await asyncio.sleep(every_s)
