"""A world for a watch: a clock that a test moves, sources that say what it is told, and a book that may be away."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count

from gateway.alerts import (
    MESSAGES_AT_ONCE,
    Alert,
    AlertEvent,
    AlertKind,
    AlertMessage,
    BookAway,
    DeliveryResult,
    MemoryBook,
    Severity,
    Watch,
)
from gateway.alerts.alert import AlertCondition, SourceUnavailable

START = datetime(2030, 1, 1, 12, tzinfo=UTC)
RESOLVE_AFTER_S = 300.0
EVERY_S = 15.0


def condition(
    subject: str = "m",
    kind: AlertKind = AlertKind.MODEL_OUT,
    *,
    after_s: float = 0.0,
    covered_by: str | None = None,
    covered_s: float = 0.0,
) -> AlertCondition:
    return AlertCondition(
        kind=kind,
        subject=subject,
        severity=Severity.PAGE
        if kind in {AlertKind.MODEL_OUT, AlertKind.BURN_FAST, AlertKind.SPOOL}
        else Severity.TICKET,
        summary=f"{subject}: {kind}",
        figures={"n": 1},
        sql="select 1",
        after_s=after_s,
        covered_by=covered_by,
        covered_s=covered_s,
    )


class Told:
    """A source that sees what a test says."""

    def __init__(self, kinds: Collection[AlertKind] = tuple(AlertKind)) -> None:
        self.kinds = kinds
        self.now: list[AlertCondition] = []
        self.fails: Exception | None = None

    async def conditions(self) -> Sequence[AlertCondition]:
        if self.fails is not None:
            raise self.fails
        return list(self.now)

    def cannot_tell(self) -> None:
        self.fails = SourceUnavailable("the database is away")


class SharedBook(MemoryBook):
    """The book of all replicas, which may be away."""

    is_away = False
    hangs: asyncio.Event | None = None  # set when somebody waits

    async def current(self, since: datetime) -> list[Alert]:
        self._check()
        await self._wait()
        return await super().current(since)

    async def open(self, alert: Alert, webhooks: Collection[str]) -> bool:
        self._check()
        await self._wait()
        return await super().open(alert, webhooks)

    async def resolve(self, alert: Alert, *, unseen_since: datetime, at: datetime, webhooks: Collection[str]) -> bool:
        self._check()
        return await super().resolve(alert, unseen_since=unseen_since, at=at, webhooks=webhooks)

    async def take_due(
        self, now: datetime, *, lease: timedelta, webhooks: Collection[str], most: int = MESSAGES_AT_ONCE
    ) -> list[AlertMessage]:
        self._check()
        return await super().take_due(now, lease=lease, webhooks=webhooks, most=most)

    async def _wait(self) -> None:
        if self.hangs is not None:
            self.hangs.set()
            await asyncio.Event().wait()

    def _check(self) -> None:
        if self.is_away:
            raise BookAway("the database is away")


class Counts:
    """Hears what processes open, resolve and send."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.resolved: list[str] = []
        self.messages: list[tuple[str, str]] = []

    def alert_opened(self, kind: str) -> None:
        self.opened.append(str(kind))

    def alert_resolved(self, kind: str) -> None:
        self.resolved.append(str(kind))

    def alert_message(self, webhook: str, result: str) -> None:
        self.messages.append((webhook, result))


class World:
    """Replicas that share a book; each has its source."""

    def __init__(self, replicas: int = 1, webhooks: Sequence[str] = ("ops",)) -> None:
        self.elapsed_s = 0.0
        self.ahead_s = 0.0  # of all clocks that tell the time of day
        ids = count(1)
        self.new_id = lambda: f"id-{next(ids)}"
        self.book = SharedBook(self.new_id)
        self.is_known_to_be_away = False
        self.webhooks = webhooks
        self.sources: list[Told] = []
        self.owns: list[MemoryBook] = []
        self.counts: list[Counts] = []
        self.watches: list[Watch] = []
        for _ in range(replicas):
            self.start()

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.elapsed_s + self.ahead_s)

    def start(self) -> Watch:
        """Start one more replica."""
        source, own, counts = Told(), MemoryBook(self.new_id), Counts()
        watch = Watch(
            [source],
            book=self.book,
            own=own,
            webhooks=lambda _: self.webhooks,
            resolve_after_s=lambda: RESOLVE_AFTER_S,
            clock=lambda: self.elapsed_s,
            utc_now=lambda: self.now,
            new_id=self.new_id,
            replica=f"replica-{len(self.watches)}",
            listener=counts,
            is_away=lambda: self.is_known_to_be_away,
        )
        self.sources.append(source)
        self.owns.append(own)
        self.counts.append(counts)
        self.watches.append(watch)
        return watch

    def stop(self, number: int) -> None:
        """End a replica without a word, as a crash does."""
        for each in (self.sources, self.owns, self.counts, self.watches):
            del each[number]

    async def run(self, seconds: float) -> None:
        """Let time pass; every replica looks at its source."""
        end_s = self.elapsed_s + seconds
        while self.elapsed_s < end_s:
            self.elapsed_s += EVERY_S
            for watch in self.watches:
                await watch.look()

    async def said(self) -> list[tuple[AlertEvent, str]]:
        """Return what the webhook was sent in all, and take it as sent."""
        found: list[tuple[AlertEvent, str]] = []
        for book in (self.book, *self.owns):
            while messages := await MemoryBook.take_due(book, self.now, lease=timedelta(0), webhooks=self.webhooks):
                for each in messages:
                    found.append((each.event, each.alert.key))
                    sent = DeliveryResult(ok=True, answer="200")
                    await book.settle(each, sent, at=self.now, retry_at=None)
        return found
