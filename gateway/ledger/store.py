"""The ledger's interface to its database: stores rows, reads sums."""

from asyncio import Lock
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from math import inf
from time import monotonic
from typing import Any, Protocol

from sqlalchemy import Row, TextClause, text

from gateway.core.calls import CallRecord, HourlySum, LimitUse, Spent
from gateway.core.records import PROBES, StoredName
from gateway.ledger import ends, folding, inserts, queries, retention
from gateway.ledger.connections import (
    Database,
    engine_of,
    long_turn,
    release,
)
from gateway.ledger.database import DATABASE_ERRORS, unreachable
from gateway.ledger.entries import Entry
from gateway.ledger.errors import LedgerError, is_sqlite
from gateway.ledger.reports.reader import words_of
from gateway.ledger.turns import read_instant
from gateway.ledger.used import TIMEOUT_S, OwnRows, used, used_by_payers
from providers.dialects import DIALECTS

# The hourly sums of each deployment, read at startup.

HOURS = 24  # a deployment without answers in this time counts as new
BOARD_MINUTES = 10  # the latest minutes are the board's: other replicas may have counted them already

# Answers of any size; the metric of a histogram is the name of the values. Whole hours, then windows of five minutes.
# Instants are text, which both databases accept.
_QUERY = """
with of_interest as (
  select id, model, deployment, size_class from rollup_series where deployment <> '' and api in {answers}
),
sums as (
  select minutes, window_start, series_id, metric, bucket, n from rollup_histograms where metric in ('ttft', 'tps')
  union all select minutes, window_start, series_id, 'n', 0, n_first_token + n_errors from rollup_attempts
  union all select minutes, window_start, series_id, 'err', 0, n_errors from rollup_attempts
)
select model, deployment, size_class, minutes, window_start, metric, bucket, sum(n)
from sums join of_interest on of_interest.id = sums.series_id
where (minutes = 60 and window_start > '{since}' and window_start <= '{hour}')
   or (minutes = 5 and window_start > '{hour}' and window_start <= '{until}')
group by model, deployment, size_class, minutes, window_start, metric, bucket
"""
_ANSWERS = str(("", PROBES, *(dialect.endpoint for dialect in DIALECTS.values())))  # older attempts have no API


async def remembered(database: Database, now: datetime) -> list[HourlySum]:
    """Return the counts of the last day by hour, without the last ten minutes.

    Raises:
        QueryError: the query takes too long.
        SchemaOutdatedError, or QueryError: the ledger has no sums yet.
        DatabaseUnreachableError: the database cannot be reached.
        DatabaseUrlError: as for ``parse_url``.

    """
    until = (now.astimezone(UTC) - timedelta(minutes=BOARD_MINUTES)).replace(second=0, microsecond=0)
    until -= timedelta(minutes=until.minute % 5)
    hour = until.replace(minute=0)
    since, first, last = (_written(instant) for instant in (hour - timedelta(hours=HOURS), hour, until))
    result = await queries.run(database, _QUERY.format(since=since, hour=first, until=last, answers=_ANSWERS))
    return [
        HourlySum(model, deployment, size, _middle_s(start, minutes), metric, bucket, float(n))
        for model, deployment, size, minutes, start, metric, bucket, n in result.rows
        if n
    ]


async def lately(database: Database, now: datetime, until: datetime) -> dict[str, dict[int, dict[str, float]]]:
    """Return the board's counts of attempts in the last ten minutes, launched before ``until``; as ``counts_since``.

    Of very many attempts only the latest are read: they show what the others did.

    Raises:
        LedgerError: the database cannot be reached, or its schema is older.

    """
    from gateway.ledger.board import counts_since  # noqa: PLC0415 - memory: only a start without Redis needs it

    words = words_of(database)
    since = now - timedelta(minutes=BOARD_MINUTES)
    sql = _LATEST.format(since=words.instant(since), until=words.instant(until), offset=LATELY)
    if older := (await queries.run(database, sql)).rows:
        since = read_instant(older[0][0])
    return await counts_since(database, since, until)


LATELY = 1000  # attempts that are read, in some hundredths of a second
_LATEST = """
select started_at from attempts where started_at >= {since} and started_at < {until}
order by started_at desc limit 1 offset {offset}
"""


def _written(instant: datetime) -> str:
    """Return the second before an instant as text: SQLite compares text, and starts of windows have no offset there."""
    return (instant - timedelta(seconds=1)).strftime("%Y-%m-%d %H:%M:%S+00")


def _middle_s(window_start: datetime | str, minutes: int) -> float:
    return read_instant(window_start).timestamp() + minutes * 30.0


# What racing has added today, read at startup: budgets of extra attempts go on from this. As for limits (``used.py``),
# the figures are of the time before the start.

_BEFORE = """
window_start >= {day} and (
  (minutes = 1440 and window_start < {last_day})
  or (minutes = 60 and window_start >= {last_day} and window_start < {last_hour})
  or (minutes = 5 and window_start >= {last_hour} and window_start <= {until})
)
"""
_SPENT_QUERY = f"""
with spent as (
  select client, model, {{usd}} as day_usd, {{extra_usd}} as extra_usd, null as lost_usd
  from rollup_calls where {_BEFORE}
  union all
  select '', s.model, null, null, r.wasted_cost_usd
  from rollup_attempts as r join rollup_series as s on s.id = r.series_id
  where s.api <> '{PROBES}' and {_BEFORE}
)
select client, model, coalesce(sum(day_usd), 0), coalesce(sum(extra_usd), 0), coalesce(sum(lost_usd), 0)
from spent
group by client, model
"""  # noqa: S608 - our own values


async def spent(database: Database, now: datetime, until: datetime) -> list[Spent]:
    """Return the dollars that racing had added before ``until``, in the UTC day of ``now``.

    Raises:
        LedgerError: the database cannot be reached, or has no sums.

    """
    now = now.astimezone(UTC)
    until = min(now, until.astimezone(UTC))
    day, hour = now.replace(hour=0, minute=0, second=0, microsecond=0), until.replace(minute=0, second=0, microsecond=0)
    instants = {"day": day, "last_day": hour.replace(hour=0), "last_hour": hour}
    words = words_of(database)
    written = {name: words.window(instant) for name, instant in (instants | {"until": until}).items()}
    usd, extra_usd = words.paid("cost_usd"), words.paid("duplicate_cost_usd")
    sql = _SPENT_QUERY.format(**written, usd=usd, extra_usd=extra_usd)
    result = await queries.run(database, sql, timeout_s=TIMEOUT_S)
    return [Spent(client or None, model, *(float(usd) for usd in amounts)) for client, model, *amounts in result.rows]


async def ledger_id(database: Database) -> str | None:
    """Return the random id of this ledger; None: no id, or no answer of the database."""
    try:
        result = await queries.run(database, "select ledger_id from ledger_readers")
    except LedgerError:
        return None
    return None if not result.rows or result.rows[0][0] is None else str(result.rows[0][0])


# The pauses within the text of each deployment's streams, read at startup. First the last hour: a deployment with so
# many streams in an hour soon learns again what the day before, perhaps of millions of rows, would tell.
STREAMS = 300  # of each deployment, the latest
ENOUGH = 20_000  # streams of an hour
_GAPS_QUERY = """
with streams as (
  select deployment, text_gap_max_ms, count(*) over () as n,
    row_number() over (partition by deployment order by started_at desc, id desc) as place
  from attempts where number > 0 and text_gap_max_ms is not null and started_at >= {since}
)
select deployment, text_gap_max_ms, n from streams where place <= {streams} order by deployment, place desc
"""


async def text_gaps(database: Database, now: datetime) -> dict[str, list[float]]:
    """Return the longest gaps of text of each deployment's latest streams, in milliseconds, the latest last.

    Raises:
        LedgerError: the database cannot be reached, or its schema is older.

    """
    words = words_of(database)
    gaps_ms: dict[str, list[float]] = {}
    for hours in (1, HOURS):
        since = words.instant(now - timedelta(hours=hours))
        result = await queries.run(database, _GAPS_QUERY.format(since=since, streams=STREAMS))
        gaps_ms = {}
        for deployment, gap_ms, _ in result.rows:
            gaps_ms.setdefault(deployment, []).append(float(gap_ms))
        if result.rows and result.rows[0][2] >= ENOUGH:
            break
    return gaps_ms


# One ships rows, one ships rows of a dead worker, one adds up. One more is opened for pruning.
CONNECTIONS = 3
_EMPTY_FOR_S = 1.0  # before a ledger without rows is asked again
_NOW = text("select clock_timestamp() as now")
_HAS_ROWS = text("select exists (select 1 from attempts) or exists (select 1 from rollup_attempts) as has_rows")
# A replica with a clock that is ahead has rows from the future; with a clock behind it has none of the last minute.
_OTHERS = text("""
select exists (
  select from calls where started_at >= now() - interval '60 seconds' and replica <> :replica
  group by replica having max(started_at) <= now() + interval '60 seconds'
) as are_right
""")


class Store(Protocol):
    """Stores rows. Every method raises ``DatabaseUnreachableError`` if the database is not available."""

    async def insert(self, entries: Sequence[Entry], kept_since: Mapping[str, datetime]) -> int:
        """Store the rows of ``entries``, each once; return how many were too old by ``kept_since`` (by table).

        Raises:
            RowsRejectedError: at least one row is invalid, and none was stored.

        """

    async def ping(self) -> None:
        """Check that the database answers."""

    async def now(self) -> datetime | None:
        """Return the instant by the database's clock; None if that is this machine's."""

    async def others_are_right(self, replica: str) -> bool:
        """Whether another replica has stored calls in the last minute, and has the database's time."""

    async def prune(self, kept: retention.Retention, *, jumped: bool = False) -> dict[str, int] | None:
        """Delete rows older than ``kept`` allows; return how many by table, or None while another replica does this.

        ``jumped``: whether this machine's clock has jumped, which is SQLite's clock.
        """

    async def fold(self, since: int, rest_s: float) -> folding.FoldResult:
        """Add up new rows, up to 2,000, if one came ``rest_s`` ago; ``since``: the ``until`` of the fold before."""

    async def fold_all(self) -> None:
        """Add up all new rows."""

    async def remembered(self, now: datetime) -> list[HourlySum]:
        """Return the sums of the last day; from these a gateway learns at its start.

        Raises:
            LedgerError: the sums cannot be read.

        """

    async def lately(self, now: datetime, until: datetime) -> dict[str, dict[int, dict[str, float]]]:
        """Return the board's counts of the last ten minutes before ``until``: model → slot → field → amount.

        Raises:
            LedgerError: the counts cannot be read.

        """

    async def spent(self, now: datetime, until: datetime) -> list[Spent]:
        """Return the dollars that racing has added today before ``until``.

        Raises:
            LedgerError: the sums cannot be read.

        """

    async def used(self, since_s: Sequence[float], until: datetime, own: OwnRows) -> list[LimitUse]:
        """Return the usage of clients and models before ``until``, since each of ``since_s`` (-inf: ever).

        In windows, the usage of others in the five minutes around ``until`` counts, too; that of ``own`` rows does not.

        Raises:
            LedgerError: the usage cannot be read.

        """

    async def used_by_payers(self, since_s: Sequence[float], until: datetime) -> list[LimitUse]:
        """Return the usage of teams and end users before ``until``, since each of ``since_s`` (-inf: ever).

        Raises:
            LedgerError: the usage cannot be read.

        """

    async def text_gaps(self, now: datetime) -> dict[str, list[float]]:
        """Return the longest gaps of text of each deployment's latest streams, in milliseconds, the latest last.

        Raises:
            LedgerError: the gaps cannot be read.

        """

    async def kept_ends(self) -> tuple[dict[str, CallRecord], list[str], int]:
        """Return what ``ends.kept_ends`` returns."""

    async def forget_ends(self, names: Collection[str]) -> None:
        """Clear the kept rows of these names."""

    async def unended(self, now: datetime) -> list[StoredName]:
        """Return what ``ends.unended`` returns."""

    async def aclose(self) -> None:
        """Close all connections."""


class SqlStore:
    """Postgres or SQLite; connects when first used."""

    def __init__(self, database: Database) -> None:
        """Use the database at a URL, or a shared pool.

        Raises:
            DatabaseUrlError: the URL is invalid.

        """
        self._database = database
        self._engine = engine_of(database, pool_size=CONNECTIONS)
        # On SQLite, simultaneous questions take turns at one connection: each further connection reads the whole
        # schema, which takes longer than the questions.
        self._turns: AbstractAsyncContextManager[Any] = Lock() if is_sqlite(self._engine.url) else nullcontext()

        self._asking = Lock()
        self._has_had_rows = False
        self._asked_again_s = 0.0

    async def insert(self, entries: Sequence[Entry], kept_since: Mapping[str, datetime]) -> int:
        """Store rows."""
        self._has_had_rows = True
        return await inserts.insert(self._engine, entries, kept_since)

    async def ping(self) -> None:
        """Check that the database answers and accepts rows: after a failover the answering server may be a standby."""
        try:
            async with self._turns, self._engine.connect() as connection:
                query = "select 0" if is_sqlite(self._engine.url) else "select current_setting('transaction_read_only')"
                only_reads = await connection.scalar(text(query)) == "on"
                if only_reads:  # the connection stays read-only, even if new connections may write
                    await connection.invalidate()
        except DATABASE_ERRORS as error:
            raise unreachable(self._engine.url, error) from error
        if only_reads:
            raise unreachable(self._engine.url, OSError("it is read-only: a standby, or default_transaction_read_only"))

    async def now(self) -> datetime | None:
        """Return the database's clock."""
        return None if is_sqlite(self._engine.url) else (await self._first(_NOW, {})).now

    async def others_are_right(self, replica: str) -> bool:
        """Return whether the newest call of another replica is less than a minute from now."""
        return not is_sqlite(self._engine.url) and (await self._first(_OTHERS, {"replica": replica})).are_right

    async def _first(self, statement: TextClause, values: Mapping[str, str]) -> Row[Any]:
        try:
            async with self._turns, self._engine.connect() as connection:
                return (await connection.execute(statement, values)).one()
        except DATABASE_ERRORS as error:
            raise unreachable(self._engine.url, error) from error

    async def prune(self, kept: retention.Retention, *, jumped: bool = False) -> dict[str, int] | None:
        """Delete rows that are old by the database's clock, and make the next partitions."""
        async with long_turn(self._database):
            return await retention.prune(self._engine, kept, jumped=jumped)

    async def fold(self, since: int, rest_s: float) -> folding.FoldResult:
        """Add up new rows."""
        return await folding.fold(self._engine, since, rest_s)

    async def fold_all(self) -> None:
        """Add up all new rows."""
        await folding.fold_all(self._engine)

    async def remembered(self, now: datetime) -> list[HourlySum]:
        """Return the sums of the last day."""
        return await remembered(self._database, now) if await self._has_rows() else []

    async def lately(self, now: datetime, until: datetime) -> dict[str, dict[int, dict[str, float]]]:
        """Return the board's counts of the last ten minutes."""
        return await lately(self._database, now, until) if await self._has_rows() else {}

    async def spent(self, now: datetime, until: datetime) -> list[Spent]:
        """Return the dollars that racing has added, also in rows that a killed gateway left out of the sums."""
        await self.fold_all()
        return await spent(self._database, now, until)

    async def used(self, since_s: Sequence[float], until: datetime, own: OwnRows | None = None) -> list[LimitUse]:
        """Return the usage of clients and models, also in rows that a killed gateway left out of the sums."""
        await self.fold_all()
        return await used(self._database, since_s, until, own)

    async def used_by_payers(self, since_s: Sequence[float], until: datetime) -> list[LimitUse]:
        """Return the usage of teams and end users, from rows; of totals, from sums."""
        if -inf in since_s:
            await self.fold_all()
        return await used_by_payers(self._database, since_s, until)

    async def text_gaps(self, now: datetime) -> dict[str, list[float]]:
        """Return the longest gaps of text of each deployment's latest streams."""
        return await text_gaps(self._database, now) if await self._has_rows() else {}

    async def _has_rows(self) -> bool:
        """Whether there is anything to remember, as each report on SQLite has a connection that reads the whole schema.

        At a start several reports ask this at the same time.
        """
        async with self._asking:
            if not self._has_had_rows and monotonic() >= self._asked_again_s:
                self._has_had_rows = bool((await self._first(_HAS_ROWS, {})).has_rows)
                self._asked_again_s = monotonic() + _EMPTY_FOR_S
        return self._has_had_rows

    async def kept_ends(self) -> tuple[dict[str, CallRecord], list[str], int]:
        """Return what ``ends.kept_ends`` returns."""
        async with self._turns:
            return await ends.kept_ends(self._engine)

    async def forget_ends(self, names: Collection[str]) -> None:
        """Delete kept ends."""
        await ends.forget_ends(self._engine, names)

    async def unended(self, now: datetime) -> list[StoredName]:
        """Return what ``ends.unended`` returns."""
        async with self._turns:
            return await ends.unended(self._engine, now)

    async def aclose(self) -> None:
        """Dispose of the engine."""
        await release(self._database, self._engine)
