"""The record of refused requests: how often a client, or an address, was refused for one reason within a minute."""

from datetime import datetime

import msgspec


class RefusalRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Refusals of one minute in one process: a row of ``refusals``."""

    id: str
    started_at: datetime  # when the minute began
    status_code: int
    reason: str  # the error's kind, as in the metrics and the log
    client: str | None  # the configured name; None if the key is unknown, or there are no keys
    address: str | None  # IPv6: the /64 network; None if it is unknown, or not to be stored
    n: int
    replica: str
