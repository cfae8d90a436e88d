"""Deletes rows that are too old, in one of the replicas."""

from collections.abc import Callable
from datetime import datetime

import structlog

from gateway.ledger.errors import DatabaseUnreachableError
from gateway.ledger.retention import Retention
from gateway.ledger.shipper import Shipper
from gateway.ledger.store import Store


class Pruning:
    """Prunes ``store`` by ``retention``; ``shipper`` knows whether the database is available."""

    def __init__(self, store: Store, retention: Retention, shipper: Shipper, utc_now: Callable[[], datetime]) -> None:
        self._store = store
        self._retention = retention
        self._shipper = shipper
        self._utc_now = utc_now
        self._problem: str | None = None  # the last one logged

    async def prune(self) -> None:
        """Delete rows that are too old, and make the next partitions, unless another replica does.

        An obstacle is logged once, and pruning is tried again an hour later; shipping continues.
        """
        try:
            rows = await self._store.prune(self._retention, self._utc_now())
        except DatabaseUnreachableError as error:
            if self._shipper.connected and str(error) != self._problem:
                structlog.get_logger().warning(
                    "ledger.not_pruned", cause=str(error), hint="holeshot prune, as the tables' owner"
                )
            self._problem = str(error)
            return
        self._problem = None
        if rows and any(rows.values()):
            structlog.get_logger().info("ledger.pruned", **rows)
