"""The data that replicas share in Postgres or SQLite beside calls: books of alerts and of probes, and slowdowns."""

import uuid
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from sqlalchemy import Row, Select, and_, delete, exists, func, insert, or_, select, text, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.alerts import (
    DAY_S,
    HOUR_S,
    MESSAGES_AT_ONCE,
    WINDOW_S,
    Alert,
    AlertEvent,
    AlertKind,
    AlertMessage,
    AlertScope,
    AttemptTally,
    AttemptWindow,
    BookAway,
    Counts,
    DeliveryResult,
    DetectedSlowdown,
    Happened,
    Histogram,
    Metric,
    PastSlowdown,
    Severity,
    SlowdownChange,
    Windows,
)
from gateway.core.records import DailyFacts, Decide, NotProbed, Probe, ProbeEnd, ProbeOutcome, ProbesUnreachable
from gateway.core.reports import ReportsUnreachable
from gateway.ledger.connections import Database, OwnConnection, engine_of, release
from gateway.ledger.database import DATABASE_ERRORS, unreachable
from gateway.ledger.entries import storable
from gateway.ledger.reports.reader import Reader, Words, rows
from gateway.ledger.schema import report_sql
from gateway.ledger.tables import alert_messages, alerts, attempts, probes
from gateway.ledger.turns import MESSAGES, PROBES, SLOWDOWNS, read_instant, written

# The book of alerts: which process opens an alert, and which messages are due.

TIMEOUT_S = 5.0  # of each query of the books, which takes some milliseconds
MESSAGES_KEPT = timedelta(days=30)
ALERTS_KEPT = timedelta(days=400)
_EARLIER = alert_messages.alias("earlier")
_IS_KNOWN = alerts.c.kind.in_(
    [kind.value for kind in AlertKind]
)  # during an upgrade there may be kinds of a later version


class SqlAlertBook:
    """The tables ``alerts`` and ``alert_messages``; connects when first used."""

    def __init__(self, database: Database, *, new_id: Callable[[], str], timeout_s: float | None = None) -> None:
        """Use the ledger's database at a URL, or a shared pool.

        Raises:
            DatabaseUrlError: the URL is invalid.

        """
        self._database = OwnConnection(database, BookAway)
        self._instant = self._database.instant
        self._new_id = new_id
        self._timeout_s = TIMEOUT_S if timeout_s is None else timeout_s

    async def current(self, since: datetime) -> list[Alert]:
        """Return the open alerts, and the alerts resolved after ``since``."""
        lately = or_(alerts.c.resolved_at.is_(None), alerts.c.resolved_at > self._instant(since))
        query = select(alerts).where(lately, _IS_KNOWN)
        async with self._database.open(self._timeout_s) as connection:
            return [_alert(row) for row in await connection.execute(query.order_by(alerts.c.opened_at, alerts.c.id))]

    async def open(self, alert: Alert, webhooks: Collection[str]) -> bool:
        """Store an alert and its messages, and delete very old ones; return False if the alert is open already."""
        if self._database.is_sqlite:
            from sqlalchemy.dialects import sqlite  # noqa: PLC0415 - memory: few gateways have it

            into: sqlite.Insert | postgresql.Insert = sqlite.insert(alerts)
        else:
            into = postgresql.insert(alerts)
        async with self._database.open(self._timeout_s, writes=True) as connection:
            stored = await connection.execute(into.values(self._values(alert)).on_conflict_do_nothing())
            if stored.rowcount != 1:
                return False
            await self._queue(connection, alert.id, AlertEvent.OPENED, webhooks, alert.opened_at)
            await self._forget(connection, alert.opened_at)
            await connection.commit()
        return True

    async def note_seen(self, ids: Collection[str], at: datetime) -> None:
        """Note that the conditions of these alerts held at ``at``."""
        statement = update(alerts).where(alerts.c.id.in_(ids), alerts.c.seen_at < self._instant(at))
        async with self._database.open(self._timeout_s, writes=True) as connection:
            await connection.execute(statement.values(seen_at=self._instant(at)))
            await connection.commit()

    async def resolve(self, alert: Alert, *, unseen_since: datetime, at: datetime, webhooks: Collection[str]) -> bool:
        """End an alert and store the messages; return False if another process has ended it, or has seen it since."""
        ended = update(alerts).where(
            alerts.c.id == alert.id,
            alerts.c.resolved_at.is_(None),
            alerts.c.seen_at <= self._instant(unseen_since),
        )
        async with self._database.open(self._timeout_s, writes=True) as connection:
            stored = await connection.execute(ended.values(resolved_at=self._instant(at)))
            if stored.rowcount != 1:
                return False
            await self._queue(connection, alert.id, AlertEvent.RESOLVED, webhooks, at)
            await connection.commit()
        return True

    async def take_due(
        self, now: datetime, *, lease: timedelta, webhooks: Collection[str], most: int = MESSAGES_AT_ONCE
    ) -> list[AlertMessage]:
        """Return messages to be sent now, leased for ``lease``. If none are due, nothing is locked."""
        due = self._due(now, webhooks, most)
        async with self._database.open(self._timeout_s) as connection:
            if (await connection.execute(due.limit(1))).first() is None:
                return []
        is_due = alert_messages.c.due_at <= self._instant(now)
        async with self._database.open(self._timeout_s, writes=True, turn=MESSAGES) as connection:
            some = (await connection.scalars(due)).all()
            # The query is repeated with ``is_due``: a replica of a version that locks rows may have leased some
            # meanwhile.
            leased = update(alert_messages).where(alert_messages.c.id.in_(some), is_due)
            leased = leased.values(due_at=self._instant(now + lease)).returning(alert_messages.c.id)
            ids = (await connection.scalars(leased)).all()
            due_rows = await connection.execute(
                select(alert_messages.c.id.label("message_id"), *_OF_MESSAGES, *alerts.c)
                .join(alerts, alerts.c.id == alert_messages.c.alert_id)
                .where(alert_messages.c.id.in_(ids))
                .order_by(alert_messages.c.created_at, alert_messages.c.id)
            )
            messages = [_message(row) for row in due_rows]
            await connection.commit()
        return messages

    async def settle(
        self, message: AlertMessage, delivery: DeliveryResult, *, at: datetime, retry_at: datetime | None
    ) -> None:
        """Note the result of an attempt to deliver; ``retry_at``: None if it was the last."""
        values: dict[str, Any] = {"tries": message.tries + 1, "answer": delivery.answer}
        if retry_at is None:
            values |= {"done_at": self._instant(at), "is_sent": delivery.ok}
        else:
            values |= {"due_at": self._instant(retry_at)}
        async with self._database.open(self._timeout_s, writes=True) as connection:
            await connection.execute(update(alert_messages).where(alert_messages.c.id == message.id).values(values))
            await connection.commit()

    async def aclose(self) -> None:
        """Dispose of the engine; a server that hangs delays this only briefly."""
        await self._database.aclose(self._timeout_s)

    def _due(self, now: datetime, webhooks: Collection[str], most: int) -> Select[Any]:
        """Return the query of due messages; a message of an alert's end waits for the message of its beginning."""
        waits = and_(
            _EARLIER.c.alert_id == alert_messages.c.alert_id,
            _EARLIER.c.webhook == alert_messages.c.webhook,
            _EARLIER.c.event == AlertEvent.OPENED.value,
            _EARLIER.c.done_at.is_(None),
        )
        return (
            select(alert_messages.c.id)
            .where(
                alert_messages.c.done_at.is_(None),
                alert_messages.c.due_at <= self._instant(now),
                alert_messages.c.webhook.in_(list(webhooks)),
                alert_messages.c.alert_id.in_(select(alerts.c.id).where(_IS_KNOWN)),
                or_(alert_messages.c.event != AlertEvent.RESOLVED.value, ~exists().where(waits)),
            )
            .order_by(alert_messages.c.due_at, alert_messages.c.id)
            .limit(most)
        )

    async def _queue(
        self, connection: AsyncConnection, alert_id: str, event: AlertEvent, webhooks: Collection[str], at: datetime
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
        said = storable(  # the texts quote a provider, and Postgres takes no NUL character
            {
                "key": alert.key,
                "subject": alert.subject,
                "summary": alert.summary,
                "figures": dict(alert.figures),
                "sql": alert.sql,
            }
        )
        return {
            **said,
            "id": alert.id,
            "kind": alert.kind.value,
            "severity": alert.severity.value,
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
        kind=AlertKind(row.kind),
        subject=row.subject,
        severity=Severity(row.severity),
        summary=row.summary,
        figures=row.figures,
        sql=row.sql,
        opened_at=read_instant(row.opened_at),
        seen_at=read_instant(row.seen_at),
        resolved_at=None if row.resolved_at is None else read_instant(row.resolved_at),
        replica=row.replica,
        scope=AlertScope(row.scope),
    )


def _message(row: Row[Any]) -> AlertMessage:
    return AlertMessage(
        id=row.message_id,
        alert=_alert(row),
        webhook=row.webhook,
        event=AlertEvent(row.event),
        created_at=read_instant(row.created_at),
        tries=row.tries,
    )


# The book of probes: the cost is reserved before a probe is sent, by one process at a time.

LAST = 16  # latest probes of a deployment that are searched for failures in a row


class SqlProbeBook:
    """The table ``probes``; connects when first used."""

    def __init__(self, database: Database) -> None:
        """Use the ledger's database at a URL, or a shared pool.

        Raises:
            DatabaseUrlError: the URL is invalid.

        """
        self._database = OwnConnection(database, ProbesUnreachable)
        self._instant = self._database.instant

    async def reserve(self, probe: Probe, decide: Decide, *, since: datetime) -> NotProbed | None:
        """Store ``probe`` unless ``decide`` returns a reason not to. Other processes wait until this is decided."""
        async with self._database.open(TIMEOUT_S, writes=True, turn=PROBES) as connection:
            reason = decide(await self._facts(connection, probe, since))
            if reason is None:
                row = insert(probes).values(
                    id=probe.id,
                    started_at=self._instant(probe.started_at),
                    model=probe.model,
                    deployment=probe.deployment,
                    replica=probe.replica,
                    reserved_usd=probe.reserved_usd,
                )
                await connection.execute(row)
                await connection.commit()
            return reason

    async def settle(self, probe_id: str, end: ProbeEnd) -> None:
        """Store a probe's result and cost."""
        async with self._database.open(TIMEOUT_S) as connection:
            values = {
                "ended_at": self._instant(end.ended_at),
                "outcome": str(end.outcome),
                "error_kind": end.error_kind,
                "ttft_ms": end.ttft_ms,
                "cost_usd": end.cost_usd,
            }
            await connection.execute(update(probes).where(probes.c.id == probe_id).values(values))
            await connection.commit()

    async def aclose(self) -> None:
        """Dispose of the engine; a server that hangs delays this only briefly."""
        await self._database.aclose(TIMEOUT_S)

    async def _facts(self, connection: AsyncConnection, probe: Probe, since: datetime) -> DailyFacts:
        day = probe.started_at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        booked = probes.c
        usd = func.coalesce(func.sum(func.coalesce(booked.cost_usd, booked.reserved_usd)), 0.0)
        today = await connection.execute(select(usd, func.count()).where(booked.started_at >= self._instant(day)))
        spent_usd, number = today.one()
        last = (
            await connection.execute(
                select(booked.started_at, booked.outcome)
                .where(booked.deployment == probe.deployment)
                .order_by(booked.started_at.desc())
                .limit(LAST)
            )
        ).all()
        called = await connection.scalar(
            select(func.max(attempts.c.started_at)).where(
                attempts.c.deployment == probe.deployment, attempts.c.started_at >= self._instant(since)
            )
        )
        words = Words(is_postgres=connection.dialect.name == "postgresql")
        out = (
            f"select count(*) from ({report_sql('outages_30d', words, '30d', probe.started_at)}) as outages "  # noqa: S608 - quoted
            f"where deployment = {words.text(probe.deployment)} and state = 'out'"
        )
        broken = (await connection.exec_driver_sql(out)).scalar()
        return DailyFacts(
            spent_usd=float(spent_usd),
            probes=int(number),
            probed_at=read_instant(last[0].started_at) if last else None,
            failures=_failures([row.outcome for row in last]),
            called_at=None if called is None else read_instant(called),
            is_broken=bool(broken),
        )


def _failures(outcomes: list[str | None]) -> int:
    """Return how many of the latest probes failed in a row. Cancelled probes, and those without an end, are skipped."""
    answers = [outcome for outcome in outcomes if outcome in {ProbeOutcome.ANSWERED, ProbeOutcome.FAILED}]
    return next((at for at, outcome in enumerate(answers) if outcome == ProbeOutcome.ANSWERED), len(answers))


# Slowdowns in the ledger: the process that may look for slowdowns, the slowdowns, and the sums to look at.
# ``SqlSlowdownBook`` reads windows with the reader of reports and writes few rows, so one connection is enough.

CUT = "ttft_cut"  # the histogram of the ages at which attempts were cut
_METRICS = (Metric.TTFT, Metric.TPS, Metric.ITL)
_NEARLY_ALL = 0.9  # the part of cut attempts in that histogram; with fewer, some rows are older than the histogram
_MINUTES = {WINDOW_S: 5, HOUR_S: 60, DAY_S: 1440}
_EVIDENCE_AFTER = timedelta(hours=24)
_EVIDENCE_BEFORE = timedelta(days=8)


class SqlSlowdownBook:
    """The detector's book, and its view of the ledger. Without a database, methods raise ReportsUnreachable."""

    def __init__(self, database: Database, reader: Reader, holder: str) -> None:
        """``holder``: this process's name in the election.

        Raises:
            DatabaseUrlError: the URL is invalid.

        """
        self._reader = reader
        self._database = database
        self._holder = holder
        self._may_hold = False

    @cached_property
    def _engine(self) -> AsyncEngine:
        """Made when first needed, as only one of many processes looks for slowdowns."""
        return engine_of(self._database, pool_size=1, spare=0)

    async def elected(self, now: datetime, lasts: timedelta) -> bool:
        """Return whether this process may look for slowdowns, for ``lasts`` from now, unless renewed."""
        self._may_hold = True  # set before the write: its confirmation may get lost
        async with self._writing() as connection:
            return await SLOWDOWNS.is_ours(connection, self._holder, now, lasts)

    async def resign(self) -> None:
        """Let another process look for slowdowns at once. Without an election before, the database is not asked."""
        if not self._may_hold:
            return
        async with self._writing() as connection:
            await SLOWDOWNS.give_up(connection, self._holder)

    async def store(self, change: SlowdownChange) -> bool:
        """Store a beginning or an end; return False if it was stored already."""
        slowdown = change.slowdown
        if change.happened is Happened.BEGAN:
            values: dict[str, Any] = {
                "id": uuid.uuid4() if self._reader.words.is_postgres else str(uuid.uuid4()),
                "deployment": slowdown.deployment,
                "model": slowdown.model,
                "metric": str(slowdown.metric),
                "began_at": _at(slowdown.began_s),
                "noticed_at": _at(slowdown.noticed_s),
                "ratio": slowdown.ratio,
                "low": slowdown.low,
                "high": slowdown.high,
                "n": slowdown.n,
                "evidence_sql": evidence_sql(self._reader.words, slowdown),
            }
            names = ", ".join(values)
            places = ", ".join(f":{name}" for name in values)
            statement = text(f"insert into slowdowns ({names}) values ({places}) on conflict do nothing")  # noqa: S608 - our names
        else:
            values = {
                "model": slowdown.model,
                "deployment": slowdown.deployment,
                "metric": str(slowdown.metric),
                "ended_at": _at(change.ended_s or slowdown.noticed_s),
                "ending": None if change.ending is None else str(change.ending),
            }
            statement = text(
                "update slowdowns set ended_at = :ended_at, ending = :ending "
                "where model = :model and deployment = :deployment and metric = :metric and ended_at is null"
            )
        async with self._writing() as connection:
            values |= {name: written(connection, at) for name, at in values.items() if isinstance(at, datetime)}
            return (await connection.execute(statement, values)).rowcount == 1

    async def past(self, since: datetime) -> list[PastSlowdown]:
        """Return the slowdowns that have ended after ``since`` or not yet, the oldest first."""
        words = self._reader.words
        at = ", ".join(f"{words.epoch(name)} as {name[:-3]}" for name in ("began_at", "noticed_at", "ended_at"))
        answer = await self._reader.run(
            f"select model, deployment, metric, {at}, ratio, low, high, n from slowdowns "  # noqa: S608 - quoted
            f"where ended_at is null or ended_at >= {words.instant(since)} order by began_at"
        )
        slowdowns = []
        for row in rows(answer):
            fields = {name: row[name] for name in ("model", "deployment", "ratio", "low", "high", "n")}
            slowdown = DetectedSlowdown(
                **fields, metric=Metric(row["metric"]), began_s=row["began"], noticed_s=row["noticed"]
            )
            slowdowns.append(PastSlowdown(slowdown, row["ended"]))
        return slowdowns

    async def windows(self, length_s: int, since_s: int, until_s: int) -> Windows:
        """Return the sums of windows from ``since_s`` to before ``until_s``, by beginning, model and deployment."""
        sums, histograms = _windows_sql(self._reader.words, length_s, since_s, until_s)
        tallies = await self._reader.run(sums)
        counted: dict[tuple[int, str, str], dict[str, dict[int, float]]] = {}
        for at, model, deployment, metric, bucket, n in (await self._reader.run(histograms)).rows:
            place = counted.setdefault((int(at), model, deployment), {})
            place.setdefault(metric, {})[int(bucket)] = float(n)
        windows_by_minute: dict[int, dict[str, dict[str, AttemptWindow]]] = {}
        for at, model, deployment, won, first, cut, errors in tallies.rows:
            counts = counted.get((int(at), model, deployment), {})
            tally = AttemptTally(float(first + errors), float(errors))
            window = AttemptWindow(int(at), _histograms(counts, float(won), float(cut)), tally)
            windows_by_minute.setdefault(int(at), {}).setdefault(model, {})[deployment] = window
        return windows_by_minute

    async def aclose(self) -> None:
        """Close the connections."""
        await self._reader.aclose()
        if "_engine" in vars(self):
            await release(self._database, self._engine)

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with self._engine.begin() as connection:
                yield connection
        except DATABASE_ERRORS as error:
            raise ReportsUnreachable(str(unreachable(self._engine.url, error))) from error


def evidence_sql(words: Words, slowdown: DetectedSlowdown) -> str:
    """Return a query that shows the deployment and its peers by the hour, before and after the slowdown began."""
    began = _at(slowdown.began_s)
    since, until = began - _EVIDENCE_BEFORE, began + _EVIDENCE_AFTER
    span = (
        f"r.minutes = 60 and r.window_start >= {words.window(since)} and r.window_start < {words.window(until)} "
        f"and s.model = {words.text(slowdown.model)} and s.deployment <> ''"
    )
    if slowdown.metric is Metric.ERRORS:
        return (
            "select r.window_start, s.deployment, sum(r.n_errors + r.n_first_token) as n, sum(r.n_errors) as n_errors "  # noqa: S608 - quoted
            f"from rollup_attempts as r join rollup_series as s on s.id = r.series_id where {span} "
            "group by r.window_start, s.deployment order by r.window_start, s.deployment"
        )
    mean = "sum(r.n * (b.from_ms + b.to_ms) / 2) / sum(r.n)"
    named = "mean_tps" if slowdown.metric is Metric.TPS else "mean_ms"
    return (
        f"select r.window_start, s.deployment, sum(r.n) as n, {mean} as {named} "  # noqa: S608 - quoted
        "from rollup_histograms as r join rollup_series as s on s.id = r.series_id "
        f"join buckets as b on b.bucket = r.bucket where {span} and r.metric = {words.text(slowdown.metric)} "
        "group by r.window_start, s.deployment order by r.window_start, s.deployment"
    )


def _windows_sql(words: Words, length_s: int, since_s: int, until_s: int) -> tuple[str, str]:
    at = words.epoch("r.window_start")
    span = (
        f"r.minutes = {_MINUTES[length_s]} and r.window_start >= {words.window(_at(since_s))} "
        f"and r.window_start < {words.window(_at(until_s))}"
    )
    of_deployments = "join rollup_series as s on s.id = r.series_id and s.deployment <> ''"
    sums = ", ".join(f"cast(sum(r.{name}) as bigint)" for name in ("n_won", "n_first_token", "n_censored", "n_errors"))
    metrics = ", ".join(words.text(name) for name in (*_METRICS, CUT))
    tallies = (
        f"select {at}, s.model, s.deployment, {sums} from rollup_attempts as r {of_deployments} where {span} "  # noqa: S608 - quoted
        "group by r.window_start, s.model, s.deployment"
    )
    histograms = (
        f"select {at}, s.model, s.deployment, r.metric, r.bucket, cast(sum(r.n) as bigint) "  # noqa: S608 - likewise
        f"from rollup_histograms as r {of_deployments} where {span} and r.metric in ({metrics}) "
        "group by r.window_start, s.model, s.deployment, r.metric, r.bucket"
    )
    return tallies, histograms


def _histograms(counts: Mapping[str, Counts], won: float, cut: float) -> dict[Metric, Histogram]:
    """Return a window's histograms, without first tokens if the ages of cut attempts are unknown."""
    histograms: dict[Metric, Histogram] = {}
    for metric in _METRICS:
        values = counts.get(metric, {})
        if metric is Metric.TTFT:
            ages = counts.get(CUT, {})
            if (values or ages) and sum(ages.values()) >= _NEARLY_ALL * cut:
                histograms[metric] = Histogram(values, ages)
        elif values:
            histograms[metric] = Histogram(values, {}, won if metric is Metric.ITL else None)
    return histograms


def _at(unix_s: int) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)
