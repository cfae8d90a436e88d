"""Taking away what is older than it is to be kept, by one of the replicas."""

from collections.abc import Callable
from datetime import datetime

import structlog

from gateway.ledger.errors import DatabaseUnreachableError
from gateway.ledger.retention import Retention
from gateway.ledger.shipper import Shipper
from gateway.ledger.store import Store


class Pruning:
    """Prunes ``store`` to ``retention``; ``shipper`` knows whether the database is there at all."""

    def __init__(self, store: Store, retention: Retention, shipper: Shipper, utc_now: Callable[[], datetime]) -> None:
        self._store = store
        self._retention = retention
        self._shipper = shipper
        self._utc_now = utc_now
        self._problem: str | None = None  # that was said

    async def prune(self) -> None:
        """Take away what is older than it is to be kept, and make the coming partitions, unless another replica does.

        What hinders it is said once, and it is tried again an hour later: it keeps nobody from shipping.
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
