"""The database as the ledger uses it: rows go in, sums come out."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from sqlalchemy import text

from gateway.calls import HourlySum
from gateway.ledger import inserts, remembered, retention
from gateway.ledger.database import DATABASE_ERRORS, create_engine, unreachable
from gateway.ledger.entries import Entry


class Store(Protocol):
    """Where rows are kept. Every method raises ``DatabaseUnreachableError`` when it cannot be asked."""

    async def insert(self, entries: Sequence[Entry], kept_since: Mapping[str, datetime]) -> int:
        """Store the rows of ``entries``, each once; return how many were older than ``kept_since``, by table, allows.

        Raises:
            RowsRejectedError: at least one of them is bad, and none was stored.

        """

    async def ping(self) -> None:
        """Ask it anything."""

    async def prune(self, kept: retention.Retention, now: datetime) -> dict[str, int] | None:
        """Delete rows older than ``kept`` allows; return how many by table, None while another replica does."""

    async def remembered(self, now: datetime) -> list[HourlySum]:
        """Return the sums of the last day, which a gateway that starts learns from.

        Raises:
            LedgerError: there are none to be had.

        """

    async def aclose(self) -> None:
        """Close its connections."""


class SqlStore:
    """Postgres or SQLite; nothing is connected before it is asked."""

    def __init__(self, url: str) -> None:
        """Use the database at ``url``.

        Raises:
            DatabaseUrlError: ``url`` is none.

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
        """Delete old rows, and make the coming partitions."""
        return await retention.prune(self._engine, kept, now)

    async def remembered(self, now: datetime) -> list[HourlySum]:
        """Return the sums of the last day."""
        return await remembered.remembered(self._url, now)

    async def aclose(self) -> None:
        """Dispose of the engine."""
        await self._engine.dispose()
