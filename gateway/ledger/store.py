"""The database as the ledger uses it: rows go in, sums come out."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from sqlalchemy import text

from gateway.calls import HourlySum, Spent
from gateway.ledger import inserts, remembered, retention, spent
from gateway.ledger.database import DATABASE_ERRORS, create_engine, unreachable
from gateway.ledger.entries import Entry


class Store(Protocol):
    """Stores rows. Every method raises ``DatabaseUnreachableError`` if the database is not available."""

    async def insert(self, entries: Sequence[Entry], kept_since: Mapping[str, datetime]) -> int:
        """Store the rows of ``entries``, each once; return how many were too old by ``kept_since``, which is by table.

        Raises:
            RowsRejectedError: at least one row is invalid, and none was stored.

        """

    async def ping(self) -> None:
        """Check that it answers."""

    async def prune(self, kept: retention.Retention, now: datetime) -> dict[str, int] | None:
        """Delete rows older than ``kept`` allows; return how many by table, None while another replica does it."""

    async def remembered(self, now: datetime) -> list[HourlySum]:
        """Return the sums of the last day, from which a gateway learns at its start.

        Raises:
            LedgerError: they cannot be read.

        """

    async def spent(self, now: datetime) -> list[Spent]:
        """Return what clients have spent today and this month.

        Raises:
            LedgerError: it cannot be read.

        """

    async def aclose(self) -> None:
        """Close all connections."""


class SqlStore:
    """Postgres or SQLite; it connects when first used."""

    def __init__(self, url: str) -> None:
        """Use the database at ``url``.

        Raises:
            DatabaseUrlError: ``url`` is invalid.

        """
        self._url = url
        self._engine = create_engine(url)

    async def insert(self, entries: Sequence[Entry], kept_since: Mapping[str, datetime]) -> int:
        """Store rows."""
        return await inserts.insert(self._engine, entries, kept_since)

    async def ping(self) -> None:
        """Select 1."""
        try:
            async with self._engine.connect() as connection:
                await connection.execute(text("select 1"))
        except DATABASE_ERRORS as error:
            raise unreachable(self._engine.url, error) from error

    async def prune(self, kept: retention.Retention, now: datetime) -> dict[str, int] | None:
        """Delete old rows, and make the next partitions."""
        return await retention.prune(self._engine, kept, now)

    async def remembered(self, now: datetime) -> list[HourlySum]:
        """Return the sums of the last day."""
        return await remembered.remembered(self._url, now)

    async def spent(self, now: datetime) -> list[Spent]:
        """Return what clients have spent."""
        return await spent.spent(self._url, now)

    async def aclose(self) -> None:
        """Dispose of the engine."""
        await self._engine.dispose()
