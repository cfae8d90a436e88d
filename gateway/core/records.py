"""The record of an outage: how long the breaker of a deployment was open in one process."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec


class OutageRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An outage of one deployment, as one process sees it: a row of ``outages``, recorded at its begin and its end."""

    id: str
    deployment: str
    model: str | None  # the model whose call detected it; None: other replicas have reported it
    began_at: datetime
    ended_at: datetime | None = None  # None: it lasts, or its process was killed and left no spool
    # The kind of the last error, or "slow", "hangs", "silent", "other replicas", "12 clients left …"
    reason: str | None
    replica: str


# The record of refused requests: how often a client, or an address, was refused for one reason within a minute.


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


# The records of probes, the gateway's own small calls to quiet deployments, and the protocol of their store, the book.
# A probe is stored before it is sent, with its maximum cost, so that neither a crash nor another replica can make
# probes exceed their daily limit.

PROBES = "probe"  # the ``api`` of their attempts, so that sums can tell them from those of calls


class ProbeOutcome(StrEnum):
    """How a probe ended."""

    ANSWERED = "answered"
    FAILED = "failed"  # the deployment's fault
    CANCELLED = "cancelled"  # the gateway stopped, or a call needed the seat


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A probe that is about to be sent."""

    id: str  # of its attempt too, as ``call_id``
    started_at: datetime
    model: str
    deployment: str
    replica: str
    reserved_usd: float  # the most that it can cost


class ProbeEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a probe."""

    ended_at: datetime
    outcome: ProbeOutcome
    error_kind: str | None = None
    ttft_ms: float | None = None
    cost_usd: float | None = None  # None: unknown, so what was reserved stays


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The probes of a deployment, and the day's totals, over all replicas."""

    spent_usd: float  # today (UTC): upper bound of what ended probes cost, plus the reservations of running ones
    probes: int  # today
    probed_at: datetime | None = None  # the last probe of this deployment
    failures: int = 0  # its last probes that failed, in a row
    called_at: datetime | None = None  # its last attempt in the ledger, if it is recent
    is_broken: bool = False  # a replica has its breaker open


class NotProbed(StrEnum):
    """Why a deployment is not probed now."""

    STOPPING = "stopping"
    OVERLOADED = "overloaded"  # calls need the capacity
    IN_USE = "in_use"  # it is not quiet
    BROKEN = "broken"  # its breaker is open here or in another replica
    OUT = "out"  # it refuses the key, or does not know the model
    COOLING = "cooling"  # rate-limited, or told to wait
    HEADROOM = "headroom"  # little is left of its rate limit
    FULL = "full"  # max_in_flight
    UNFIT = "unfit"  # it serves none of the APIs that return answers
    ACTS = "acts"  # whatever it is asked, it searches, acts or spends beside its answer
    NO_PRICE = "no_price"  # what it would cost is unknown
    MONEY = "usd_per_day"
    NUMBER = "max_per_day"
    BACKED_OFF = "backed_off"  # its last probes failed
    UNRECORDED = "database_away"  # nothing is sent that cannot be counted


Decide = Callable[[Facts], NotProbed | None]


class ProbesUnreachable(Exception):
    """The book cannot be read or written."""


class ProbeBook(Protocol):
    """The book of probes of all replicas.

    Raises:
        ProbesUnreachable: by every method.

    """

    async def reserve(self, probe: Probe, decide: Decide, *, since: datetime) -> NotProbed | None:
        """Store ``probe``, or return the reason of ``decide`` not to. No other process decides meanwhile.

        ``since`` is the instant after which calls count as recent.
        """

    async def settle(self, probe_id: str, end: ProbeEnd) -> None:
        """Store how a probe ended, and what it cost."""

    async def aclose(self) -> None:
        """Close the connections."""
