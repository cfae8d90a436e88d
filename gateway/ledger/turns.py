"""Turns: work that one of all replicas does at a time, decided by the database; and the clock of the database.

All turns are listed here. A turn lasts as long as a transaction, so that it ends with its process, behind any pooler; a
process waits for a turn or tries to get it. A long turn is a row, which ends at an instant of the database's clock
unless it is renewed.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection


class Turn(msgspec.Struct, frozen=True):
    """One transaction's turn at the work called ``name``: an advisory lock of Postgres.

    The names never change, so that replicas of two versions wait for each other during an upgrade.
    """

    name: str

    @property
    def key(self) -> str:
        """The lock's number, an expression of Postgres."""
        return f"hashtext('{self.name}')"

    @property
    def sql(self) -> str:
        """The statement of Postgres that waits for the turn, which lasts until the end of the transaction."""
        return f"select pg_advisory_xact_lock({self.key})"

    async def wait(self, connection: AsyncConnection) -> None:
        """Wait for the turn. On SQLite this begins a transaction in which no other connection writes."""
        await connection.exec_driver_sql(self.sql if _is_postgres(connection) else "begin immediate")

    async def is_ours(self, connection: AsyncConnection) -> bool:
        """Return whether the turn was free; if so, this transaction has it now.

        Always true on SQLite: the processes of one machine write in turns anyway, and tried work may be done twice.
        """
        if not _is_postgres(connection):
            return True
        return bool(await connection.scalar(text(f"select pg_try_advisory_xact_lock({self.key})")))


MIGRATE = Turn("holeshot.migrate")  # changes the schema
FOLD = Turn("holeshot.fold")  # adds new rows to the sums; ``roll_up_fresh`` (migrations/functions) tries it, too
PRUNE = Turn("holeshot.prune")  # deletes old rows
PARTITIONS = Turn("holeshot.partitions")  # makes and drops partitions, whoever prunes
TARGETS = Turn("holeshot.targets")  # counts windows of targets
PROBES = Turn("holeshot.probes")  # reserves a probe's cost, after a look at what all others have reserved
KEYS = Turn("holeshot.keys")  # changes clients' keys, so that changes are visible in the order of their ids
MESSAGES = Turn("holeshot.messages")  # leases messages about alerts that are due


class LongTurn(msgspec.Struct, frozen=True):
    """A turn that outlasts transactions, for work with a costly state: a row of ``detector``."""

    row: int

    async def is_ours(self, connection: AsyncConnection, holder: str, now: datetime, lasts: timedelta) -> bool:
        """Return whether ``holder`` has the turn from ``now`` on; a turn that is free or has ended is taken."""
        statement = text(
            "update detector set holder = :holder, until_at = :until "
            "where id = :row and (holder is null or holder = :holder or until_at < :now)"
        )
        values = {"holder": holder, "row": self.row}
        values |= {"until": written(connection, now + lasts), "now": written(connection, now)}
        return (await connection.execute(statement, values)).rowcount == 1

    async def give_up(self, connection: AsyncConnection, holder: str) -> None:
        """End the turn if ``holder`` has it."""
        statement = text("update detector set holder = null where id = :row and holder = :holder")
        await connection.execute(statement, {"row": self.row, "holder": holder})


SLOWDOWNS = LongTurn(1)  # looks for slowdowns


# The database's clock, by which replicas decide about shared work, and how far this process's clock is off.


def _is_postgres(connection: AsyncConnection) -> bool:
    return connection.dialect.name == "postgresql"


async def database_now(connection: AsyncConnection) -> datetime:
    """Return the instant by the database's clock; SQLite's is this machine's clock."""
    clock = "select now()" if _is_postgres(connection) else "select strftime('%Y-%m-%d %H:%M:%f', 'now')"
    return read_instant(await connection.scalar(text(clock)))


def written(connection: AsyncConnection, instant: datetime) -> datetime | str:
    """Return an instant in the form that the database compares: for SQLite text, in UTC."""
    return instant if _is_postgres(connection) else instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def read_instant(value: datetime | str | None) -> datetime:
    """Return an instant from the database's form: SQLite has no time zones, and returns text for plain statements."""
    instant = datetime.fromisoformat(value) if isinstance(value, str) else value
    assert instant is not None
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant


TOLD_S = 2.0  # above this a clock is reported as off
LEAVES_S = 60.0  # above this a process leaves shared work to replicas with a better clock
RIGHT_S = 1.0  # below this a clock counts as right again
MEASURE_INTERVAL_S = 30.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SharedClock(msgspec.Struct):
    """The database's clock, continued by the monotonic clock between two readings; before the first, our clock."""

    utc_now: Callable[[], datetime]
    clock: Callable[[], float]
    ahead_s: float | None = None  # of the database's clock; None: unknown, or the database's clock is this machine's
    others_are_right: bool = False  # whether another replica stores calls and has a right clock
    _zero_s: float | None = None  # Unix time of the database when the monotonic clock showed 0
    _told: bool = False

    def now(self) -> datetime:
        """Return the instant by the database's clock."""
        return self.utc_now() if self._zero_s is None else _EPOCH + timedelta(seconds=self._zero_s + self.clock())

    def unix_s(self) -> float:
        """Return Unix seconds by the database's clock."""
        return self.utc_now().timestamp() if self._zero_s is None else self._zero_s + self.clock()

    @property
    def is_off(self) -> bool:
        """Whether our clock is off by more than two seconds."""
        return self._told

    @property
    def is_far_off(self) -> bool:
        """Whether our clock is off by more than a minute."""
        return self.ahead_s is not None and abs(self.ahead_s) > LEAVES_S

    @property
    def leaves_turns(self) -> bool:
        """Whether this process leaves shared work to others: its clock is far off, and theirs is right."""
        return self.is_far_off and self.others_are_right

    def note(self, there: datetime, asked_s: float) -> None:
        """Note the time of the database's clock from an answer; the query was sent at ``asked_s`` (monotonic clock).

        The time is uncertain by the duration of the query; a clock is reported as off only beyond that.
        """
        here_s, took_s = self.clock(), self.clock() - asked_s
        unix_s = there.timestamp() + took_s / 2
        self._zero_s = unix_s - here_s
        self.ahead_s = self.utc_now().timestamp() - unix_s
        off_s = abs(self.ahead_s) - took_s / 2
        if off_s > TOLD_S and not self._told:
            self._told = True
            # Event ledger.clock_off: This machine's clock is `ahead_s` seconds ahead of the database's (negative:
            # behind). Rows have its times; what replicas share goes by the database's. Beyond a minute it leaves such
            # work to other replicas.
            # Do: Set both clocks by NTP.
            structlog.get_logger().warning(
                "ledger.clock_off",
                ahead_s=round(self.ahead_s, 1),
                hint="set the clocks of this machine and of the database's by NTP; rows of calls have this one's times",
            )
        elif abs(self.ahead_s) < RIGHT_S and self._told:
            self._told = False
            # Event ledger.clock_right: This machine's clock is right again.
            # Do: Nothing.
            structlog.get_logger().info("ledger.clock_right", ahead_s=round(self.ahead_s, 1))
