"""Deletes rows that are too old, a few at a time, in one replica at a time.

On Postgres whole partitions are dropped. Single rows are deleted in batches, but only where there are no daily or
weekly partitions: on SQLite, and in the partition from before partitioning.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.ledger.database import DATABASE_ERRORS, unreachable
from gateway.ledger.errors import is_sqlite
from gateway.ledger.folding import ADD_UP_SQLITE, FOLD_HERE, LOCK, connected, fold_on
from gateway.settings import LedgerSettings

# Partitions on Postgres: made a month ahead, and dropped when all their rows are too old. ``calls`` and ``attempts``
# are partitioned by ``started_at``. The first partition has everything from before; ``…_default`` takes rows that fit
# nowhere else, so that none is rejected. A partition is made separately and then attached: this blocks writes only
# while Postgres checks the default partition.

AHEAD = timedelta(days=31)
DAY = timedelta(days=1)
LONG_KEPT_DAYS = 92.0  # a table that is kept longer has weekly partitions: thousands of them make planning slow
# A wait for the lock blocks all later ones, so it is limited, and tried again later.
LOCK_TIMEOUT = "set local lock_timeout = '3s'"
# A transaction's lock, taken again for each step: a session's would survive a failure, or stay in a pooler.
ELECTED = text("select pg_try_advisory_xact_lock(hashtext('holeshot.prune'))")
_IN_TURN = "select pg_advisory_xact_lock(hashtext('holeshot.partitions'))"

_PARTS = """
select part.relname as name, pg_get_expr(part.relpartbound, part.oid) as bound
from pg_inherits
join pg_class as part on part.oid = inhrelid
where inhparent = to_regclass(:table)
"""
_BOUND = re.compile(r"FROM \((?:MINVALUE|'([^']+)')\) TO \('([^']+)'\)")


class Part(msgspec.Struct, frozen=True):
    """One partition: rows with ``started_at`` from ``since`` (None: no limit) to before ``until``."""

    name: str
    since: datetime | None
    until: datetime

    @property
    def is_long(self) -> bool:
        """Whether it spans too long to be dropped in time: the rows from before partitioning."""
        return self.since is None or self.until - self.since > 8 * DAY


async def partitions(connection: AsyncConnection, table: str) -> list[Part]:
    """Return the partitions of ``table`` by time, without the default one; empty if it is not partitioned."""
    if connection.dialect.name != "postgresql":
        return []
    found = []
    for row in await connection.execute(text(_PARTS), {"table": table}):
        bound = _BOUND.search(row.bound)
        if bound is not None:
            found.append(
                Part(row.name, _partitions_instant(bound[1]) if bound[1] else None, _partitions_instant(bound[2]))
            )
    return sorted(found, key=lambda part: part.until)


async def make_ahead(connection: AsyncConnection, table: str, keep_days: float | None, now: datetime) -> list[str]:
    """Make the missing partitions of the coming month, each in its own transaction; return their names.

    Rows in the default partition that belong to them are moved.
    """
    made = []
    parts = await partitions(connection, table)
    while parts and (last := parts[-1].until) < now + AHEAD:
        part = _next(table, last, keep_days, now)
        with suppress(asyncpg.DuplicateTableError):  # another replica was faster
            await _at_once(connection, *_making(table, part))
            made.append(part.name)
        parts = await partitions(connection, table)
    return made


def expired_partitions(parts: Sequence[Part], before: datetime) -> list[Part]:
    """Return the partitions whose rows are all older than ``before``; the newest one stays as the starting point."""
    return [part for part in parts[:-1] if part.until <= before]


async def drop(connection: AsyncConnection, table: str, part: Part) -> int:
    """Drop a partition of ``table``, with all of its rows in the sums; return their number."""
    count = await connection.scalar(text(f"select count(*) from {part.name}"))  # noqa: S608 - our names
    closed = f"lock table {table} in access exclusive mode"  # as dropping does: first the table, then its parts
    await _at_once(connection, LOCK, closed, FOLD_HERE, f"drop table if exists {part.name}")
    return int(count or 0)


async def _at_once(connection: AsyncConnection, *statements: str) -> None:
    """Run ``statements`` in one transaction and one message: a gateway that hangs or dies meanwhile holds no lock."""
    await connection.commit()
    raw = await connection.get_raw_connection()
    driver: Any = raw.driver_connection
    await driver.execute(";".join((LOCK_TIMEOUT, _IN_TURN, *statements)))


def _next(table: str, last: datetime, keep_days: float | None, now: datetime) -> Part:
    """Return the partition after ``last``; after a long pause, one that reaches until today."""
    width = DAY if keep_days is not None and keep_days <= LONG_KEPT_DAYS else 7 * DAY
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    until = today if last + 7 * DAY < today else last + width
    return Part(f"{table}_{last:%Y%m%d}", last, until)


def _making(table: str, part: Part) -> tuple[str, ...]:
    """Return the statements that make a partition; the default one is locked while its rows move."""
    since, until = f"'{(part.since or part.until).isoformat()}'", f"'{part.until.isoformat()}'"
    moved = f"delete from {table}_default where started_at >= {since} and started_at < {until} returning *"  # noqa: S608 - our names
    return (
        f"create table {part.name} (like {table} including defaults)",
        f"lock table {table}_default in access exclusive mode",
        f"with moved as ({moved}) insert into {part.name} select * from moved",  # noqa: S608 - likewise
        f"alter table {table} attach partition {part.name} for values from ({since}) to ({until})",
    )


def _partitions_instant(written: str) -> datetime:
    """Parse an instant as Postgres writes it: ``2026-11-22 00:00:00+00``."""
    return datetime.fromisoformat(written).astimezone(UTC)


BATCH_ROWS = 2000  # deleted in one transaction: shipping never waits long for it
PAUSE_S = 0.05  # between two transactions, so that others run first

ROLLUPS = ("rollup_attempts", "rollup_calls", "rollup_errors", "rollup_histograms", "rollup_tags", "rollup_wide_tags")
# Histograms by the hour that no report reads beyond a week. The others are for the heat map of a month.
OF_A_WEEK = ("e2e", "itl", "call_ttft", "call_alone", "audit_alone", "explored_alone")
WEEK_DAYS = 8
# Limits in dollars go on from these after a start, and alerts read them: those of a month are needed.
SPENDING = frozenset({"rollup_attempts", "rollup_calls", "rollup_tags", "rollup_wide_tags"})
MONTH_DAYS = 31.0
SUMMED = ("calls", "attempts")  # the tables whose rows are added up
# Notes of attempts whose call never arrived. Sums of older calls are not updated any more.
_LOST = text("delete from rollup_waiting where started_at < now() - interval '8 days'")
_LOCK = text("select pg_advisory_xact_lock(hashtext('holeshot.prune'))")
Deleted = Callable[[str, int], None]


class Retention(msgspec.Struct, frozen=True):
    """Days for which rows are kept; None: for ever."""

    calls_days: float | None = None
    attempts_days: float | None = None
    rollups_days: float | None = None
    refusals_days: float | None = None
    outages_days: float | None = None
    probes_days: float | None = None

    @classmethod
    def of(cls, settings: LedgerSettings) -> "Retention":
        """Return the retention of the settings."""
        return cls(
            settings.keep_calls_days,
            settings.keep_attempts_days,
            settings.keep_rollups_days,
            settings.keep_refusals_days,
            settings.keep_outages_days,
            settings.keep_probes_days,
        )

    @property
    def keeps_all(self) -> bool:
        """Whether no call, attempt or sum is ever deleted; refusals and outages may be."""
        return self.calls_days is None and self.attempts_days is None and self.rollups_days is None

    @property
    def days(self) -> Mapping[str, float | None]:
        """The days by table."""
        return {
            "calls": self.calls_days,
            "attempts": self.attempts_days,
            "refusals": self.refusals_days,
            "outages": self.outages_days,
            "slowdowns": self.outages_days,
            "probes": self.probes_days,
        }

    def days_of_sums(self, table: str) -> float | None:
        """Return the days for which sums in ``table`` are kept; None: as long as they are of use."""
        if self.rollups_days is None or table not in SPENDING:
            return self.rollups_days
        return max(self.rollups_days, MONTH_DAYS)

    def cutoffs(self, now: datetime) -> Mapping[str, datetime]:
        """Return, by table, the instant before which rows are too old."""
        return {table: now - timedelta(days=kept) for table, kept in self.days.items() if kept is not None}


KEEP_ALL = Retention()
ANSWERS_KEPT = timedelta(days=21)  # to the fixed prompts of probes: two weeks of them are compared
_FORGET_ANSWERS = text("update probes set answer = null where answer is not null and started_at < :before")


async def expired(engine: AsyncEngine, retention: Retention, now: datetime) -> dict[str, int]:
    """Return how many rows of each table ``prune`` would delete.

    Raises:
        DatabaseUnreachableError: the database cannot be reached.

    """
    try:
        async with engine.connect() as connection:
            counts = {}
            for table, before in retention.cutoffs(now).items():
                gone = expired_partitions(await partitions(connection, table), before)
                asked = [f"select count(*) from {part.name}" for part in gone]  # noqa: S608 - our names
                asked += [
                    f"select count(*) from {place} where {_begin(place)} < :before"  # noqa: S608 - likewise
                    for place in await _deleted_from(connection, table)
                    if place not in {part.name for part in gone}
                ]
                values = {"before": _instant(engine, before)}
                counts[table] = sum([int(await connection.scalar(text(one), values) or 0) for one in asked])
            return counts
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error


async def prune(
    engine: AsyncEngine, retention: Retention, now: datetime, deleted: Deleted = lambda *_: None
) -> dict[str, int] | None:
    """Delete rows that are too old, once they are in the sums, and make the partitions of the coming month.

    ``deleted`` is called at each step with the table and the number of rows. Returns the number of deleted rows by
    table; None while another process does this.

    Raises:
        DatabaseUnreachableError: the database is away or refuses; what was done so far stays.

    """
    try:
        async with connected(engine) as connection:
            if not is_sqlite(engine.url):
                if not retention.keeps_all:
                    await fold_on(connection, before=ELECTED)
                if not await connection.scalar(ELECTED):
                    return None
                for table, keep_days in retention.days.items():
                    await make_ahead(connection, table, keep_days, now)
            elif not retention.keeps_all:
                await connection.execute(text(ADD_UP_SQLITE))
                await connection.commit()
            totals = {}
            for table, before in retention.cutoffs(now).items():
                totals[table] = await _prune(engine, connection, table, before, deleted)
            await connection.execute(_FORGET_ANSWERS, {"before": _instant(engine, now - ANSWERS_KEPT)})
            await connection.commit()
            if not is_sqlite(engine.url):
                await connection.execute(_LOST)
                await connection.commit()
            windows = await _prune_rollups(engine, connection, retention, now, deleted)
            return totals if retention.rollups_days is None else totals | {"rollups": windows}
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error


async def _prune(
    engine: AsyncEngine, connection: AsyncConnection, table: str, before: datetime, deleted: Deleted
) -> int:
    total = 0
    for part in expired_partitions(await partitions(connection, table), before):
        rows = await drop(connection, table, part)
        total += rows
        deleted(table, rows)
    for place in await _deleted_from(connection, table):
        async for rows in _delete(engine, connection, place, before):
            total += rows
            deleted(table, rows)
    return total


async def _deleted_from(connection: AsyncConnection, table: str) -> list[str]:
    """Return where single rows are deleted: the table, or its partitions of more than a week."""
    if connection.dialect.name != "postgresql":
        return [table]
    parts = await partitions(connection, table)
    return [f"{table}_default", *(part.name for part in parts if part.is_long)] if parts else [table]


async def _prune_rollups(
    engine: AsyncEngine, connection: AsyncConnection, retention: Retention, now: datetime, deleted: Deleted
) -> int:
    """Delete the windows that no view reads any more, and those that are too old."""
    total = 0
    for minutes, useful_days in list(await connection.execute(text("select minutes, keep_days from rollup_periods"))):
        for table in ROLLUPS:  # one statement: an hour has some thousand rows
            kept = [days for days in (useful_days, retention.days_of_sums(table)) if days is not None]
            if not kept:
                continue
            values = {"minutes": minutes, "before": _instant(engine, now - timedelta(days=min(kept)))}
            old = f"delete from {table} where minutes = :minutes and window_start < :before"  # noqa: S608 - our names
            total += await _forget(connection, old, values, deleted)
    values = {"minutes": 60, "before": _instant(engine, now - timedelta(days=WEEK_DAYS))}
    for metric in OF_A_WEEK:  # one after the other, in the index's order
        old = (
            f"delete from rollup_histograms where minutes = :minutes and metric = '{metric}' and window_start < :before"  # noqa: S608 - our names
        )
        total += await _forget(connection, old, values, deleted)
    return total


async def _forget(connection: AsyncConnection, old: str, values: dict[str, Any], deleted: Deleted) -> int:
    """Delete old sums; return how many."""
    rows = (await connection.execute(text(old), values)).rowcount
    await connection.commit()
    if rows:
        deleted("rollups", rows)
    return rows


async def _delete(engine: AsyncEngine, connection: AsyncConnection, table: str, before: datetime) -> AsyncIterator[int]:
    """Delete the rows that started before ``before``, in batches of one transaction; yield the size of each."""
    place = "rowid" if is_sqlite(engine.url) else "ctid"
    condition = f"{_begin(table)} < :before"
    if place == "ctid" and table.startswith(SUMMED):  # new rows are added up before they are deleted
        condition += f" and not exists (select from rollup_fresh where rollup_fresh.id = {table}.id)"
    some = f"select {place} from {table} where {condition} limit {BATCH_ROWS}"  # noqa: S608 - our names
    found = f"in ({some})" if place == "rowid" else f"= any(array({some}))"
    statement = text(f"delete from {table} where {place} {found}")  # noqa: S608 - likewise
    while True:
        if place == "ctid":
            await connection.execute(_LOCK)
        result = await connection.execute(statement, {"before": _instant(engine, before)})
        await connection.commit()
        if result.rowcount:
            yield result.rowcount
        if result.rowcount < BATCH_ROWS:
            return
        await asyncio.sleep(PAUSE_S)


def _begin(table: str) -> str:
    """Return the column with the start of a row's subject."""
    return "began_at" if table in {"outages", "slowdowns"} else "started_at"


def _instant(engine: AsyncEngine, instant: datetime) -> datetime | str:
    """Return an instant in the form that the database compares."""
    return instant.strftime("%Y-%m-%d %H:%M:%S.%f") if is_sqlite(engine.url) else instant
