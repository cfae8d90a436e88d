"""The page's reports: their queries and results, and the protocol implemented by ``gateway.ledger.reports``.

Each result made from SQL has its ``sql``: one statement that gives the same figures in ``holeshot sql``.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from gateway.core.errors import ApiError
from gateway.core.old_names import WithOldNames, formerly
from gateway.core.targets import SQL, Burn, Standing

RETRY_S = 2  # the database is tried again each second

Instant = Annotated[datetime, Meta(tz=True)]


# Rows with the columns that records declare: ``gateway/admin/openapi/rows.py`` describes them.
CallRow = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/CallRow"})]
AttemptRow = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/AttemptRow"})]
ListedCall = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/ListedCall"})]
ListedAttempt = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/ListedAttempt"})]
OF_WINNER = ("deployment", "decode_tps")  # columns of the attempt that answered, beside its call in the list

# p50 and p95 of the gaps between chunks, and p95 of the longest silences of a voice; ms, by model and deployment.
Gaps = Mapping[tuple[str, str], tuple[float | None, float | None, float | None]]


class Window(StrEnum):
    """The length of time before now that a report covers."""

    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"

    @property
    def length(self) -> timedelta:
        """The length of the window."""
        return _LENGTHS[self]


_LENGTHS: Mapping[Window, timedelta] = {
    Window.HOUR: timedelta(hours=1),
    Window.DAY: timedelta(days=1),
    Window.WEEK: timedelta(days=7),
    Window.MONTH: timedelta(days=30),
}


class CallEnd(StrEnum):
    """How calls ended; each call in one of these ways."""

    OK = "ok"  # without an error
    FAILED = "failed"  # with an error that was not the client's fault, before the answer or in the middle of it
    REJECTED = "rejected"  # with an error that was the client's fault
    LEFT = "left"  # the client disconnected


class HeatMetric(StrEnum):
    """What a heat map shows."""

    TTFT_P50 = "ttft_p50_ms"
    TTFT_P95 = "ttft_p95_ms"
    DECODE_P50 = "decode_p50_tps"
    ERROR_RATE = "error_rate"
    N = "n"

    @classmethod
    def _missing_(cls, value: object) -> "HeatMetric | None":
        return cls.DECODE_P50 if value == "tps_p50" else None  # the name until ``GONE_WITH``


class By(StrEnum):
    """How the value of racing is grouped."""

    MODEL = "model"
    CLIENT = "client"


class SlowdownsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The slowdowns to list."""

    window: Window
    model: str | None = None
    deployment: str | None = None
    metric: str | None = None


class Position(msgspec.Struct, frozen=True):
    """A place in the list of calls, the newest first: a page begins after this place."""

    started_at: datetime
    id: str


class SoleUser(msgspec.Struct, frozen=True):
    """The only calls that a person sees: those of an end user of a client, within a team if the client has one."""

    client: str
    team: str | None
    end_user: str  # the keyed hash, as rows have it

    @property
    def tags(self) -> dict[str, str | None]:
        """The tags of all these calls; None: no such tag."""
        return {"team": self.team, "end_user": self.end_user}

    def has(self, client: str | None, tags: Mapping[str, str] | None) -> bool:
        """Return whether a call of this client with these tags is one of the person's."""
        return client == self.client and all((tags or {}).get(name) == value for name, value in self.tags.items())


class CallsFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The calls to list. ``window`` None: of all time; ``client`` "": calls without a client.

    With ``attempts`` each call has its attempts, with the columns for drawing the race.
    """

    window: Window | None
    limit: int
    after: Position | None = None
    model: str | None = None
    client: str | None = None
    deployment: str | None = None  # the winner's
    tag: tuple[str, str] | None = None
    outcome: CallEnd | None = None
    slower_than_ms: float | None = None  # to the first token, or to the end of a call without one
    error: str | None = None
    request_id: str | None = None
    attempts: bool = False
    own: SoleUser | None = None  # only calls of this person


class HistoryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts that a history covers. With a ``client`` ("": without one) it is made from rows, not from sums.

    ``since`` and ``until`` are a range of time in place of the window, by default until now. Few attempts within two
    hours are shown in steps of a minute.
    """

    window: Window = Window.DAY
    since: datetime | None = None
    until: datetime | None = None
    model: str | None = None
    deployment: str | None = None
    client: str | None = None


class HeatFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts that a heat map covers."""

    metric: HeatMetric
    window: Window
    model: str | None = None
    deployment: str | None = None


class ReplayWanted(msgspec.Struct, frozen=True):
    """The calls and settings to replay. ``model`` None: the busiest one."""

    window: Window
    model: str | None
    without: tuple[str, ...]  # providers
    budgets: tuple[float, ...]


class Table(msgspec.Struct, frozen=True):
    """Rows as mappings by column name, and the statement that returns them."""

    rows: list[dict[str, Any]]
    sql: str


class FoundCall(msgspec.Struct, frozen=True):
    """One call with its attempts, in the columns of their tables.

    ``source``: "ledger" for a stored row, "memory" for a row not stored yet, "running" for a call without an end; then
    facts known only at the end are null.
    """

    call: CallRow
    attempts: list[AttemptRow]
    source: Annotated[Literal["ledger", "memory", "running"], Meta(description="Where it was found.")]
    sql: SQL
    call_sql: SQL


class HistorySeries(WithOldNames, frozen=True, kw_only=True):
    """One deployment of one model: columns of equal length."""

    model: str
    deployment: str
    provider: str
    t: list[Annotated[int, Meta(description="The start of the step, in seconds since 1970.")]]
    n: list[int]
    n_errors: list[int]
    n_rate_limited: list[int]
    n_won: list[int]
    n_first_token: list[int]
    ttft_p50_ms: list[float | None]
    ttft_p95_ms: list[float | None]
    ttft_p99_ms: list[float | None]
    decode_p50_tps: list[float | None]
    decode_p05_tps: Annotated[list[float | None], Meta(description="What 95 % of the answers reach.")]
    itl_p50_ms: list[float | None]
    itl_p95_ms: list[float | None]
    errors: Annotated[list[int], formerly("n_errors")] = msgspec.field(default_factory=list)
    rate_limited: Annotated[list[int], formerly("n_rate_limited")] = msgspec.field(default_factory=list)
    won: Annotated[list[int], formerly("n_won")] = msgspec.field(default_factory=list)
    first_tokens: Annotated[list[int], formerly("n_first_token")] = msgspec.field(default_factory=list)
    tps_p50: Annotated[list[float | None], formerly("decode_p50_tps")] = msgspec.field(default_factory=list)
    tps_p95: Annotated[list[float | None], formerly("decode_p05_tps")] = msgspec.field(default_factory=list)


class DeploymentHistory(msgspec.Struct, frozen=True):
    """Series of equal length, each already encoded as JSON: a month of all deployments is large."""

    since: datetime
    until: datetime  # the end of the current step
    step_s: int
    series: list[msgspec.Raw]
    outages: list[dict[str, Any]]  # in the columns of their view, and ``may_last``
    sql: str
    outages_sql: str


class Reports(Protocol):
    """Answers reports. Every method may wait for the database, and ends within some seconds."""

    async def calls(self, wanted: CallsFilter) -> Table:
        """Return a page of calls, the newest first, and one call above its limit if there are more."""

    async def call(self, call_id: str, own: SoleUser | None = None) -> FoundCall | None:
        """Return one call; None if it is unknown."""

    async def has_calls(self) -> bool | None:
        """Return whether there has ever been a call; None if the database cannot say."""

    async def history(self, wanted: HistoryFilter) -> DeploymentHistory:
        """Return figures of deployments over time."""

    async def slowdowns(self, wanted: SlowdownsWanted) -> Table:
        """Return the slowdowns in the window, also those that began before it, the newest first."""

    async def heat(self, wanted: HeatFilter) -> Table:
        """Return a figure by deployment, weekday (0 is Monday) and hour (UTC), with the number of attempts, ``n``."""

    async def race_value(self, window: Window, by: By) -> Table:
        """Return the columns of the view ``race_value``."""

    async def replay(self, wanted: ReplayWanted) -> msgspec.Raw:
        """Return the estimated effect of other settings on a model's calls, as JSON, within a minute."""

    async def refusals(self, window: Window) -> tuple[Table, Table]:
        """Return refused requests by client and reason, and addresses that sent unknown keys."""

    async def regions(self, window: Window) -> Table:
        """Return the columns of the view ``regions_1h`` or ``regions_24h``: an hour or a day."""

    async def usage(self, window: Window) -> Table:
        """Return the usage of clients."""

    async def payers(self, window: Window) -> Table:
        """Return the usage of teams, the most expensive first, then the most expensive end users of each.

        Rows of end users have an ``end_user``, and without a team the ``client`` of the key they used.
        """

    async def own_usage(self, own: SoleUser, window: Window) -> Table:
        """Return the usage and the speed of one person's calls: of all (``model`` null), and of each model."""

    async def sums_trail_s(self) -> float | None:
        """Return the age in seconds of the oldest row not yet in a sum; 0: no such row, None: not known."""

    @property
    def have_replica(self) -> bool:
        """Whether reports read a replica of the database."""

    async def replica_lag_s(self) -> float | None:
        """Return how many seconds the replica is behind, at most; None: unknown, or no replica."""

    async def spent(self) -> Mapping[str | None, tuple[float, float]]:
        """Return the spending of clients in this UTC day and month, US dollars."""

    async def spent_by_teams(self) -> Mapping[str | None, tuple[float, float]]:
        """Return the same for teams, by their tag; only answered calls count."""

    async def spent_by_models(self) -> Mapping[str, float]:
        """Return the cost of attempts for models in this UTC day, US dollars."""

    async def alerts(self) -> Table:
        """Return the open alerts and the newest closed ones, each with the number of messages sent."""

    async def outages(self) -> Table:
        """Return the outages of the last day, the newest first, each once however many processes saw it.

        ``may_last``: without a known end, begun within a day, and no answer from there since (``outages_30d``).
        """

    async def gaps(self) -> Gaps:
        """Return the gaps between chunks in the last 24 hours, and the silences of a voice in the last hour.

        The figures may be a minute old; empty while unknown.
        """

    async def targets(self) -> Sequence[Standing]:
        """Return the standing of each target of ``slo:``, in the order of the configuration."""

    async def burns(self, windows_s: Sequence[int]) -> Sequence[Burn]:
        """Return the burn rate of each target's budget over windows of these lengths in seconds."""


class ReportsUnreachable(ApiError):
    """The database does not answer, so there is no report. Calls go on, and their rows wait."""

    # Means: Reports (`/api`) need the database, which does not answer or lacks a table.
    # Retry: after `retry-after`.
    # Caller: Wait and try again.
    # Operator: Start the database, or run `holeshot migrate`. The log has `report.failed`.
    status = 503
    type = "service_unavailable"
    code = "database_unreachable"


class ReportTooSlow(ApiError):
    """The database took too long for a report."""

    # Means: The database took too long for a report, and it was stopped.
    # Retry: no.
    # Caller: Ask for a shorter time, or for fewer filters.
    # Operator: The log has the SQL (`report.too_slow`). Keep fewer attempts (`ledger.keep_attempts_days`).
    status = 503
    type = "service_unavailable"
    code = "report_too_slow"


class CallNotFound(ApiError):
    """No such call."""

    # Means: In `/api`: the ledger has no call with this id, not yet, or not any more.
    # Retry: yes.
    # Caller: Wait two seconds if the call has only just ended.
    # Operator: `ledger.keep_calls_days` says how long calls are kept.
    status = 404
    type = "invalid_request_error"
    code = "call_not_found"
