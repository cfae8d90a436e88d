"""What is said of an outage of the database, and of the rows that wait for its end."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.ledger import DatabaseUnreachableError, Ledger
from gateway.ledger.shipper import Shipper
from tests.unit.ledger.inside.test_folding import Notes
from tests.unit.ledger.records import raced_call

REFUSED, WRONG_PASSWORD = "connection refused", "password authentication failed"


class FailingStore(Notes):
    cause: str | None = None

    async def ping(self) -> None:
        if self.cause is not None:
            raise DatabaseUnreachableError(self.cause)


async def test_each_cause_of_an_outage_is_logged_once() -> None:
    store = FailingStore()
    shipper = Shipper(store, lambda: 100.0, lambda: datetime.now(UTC))
    with capture_logs() as logs:
        for cause in (REFUSED, REFUSED, WRONG_PASSWORD, REFUSED, WRONG_PASSWORD, None, REFUSED):
            store.cause = cause
            if cause is None:
                await shipper.ping()
                continue
            with pytest.raises(DatabaseUnreachableError):
                await shipper.ping()
    assert [(log["event"], log.get("cause")) for log in logs] == [
        ("ledger.database_unreachable", REFUSED),
        ("ledger.database_unreachable", WRONG_PASSWORD),
        ("ledger.database_recovered", None),
        ("ledger.database_unreachable", REFUSED),
    ]


async def test_a_row_is_no_older_than_itself_though_the_database_was_away_long_before(tmp_path: Path) -> None:
    now_s, store = 100.0, FailingStore()
    store.cause = REFUSED
    ledger = Ledger("sqlite:///unused.db", tmp_path / "spool", "w1", clock=lambda: now_s, store=store)
    for _ in range(2):
        now_s += 3600.0
        with pytest.raises(DatabaseUnreachableError):
            await ledger.flush()
    ledger.call_finished(raced_call())
    now_s += 5.0
    with pytest.raises(DatabaseUnreachableError):
        await ledger.flush()
    assert ledger.oldest_pending_s == 5.0
    store.cause = None
    await ledger.close()
