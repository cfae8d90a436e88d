"""What operators' handlers answer, as structs: handlers encode them, and /openapi.json is made from them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.alerts import PendingAlert
from gateway.core.reports import HeatMetric, Instant, ListedCall, Window
from gateway.core.targets import SQL, TargetStanding
from gateway.limits import LimitStanding
from gateway.steering import Leaderboard, Row

AnyRow = Annotated[dict[str, Any], Meta(description="All columns of its table, as on the page 'The ledger in SQL'.")]
Settings = Annotated[
    dict[str, Any], Meta(description="As in the configuration file, with defaults; secrets are `***`.")
]
Worth = Annotated[
    dict[str, Any],
    Meta(description="`model` or `client`, and the columns of `race_value`, as on the page 'The ledger in SQL'."),
]
Replay = Annotated[
    dict[str, Any],
    Meta(
        description="What other settings would have done, in milliseconds and US dollars per call, by the method of the"
        " page 'Comparing deployments and settings'."
    ),
]
MayLast = Annotated[bool, Meta(description="It has no end yet: `state` is `out` in the view `outages_30d`.")]
Until = Annotated[Instant | None, Meta(description="Null while it lasts, and if its end was not seen.")]


# The root's answer to programs, and health, for balancers and monitoring.


class Welcome(msgspec.Struct, frozen=True):
    """The addresses of the APIs and pages of this gateway."""

    name: str = "Holeshot"
    chat: str = "v1/chat/completions"
    models: str = "v1/models"
    api: str = "openapi.json"
    page: str = "open this address in a browser"


class Alive(msgspec.Struct, frozen=True):
    """The process responds."""

    status: Literal["ok"] = "ok"


class LoginAt(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where `holeshot login` signs people in, and as which client."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    scopes: tuple[str, ...] = ()
    sends: str = ""
    parameters: Mapping[str, str] = {}
    models: Annotated[Sequence[str], Meta(description="That the sender may use; none without a token or a key.")] = ()


class StoreState(msgspec.Struct, frozen=True):
    """The database."""

    connected: Annotated[bool | None, Meta(description="Unknown until it was asked.")]
    answered_s_ago: float | None
    pending: Annotated[int, Meta(description="Rows that wait to be stored.")]
    oldest_pending_s: float | None
    sums_stand_still_s: Annotated[
        float | None, Meta(description="For how long stored rows could not be added up. Null: they are.")
    ]


class ClockState(msgspec.Struct, frozen=True):
    """This process's clock, compared with the database's."""

    ahead_s: Annotated[float | None, Meta(description="Of the database's; negative: behind. Null: unknown, or SQLite.")]
    is_off: Annotated[bool, Meta(description="By more than two seconds.")]


class SpoolState(msgspec.Struct, frozen=True):
    """The files in which rows wait."""

    problem: str | None
    lost: Annotated[int, Meta(description="Rows.")]


class RedisState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Redis."""

    connected: Annotated[bool, Meta(description="Whether all of it answered last time.")]
    topology: Annotated[str, Meta(description="What it consists of, like `redis cluster, 3 masters`.")]
    other_ledger: Annotated[
        bool,
        Meta(description="Gateways with another ledger use it too, with the same `redis_prefix`. Left out if not."),
    ] = False


class HistoryState(msgspec.Struct, frozen=True):
    """Whether the ledger's figures of the last day are loaded, by which the first calls are steered."""

    loaded: Annotated[bool, Meta(description="A start waits for it, at most a second.")]
    attempts: Annotated[int, Meta(description="Attempts before the start that steering knows from it.")]


class WorkersState(msgspec.Struct, frozen=True):
    """The processes of this replica."""

    stopped: list[Annotated[int, Meta(description="Process ids of workers whose event loop stands still.")]]


class Stores(msgspec.Struct, frozen=True, kw_only=True):
    """The state of what the gateway stores in, and of its workers."""

    database: StoreState
    clock: ClockState
    spool: SpoolState
    redis: RedisState | None
    workers: WorkersState | None
    keys: Annotated[dict[str, Any] | None, Meta(description="Of the database; null without `keys: database`.")]
    models: int
    history: HistoryState


class Readiness(Stores, frozen=True, kw_only=True):
    """Whether new calls are accepted, and the state of the stores."""

    status: Annotated[
        Literal["ok", "degraded", "keys_not_loaded", "stopping"],
        Meta(description="`degraded`: a store or the spool cannot be used, sums stand still, or a worker has stopped."),
    ]


# The session: who looks, and at which gateway.


class VisitorRole(StrEnum):
    """The rights of a visitor of the page."""

    PERSON = "person"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class User(msgspec.Struct, frozen=True):
    """The visitor of the page."""

    name: str | None
    role: Annotated[VisitorRole, Meta(description="`person`: who sees their own calls alone.")]


class ReplicaState(msgspec.Struct, frozen=True):
    """The database that reports are read from, if it is another one."""

    connected: bool
    lag_s: float | None


class SessionStores(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the stores, as the page shows it."""

    database: Literal["sqlite", "postgresql"]
    database_ok: bool | None
    clock_off_s: Annotated[
        float | None,
        Meta(description="By how much this replica's clock is off the database's, if that is too much."),
    ]
    replica: Annotated[ReplicaState | None, Meta(description="Of `reports_database_url`, if it is set.")]
    redis: bool


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The visitor, and the facts about the gateway that the page needs first."""

    user: User
    authentication: Annotated[Literal["none", "key"], Meta(description="Whether a key is needed.")]
    version: str
    replica: str
    region: str | None
    stores: SessionStores
    trusted_header: Annotated[bool, Meta(description="Whether a proxy in front has said who it is.")]
    sign_in: Annotated[bool, Meta(description="Whether people can sign in at a provider.")]
    modes: Annotated[dict[str, str], Meta(description="The modes of racing, each with its title.")]
    demo: Annotated[bool, Meta(description="Whether the providers are the simulated ones, as no key was found.")]
    models: list[str]
    deployments: Annotated[
        list[str], Meta(description="Those of one model together, the models with the most first: the page's colours.")
    ]
    clients: list[str]
    payers: Annotated[bool, Meta(description="Whether there are `teams`, or limits of `end_users` or of models.")]
    calls_ever: Annotated[
        bool | None, Meta(description="Whether there has ever been a call; null: the database cannot say.")
    ]


class SignedOut(msgspec.Struct, frozen=True):
    """Where to sign out at the provider, too."""

    leave: str | None


# The leaderboard and the configuration.


class PagePrice(msgspec.Struct, frozen=True):
    """US dollars per million tokens."""

    prompt: float
    completion: float


class PageRow(Row, frozen=True, kw_only=True):
    """One deployment, with its price and its gaps."""

    price: Annotated[PagePrice | None, Meta(description="Null: it is unknown.")]
    itl_p50_ms: Annotated[float | None, Meta(description="Gaps between chunks, of the last 24 hours.")]
    itl_p95_ms: float | None
    silence_p95_ms: Annotated[
        float | None,
        Meta(
            description="The longest silence of a voice within one of its answers, of the last hour: 95 % are shorter."
        ),
    ]


class PageBoard(Leaderboard, frozen=True):
    """One model."""

    deployments: tuple[PageRow, ...]


class PageBoards(msgspec.Struct, frozen=True):
    """The leaderboards of the page."""

    models: list[PageBoard]


class Configuration(msgspec.Struct, frozen=True):
    """The settings in force, and the facts known of each model's deployments."""

    settings: Settings
    models: list[Settings]
    providers: list[Settings]


# Calls.


class Calls(msgspec.Struct, frozen=True):
    """A page of calls."""

    data: list[ListedCall]
    next: Annotated[
        str | None, Meta(description="What to ask with as `after` for the next page; null on the last one.")
    ]
    sql: SQL


# Alerts.


class DayOutage(msgspec.Struct, frozen=True, kw_only=True):
    """An outage of the last day, however many processes saw it."""

    deployment: str
    since: Instant = msgspec.field(name="from")
    until: Until = msgspec.field(name="to")
    may_last: MayLast
    reason: str | None
    replicas: list[Annotated[str, Meta(description="One that saw it.")]]


class Alerts(msgspec.Struct, frozen=True, kw_only=True):
    """The alerts that are open, and those that are resolved.

    `open` and `building` are what this process knows, also while the database is away; then the rest is null.
    """

    enabled: Annotated[bool, Meta(description="False: `alerts.enabled` is off.")]
    webhooks: list[Annotated[str, Meta(description="A name in `alerts.webhooks`.")]]
    open: list[AnyRow]
    building: Annotated[list[PendingAlert], Meta(description="What opens an alert if it goes on.")]
    data: list[AnyRow] | None
    sql: SQL | None
    outages: Annotated[list[DayOutage] | None, Meta(description="Of the last day, however short; the newest first.")]
    outages_sql: SQL | None


# History.


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """A time at which a deployment was not asked."""

    deployment: str
    since: Instant = msgspec.field(name="from")
    until: Until = msgspec.field(name="to")
    may_last: MayLast
    reason: str | None
    replica: str | None


_Series = Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/HistorySeries"})]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """How fast and reliable deployments were, over time."""

    window: Window | None
    since: Instant = msgspec.field(name="from")
    until: Instant = msgspec.field(name="to")
    step_s: int
    series: list[_Series]  # encoded already: a month of all deployments is large
    outages: list[Outage]
    sql: SQL
    outages_sql: SQL


class HeatCell(msgspec.Struct, frozen=True):
    """One hour of the week."""

    weekday: Annotated[int, Meta(description="0 is Monday.")]
    hour: Annotated[int, Meta(description="UTC.")]
    value: float | None
    n: Annotated[int, Meta(description="Attempts.")]


class HeatRow(msgspec.Struct, frozen=True):
    """One deployment of one model."""

    deployment: str
    model: str
    cells: list[HeatCell]


class Heat(msgspec.Struct, frozen=True):
    """One figure by weekday and hour."""

    metric: HeatMetric
    rows: list[HeatRow]
    sql: SQL


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
    """A time at which a deployment was slower than usual, or failed more often."""

    id: str
    deployment: str
    model: str
    metric: Annotated[Literal["ttft", "tps", "itl", "errors"], Meta(description="What got worse.")]
    began_at: Instant
    noticed_at: Instant
    ended_at: Annotated[Instant | None, Meta(description="Null while it lasts.")]
    ending: Annotated[Literal["as_usual", "new_usual", "no_calls"] | None, Meta(description="Why it is over.")]
    ratio: Annotated[float, Meta(description="How many times as slow, or as many errors, as expected.")]
    low: Annotated[float, Meta(description="The lower end of its interval of 95 %.")]
    high: Annotated[float, Meta(description="The upper end.")]
    n: Annotated[int, Meta(description="First tokens, answers or attempts it was noticed by.")]
    evidence_sql: SQL


class Slowdowns(msgspec.Struct, frozen=True):
    """Slowdowns, the newest first."""

    data: list[Slowdown]
    sql: SQL


# What racing is worth, and what other settings would be.


class RaceValue(msgspec.Struct, frozen=True):
    """What racing saved, and what it cost."""

    data: list[Worth]
    sql: SQL


class Replays(msgspec.Struct, frozen=True):
    """The effect of other settings on a model's calls, as a child process computes it."""

    models: list[Annotated[str, Meta(description="With calls, the busiest first.")]]
    data: list[Replay]
    note: Annotated[str | None, Meta(description="Why there is no data.")]


class Targets(msgspec.Struct, frozen=True):
    """The state of each target."""

    targets: list[TargetStanding]


# Refusals and usage.


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that were refused for one reason."""

    client: str | None
    status_code: int
    reason: str
    n: int
    n_addresses: int
    first_seen_at: Instant
    last_seen_at: Instant
    model: Annotated[
        str | None, Meta(description="The one that was asked for, where its name is the reason; `other`: more names.")
    ]


class WrongKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Unknown keys from one address."""

    address: str | None
    n: int
    n_minutes: int
    peak_per_minute: int
    first_seen_at: Instant
    last_seen_at: Instant


class Refused(msgspec.Struct, frozen=True):
    """Refused requests, and addresses that send unknown keys."""

    data: list[Refusal]
    wrong_keys: list[WrongKeys]
    sql: SQL
    wrong_keys_sql: SQL


class RegionServed(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of a model that replicas of one region served."""

    model: str
    region: str | None
    n: int
    n_failed: int
    n_ttft: int
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    ttft_p99_ms: float | None
    total_mean_ms: float | None
    extra_per_call: float | None
    cost_usd: float | None


class Regions(msgspec.Struct, frozen=True):
    """Regions compared."""

    window: Literal["1h", "24h"]
    data: list[RegionServed]
    sql: SQL


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has used."""

    client: str | None
    calls: int = 0
    failed: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    duplicate_cost_usd: float | None = None
    limits: list[LimitStanding]


class TeamLimits(msgspec.Struct, frozen=True):
    """A team of the configuration."""

    team: str
    limits: list[LimitStanding]


class ModelLimits(msgspec.Struct, frozen=True):
    """A model with limits of its own, of all who call it."""

    model: str
    limits: list[LimitStanding]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What each client has used, and its limits."""

    data: list[Used]
    teams: Annotated[
        list[TeamLimits],
        Meta(description="Of the configuration; what they used is in `GET /api/teams`."),
    ]
    models: Annotated[list[ModelLimits], Meta(description="Those that have limits of their own.")]
    sums_trail_s: float | None
    replica_lag_s: Annotated[
        float | None,
        Meta(description="How far behind the replica of `reports_database_url` is; null without one."),
    ]
    sql: SQL


class OwnUsed(msgspec.Struct, frozen=True, kw_only=True):
    """What a person has used, and how fast it was."""

    model: Annotated[str | None, Meta(description="Null: all of them.")]
    calls: int
    failed: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    decode_p50_tps: float | None
    decode_p05_tps: Annotated[float | None, Meta(description="What 95 % of the answers reach.")]


class OwnUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A person's usage in a window, in all and by model, and the limits that are theirs alone."""

    client: str
    team: str | None
    end_user: Annotated[str, Meta(description="The keyed hash, as in the tag `end_user`.")]
    data: Annotated[list[OwnUsed], Meta(description="All first, then each model; empty without calls.")]
    limits: list[LimitStanding]
    sql: SQL


class EndUserUsed(msgspec.Struct, frozen=True, kw_only=True):
    """What an end user has used."""

    end_user: Annotated[str, Meta(description="The keyed hash, as in the tag `end_user`.")]
    name: Annotated[str | None, Meta(description="Of one in `named`; of others only the hash is known.")]
    client: Annotated[str | None, Meta(description="Whose key it used; null in a team.")]
    calls: int
    failed: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    limits: list[LimitStanding]


class TeamUsed(msgspec.Struct, frozen=True, kw_only=True):
    """What a team and its end users have used."""

    team: Annotated[str | None, Meta(description="Null: keys without a team, in calls that named an end user.")]
    configured: Annotated[bool, Meta(description="False: it is in the ledger only.")]
    calls: int = 0
    failed: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    limits: list[LimitStanding]
    end_users: Annotated[int, Meta(description="How many called.")] = 0
    dearest: Annotated[list[EndUserUsed], Meta(description="The ten end users that cost most.")]


class Teams(msgspec.Struct, frozen=True, kw_only=True):
    """What each team and its end users have used, and models of their own limits."""

    data: list[TeamUsed]
    models: Annotated[list[ModelLimits], Meta(description="Those that have limits of their own.")]
    sql: Annotated[SQL | None, Meta(description="Null where there are neither teams nor limits of end users.")]
