"""The records of outages, refusals, stored names and probes, and the protocol of the book of probes."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, NamedTuple, Protocol

import msgspec

from gateway.core.columns import Column, Sql

# The record of an outage: how long the breaker of a deployment was open in one process.


class OutageRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An outage of one deployment as one process saw it: a row of ``outages``, written as it begins and ends."""

    id: Annotated[str, Column("A UUID.", sql=Sql.UUID)]
    deployment: Annotated[str, Column("Which one was out.")]
    model: Annotated[str | None, Column("Whose call has shown it; null if other replicas have reported it.")]
    began_at: Annotated[datetime, Column("When it began.")]
    ended_at: Annotated[
        datetime | None,
        Column(
            "When it ended (also when the deployment was removed, or the process stopped); null while it "
            "lasts. After a `kill -9` it is when the process last noted that the outage lasted (every 5 s), "
            "once another gateway has adopted its spool; else it stays null."
        ),
    ] = None
    reason: Annotated[
        str | None,
        Column(
            "The kind of the last error as in `attempts.error_kind`, or `slow`, `hangs`, `silent` (attempts "
            "cancelled without a token, too often for chance), `other replicas`."
        ),
    ]
    replica: Annotated[str, Column("Who found it so.")]


# The record of refused requests: how often a client, or an address, was refused for one reason within a minute.


class RefusalRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Refusals of one minute in one process: a row of ``refusals``."""

    id: Annotated[str, Column("A UUID.", sql=Sql.UUID)]
    started_at: Annotated[datetime, Column("When the minute began.")]
    status_code: Annotated[int, Column("The status that the client was told.", sql=Sql.SMALLINT)]
    reason: Annotated[
        str,
        Column(
            "The error's kind as in `holeshot_refusals_total` (`invalid_api_key`: a wrong key; `no_api_key`: none)."
        ),
    ]
    client: Annotated[str | None, Column("The client of the key; null if the key is unknown, and without keys.")]
    address: Annotated[
        str | None,
        Column(
            "Where the requests came from, for IPv6 the /64. `other` for all but the first 100 addresses of "
            "a minute and process; null with `refusals: { addresses: false }`."
        ),
    ]
    n: Annotated[int, Column("How many.")]
    replica: Annotated[str, Column("Where they were refused.")]
    model: Annotated[
        str | None,
        Column(
            "The model that was asked for, where its name is the reason (`model_not_found`, `forbidden`), up to its "
            "100th character. `other` for all but the first 100 names of a minute and process."
        ),
    ] = None  # in entries of the version before


# The record of a name in an answer for something stored by a provider.


class StoredName(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A name at a provider, or the facts about a response that runs there: a row of ``stored_names``."""

    id: Annotated[str, Column("A keyed hash of the name and its client: 128 bits.", sql=Sql.UUID)]
    expires_at: Annotated[
        datetime,
        Column("When the gateway forgets it: `response_ids_ttl_s` after the answer. The row goes a day later."),
    ]
    client: Annotated[str | None, Column("Who may name it; null without keys.")]
    known: Annotated[
        str,
        Column(
            "JSON. Of a name the `deployment` whose provider has it, the `key_name`, and a digest of the client's own"
            " key. Of a response in the background what limits count for it until its end is seen; then empty."
        ),
    ]
    ask_at: Annotated[
        datetime | None,
        Column("Of a response in the background: until then one replica asks for it, or waits to ask again."),
    ] = None
    sealed: Annotated[
        str | None,
        Column(
            "Its id, encrypted, with which a gateway asks for what ran before it started. Empty where nothing can seal"
            " it; null of names, and once its end is seen."
        ),
    ] = None
    ended: Annotated[
        str | None,
        Column(
            "Of a response in the background whose end was just seen: its row, as JSON, until that is in `calls`. So a"
            " process that is killed in between loses none: another writes it, within a minute."
        ),
    ] = None


class Unended(NamedTuple):
    """A response that ran in the background when a process began. ``id``: of the row."""

    id: str
    client: str | None
    known: str
    name: str | None  # None: this process does not have the key to read the response's id


# The records of probes, the gateway's own small calls to quiet deployments, and the protocol of their store, the book.
# A probe is stored before it is sent, with its maximum cost. So neither a crash nor another replica can make probes
# exceed their daily limit.

PROBES = "probe"  # the ``api`` of probes' attempts, so that sums can tell probes from calls


class ProbeOutcome(StrEnum):
    """How a probe ended."""

    ANSWERED = "answered"
    FAILED = "failed"  # the deployment's fault
    CANCELLED = "cancelled"  # the gateway stopped, or a call needed the seat


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A probe about to be sent."""

    id: str  # also the ``call_id`` of the probe's attempt
    started_at: datetime
    model: str
    deployment: str
    replica: str
    reserved_usd: float  # the highest possible cost of the probe


class ProbeEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a probe."""

    ended_at: datetime
    outcome: ProbeOutcome
    error_kind: str | None = None
    ttft_ms: float | None = None
    cost_usd: float | None = None  # None: unknown, so the reservation stays


class DailyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The probes of a deployment, and the day's totals, over all replicas."""

    spent_usd: float  # today (UTC): upper bound of ended probes' cost, plus the reservations of running ones
    probes: int  # today
    probed_at: datetime | None = None  # the last probe of this deployment
    failures: int = 0  # the latest probes that failed, in a row
    called_at: datetime | None = None  # the last attempt in the ledger, if recent
    is_broken: bool = False  # a replica's breaker is open


class NotProbed(StrEnum):
    """Why a deployment is not probed now."""

    STOPPING = "stopping"
    OVERLOADED = "overloaded"  # calls need the capacity
    IN_USE = "in_use"  # the deployment is not quiet
    BROKEN = "broken"  # the breaker is open, here or in another replica
    OUT = "out"  # the provider refuses the key, or does not know the model
    COOLING = "cooling"  # rate-limited, or told to wait
    HEADROOM = "headroom"  # little is left of the rate limit
    FULL = "full"  # max_in_flight
    UNFIT = "unfit"  # none of the APIs that return answers is served
    ACTS = "acts"  # for any prompt, the model searches, acts or spends beside its answer
    NO_PRICE = "no_price"  # the cost is unknown
    MONEY = "usd_per_day"
    NUMBER = "max_per_day"
    BACKED_OFF = "backed_off"  # the last probes failed
    UNRECORDED = "database_away"  # an uncounted probe is never sent


Decide = Callable[[DailyFacts], NotProbed | None]


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
        """Store the end and the cost of a probe."""

    async def aclose(self) -> None:
        """Close the connections."""
