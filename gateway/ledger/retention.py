"""Deletes rows that are too old by the database's clock, a few at a time, in one replica at a time.

On Postgres whole partitions are dropped. Single rows are deleted in batches, only where there are no daily or weekly
partitions: on SQLite, and in the partition from before partitioning. If a clock seems to be wrong, e.g. as all rows are
too old, deletion waits for a day.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.ledger.database import DATABASE_ERRORS, WITHOUT_LIMITS, sqlstate_of, unreachable, without_limits
from gateway.ledger.errors import is_sqlite
from gateway.ledger.folding import ADD_UP_SQLITE, FOLD_HERE, connected, fold_on
from gateway.ledger.turns import FOLD, PARTITIONS, PRUNE, database_now, read_instant, written
from gateway.settings import LedgerSettings

# Partitions on Postgres: made a month ahead, and dropped when all their rows are too old. ``calls`` and ``attempts``
# are partitioned by ``started_at``. The first partition has all earlier rows; ``…_default`` takes rows that fit no
# other partition, so that none is rejected. A partition is made separately and then attached: this blocks writes only
# while Postgres checks the default partition.

AHEAD = timedelta(days=31)
DAY = timedelta(days=1)
LONG_KEPT_DAYS = 92.0  # tables that are kept longer have weekly partitions: thousands of partitions make planning slow
# A wait for the lock blocks all later waits, so it is limited, and tried again later.
LOCK_TIMEOUT = "set local lock_timeout = '3s'"
STEP_TIMEOUT_S = 3600.0  # for one partition: perhaps all rows of the default partition have to move
COUNTED_ROWS = 10_000
_ABOUT = text(
    "select greatest(reltuples, pg_stat_get_live_tuples(oid))::bigint from pg_class where oid = to_regclass(:part)"
)

# Bounds are text in the session's notation: they are written and read in one notation, and become instants here.
_NOTATION = text("select set_config('datestyle', 'ISO, YMD', true), set_config('timezone', 'UTC', true)")
_PARTS = text(r"""
select part.relname as name, bound[2]::timestamptz as since, bound[3]::timestamptz as until
from pg_inherits
join pg_class as part on part.oid = inhrelid
cross join lateral regexp_match(
  pg_get_expr(part.relpartbound, part.oid), $$FROM \((MINVALUE|'([^']+)')\) TO \('([^']+)'\)$$
) as bound
where inhparent = to_regclass(:table) and bound is not null
""")


class Partition(msgspec.Struct, frozen=True):
    """One partition: rows with ``started_at`` from ``since`` (None: no limit) to before ``until``."""

    name: str
    since: datetime | None
    until: datetime

    @property
    def is_long(self) -> bool:
        """Whether the partition spans too long a time to be dropped soon: it has the rows from before partitioning."""
        return self.since is None or self.until - self.since > 8 * DAY


async def partitions(connection: AsyncConnection, table: str) -> list[Partition]:
    """Return the partitions of ``table`` by time, without the default one; empty if the table has none."""
    if connection.dialect.name != "postgresql":
        return []
    await connection.execute(_NOTATION)
    parts = [Partition(*row) for row in await connection.execute(_PARTS, {"table": table})]
    return sorted(parts, key=lambda part: part.until)


async def make_ahead(connection: AsyncConnection, table: str, keep_days: float | None, now: datetime) -> None:
    """Make the missing partitions of the coming month, each in its own transaction.

    Rows in the default partition that belong there are moved.
    """
    parts = await partitions(connection, table)
    while parts and (last := parts[-1].until) < now + AHEAD:
        await _at_once(connection, _making(table, _next(table, last, keep_days, now)))
        parts = await partitions(connection, table)


def expired_partitions(parts: Sequence[Partition], before: datetime) -> list[Partition]:
    """Return the partitions whose rows are all older than ``before``; the newest stays as the starting point."""
    return [part for part in parts[:-1] if part.until <= before]


async def drop(connection: AsyncConnection, table: str, part: Partition) -> int:
    """Drop a partition of ``table``, after its rows are in the sums; return the number of rows.

    Of more than 10,000 rows, return the number by the server's statistics, as counting would take too long.
    """
    closed = f"lock table {table} in access exclusive mode"  # in the order of DROP: first the table, then the partition
    few = f"select count(*) from (select from {part.name} limit {COUNTED_ROWS + 1}) as few"  # noqa: S608 - our names
    rows = await connection.scalar(text(few)) or 0
    if rows > COUNTED_ROWS:
        rows = max(rows, await connection.scalar(_ABOUT, {"part": part.name}) or 0)
    await _at_once(connection, FOLD.sql, closed, FOLD_HERE, f"drop table if exists {part.name}")
    return int(rows)


async def _at_once(connection: AsyncConnection, *statements: str) -> None:
    """Run ``statements`` in one transaction and one message, so that a gateway that hangs or dies holds no lock."""
    await connection.commit()
    raw = await connection.get_raw_connection()
    driver: Any = raw.driver_connection
    await driver.execute(";".join((WITHOUT_LIMITS, LOCK_TIMEOUT, PARTITIONS.sql, *statements)), timeout=STEP_TIMEOUT_S)


def _next(table: str, last: datetime, keep_days: float | None, now: datetime) -> Partition:
    """Return the partition after ``last``; after a long pause, a partition until today."""
    width = DAY if keep_days is not None and keep_days <= LONG_KEPT_DAYS else 7 * DAY
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    until = today if last + 7 * DAY < today else last + width
    return Partition(f"{table}_{last:%Y%m%d}", last, until)


def _making(table: str, part: Partition) -> str:
    """Return the statement that makes a partition, unless another replica was faster.

    The default partition is locked while rows move out.
    """
    since, until = f"'{(part.since or part.until).isoformat()}'", f"'{part.until.isoformat()}'"
    return f"""
do $make$ begin
if not exists (select from pg_inherits where inhrelid = to_regclass('{part.name}')) then
  create table {part.name} (like {table} including defaults);
  lock table {table}_default in access exclusive mode;
  with moved as (
    delete from {table}_default where started_at >= {since} and started_at < {until} returning *
  ) insert into {part.name} select * from moved;
  alter table {table} attach partition {part.name} for values from ({since}) to ({until});
end if;
end $make$"""  # noqa: S608 - our names


BATCH_ROWS = 2000  # deleted in one transaction, so that shipping never waits long
PAUSE_S = 0.05  # between two transactions, so that other work runs first

ROLLUPS = ("rollup_attempts", "rollup_calls", "rollup_errors", "rollup_histograms", "rollup_tags", "rollup_wide_tags")
# Hourly histograms that no report reads beyond a week. The others are for the heat map of a month.
OF_A_WEEK = ("e2e", "itl", "call_ttft", "call_alone", "audit_alone", "explored_alone")
WEEK_DAYS = 8
# Limits in dollars go on from these after a start, and alerts read them: a month is needed.
SPENDING = frozenset({"rollup_attempts", "rollup_calls", "rollup_tags", "rollup_wide_tags"})
MONTH_DAYS = 32.0  # in any zone
NAMES_KEPT = DAY  # beyond their end, so that a wrong clock may be set right until then
MOST_NAMES = 1_000_000  # about 200 MB; beyond this the oldest are deleted
SUMMED = ("calls", "attempts")  # the tables whose rows are added up
# Notes of attempts whose call never arrived. Sums of older calls are no longer updated.
_LOST = text("delete from rollup_waiting where started_at < :before")
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
        """Return the days for which sums in ``table`` are kept; None: as long as views read them."""
        if self.rollups_days is None or table not in SPENDING:
            return self.rollups_days
        return max(self.rollups_days, MONTH_DAYS)

    def cutoffs(self, now: datetime) -> Mapping[str, datetime]:
        """Return, by table, the instant before which rows are too old."""
        return {table: now - timedelta(days=days) for table, days in self.days.items() if days is not None}


KEEP_ALL = Retention()


async def expired(engine: AsyncEngine, retention: Retention, now: datetime | None = None) -> dict[str, int]:
    """Return how many rows of each table ``prune`` would delete; ``now``: None for the database's clock.

    Raises:
        DatabaseUnreachableError: the database cannot be reached.

    """
    try:
        async with engine.connect() as connection:
            await without_limits(connection)
            counts = {}
            for table, before in retention.cutoffs(now or await database_now(connection)).items():
                gone = expired_partitions(await partitions(connection, table), before)
                queries = [f"select count(*) from {part.name}" for part in gone]  # noqa: S608 - our names
                queries += [
                    f"select count(*) from {place} where {_begin(place)} < :before"  # noqa: S608 - likewise
                    for place in await _deleted_from(connection, table)
                    if place not in {part.name for part in gone}
                ]
                values = {"before": written(connection, before)}
                counts[table] = sum([int(await connection.scalar(text(query), values) or 0) for query in queries])
            return counts
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error


# Deletion waits if rows suggest a wrong clock; on SQLite, with this machine's clock, also if the clock has jumped, or
# is a day after the newest call. Deletion waits until the clock has run on for a day; then the clock is right, or
# nobody minds. Waits are stored in the table ``detector``, so that all replicas know, also after a restart.

WAITS = DAY
_WAITING = ("calls", "attempts", "refusals", "outages", "slowdowns", "probes", "rollups", "stored_names")  # from id 2
_EVER = datetime(1900, 1, 1, tzinfo=UTC)
Waits = Callable[[str, datetime, bool], None]


def say_waits(table: str, until: datetime, is_new: bool) -> None:
    """Log that the deletion of rows waits, at the beginning of the wait."""
    if is_new:
        # Event ledger.deletion_waits: All rows of `table` are too old, or the machine's clock has jumped. Nothing is
        # deleted there before `until`, by the database's clock.
        # Do: Check the clock of the database's machine. If it is right, the rows go in a day.
        structlog.get_logger().warning(
            "ledger.deletion_waits",
            table=table,
            until=until.isoformat(),
            hint="check the clock of the database's machine; if it is right, the rows are deleted in a day",
        )


class _Brake:
    """Says whether a table's rows may be deleted at ``now``."""

    def __init__(self, connection: AsyncConnection, now: datetime, *, jumped: bool, waits: Waits) -> None:
        self._connection = connection
        self._now = now
        self._jumped = jumped
        self._waits = waits
        self._is_sqlite = connection.dialect.name == "sqlite"

    async def lets(self, table: str, before: datetime) -> bool:
        """Return whether rows of ``table`` from before ``before`` may go; commits the transaction."""
        connection, values = self._connection, {"id": 2 + _WAITING.index(table), "table": table}
        row = (await connection.execute(text("select until_at from detector where id = :id"), values)).first()
        if not await self._is_doubtful(table, before):
            if row is not None:
                await connection.execute(text("delete from detector where id = :id"), values)
            await connection.commit()
            return True
        if not await self._has_rows(table, _EVER, before):
            await connection.commit()
            return True
        until = self._now + WAITS if row is None else min(read_instant(row[0]), self._now + WAITS)
        if row is None:
            values |= {"holder": f"deletion of {table}", "until": written(self._connection, until)}
            waiting = "insert into detector (id, holder, until_at) values (:id, :holder, :until) on conflict do nothing"
            await connection.execute(text(waiting), values)
        await connection.commit()
        if self._now >= until:
            return True
        self._waits(table, until, row is None)
        return False

    async def _is_doubtful(self, table: str, before: datetime) -> bool:
        """Whether nothing shows that the clock is right: neither the newest call nor any row that would stay."""
        if self._is_sqlite and self._jumped:
            return True
        since = max(before, self._now - WAITS) if self._is_sqlite else before
        return not any([await self._has_rows(place, since, self._now) for place in dict.fromkeys((table, "calls"))])

    async def _has_rows(self, table: str, since: datetime, until: datetime) -> bool:
        place = "rollup_calls" if table == "rollups" else table
        column = "window_start" if table == "rollups" else _begin(table)
        query = f"select 1 from {place} where {column} >= :since and {column} <= :until limit 1"  # noqa: S608 - our names
        values = {"since": written(self._connection, since), "until": written(self._connection, until)}
        return (await self._connection.execute(text(query), values)).first() is not None


class _Steps:
    """The steps of a deletion: a failed step does not stop the next, and all failures are reported at the end."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self.failures: list[tuple[str, Exception]] = []

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Run the block, and note a refusal of the database. A database that does not answer ends all steps."""
        try:
            yield
        except DATABASE_ERRORS as error:
            if not is_sqlite(self._connection.engine.url) and not _is_refusal(error):
                raise
            self.failures.append((name, error))
            await self._connection.rollback()


def _is_refusal(error: Exception) -> bool:
    """Whether a working server has refused one statement; False if it is away, ends, or takes no rows at all."""
    state = sqlstate_of(error)
    return state is not None and not state.startswith(("08", "57P", "53", "58", "XX")) and state != "25006"


async def prune(
    engine: AsyncEngine,
    retention: Retention,
    now: datetime | None = None,
    deleted: Deleted = lambda *_: None,
    *,
    jumped: bool = False,
    waits: Waits = say_waits,
) -> dict[str, int] | None:
    """Delete rows that are too old, after they are in the sums, and make the partitions of the coming month.

    ``now``: None for the database's clock, the only clock by which rows should be deleted. ``jumped``: whether this
    machine's clock has jumped, which matters on SQLite. ``deleted`` is called at each step with the table and the
    number of rows. ``waits`` is called for each table whose rows wait, with the end of the wait, and whether it begins
    now. Return the number of deleted rows by table; None while another process prunes.

    Raises:
        DatabaseUnreachableError: the database cannot be reached, or refuses a step; all other steps are done.

    """
    try:
        async with connected(engine) as connection:
            if not is_sqlite(engine.url):
                if not retention.keeps_all:
                    await fold_on(connection, before=PRUNE)
                if not await PRUNE.is_ours(connection):
                    return None
            elif not retention.keeps_all:
                await connection.execute(text(ADD_UP_SQLITE))
                await connection.commit()
            now = now or await database_now(connection)
            steps = _Steps(connection)
            brake = _Brake(connection, now, jumped=jumped, waits=waits)
            totals = await _steps(connection, steps, brake, retention, now, deleted=deleted)
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error
    if steps.failures:
        raise unreachable(engine.url, steps.failures[0][1], at=", ".join(dict.fromkeys(at for at, _ in steps.failures)))
    return totals


async def _steps(
    connection: AsyncConnection, steps: _Steps, brake: _Brake, retention: Retention, now: datetime, *, deleted: Deleted
) -> dict[str, int]:
    if not (on_sqlite := is_sqlite(connection.engine.url)):
        for table, keep_days in retention.days.items():
            async with steps.step(table):
                await make_ahead(connection, table, keep_days, now)
    cutoffs = retention.cutoffs(now)
    totals = dict.fromkeys(cutoffs, 0)
    for table, before in cutoffs.items():
        async with steps.step(table):
            if await brake.lets(table, before):
                totals[table] = await _prune(connection, table, before, deleted)
    async with steps.step("stored_names"):
        if await brake.lets("stored_names", now - NAMES_KEPT):
            await _prune_names(connection, now - NAMES_KEPT)
    windows = 0
    async with steps.step("rollups"):
        periods = [
            tuple(row) for row in await connection.execute(text("select minutes, keep_days from rollup_periods"))
        ]
        shortest = min((days for _, days in periods if days is not None), default=WEEK_DAYS)
        shortest = min(shortest, WEEK_DAYS, *(days for days in (retention.rollups_days,) if days is not None))
        if await brake.lets("rollups", now - timedelta(days=shortest)):
            if not on_sqlite:
                await connection.execute(_LOST, {"before": now - timedelta(days=WEEK_DAYS)})
                await connection.commit()
            windows = await _prune_rollups(connection, retention, now, deleted)
    return totals if retention.rollups_days is None else totals | {"rollups": windows}


async def _prune(connection: AsyncConnection, table: str, before: datetime, deleted: Deleted) -> int:
    total = 0
    for part in expired_partitions(await partitions(connection, table), before):
        rows = await drop(connection, table, part)
        total += rows
        deleted(table, rows)
    for place in await _deleted_from(connection, table):
        async for rows in _delete(connection, place, before):
            total += rows
            deleted(table, rows)
    return total


async def _prune_names(connection: AsyncConnection, before: datetime) -> None:
    """Delete stored names that have expired; of too many, also those that expire first."""
    newest = f"select expires_at from stored_names order by expires_at desc limit 1 offset {MOST_NAMES - 1}"  # noqa: S608 - our names
    found = await connection.scalar(text(newest))
    await connection.commit()
    async for _ in _delete(connection, "stored_names", before if found is None else max(before, read_instant(found))):
        pass


async def _deleted_from(connection: AsyncConnection, table: str) -> list[str]:
    """Return where single rows are deleted: in the table, or in its partitions of more than a week."""
    if connection.dialect.name != "postgresql":
        return [table]
    parts = await partitions(connection, table)
    return [f"{table}_default", *(part.name for part in parts if part.is_long)] if parts else [table]


async def _prune_rollups(connection: AsyncConnection, retention: Retention, now: datetime, deleted: Deleted) -> int:
    """Delete windows that no view reads any more, and windows that are too old."""
    total = 0
    for minutes, useful_days in list(await connection.execute(text("select minutes, keep_days from rollup_periods"))):
        for table in ROLLUPS:  # one statement: an hour has some thousand rows
            all_days = [days for days in (useful_days, retention.days_of_sums(table)) if days is not None]
            if not all_days:
                continue
            values = {"minutes": minutes, "before": written(connection, now - timedelta(days=min(all_days)))}
            old = f"delete from {table} where minutes = :minutes and window_start < :before"  # noqa: S608 - our names
            total += await _forget(connection, old, values, deleted)
    values = {"minutes": 60, "before": written(connection, now - timedelta(days=WEEK_DAYS))}
    for metric in OF_A_WEEK:  # metric by metric, in the index's order
        old = (
            f"delete from rollup_histograms where minutes = :minutes and metric = '{metric}' and window_start < :before"  # noqa: S608 - our names
        )
        total += await _forget(connection, old, values, deleted)
    return total


async def _forget(connection: AsyncConnection, old: str, values: dict[str, Any], deleted: Deleted) -> int:
    """Delete old sums; return the number of rows."""
    await without_limits(connection)
    rows = (await connection.execute(text(old), values)).rowcount
    await connection.commit()
    if rows:
        deleted("rollups", rows)
    return rows


async def _delete(connection: AsyncConnection, table: str, before: datetime) -> AsyncIterator[int]:
    """Delete rows from before ``before``, in batches of one transaction; yield the size of each batch."""
    place = "rowid" if connection.dialect.name == "sqlite" else "ctid"
    condition = f"{_begin(table)} < :before"
    if place == "ctid" and table.startswith(SUMMED):  # new rows are added up before they are deleted
        condition += f" and not exists (select from rollup_fresh where rollup_fresh.id = {table}.id)"
    some = f"select {place} from {table} where {condition} limit {BATCH_ROWS}"  # noqa: S608 - our names
    matches = f"in ({some})" if place == "rowid" else f"= any(array({some}))"
    statement = text(f"delete from {table} where {place} {matches}")  # noqa: S608 - likewise
    while True:
        if place == "ctid":
            await without_limits(connection)
            await PRUNE.wait(connection)
        result = await connection.execute(statement, {"before": written(connection, before)})
        await connection.commit()
        if result.rowcount:
            yield result.rowcount
        if result.rowcount < BATCH_ROWS:
            return
        await asyncio.sleep(PAUSE_S)


def _begin(table: str) -> str:
    """Return the column with the start of a row's subject."""
    if table == "stored_names":
        return "expires_at"
    return "began_at" if table in {"outages", "slowdowns"} else "started_at"
