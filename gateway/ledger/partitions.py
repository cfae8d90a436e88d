"""Partitions on Postgres: made a month ahead, and dropped when all their rows are too old.

``calls`` and ``attempts`` are partitioned by ``started_at``. The first partition has everything from before;
``…_default`` takes rows that fit nowhere else, so that none is rejected. A partition is made separately and then
attached: this blocks writes only while Postgres checks the default partition.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

AHEAD = timedelta(days=31)
DAY = timedelta(days=1)
LONG_KEPT_DAYS = 92.0  # a table that is kept longer has weekly partitions: thousands of them make planning slow
# A wait for the lock blocks all others behind it, so it is given up and tried later.
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
        """Whether it would be dropped too late: the rows from before partitioning."""
        return self.since is None or self.until - self.since > 8 * DAY


async def partitions(connection: AsyncConnection, table: str) -> list[Part]:
    """Return the partitions of ``table`` by time, without the default one; empty if it is not partitioned."""
    if connection.dialect.name != "postgresql":
        return []
    found = []
    for row in await connection.execute(text(_PARTS), {"table": table}):
        bound = _BOUND.search(row.bound)
        if bound is not None:
            found.append(Part(row.name, _instant(bound[1]) if bound[1] else None, _instant(bound[2])))
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


def expired(parts: Sequence[Part], before: datetime) -> list[Part]:
    """Return the partitions whose rows are all older than ``before``; the newest one stays as the starting point."""
    return [part for part in parts[:-1] if part.until <= before]


async def drop(connection: AsyncConnection, part: Part) -> int:
    """Drop a partition; return its number of rows."""
    count = await connection.scalar(text(f"select count(*) from {part.name}"))  # noqa: S608 - our names
    await _at_once(connection, f"drop table if exists {part.name}")
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


def _instant(written: str) -> datetime:
    """Parse an instant as Postgres writes it: ``2026-11-22 00:00:00+00``."""
    return datetime.fromisoformat(written).astimezone(UTC)
