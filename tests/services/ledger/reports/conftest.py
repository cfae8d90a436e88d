"""Reports of a real ledger, on each of the two databases."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gateway.core.calls import CallRecord, CallStart
from gateway.ledger import Finished, Ledger, LedgerReports, Reader, ReplayRunner
from tests.services.ledger.asking import asked

if TYPE_CHECKING:
    from gateway.ledger.entries import Shippable

NOW = datetime.now(UTC).replace(microsecond=0)  # the database's own clock is used by views


class Library:
    """A ledger and its reports: ``stored`` calls are in it, ``waiting`` ones in memory."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.waiting: list[Shippable] = []
        self.running: dict[str, CallStart] = {}
        self.now = NOW
        self.reports = LedgerReports(
            Reader(url),
            replays=ReplayRunner(url, clock=lambda: 0.0, kept_s=0.0),
            unshipped=lambda: self.waiting,
            running=self.running.get,
            utc_now=lambda: self.now,
            clock=lambda: 0.0,
            kept_s=0.0,
        )
        self._folder = folder

    async def store(self, *records: CallRecord) -> None:
        ledger = Ledger(self.url, self._folder / "spool", "reports")
        for record in records:
            ledger.call_finished(record)
        await ledger.flush()
        await ledger.close()

    def keep(self, *records: CallRecord) -> None:
        """Have these calls in memory only."""
        self.waiting += map(Finished, records)

    async def ask(self, sql: str) -> list[dict[str, Any]]:
        """Return what ``holeshot sql`` answers."""
        return await asked(self.url, sql)


Open = Callable[[], AbstractAsyncContextManager[Library]]


@pytest.fixture
async def library(ledger_url: str, tmp_path: Path) -> AsyncIterator[Library]:
    async with _opened(ledger_url, tmp_path) as opened:
        yield opened


@asynccontextmanager
async def _opened(url: str, folder: Path) -> AsyncIterator[Library]:
    made = Library(url, folder)
    try:
        yield made
    finally:
        await made.reports.aclose()


def plain(rows: Sequence[dict[str, Any]]) -> Any:
    """Return rows as their reader gets them: after JSON."""
    return msgspec.json.decode(msgspec.json.encode(rows))
