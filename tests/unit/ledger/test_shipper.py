"""What the log says of an outage of the database."""

from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from gateway.ledger.errors import DatabaseUnreachableError
from gateway.ledger.shipper import Shipper
from tests.unit.ledger.test_folding import Notes

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
