"""The record of an outage: how long the breaker of a deployment was open in one process."""

from datetime import datetime

import msgspec


class OutageRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An outage of one deployment, as one process sees it: a row of ``outages``, recorded at its begin and its end."""

    id: str
    deployment: str
    model: str | None  # whose call has shown it; None: others have reported it
    began_at: datetime
    ended_at: datetime | None = None  # None: it lasts, or its process was killed and left no spool
    reason: str | None  # the kind of the last error, or "slow", "hangs", "silent", "other replicas"
    replica: str
