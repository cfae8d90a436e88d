"""Counts the calls of targets in windows, so that a month need not be read from rows.

Every gateway counts, and uses the counts of the others. A window that is counted again has the same counts.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.core.targets import BURNS_S, Burn, Counts, Definition, Standing, Target, burn_rate
from gateway.ledger.connections import (
    Database,
    engine_of,
    long_turn,
    release,
)
from gateway.ledger.database import DATABASE_ERRORS, unreachable
from gateway.ledger.errors import DatabaseUnreachableError
from gateway.ledger.reports.reader import Words, floor, words_of
from gateway.ledger.targets import statements
from gateway.ledger.targets.statements import DAY, FIVE, HOUR, SETTLED
from gateway.ledger.turns import TARGETS

FIVES_BACK = timedelta(hours=8)  # the time in which windows of five minutes are checked, and one hour more
HOURS_BACK = timedelta(days=8)
KEEP = {FIVE: timedelta(days=2), HOUR: timedelta(days=31), DAY: timedelta(days=400)}
ROUND_S = 20.0  # of one round of counting; the next round counts the rest
SMALLER = {HOUR: FIVE, DAY: HOUR}


class TargetCounting:
    """Keeps the counts of ``targets`` in the ledger up to date."""

    def __init__(
        self,
        database: Database,
        targets: Callable[[], Sequence[Target]],
        *,
        utc_now: Callable[[], datetime],
        clock: Callable[[], float],
    ) -> None:
        """Do not connect yet.

        Raises:
            DatabaseUrlError: the URL is invalid.

        """
        self._words = words_of(database)
        self._database = database
        self._targets = targets
        self._utc_now = utc_now
        self._clock = clock
        self._engine: AsyncEngine | None = None
        self._problem: str | None = None  # the last logged one

    async def keep_up(self) -> None:
        """Count new windows. A problem is logged once: without counts reports are right, only slower."""
        self._engine = self._engine or engine_of(self._database, pool_size=1, spare=0)
        try:
            async with long_turn(self._database):
                await self.count(self._engine)
            self._problem = None
        except DatabaseUnreachableError as error:
            if str(error) != self._problem:
                # Event targets.not_counted: Calls of targets could not be counted in advance. Reports are right, but
                # slower.
                # Do: Make the database reachable. Nothing is lost.
                structlog.get_logger().warning("targets.not_counted", cause=str(error))
            self._problem = str(error)

    async def aclose(self) -> None:
        """Close the connection; a server that hangs delays this only briefly."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await release(self._database, engine)

    async def count(self, engine: AsyncEngine) -> int:
        """Count windows without counts, and windows with calls added since they were counted; return how many.

        Raises:
            DatabaseUnreachableError: the database cannot be reached, or refuses.

        """
        now, until_s = self._utc_now(), self._clock() + ROUND_S
        number = 0
        try:
            async with engine.connect() as connection:
                for definition, days in self._definitions():
                    for minutes, since, until in _spans(days, now):
                        number += await self._count(connection, definition, minutes, since, until, until_s)
                await self._forget(connection, now)
        except DATABASE_ERRORS as error:
            raise unreachable(engine.url, error) from error
        return number

    def _definitions(self) -> Iterator[tuple[Definition, int]]:
        """Yield each definition once, with its longest number of days."""
        days: dict[Definition, int] = {}
        for target in self._targets():
            days[target.definition] = max(target.days, days.get(target.definition, 0))
        yield from days.items()

    async def _count(  # noqa: PLR0917 - what a span is
        self,
        connection: AsyncConnection,
        definition: Definition,
        minutes: int,
        since: datetime,
        until: datetime,
        until_s: float,
    ) -> int:
        sql = statements.missing(self._words, definition, minutes, since, until)
        starts = [int(row[0]) for row in await connection.exec_driver_sql(sql)]
        await connection.rollback()
        number = 0
        for start in starts:
            if self._clock() > until_s or not await TARGETS.is_ours(connection):
                break
            number += await self._count_one(connection, definition, minutes, datetime.fromtimestamp(start, UTC))
            await connection.commit()
        await connection.rollback()
        return number

    async def _count_one(
        self, connection: AsyncConnection, definition: Definition, minutes: int, start: datetime
    ) -> int:
        """Count a window: from smaller windows if all of these are counted, else from rows."""
        smaller = SMALLER.get(minutes)
        if smaller is not None and start >= self._utc_now() - KEEP[smaller]:  # older windows are forgotten
            sql = statements.add_up(self._words, definition, minutes, start, smaller)
            if (await connection.exec_driver_sql(sql)).rowcount > 0:
                return 1
        sql = statements.count(self._words, definition, minutes, start)
        return max(0, (await connection.exec_driver_sql(sql)).rowcount)

    async def _forget(self, connection: AsyncConnection, now: datetime) -> None:
        for minutes, keep in KEEP.items():
            old = f"minutes = {minutes} and window_start < {self._words.window(now - keep)}"
            await connection.exec_driver_sql(f"delete from {statements.TABLE} where {old}")  # noqa: S608 - our names
            await connection.commit()


def _spans(days: int, now: datetime) -> Iterator[tuple[int, datetime, datetime]]:
    """Yield the windows to check, small ones first: their length in minutes, the first start, and the end."""
    midnight = floor(now - SETTLED[DAY], DAY)
    yield FIVE, floor(now - FIVES_BACK, HOUR), floor(now, FIVE)
    yield HOUR, floor(now - min(HOURS_BACK, timedelta(days=days)), DAY), floor(now - SETTLED[HOUR], HOUR)
    yield DAY, midnight - timedelta(days=days), midnight


# Reads the state of targets, with one statement for each window.


class CountedRows(Protocol):
    """The result of a statement; several readers share it."""

    @property
    def rows(self) -> Sequence[Sequence[Any]]:
        """The rows."""


Ask = Callable[[str], Awaitable[CountedRows]]


async def standings(ask: Ask, words: Words, targets: Sequence[Target], now: datetime) -> list[Standing]:
    """Return the state of each target at ``now``."""
    standings_now = []
    for target in targets:
        sql = statements.counts(words, target.definition, target.window, now)
        counts = await _counts(ask, sql)
        shorter = [window_s for window_s in BURNS_S if window_s < target.window.total_seconds()]
        rates = await burns(ask, words, [target], shorter, now)
        misses = statements.misses(words, target.definition, target.window, now)
        standings_now.append(Standing(target, counts, tuple(rates), sql, misses))
    return standings_now


async def burns(
    ask: Ask, words: Words, targets: Sequence[Target], windows_s: Sequence[int], now: datetime
) -> list[Burn]:
    """Return the burn rate of each target's error budget in each of ``windows_s`` seconds before ``now``."""
    burns_now = []
    for target in targets:
        for window_s in windows_s:
            sql = statements.counts(words, target.definition, timedelta(seconds=window_s), now)
            counts = await _counts(ask, sql)
            rate = burn_rate(counts.calls, counts.bad, target.objective)
            burns_now.append(Burn(target.name, window_s, counts.calls, counts.bad, rate, sql))
    return burns_now


async def _counts(ask: Ask, sql: str) -> Counts:
    [row] = (await ask(sql)).rows
    return Counts(*map(int, row))
