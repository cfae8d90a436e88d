"""Adds new rows to the sums (a fold), in one process at a time. On SQLite a batch is added up when it is stored.

On Postgres a trigger notes new rows. ``roll_up_fresh`` (migrations/functions) takes notes and adds up their rows in one
transaction. Sums are behind by the age of the oldest note.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.ledger.database import DATABASE_ERRORS, unreachable, without_limits
from gateway.ledger.errors import DatabaseUnreachableError, is_sqlite
from gateway.ledger.turns import FOLD, Turn

FULL = 2000  # notes taken at a time, in some tenths of a second
FOLD_TIMEOUT_S = 15.0
# A place that this cluster has not reached yet is from another cluster, e.g. the server moved behind a pooler.
_FOLD = """
select taken, until
from roll_up_fresh($1, case when $2 <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint then $2 else 0 end, $3)
"""
_TAKEN = text("select taken from roll_up_fresh(:most)")
ADD_UP_SQLITE = "delete from rollup_pending"  # for all notes: a batch's rows, and rows inserted by hand
# For all notes; the tables are locked against inserts and deletes.
FOLD_HERE = "do $fold$ begin while (select taken from roll_up_fresh()) > 0 loop end loop; end $fold$"


class FoldResult(msgspec.Struct, frozen=True):
    """A fold's result. ``taken``: notes; None while another process folds. ``until``: where the next fold begins."""

    taken: int | None
    until: int


async def fold(engine: AsyncEngine, since: int, rest_s: float) -> FoldResult:
    """Fold up to 2,000 rows if the oldest note is ``rest_s`` old; ``since``: the ``until`` of the previous fold.

    Raises:
        DatabaseUnreachableError: the database cannot be reached, fails, or takes too long: all rows were added up, or
            none.

    """
    if is_sqlite(engine.url):
        return FoldResult(0, since)
    try:
        async with asyncio.timeout(FOLD_TIMEOUT_S), connected(engine) as connection:
            raw = await connection.get_raw_connection()
            driver: Any = raw.driver_connection
            row = await driver.fetchrow(_FOLD, FULL, since, rest_s)  # a transaction of its own
            return FoldResult(row["taken"], row["until"])
    except TimeoutError as error:
        raise DatabaseUnreachableError(f"sums of rows took longer than {FOLD_TIMEOUT_S:g} s") from error
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error


async def fold_all(engine: AsyncEngine) -> None:
    """Fold all new rows, also those that another process has begun with.

    Raises:
        DatabaseUnreachableError: the database cannot be reached, or fails.

    """
    try:
        async with connected(engine) as connection:
            if is_sqlite(engine.url):
                await connection.execute(text(ADD_UP_SQLITE))
                await connection.commit()
            else:
                await fold_on(connection)
    except DATABASE_ERRORS as error:
        raise unreachable(engine.url, error) from error


async def fold_on(connection: AsyncConnection, before: Turn | None = None) -> None:
    """Fold all new rows, in transactions of 2,000 rows, as long as this process has the turn ``before``.

    So only one of many processes waits for the turn to fold. Commits the transaction that is open on ``connection``.
    """
    folded = FULL
    while folded == FULL:
        await connection.commit()
        if before is not None and not await before.is_ours(connection):
            return
        await without_limits(connection)
        await FOLD.wait(connection)
        folded = await connection.scalar(_TAKEN, {"most": FULL}) or 0
    await connection.commit()


@asynccontextmanager
async def connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Connect; a cancelled caller does not wait for the rollback of a database that hangs.

    A connection that is read-only is discarded: after a failover a new connection can write.
    """
    async with engine.connect() as connection:
        raw = await connection.get_raw_connection()
        driver: Any = raw.driver_connection
        try:
            yield connection
        except (asyncio.CancelledError, asyncpg.ReadOnlySQLTransactionError):
            if not is_sqlite(engine.url):
                driver.terminate()
                await connection.invalidate()
            raise
