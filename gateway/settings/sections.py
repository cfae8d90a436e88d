"""The sections of the file that need no other section, and their base class."""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from gateway.core.targets import Definition, Target

Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]
MOST_DAYS = 36_525  # a century: what is to stay for longer stays for ever, and then no setting is needed
Days = Annotated[float, Field(gt=0, le=MOST_DAYS)]
NOT_JSON = "not JSON"  # marks a list setting whose variable may also be a single item that is not JSON


class Section(BaseModel):
    """A part of the file. Unknown keys are errors; values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    _numbers: ClassVar[frozenset[str]] = frozenset()  # the fields that are numbers, or have some
    _known: ClassVar[frozenset[str]] = frozenset()  # every field, by its name in the file

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        cls._numbers = frozenset(name for name, field in cls.model_fields.items() if _is_number(field.annotation))
        cls._known = frozenset(field.alias or name for name, field in cls.model_fields.items())

    @model_validator(mode="before")
    @classmethod
    def _take_empty_as_unsaid(cls, value: object) -> object:
        return cls.set_in(value)

    @classmethod
    def set_in(cls, value: object) -> object:
        """Remove known keys without a value, like ``race:`` with every line commented out; unknown ones are errors."""
        if not isinstance(value, dict):
            return value
        return {key: entry for key, entry in value.items() if entry is not None or key not in cls._known}

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_switch(cls, value: object, info: ValidationInfo) -> object:
        """Refuse true and false for a number: ``canary: true`` would be every call, ``max_in_flight: yes`` one."""
        given = value.values() if isinstance(value, dict) else (value,)
        if info.field_name in cls._numbers and any(isinstance(each, bool) for each in given):
            raise ValueError("must be a number, not true or false")
        return value


def _is_number(annotation: Any) -> bool:
    kinds = set(_kinds(annotation))
    return not kinds.isdisjoint({int, float}) and bool not in kinds


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the types of a field: of ``Annotated[float, ...] | None``, float and None's; of a mapping, its values'."""
    if get_origin(annotation) is dict:
        annotation = get_args(annotation)[1]
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in {Union, UnionType}:
        for part in get_args(annotation):
            yield from _kinds(part)
    else:
        yield annotation


# The rights of a client besides its own calls.


class ClientRole(StrEnum):
    """The role of a client; each may read at least as much as the one before it."""

    CLIENT = "client"  # makes calls
    VIEWER = "viewer"  # reads the page, /metrics, /leaderboard and the list of keys; makes no calls and changes nothing
    OPERATOR = "operator"  # reads the same as a viewer, and makes calls; changes nothing
    ADMIN = "admin"  # makes calls, reads the same, and changes keys


# The settings of alerts: the conditions of an alert, and the webhooks.

PREFIX = "whsec_"
LEAST_BYTES, MOST_BYTES = 24, 64  # of a secret, by the Standard Webhooks specification
_MAKE_ONE = "make one with: echo whsec_$(openssl rand -base64 32)"


class Format(StrEnum):
    """The format of messages."""

    JSON = "json"
    SLACK = "slack"  # also for Mattermost, Rocket.Chat and others that accept Slack's incoming webhooks


def _address(value: SecretStr) -> SecretStr:
    """Return ``value`` if it is the URL of an HTTP server.

    Raises:
        ValueError: it is not.

    """
    try:
        parts = urlsplit(value.get_secret_value())
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("must be a URL that begins with https:// or http://")
    return value


class WebhookSettings(Section):
    """Where messages are sent. Both the address and the secret are kept secret: a chat's address is a key."""

    url: SecretStr
    secret: SecretStr | None = None  # signs each message; needed unless the format is slack, which verifies nothing
    format: Format = Format.JSON
    tickets: bool = True  # false: only alerts that need a person now

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: SecretStr) -> SecretStr:
        return _address(value)

    @field_validator("secret")
    @classmethod
    def _is_a_good_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not LEAST_BYTES <= len(key_of(value)) <= MOST_BYTES:
            raise ValueError(f"must be {LEAST_BYTES} to {MOST_BYTES} bytes in base64, after {PREFIX}: {_MAKE_ONE}")
        return value

    @model_validator(mode="after")
    def _is_signed(self) -> Self:
        if self.secret is None and self.format is Format.JSON:
            raise ValueError(f"needs a secret, so that the receiver knows who sends: {_MAKE_ONE}")
        return self


class AlertSettings(Section):
    """When there is an alert. Each is a line in the log and a row in `alerts`, and goes to every webhook."""

    enabled: bool = True
    model_out_s: Annotated[float, Field(ge=0)] = 30.0  # no deployment of a model can answer for so long
    deployment_out_s: Annotated[float, Field(ge=0)] = 300.0  # one deployment is out for so long
    ledger_behind_s: Seconds = 300.0  # a row waits for the database for so long
    spending_share: Share = 0.8  # a client has spent this share of its usd_per_day or usd_per_month
    usd_per_day: Annotated[float, Field(gt=0)] | None = None  # all clients together, in a UTC day
    usd_per_month: Annotated[float, Field(gt=0)] | None = None
    # Bad calls within the long window, so that the few calls of a night raise no alert.
    burn_least_bad: Annotated[int, Field(ge=1)] = 10
    resolve_after_s: Seconds = 300.0  # an alert ends when its condition was not seen for so long
    webhooks: dict[str, WebhookSettings] = {}


def key_of(secret: SecretStr) -> bytes:
    """Return the bytes of the key that signs messages; empty if it is not base64."""
    try:
        return base64.b64decode(secret.get_secret_value().removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return b""


# The settings of ClickHouse, a second store of the ledger.


class ClickHouseSettings(Section):
    """A ClickHouse to which finished calls and attempts go as well. Nothing of the gateway's own reads it."""

    url: SecretStr  # http[s]://user:password@host:8123/database
    # Rows of both tables; default: for ever. ClickHouse's clock for this ends in 2106, and later rows go at once.
    keep_days: Annotated[float, Field(gt=0, le=10_000)] | None = None
    # Rows that wait on this machine's disk while it is away; beyond that, the oldest are not sent.
    max_spool_gb: Annotated[float, Field(gt=0)] = 4.0

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, value: SecretStr) -> SecretStr:
        return _address(value)


# The settings of overload: how many calls a process accepts at once, and how long others may wait.


class OverloadSettings(Section):
    """What a process takes on; each worker counts for itself. A call without room waits a moment, or gets a 503."""

    max_in_flight: Annotated[int, Field(ge=1)] | None = None  # calls; default: by memory and descriptors
    # A turn of the event loop runs once all that is ready, and a first token waits for some turns. While turns take
    # longer than this, fewer calls are let in. Very short turns cost more CPU, as each turn reads every answer: from a
    # quarter of this on, tokens are sent in batches, at most 50 ms apart. 0: neither.
    loop_delay_ms: Annotated[float, Field(ge=0)] = 20.0
    # Calls that may wait for room in a burst, by their client's priority. Under lasting overload only a few may wait,
    # and only briefly: see gateway/overload/call_queue.py.
    queue: Annotated[int, Field(ge=0)] = 2000
    queue_timeout_s: Annotated[float, Field(ge=0, le=60)] = 2.0  # how long they may wait; 0: not at all


# The settings of probes: the gateway's own small calls to deployments that get no calls.


class ResponsesMemorySettings(Section):
    """What is kept of recent responses and interactions that no provider stores: later requests can name them.

    Each process keeps them in memory, for the client that got them. ``off``, or ``max_mb: 0``: nothing is kept.
    """

    max_mb: Annotated[float, Field(ge=0)] = (
        64.0  # in each process; when full, the client with most loses what it has not used for longest
    )
    ttl_s: Seconds = 3600.0  # after its last use
    redis: bool = True  # whether other replicas find them in Redis, encrypted under a key made of the answer's id

    @model_validator(mode="before")
    @classmethod
    def _accept_off(cls, value: object) -> object:
        return {"max_mb": 0} if value is False or value == "off" else value


class ProbeSettings(Section):
    """Which deployments are probed, and what that may cost, of all replicas together."""

    enabled: bool = False  # of all models; a model may say otherwise
    quiet_s: Annotated[float, Field(ge=1, le=604_800)] = 900.0  # without an attempt for so long, it is probed
    usd_per_day: Annotated[float, Field(ge=0)] = 0.10  # the most that they cost in a UTC day
    max_per_day: Annotated[int, Field(ge=0)] = 500  # the most in a UTC day
    prompt: Annotated[str, Field(min_length=1, max_length=500)] = "Count from one to twenty, in words."
    max_tokens: Annotated[int, Field(ge=1, le=256)] = 16  # of an answer: enough for a first token and a speed
    # The assumed cost of a probe without a known price; default: such deployments are not probed.
    usd_if_unknown: Annotated[float, Field(ge=0)] | None = None


# The settings of references that run programs.


class SecretSettings(Section):
    """How values are read that the file does not hold itself. Files named by ``file:`` are read when they change."""

    exec: bool = False  # whether ${exec:command} may run programs, as the gateway's user
    exec_every_s: Annotated[float, Field(ge=1, le=86_400)] = 300.0  # the interval at which they run again
    exec_timeout_s: Annotated[float, Field(gt=0, le=60)] = 10.0  # then they are killed


# The settings of OpenTelemetry traces.

Ratio = Annotated[float, Field(ge=0, le=1)]


class TracingSettings(Section):
    """Spans of calls and attempts, exported over OTLP/HTTP. What is not set is taken from OTEL_* variables."""

    enabled: bool = False
    endpoint: Annotated[str, Field(pattern="^https?://[^/]")] | None = None  # of the collector, without /v1/traces
    headers: dict[str, SecretStr] = {}  # sent with every export: the collector's key
    timeout_s: Seconds | None = None  # of one export, with its retries
    sample_ratio: Ratio = 1.0  # of traces that begin here; in a client's trace its own flag decides
    propagate: bool = True  # whether traceparent and tracestate are sent to providers
    service_name: str | None = None
    resource_attributes: dict[str, str] = {}


# The prices of models beside those of the release.


class PriceTableSettings(Section):
    """A file of prices in litellm's format, whose rows win over those of the release."""

    file: str | None = None  # read at the start and at each reload; `holeshot models --prices` writes it
    # Where that verb, and nothing else, looks for a newer table.
    url: Annotated[str, Field(pattern="^https?://[^/]")] = (
        "https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json"
    )


# The limits of a client: of requests, tokens, parallel calls and dollars.


_MOST = 1_000_000_000_000  # more than any client reaches, and within the range of every store
_Number = Annotated[int, Field(ge=1, le=_MOST)]
_Dollars = Annotated[float, Field(ge=0, le=_MOST)]


def _check_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(_NO_ZONE) from None
    if name.partition("/")[0] in _OF_MACHINES:
        raise ValueError(_NO_ZONE)
    return name


_OF_MACHINES = ("localtime", "posixrules", "posix", "right")  # a machine's own, and with leap seconds: replicas differ
_NO_ZONE = "must be a time zone of the IANA database, like Europe/Berlin, or UTC"
ZoneName = Annotated[str, AfterValidator(_check_zone)]

# What happens to a call of which a part has no known price, if a limit in dollars counts it.
Unpriced = Literal["refuse", "count_known"]


class UseLimits(Section):
    """What may be used in an hour or longer, over all replicas. None: no limit. The page 'Limits' has the rules."""

    usd_per_hour: _Dollars | None = None  # in an hour of the zone, at list price, losers included
    usd_per_day: _Dollars | None = None  # in a day of ``limits_zone``, at list price, losers included
    usd_per_week: _Dollars | None = None  # in a week there, from Monday on
    usd_per_month: _Dollars | None = None
    usd_total: _Dollars | None = None  # ever
    tokens_per_hour: _Number | None = None  # prompts and answers, without losers
    tokens_per_day: _Number | None = None
    tokens_per_week: _Number | None = None
    tokens_per_month: _Number | None = None
    tokens_total: _Number | None = None

    @property
    def by_name(self) -> dict[str, float]:
        """The limits that are set."""
        limits = {name: getattr(self, name) for name in (*_OF_CALLS, *UseLimits.model_fields) if hasattr(self, name)}
        return {name: float(limit) for name, limit in limits.items() if limit is not None}

    @property
    def in_dollars(self) -> list[str]:
        """The limits in US dollars, by name."""
        return [name for name in self.by_name if name.startswith("usd_")]


_OF_CALLS = ("rpm", "tpm", "max_parallel")


class LimitSettings(UseLimits):
    """What a client may use, over all its keys and all replicas. None: no limit. The page 'Limits' has the rules."""

    rpm: _Number | None = None  # requests in a minute of the clock
    tpm: _Number | None = None  # tokens in a minute: prompts and answers, without losers
    max_parallel: _Number | None = None  # calls at the same time


class EndUserSettings(LimitSettings):
    """What each end user may use, over all keys of a team, or of a key without one. Who it is, requests say."""

    header: Annotated[str, Field(pattern="^[A-Za-z0-9-]+$")] | None = None  # names the end user if the body does not
    named: dict[str, LimitSettings] = {}  # other limits for single end users, by the name in requests


class TeamSettings(LimitSettings):
    """What all keys of a team may use together. None: no limit."""

    end_users: EndUserSettings | None = None  # of the team; None: as ``end_users`` says


# The keys of providers that clients bring for their own calls.

LONGEST_KEY = 512  # characters; vendors' have at most 200


class TenantKeySettings(Section):
    """Keys of providers that clients bring for their own calls. A client's settings may have some as well."""

    header: bool = False  # whether requests may have some, in x-holeshot-provider-keys
    mixed: bool = False  # whether such calls may also use the other providers, with the operator's keys


# The section of takeovers: whether another deployment finishes an answer that breaks.


class When(StrEnum):
    """The calls whose broken answer is finished by another deployment."""

    NEVER = "never"
    ASKED = "asked"  # those that request it
    ALWAYS = "always"  # all but those that decline it


class SlowSettings(Section):
    """Which streams count as nearly stopped, and how many may be rescued; in the file true is all defaults."""

    below_tps: Annotated[float, Field(gt=0, le=20)] = 3.0  # tokens per second; a faster stream is never rescued
    budget: Annotated[float, Field(gt=0, le=1)] = 0.02  # rescues per streamed answer that could be rescued


class TakeoverSettings(Section):
    """Whether an answer that breaks is finished by another deployment; in the file true is ``when: always``."""

    when: When = When.NEVER
    within_s: Annotated[float, Field(gt=0, le=120)] = 10.0  # how long the client waits for more before it gets an error
    slow: SlowSettings | None = None  # whether an answer that nearly stops is rescued, too

    @model_validator(mode="before")
    @classmethod
    def _accept_a_plain_value(cls, value: object) -> object:
        if isinstance(value, bool):
            return {"when": When.ALWAYS if value else When.NEVER}
        return {"when": value} if isinstance(value, str) else value

    @field_validator("slow", mode="before", json_schema_input_type=bool | SlowSettings | None)
    @classmethod
    def _accept_a_switch(cls, value: object) -> object:
        if isinstance(value, bool):
            return {} if value else None
        return value

    @model_validator(mode="after")
    def _is_allowed(self) -> Self:
        if self.slow is not None and self.when is When.NEVER:
            raise ValueError("slow: needs takeover: set `when: asked` or `when: always`, or remove slow")
        return self


# Fallbacks: the models that answer if another one cannot.


class Cause(StrEnum):
    """Why a fallback is tried."""

    FAILED = "failed"  # every deployment failed, or is cooling down
    CONTEXT = "context"  # the prompt is too long for the model
    CONTENT_FILTER = "content_filter"  # the model's providers refuse the content


# When a fallback is asked beside a model whose first token is late: by what the model usually takes, after so many
# seconds, or only after a failure.
DEAR_FALLBACK = 10.0  # times the price of the model: with ``auto`` it waits twice as long


def _known_after(value: object) -> object:
    is_seconds = isinstance(value, int | float) and not isinstance(value, bool) and value >= FALLBACK_LEAST_S
    if value not in {"auto", "failure"} and not is_seconds:
        raise ValueError(f"must be auto, failure, or at least {FALLBACK_LEAST_S:g} seconds, not {value!r}")
    return value


FALLBACK_LEAST_S = 0.05
FallbackAfter = Annotated[
    Literal["auto", "failure"] | Annotated[float, Field(ge=FALLBACK_LEAST_S)], BeforeValidator(_known_after)
]


class FallbackSettings(Section):
    """A model that is tried when another could not answer; in the file only its name if it is for every cause."""

    model: str
    causes: tuple[Cause, ...] = tuple(Cause)
    fallback_after: FallbackAfter | None = None  # None: as the model says


# Workload profiles: named presets of race settings and timeouts for the usual kinds of work. A profile is selected
# per model, per client or per request; explicit settings take precedence.


class Profile(StrEnum):
    """The kind of a workload."""

    CHAT = "chat"  # a person reads the stream
    VOICE = "voice"  # a person listens: the first token counts most, and speech must not pause
    AGENT = "agent"  # a program waits for whole answers
    BATCH = "batch"  # no person waits: the cheapest


# Reading needs about 30 tok/s, speech 100 with the lowest TTFT.
PROFILES: Mapping[Profile, Mapping[str, object]] = MappingProxyType(
    {
        Profile.CHAT: {"objective": "reading", "min_tok_s": 30.0},
        Profile.VOICE: {
            "objective": "reading",
            "reading_tok_s": 100.0,
            "min_tok_s": 100.0,
            "mode": "race",
            "width": 2,
            "win_on": "sentence",
            "keep_connected": True,
        },
        Profile.AGENT: {"objective": "completion"},
        Profile.BATCH: {"objective": "cost", "budget": 0.0, "ttft_ms": 30_000.0},
    }
)

# A listener hangs up after ten silent seconds; for a batch a cut answer is worse than a slow one.
PROFILE_TIMEOUTS: Mapping[Profile, Mapping[str, float]] = MappingProxyType(
    {
        Profile.VOICE: {"ttft_timeout_s": 10.0, "stall_timeout_s": 10.0},
        Profile.BATCH: {"ttft_timeout_s": 600.0, "stall_timeout_s": 600.0},
    }
)


# A listener does not wait ten seconds for a continuation; of a hundred streams some two crawl.
PROFILE_TAKEOVERS: Mapping[Profile, TakeoverSettings] = MappingProxyType(
    {Profile.VOICE: TakeoverSettings(when=When.ALWAYS, within_s=4.0, slow=SlowSettings(budget=0.05))}
)


# The time limits of a call: of providers, and of the client.


class Timeouts(Section):
    """The four timeouts of an attempt; each has its own error kind. Not set: as model, provider or file say."""

    connect_timeout_s: Seconds | None = None
    ttft_timeout_s: Seconds | None = None  # from the launch, DNS included, to the first meaningful delta
    stall_timeout_s: Seconds | None = None  # between events; comments and pings do not count
    total_timeout_s: Seconds | None = None  # off by default: it cuts long answers


def profile_timeouts(profile: Profile | None) -> Timeouts:
    """Return the timeouts of a profile."""
    return Timeouts.model_validate(PROFILE_TIMEOUTS.get(profile, {}) if profile is not None else {})


def profile_takeover(profile: Profile | None, own: TakeoverSettings) -> TakeoverSettings:
    """Return the takeover of calls under a profile: of what is not set, the profile's."""
    brought = None if profile is None else PROFILE_TAKEOVERS.get(profile)
    if brought is None or (own.when is not brought.when and "when" in own.model_fields_set):
        return own
    return brought.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})


class DefaultTimeouts(Timeouts):
    """The default timeouts; setting one of them leaves the others unchanged."""

    connect_timeout_s: Seconds | None = 5
    ttft_timeout_s: Seconds | None = 120  # reasoning models may need it; the next candidate starts much earlier
    stall_timeout_s: Seconds | None = 120


class ClientTimeouts(Section):
    """The timeouts for the client's side of a call: a slower client is disconnected, so that it holds no memory."""

    # Time for a body, plus one second for every body_kib_per_s received: 64 MiB over a bad mobile network take long,
    # but never as long as from a client that sends one byte a second on purpose.
    body_timeout_s: Seconds = 30.0
    body_kib_per_s: Annotated[float, Field(gt=0)] = 16.0
    # A client that reads nothing of its answer for this long is cut, and so is its upstream request. As long as
    # nginx's; a phone without network for a minute has lost its connection.
    write_timeout_s: Seconds = 60.0


# Targets: the share of calls that is to be good, and the conditions of a good call.

SOONEST_TTFT_MS = 10.0  # the first bucket of the leaderboard: no provider answers earlier
FASTEST_TOK_S = 5000.0  # a faster answer counts as one burst, whose speed is not measured
_PRESETS: Mapping[str, str] = MappingProxyType({"tok_s": "min_tok_s", "ttft_ms": "ttft_ms"})


class TargetSettings(Section):
    """One target. Its calls are those of ``model``, ``client`` and ``profile``, as far as these are set."""

    model: str | None = None  # as clients name it, whichever deployment answers
    client: str | None = None
    profile: Profile | None = None  # calls that are raced under it
    preset: Profile | None = None  # the profile whose speeds are required; default: ``profile``
    # The share of calls that are to be good. The rest is the error budget.
    objective: Annotated[float, Field(json_schema_extra={"exclusiveMinimum": 0, "exclusiveMaximum": 1})] = 0.99
    days: Annotated[int, Field(ge=1, le=90)] = 28  # the length of the window
    # The conditions of a good call, besides being answered. A preset sets them, unless they are set here.
    ttft_ms: float | None = None  # the first token comes sooner
    tok_s: float | None = None  # at least, after the first token
    gap_ms: Annotated[float, Field(gt=0)] | None = None  # the longest between two chunks

    @model_validator(mode="before")
    @classmethod
    def _start_from_the_preset(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        preset = value.get("preset") or value.get("profile")
        if not isinstance(preset, str) or preset not in PROFILES:
            return value
        wanted = PROFILES[Profile(preset)]
        known = {name: wanted[setting] for name, setting in _PRESETS.items() if setting in wanted}
        return known | {key: entry for key, entry in value.items() if entry is not None or key not in cls._known}

    @field_validator("objective")
    @classmethod
    def _leave_a_budget(cls, value: float) -> float:
        if value == 1:
            raise ValueError("1 leaves no error budget, so it is missed by the first bad call: write 0.999, or less")
        if 1 < value < 100:  # noqa: PLR2004 - per cent
            raise ValueError(f"is a share, not per cent: write {value / 100:g}")
        if not 0 < value < 1:
            raise ValueError("must be a share between 0 and 1, like 0.99")
        return value

    @field_validator("ttft_ms")
    @classmethod
    def _be_possible(cls, value: float | None) -> float | None:
        if value is not None and value < SOONEST_TTFT_MS:
            raise ValueError(f"{value:g} cannot be met: no first token is measured below {SOONEST_TTFT_MS:g} ms")
        return value

    @field_validator("tok_s")
    @classmethod
    def _be_a_speed(cls, value: float | None) -> float | None:
        if value is not None and value <= 0:
            raise ValueError("must be more than 0")
        if value is not None and value > FASTEST_TOK_S:
            raise ValueError(f"{value:g} cannot be met: above {FASTEST_TOK_S:g} tok/s an answer counts as a burst")
        return value

    def named(self, name: str) -> Target:
        """Return the settings as the target ``name``."""
        profile = None if self.profile is None else str(self.profile)
        definition = Definition(self.model, self.client, profile, self.ttft_ms, self.tok_s, self.gap_ms)
        return Target(name, definition, self.objective, self.days)


def targets_of(slo: Mapping[str, TargetSettings]) -> Sequence[Target]:
    """Return the targets of the settings, in the order of the file."""
    return [each.named(name) for name, each in slo.items()]
