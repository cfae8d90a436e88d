"""The outages that last in this process: recorded when a breaker opens, and again when it closes."""

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta

import msgspec
import structlog

from gateway.outage_records import OutageRecord

_log = structlog.get_logger(__name__)


class Outages:
    """The deployments whose breakers are open here. ``record`` is called at the begin and the end of each outage."""

    def __init__(
        self,
        record: Callable[[OutageRecord], None],
        *,
        utc_now: Callable[[], datetime],
        new_id: Callable[[], str],
        replica: str,
    ) -> None:
        self._record = record
        self._utc_now = utc_now
        self._new_id = new_id
        self._replica = replica
        self._lasting: dict[str, OutageRecord] = {}  # by deployment

    @classmethod
    def unrecorded(cls) -> "Outages":
        """Return outages that are only logged."""
        return cls(lambda _: None, utc_now=lambda: datetime.fromtimestamp(0, UTC), new_id=str, replica="")

    def opened(self, deployment: str, reason: str | None, model: str | None, ago_s: float = 0.0) -> None:
        """Log that a breaker opened ``ago_s`` seconds ago; record it, unless it was open and a probe has failed."""
        where = {} if model is None else {"model": model}
        _log.warning("steering.opened", **where, deployment=deployment, cause=reason)
        if deployment in self._lasting:
            return
        outage = OutageRecord(
            id=self._new_id(),
            deployment=deployment,
            model=model,
            began_at=self._utc_now() - timedelta(seconds=ago_s),
            reason=None if reason is None else str(reason),
            replica=self._replica,
        )
        self._lasting[deployment] = outage
        self._record(outage)

    def recovered(self, model: str, deployment: str, ago_s: float = 0.0) -> None:
        """Log that a deployment may be used again, since ``ago_s`` seconds; record the end if its breaker was open."""
        _log.info("steering.recovered", model=model, deployment=deployment)
        self._end(deployment, ago_s)

    def keep(self, deployments: Collection[str]) -> None:
        """End the outages of all other deployments, which are not used any more."""
        for deployment in self._lasting.keys() - set(deployments):
            self._end(deployment)

    def close(self) -> None:
        """End all: with this process, its breakers are gone."""
        self.keep(())

    def _end(self, deployment: str, ago_s: float = 0.0) -> None:
        outage = self._lasting.pop(deployment, None)
        if outage is not None:
            self._record(msgspec.structs.replace(outage, ended_at=self._utc_now() - timedelta(seconds=ago_s)))
