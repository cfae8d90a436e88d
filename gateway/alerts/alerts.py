"""Alerts in a running gateway: two tasks, one that looks and one that delivers."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from random import Random
from typing import Protocol

import msgspec
import structlog

from gateway.alerts.alert import (
    MESSAGES_AT_ONCE,
    Alert,
    AlertCondition,
    AlertKind,
    AlertMessage,
    AlertScope,
    Book,
    BookAway,
    PendingAlert,
    Severity,
    Source,
    SourceUnavailable,
    kind_of,
)
from gateway.alerts.alert import DeliveryResult as Result
from gateway.alerts.asking import PatientSource
from gateway.alerts.memory_book import MemoryBook
from gateway.alerts.sender import Sender, SendResult
from gateway.core.log import OutageCauses
from gateway.core.tasks import end_if_cancelled
from gateway.settings import Format, WebhookSettings

# Opens an alert when a source reports a condition, and resolves it when no process has seen it for a while.

AGAIN = timedelta(hours=1)  # an alert that reopens within this time after its end says so
COVERED = timedelta(hours=6)  # the longest for which a resolved alert covers others
_SEEN_PARTS = 4  # how often, within the time to resolve, a condition that still holds is noted


class Listener(Protocol):
    """Receives the alerts that this process opens and resolves."""

    def alert_opened(self, kind: str) -> None:
        """An alert was opened."""

    def alert_resolved(self, kind: str) -> None:
        """An alert was resolved."""


class Watch:
    """Reads the sources; ``look`` must be called every few seconds.

    The shared ``book`` makes each incident one alert among all replicas. While the book cannot be reached, ``own`` does
    so for this process alone; the alerts of ``own`` move to the shared book later.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        book: Book,
        own: MemoryBook,
        webhooks: Callable[[Severity], Collection[str]],
        resolve_after_s: Callable[[], float],
        clock: Callable[[], float],
        utc_now: Callable[[], datetime],
        new_id: Callable[[], str],
        replica: str,
        listener: Listener,
        is_away: Callable[[], bool] = lambda: False,
    ) -> None:
        """``webhooks`` returns the names of those that get messages of a severity; ``clock`` is in seconds.

        ``is_away``: whether the shared book is known not to answer, so that no time is spent on asking it.
        """
        self._is_away = is_away
        self._sources = sources
        self._book = book
        self._own = own
        self._webhooks = webhooks
        self._resolve_after_s = resolve_after_s
        self._clock = clock
        self._utc_now = utc_now
        self._new_id = new_id
        self._replica = replica
        self._listener = listener
        self._shared: list[Alert] = []  # as last read
        self._seen_since_s: dict[str, float] = {}  # by key
        self._unseen_since_s: dict[str, tuple[datetime, float]] = {}  # by key of open alerts: seen_at, and our clock
        self.book_is_away = False
        self._building: list[PendingAlert] = []
        self._looked_at_s = 0.0
        self._causes = OutageCauses()
        self.conditions: Mapping[AlertKind, int] = {}  # how many of each kind hold now

    async def look(self) -> None:
        """Read all sources once, and open and resolve alerts."""
        seen, unknown = await self._ask()
        self.conditions = {kind: sum(each.kind is kind and each.opens for each in seen.values()) for kind in AlertKind}
        try:
            await self._hand_over()
            self._shared = await self._book.current(self._utc_now() - COVERED)
            await self._update(self._book, self._shared, self._shared, seen, unknown)
        except BookAway as error:
            self._log_away(error)
            own = await self._own.current(self._utc_now() - COVERED)
            await self._update(self._own, [*self._shared, *own], own, seen, unknown)
        else:
            if self.book_is_away:
                self.book_is_away = False
                self._causes.end()
                # Event alerts.database_recovered: Alerts are shared by all replicas again.
                # Do: Nothing.
                _log.info("alerts.database_recovered")

    async def aclose(self) -> None:
        """End what is still asked."""
        for each in self._sources:
            if isinstance(each, PatientSource):
                await each.aclose()

    async def open_alerts(self) -> list[Alert]:
        """Return the open alerts, as this process knows them, the newest first."""
        alerts = [*self._shared, *await self._own.current(self._utc_now())]
        return sorted(
            (each for each in alerts if each.resolved_at is None), key=lambda each: each.opened_at, reverse=True
        )

    def building(self) -> list[PendingAlert]:
        """Return the conditions of the last look that open an alert if they go on, the soonest first."""
        passed_s = self._clock() - self._looked_at_s
        left = [
            msgspec.structs.replace(each, opens_in_s=max(0.0, each.opens_in_s - passed_s)) for each in self._building
        ]
        return sorted(left, key=lambda each: each.opens_in_s)

    async def _ask(self) -> tuple[dict[str, AlertCondition], set[AlertKind]]:
        """Return the conditions by key, and the kinds whose conditions are unknown now."""
        seen: dict[str, AlertCondition] = {}
        unknown: set[AlertKind] = set()
        for source in self._sources:
            try:
                seen.update({each.key: each for each in await source.conditions()})
            except SourceUnavailable:  # the reason is logged already: the database is away, or slow
                unknown.update(source.kinds)
            except Exception:  # noqa: BLE001 - a defect of one source must not silence the others
                unknown.update(source.kinds)
                # Event alerts.source_failed: Alerts of these `kinds` could not be looked for this time.
                # Do: It is a bug: report it with the trace.
                _log.exception("alerts.source_failed", kinds=[str(kind) for kind in source.kinds])
        now_s = self._clock()
        lasting = {key: self._seen_since_s.get(key, now_s) for key, each in seen.items() if each.opens}
        # A source that cannot tell for once must not have conditions that last for hours begin again.
        before = {key: since_s for key, since_s in self._seen_since_s.items() if kind_of(key) in unknown}
        self._seen_since_s = {**before, **lasting}
        return seen, unknown

    async def _update(
        self,
        book: Book,
        alerts: Sequence[Alert],
        resolvable: Sequence[Alert],
        seen: Mapping[str, AlertCondition],
        unknown: Collection[AlertKind],
    ) -> None:
        """Open and resolve alerts in ``book``; ``alerts`` are all known ones, ``resolvable`` those of this book."""
        now = self._utc_now()
        lasting = {each.key: each for each in alerts if each.resolved_at is None}
        await self._note_seen(book, [each for each in resolvable if each.resolved_at is None and each.key in seen], now)
        now_s = self._clock()
        self._building, self._looked_at_s = [], now_s
        for key, condition in seen.items():
            if key in lasting or not condition.opens or _is_covered(condition, seen, alerts, now):
                continue
            held_s = now_s - self._seen_since_s[key]
            if held_s >= condition.after_s:
                await self._open(book, condition, now)
            else:
                self._building.append(_building(condition, now, held_s))
        gone = [each for each in lasting.values() if each.key not in seen and each.kind not in unknown]
        # The conditions of a source that fails are unknown: their time begins again when the source is back.
        self._unseen_since_s = {each.key: self._unseen(each, now_s) for each in gone}
        for alert in gone:
            if alert in resolvable and now_s - self._unseen_since_s[alert.key][1] >= self._resolve_after_s():
                await self._resolve(book, alert, now)

    def _unseen(self, alert: Alert, now_s: float) -> tuple[datetime, float]:
        """Return ``seen_at``, and since when it is unchanged by this process's clock, as others' may be ahead."""
        known = self._unseen_since_s.get(alert.key)
        return known if known is not None and known[0] == alert.seen_at else (alert.seen_at, now_s)

    async def _open(self, book: Book, condition: AlertCondition, now: datetime) -> None:
        scope = AlertScope.PROCESS if book is self._own else AlertScope.ALL
        condition = _again(condition, self._before(condition.key), now)
        alert = _alert(condition, self._new_id(), now, self._replica, scope)
        if not await book.open(alert, self._webhooks(alert.severity)):
            return  # another replica was faster
        self._listener.alert_opened(alert.kind)
        with suppress(OSError):  # the log may be on a full disk
            # Event alert.opened: Something is wrong (`summary`). `severity` is `page` (look now) or `ticket` (look
            # today).
            # Do: Follow the row of its `kind` in [alerts](../monitoring.md#alerts-and-targets). `sql` shows the rows
            # behind it.
            _log.error(
                "alert.opened",
                alert=alert.id,
                kind=alert.kind,
                subject=alert.subject,
                severity=alert.severity,
                summary=alert.summary,
                scope=scope,
                sql=alert.sql,
            )

    def _before(self, key: str) -> Alert | None:
        """Return the incident of this name that ended last."""
        ended = [
            each for each in (*self._shared, *self._own.alerts) if each.key == key and each.resolved_at is not None
        ]
        return max(ended, key=lambda each: each.resolved_at or each.opened_at, default=None)

    async def _resolve(self, book: Book, alert: Alert, now: datetime) -> None:
        unseen_since = max(alert.seen_at, now - timedelta(seconds=self._resolve_after_s()))
        webhooks = self._webhooks(alert.severity)
        if not await book.resolve(alert, unseen_since=unseen_since, at=now, webhooks=webhooks):
            return  # it still holds in another replica, or that one was faster
        self._listener.alert_resolved(alert.kind)
        with suppress(OSError):
            # Event alert.resolved: The condition of an alert was not seen for `alerts.resolve_after_s`.
            # Do: Nothing.
            _log.info(
                "alert.resolved",
                alert=alert.id,
                kind=alert.kind,
                subject=alert.subject,
                lasted_s=round((alert.seen_at - alert.opened_at).total_seconds()),
            )

    async def _note_seen(self, book: Book, alerts: Sequence[Alert], now: datetime) -> None:
        often = timedelta(seconds=self._resolve_after_s() / _SEEN_PARTS)
        late = [each.id for each in alerts if each.seen_at <= now - often]
        if late:
            await book.note_seen(late, now)

    async def _hand_over(self) -> None:
        """Move the alerts that this process opened alone to the shared book, with their unsent messages.

        So the end is reported after the beginning, also by another process. If another replica has opened the same,
        that one is resolved later, and only once.
        """
        if self._is_away():
            raise BookAway("the database does not answer")
        own = self._own.alerts
        if own:  # first test the book: withdrawn messages are not sent, and a hanging database takes seconds
            await self._book.current(self._utc_now())
        for alert in own:
            unsent = self._own.withdraw(alert)
            try:
                await self._book.open(alert, [each.message.webhook for each in unsent])
            except BookAway:
                self._own.put_back(unsent)
                raise
            self._own.forget(alert)

    def _log_away(self, error: BookAway) -> None:
        self.book_is_away = True
        if self._causes.is_new(str(error)):
            # Event alerts.database_away: The table of alerts cannot be reached. Each process reports by itself, so
            # messages may come several times.
            # Do: Make the database reachable. Nothing is lost.
            _log.warning(
                "alerts.database_away",
                cause=str(error),
                hint="until it is back, each process says by itself what is wrong, so a message may come several times",
            )


def _again(condition: AlertCondition, before: Alert | None, now: datetime) -> AlertCondition:
    """Return the condition; if the same incident has only just ended, its summary says so."""
    if before is None or before.resolved_at is None or now - before.resolved_at > AGAIN:
        return condition
    minutes = (now - before.resolved_at).total_seconds() / 60
    return msgspec.structs.replace(
        condition,
        summary=f"Again, {minutes:.0f} min after its end: {condition.summary}",
        figures={**condition.figures, "reopens": before.id},
    )


def _building(condition: AlertCondition, now: datetime, held_s: float) -> PendingAlert:
    return PendingAlert(
        key=condition.key,
        kind=condition.kind,
        subject=condition.subject,
        severity=condition.severity,
        summary=condition.summary,
        sql=condition.sql,
        since=now - timedelta(seconds=held_s),
        after_s=condition.after_s,
        opens_in_s=condition.after_s - held_s,
    )


def _alert(condition: AlertCondition, alert_id: str, now: datetime, replica: str, scope: AlertScope) -> Alert:
    return Alert(
        id=alert_id,
        kind=condition.kind,
        subject=condition.subject,
        severity=condition.severity,
        summary=condition.summary,
        figures=condition.figures,
        sql=condition.sql,
        opened_at=now,
        seen_at=now,
        replica=replica,
        scope=scope,
    )


def _is_covered(
    condition: AlertCondition, seen: Mapping[str, AlertCondition], alerts: Sequence[Alert], now: datetime
) -> bool:
    """Whether another alert reports the same, is about to, or has just done so."""
    other = None if condition.covered_by is None else seen.get(condition.covered_by)
    return (other is not None and other.opens) or any(
        alert.key == condition.covered_by
        and (alert.resolved_at is None or now - alert.resolved_at < timedelta(seconds=condition.covered_s))
        for alert in alerts
    )


# Delivers messages, with retries: they are in the book, so a restart loses none.

# The wait after each failed attempt; about 17 hours in all, then the message is given up.
RETRIES_S = (10.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0)
SPREAD = 0.2  # random part of a wait, so that a receiver that is back does not get all messages at once
LEASE = timedelta(seconds=60)  # longer than an attempt: after it, the process is dead, and another one sends


class MessageSender(Protocol):
    """Sends a message once."""

    async def send(
        self, webhook: WebhookSettings, message: AlertMessage, also: Sequence[AlertMessage] = ()
    ) -> SendResult:
        """Send a message that also has the messages of ``also``, which wait; return the result."""


class DeliveryListener(Protocol):
    """Receives the results of attempts."""

    def alert_message(self, webhook: str, result: str) -> None:
        """An attempt ended: ``sent``, ``failed`` (and is repeated) or ``given_up``."""


# A receiver that takes few messages says so with 429 and retry-after. Until that time nothing is sent; then the
# requests are as far apart as retry-after said. Slack's webhooks take one request a second
# (docs.slack.dev/apis/web-api/rate-limits, 2026-11-29): its format gathers all waiting alerts in one message; in JSON
# each alert is a message of its own.
GATHERED = frozenset({Format.SLACK})
PATIENT_TRIES = 3  # so often a message is tried again when the receiver said, then as seldom as any other
SHORTEST_S = 1.0  # between two requests to such a receiver


class ReceiverPace(msgspec.Struct):
    """When a receiver that takes few may be sent the next request, and how many seconds apart they are."""

    next_at: datetime
    every_s: float


class Delivery:
    """Sends the messages of ``books`` that are due; ``deliver`` must be called every few seconds."""

    def __init__(
        self,
        books: Sequence[Book],
        sender: MessageSender,
        *,
        webhooks: Callable[[], Mapping[str, WebhookSettings]],
        utc_now: Callable[[], datetime],
        random: Random,
        listener: DeliveryListener,
    ) -> None:
        self._books = books
        self._sender = sender
        self._webhooks = webhooks
        self._utc_now = utc_now
        self._random = random
        self._listener = listener
        self._paces: dict[str, ReceiverPace] = {}  # by the name of a webhook

    @property
    def due_in_s(self) -> float:
        """In how many seconds to deliver again: sooner than usual where a receiver takes one after the other."""
        now = self._utc_now()
        waits_s = [(pace.next_at - now).total_seconds() for pace in self._paces.values()]
        return min([DELIVER_S, *(max(SHORTEST_S, each) for each in waits_s)])

    async def deliver(self) -> None:
        """Send due messages of each book and webhook, all at once; a receiver that hangs delays no other."""
        webhooks = self._webhooks()
        if not webhooks:
            return
        due = [each for name, webhook in webhooks.items() for each in await self._due(name, webhook)]
        self._paces = {name: pace for name, pace in self._paces.items() if name in webhooks}
        async with asyncio.TaskGroup() as sending:
            for book, messages in due:
                sending.create_task(self._send(book, messages, webhooks[messages[0].webhook]))

    async def _due(self, name: str, webhook: WebhookSettings) -> list[tuple[Book, list[AlertMessage]]]:
        """Return what to send to a webhook now: the messages of each request, with their book."""
        pace, now = self._paces.get(name), self._utc_now()
        if pace is not None and now < pace.next_at:
            return []
        is_gathered = webhook.format in GATHERED
        due: list[tuple[Book, list[AlertMessage]]] = []
        for book in self._books:
            if due and (pace is not None or is_gathered):
                break
            most = 1 if pace is not None and not is_gathered else MESSAGES_AT_ONCE
            with suppress(BookAway):  # it was logged; its messages wait
                taken = await book.take_due(now, lease=LEASE, webhooks=[name], most=most)
                due += [(book, taken)] if is_gathered and taken else [(book, [each]) for each in taken]
        if pace is not None and not due:
            del self._paces[name]
        return due

    async def _send(self, book: Book, messages: Sequence[AlertMessage], webhook: WebhookSettings) -> None:
        first, *also = messages
        delivery = (await self._sender.send(webhook, first, also)).delivery
        pace, now = self._paces.get(first.webhook), self._utc_now()
        if delivery.wait_s is not None:
            every_s = max(SHORTEST_S, delivery.wait_s)
            self._paces[first.webhook] = ReceiverPace(now + timedelta(seconds=every_s), every_s)
        elif pace is not None:
            pace.next_at = now + timedelta(seconds=pace.every_s)
        for message in messages:
            await self._settle(book, message, delivery)

    async def _settle(self, book: Book, message: AlertMessage, delivery: Result) -> None:
        last = delivery.ok or delivery.final or message.tries >= len(RETRIES_S)
        now = self._utc_now()
        retry_at = None if last else now + self._wait(message.tries, delivery.wait_s)
        result = "sent" if delivery.ok else "given_up" if last else "failed"
        self._listener.alert_message(message.webhook, result)
        if not delivery.ok:
            with suppress(OSError):  # the log may be on a full disk
                # Event alerts.given_up: A message did not reach its webhook, in ten tries over 16 hours, or as the
                # receiver answered 410.
                # Do: Correct the webhook, and try it with `holeshot alerts test`. `holeshot alerts` lists what was
                # missed.
                # Event alerts.not_sent: One try to send a message failed (`answer`). It is tried again, later each
                # time.
                # Do: If it repeats, correct the webhook, and try it with `holeshot alerts test`.
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

    def _wait(self, failed_before: int, asked_s: float | None) -> timedelta:
        if asked_s is not None and failed_before < PATIENT_TRIES:
            return timedelta(seconds=asked_s)
        spread = 1 + SPREAD * (2 * self._random.random() - 1)
        return timedelta(seconds=RETRIES_S[failed_before] * spread)


FIRST_S = 1.0  # until the first look: a gateway that stops at once has asked nothing
LOOK_S = 15.0
URGENT_S = 1.0
DELIVER_S = 10.0

_log = structlog.get_logger(__name__)


class AlertTasks:
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
        urgent: Callable[[], int] = lambda: 0,
    ) -> None:
        """``urgent`` is asked each second how many problems there are for which the next look must not be waited."""
        self._urgent = urgent
        self._urgent_before = 0  # when the latest look began
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
        """The watch of the sources."""
        return self._watch

    def start(self) -> None:
        """Start looking and delivering."""
        self._tasks = [
            asyncio.create_task(self._repeat(self.look, self._until_look), name="alerts.look"),
            asyncio.create_task(self._repeat(self._delivery.deliver, self._until_delivery), name="alerts.deliver"),
        ]

    async def close(self) -> None:
        """End the tasks, and attempts to deliver with them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._watch.aclose()
        if self._own.waiting:
            # Event alerts.messages_lost: The process ended while the database was away, so messages in its memory were
            # never sent.
            # Do: See `holeshot alerts` for what is open.
            _log.warning("alerts.messages_lost", messages=self._own.waiting, hint="the database is away")
        await self._sender.aclose()
        await self._book.aclose()

    async def open_alerts(self) -> list[Alert]:
        """Return the open alerts, the newest first."""
        return await self._watch.open_alerts()

    def building(self) -> list[PendingAlert]:
        """Return what opens an alert if it goes on, the soonest first."""
        return self._watch.building() if self._enabled() else []

    async def look(self) -> None:
        """Look once, unless alerts are off."""
        if self._enabled():
            async with self._looking:
                self._urgent_before = self._urgent()
                await self._watch.look()

    async def _until_look(self) -> None:
        """Wait for the next look: until it is due, or something urgent has begun."""
        before = self._urgent_before
        for _ in range(int(LOOK_S / URGENT_S)):
            await asyncio.sleep(URGENT_S)
            now = self._urgent()
            if now > before:
                return
            before = now

    async def _until_delivery(self) -> None:
        await asyncio.sleep(self._delivery.due_in_s)

    async def _repeat(self, action: Callable[[], Awaitable[None]], until_next: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(FIRST_S)
        while True:
            try:
                await action()
            except Exception:  # noqa: BLE001 - a defect in one round must not stop all later ones
                with suppress(OSError):  # the log may be on a full disk
                    # Event alerts.task_failed: One round of looking or sending failed. The next one follows in seconds.
                    # Do: It is a bug: report it with the trace.
                    _log.exception("alerts.task_failed")
            end_if_cancelled()
            await until_next()
