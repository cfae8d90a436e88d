"""What a gateway takes from its process: clocks, randomness, ids, and access to the outside.

Everything that does not depend on settings and input is here, so that a test can run a whole gateway in virtual time
with simulated providers, reproducibly.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random

import msgspec

from gateway.fleet.fleet import OpenUpstream
from gateway.ids import new_id
from gateway.ledger.store import Store
from gateway.probe_records import ProbeBook


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """The process's own by default."""

    clock: Callable[[], float] = time.monotonic  # seconds
    unix_clock: Callable[[], float] = time.time  # seconds since 1970
    utc_now: Callable[[], datetime] = _utc_now
    random: Random = msgspec.field(default_factory=Random)  # for load balancing, not for security
    new_id: Callable[[], str] = new_id
    open_upstream: OpenUpstream | None = None  # None: over the network
    probe_book: ProbeBook | None = None  # None: the same database
    store: Store | None = None  # None: the database in the settings
