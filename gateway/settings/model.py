"""The configuration as types: what the file may contain, the defaults, and the reasons for them."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

import msgspec
from pydantic import (
    BeforeValidator,
    Field,
    IPvAnyNetwork,
    ModelWrapValidatorHandler,
    SecretStr,
    field_validator,
    model_validator,
)

from gateway.core.attempts import Invalid, WinOn
from gateway.core.calls import Mode, Objective
from gateway.settings.deployment import DataPolicy, DeploymentSettings, ProviderSettings
from gateway.settings.sections import (
    MOST_DAYS,
    NOT_JSON,
    PROFILES,
    AlertSettings,
    ClickHouseSettings,
    ClientRole,
    ClientTimeouts,
    Days,
    DefaultTimeouts,
    EndUserSettings,
    FallbackAfter,
    FallbackSettings,
    LimitSettings,
    OverloadSettings,
    PriceTableSettings,
    ProbeSettings,
    Profile,
    ResponsesMemorySettings,
    Seconds,
    SecretSettings,
    Section,
    TakeoverSettings,
    TargetSettings,
    TeamSettings,
    TenantKeySettings,
    Timeouts,
    TracingSettings,
    Unpriced,
    UseLimits,
    ZoneName,
)
from providers import most_of_call

# Instants in the file: a date or an ISO 8601 instant, in UTC unless it says otherwise.

_WORDS = "must be a date or an instant, like 2027-01-31 or 2027-01-31T18:00:00Z"
_Written = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?$")]


def as_instant(value: object) -> object:
    """Return ``value`` as an instant in UTC. A date means its midnight; an instant without a time zone is in UTC.

    Raises:
        ValueError: it is neither a date nor an instant.

    """
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(_WORDS) from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        raise ValueError(_WORDS)  # noqa: TRY004 - pydantic makes a sentence of a ValueError
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:  # the last hours of the year 9999
        raise ValueError(_WORDS) from None


Instant = Annotated[datetime, BeforeValidator(as_instant, json_schema_input_type=_Written)]


# The settings of issuers of tokens, and of the provider where people sign in.

# All are asymmetric: with a symmetric one, whoever can verify a token can also forge one. ``none`` is not allowed.
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]


class LoginSettings(Section):
    """Signing in at an issuer with `holeshot login`, by its device flow, as this client, which is a public one."""

    client_id: str
    client_secret: str | None = None  # for issuers where even public clients have one (Google): every laptop gets it
    scopes: tuple[str, ...] = ("openid", "offline_access")
    sends: Literal["access", "id"] = "access"  # which token; id: where access tokens are no JWTs (Google)
    parameters: dict[str, str] = {}  # further parameters of the device flow: Auth0 wants `audience`


EndUserClaim = Literal["sub", "oid", "email"]  # email: only where ``email_verified`` is true


class IssuerSettings(Section):
    """An issuer of JWTs that count as keys. A token names a client, or is one of a company's people.

    What they may do is in ``clients`` alone.
    """

    issuer: str  # the token's `iss`, to the letter
    audience: Annotated[tuple[str, ...], Field(min_length=1), NOT_JSON]  # one of these must be in the token's `aud`
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = ("RS256",)
    jwks_url: str | None = None  # its public keys; None: where its discovery document says
    typ: Literal["at+jwt", "JWT"] = "at+jwt"  # in the header; JWT: also none, but no token marked as an ID token
    claim: str = "client_id"  # the claim that names the client
    clients: dict[str, str] = {}  # by the claim's value; empty: the value is the name of a client of role client
    client: str | None = None  # instead of both: all valid tokens of this issuer are of this client
    end_user: EndUserClaim | None = None  # the claim that names the end user, whose limits then bind; with ``client``
    teams: dict[str, dict[str, str]] = {}  # by claim and value: the team; the first that a token has counts
    team: str | None = None  # of tokens with none of these values; None: refused, if ``teams`` is set
    requires: dict[str, bool | int | str] = {}  # other claims, and their required values
    company_only: bool = False  # everybody with an account there belongs to the company; with ``client``
    deny: tuple[str, ...] = ()  # each a `sub` or `jti`: its tokens are refused, and its calls cut
    leeway_s: Annotated[float, Field(ge=0, le=300)] = 30.0  # by how much the issuer's clock may differ
    login: LoginSettings | None = None  # people sign in on their laptops with `holeshot login`

    @field_validator(
        "audience", mode="before", json_schema_input_type=str | Annotated[tuple[str, ...], Field(min_length=1)]
    )
    @classmethod
    def _accept_one(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


# The settings of the page, on which operators watch the gateway.


class TrustedHeader(Section):
    """A header in which a proxy names the person who has signed in there. It must replace what browsers send."""

    name: Annotated[str, Field(pattern="^[A-Za-z0-9-]+$")]
    from_: Annotated[tuple[IPvAnyNetwork, ...], Field(alias="from", min_length=1)]  # the proxy's own addresses
    role: Literal[ClientRole.VIEWER, ClientRole.OPERATOR, ClientRole.ADMIN] = (
        ClientRole.VIEWER
    )  # of all people who sign in at the proxy


class SignInSettings(Section):
    """Signing in to the page at an OpenID provider, by authorization code with PKCE. Groups decide the role."""

    issuer: str
    client_id: str
    client_secret: SecretStr | None = None  # None: registered as a public client, which PKCE alone protects
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)] = ("RS256",)  # of ID tokens
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    groups: str = "groups"  # the claim with a person's groups: a list of texts, or one text
    viewers: tuple[str, ...] = ()  # groups whose people are viewers
    operators: tuple[str, ...] = ()  # groups whose people are operators, also if they are viewers
    admins: tuple[str, ...] = ()  # groups whose people are admins, whatever other groups they are in


class PageSettings(Section):
    """Who may look at the page, besides those with the key of an admin, an operator or a viewer."""

    public_url: str | None = None  # the gateway's URL for browsers, with its prefix; sign_in needs it
    sign_in: SignInSettings | None = None
    people: tuple[str, ...] = ()  # names in ``issuers`` whose people see their own calls, by a token or ``sign_in``
    trusted_header: TrustedHeader | None = None
    # Signs sessions, with the hash of the visitor's key: so nobody can forge a session from these hashes alone.
    # The same in all replicas. Default: the database's password, with SQLite a random key in a file beside it. Another
    # key derived from this one seals reasoning that goes through clients of other APIs.
    signing_key: SecretStr = SecretStr("")


def signing_secret(settings: "Settings") -> str:
    """Return the secret part of the key that signs sessions; empty without a signing key and a database password."""
    secret = settings.page.signing_key.get_secret_value()
    return secret or urlsplit(settings.database_url.get_secret_value()).password or ""


# What the file may contain before a validator converts it: for the JSON Schema.
_DeploymentName = Annotated[str, Field(pattern="^[^/]+/.+")]
_Origin = Annotated[str, Field(json_schema_extra={"pattern": "^[a-z][a-z0-9+.-]*://[^/*]+$"})]
_DIGEST = "^[0-9a-f]{64}$"
_Digest = Annotated[str, Field(pattern=_DIGEST)]
_HELD_FOR = frozenset({Objective.READING, Objective.COMPLETION})
_TlsVersion = Literal["1.2", "1.3"] | Annotated[float, Field(json_schema_extra={"enum": [1.2, 1.3]})]


class RaceSettings(Section):
    """How calls of a model are raced. A profile changes the defaults of the other settings."""

    profile: Profile | None = None
    objective: Objective = Objective.AUTO
    ttft_ms: Annotated[float, Field(gt=0)] | None = None  # deadline for the first token, since the call was received
    reading_tok_s: Annotated[float, Field(gt=0)] = 30.0  # objective reading: how fast the answer is read or spoken
    min_tok_s: Annotated[float, Field(gt=0)] | None = None  # a slower deployment is a last resort
    mode: Mode = Mode.AUTO
    width: Annotated[int, Field(ge=1, le=8)] = 2  # attempts started at once in mode race
    hedge_delay_s: Annotated[float, Field(ge=0)] | None = None  # mode hedge; by default the policy's quantile
    # Extra attempts per call: 1.0 races the best two, 0.1 is economy. Default: what the width needs, at least 1.0.
    budget: float = Field(default_factory=lambda data: max(1.0, data.get("width", 2) - 1.0), ge=0, le=7)
    # Maximum cost of extra attempts in a UTC day, at list price, over all replicas. US dollars. In mode auto it is
    # spread over the day by adjusting the value of a second, unless ``value_usd_per_s`` is 0.
    usd_per_day: Annotated[float, Field(ge=0)] | None = None
    # Each call saves this many US dollars for extra attempts, at most those of 20 calls. In addition to the budget.
    extra_usd_per_call: Annotated[float, Field(ge=0)] | None = None
    # Mode auto: a further attempt is planned if the expected saving of time is worth more than its expected cost, at so
    # many US dollars per second, within the budget and all other limits. None and 0: the budget alone decides; but with
    # ``usd_per_day``, None means the value at which that lasts all day.
    value_usd_per_s: Annotated[float, Field(ge=0)] | None = None
    # Mode auto, without such a value: a further attempt starts with the call only where it should save so many
    # milliseconds and 1 % of the time to first token; else it is a hedge. 0: always. A request can only raise it.
    worth_ms: Annotated[float, Field(ge=0)] = 5.0
    win_on: WinOn = WinOn.ANY
    hold: bool | None = None  # whether a first token may wait for a faster answer; None: as ``holds`` says
    keep_connected: bool = False  # connections to its deployments are open before a call needs them
    # The second attempt runs on behind the winner, and answers if that breaks: of whole answers to their end, of spoken
    # streams until the voice has enough to say. None: of spoken streams, where the profile is voice.
    keep_rival: bool | None = None
    third_request: bool = True  # profile voice: when all attempts are late, another is asked sooner than a rescue
    whole_sentences: bool = True  # profile voice: text goes out by sentences where no deployment could continue it
    invalid: Invalid = Invalid.ERROR  # win_on valid: what the client gets if no answer is valid
    sentence_words: Annotated[int, Field(ge=1, le=200)] = 12  # win_on sentence: or so many words without an end
    max_prompt_tokens: Annotated[int, Field(ge=0)] = 16_000  # longer prompts are hedged: each attempt costs its prompt
    # The share of calls that are audited: their losers run on to their first token, which shows what racing saves, at
    # the cost of these losers.
    audit_share: Annotated[float, Field(ge=0, le=1)] = 0.05
    cache_affinity: bool = True  # a conversation prefers deployments that have its prompt cached, if about as fast

    @model_validator(mode="wrap")
    @classmethod
    def _start_from_the_profile(cls, value: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Fill unset fields from the profile; ``model_fields_set`` has only those in the file."""
        written = cls.set_in(value)
        profile = written.get("profile") if isinstance(written, dict) else None
        if not isinstance(written, dict) or not isinstance(profile, str) or profile not in PROFILES:
            return handler(value)
        made = handler({**PROFILES[Profile(profile)], **written})
        if "mode" not in written and made.mode is Mode.RACE and 0 < made.budget < made.width - 1:
            made = made.model_copy(update={"mode": Mode.HEDGE})  # in all calls, as late as the budget pays for
        made.model_fields_set.intersection_update(written)
        return made

    def under(self, profile: Profile) -> "RaceSettings":
        """Return these settings with ``profile`` instead of their own.

        The budget is set by the operator: a profile may lower it, never raise it.
        """
        own = {name: getattr(self, name) for name in self.model_fields_set if name not in PROFILES[profile]}
        laid = RaceSettings.model_validate({**own, "profile": profile})
        return laid.model_copy(update={"budget": min(self.budget, laid.budget)})

    @property
    def keeps_speakers(self) -> bool:
        """Whether the second attempt of a spoken stream is kept for a while, where ``takeover`` is on."""
        return self.profile is Profile.VOICE if self.keep_rival is None else self.keep_rival

    def holds(self, *, streamed: bool) -> bool:
        """Whether a first token may be held back for an attempt that should give the answer sooner.

        Without ``hold``, a stream's first token goes out at once, unless the objective was explicitly set to
        ``reading`` or ``completion``: neither ``auto`` nor a profile makes a reader wait. A whole answer is only seen
        at its end.
        """
        if self.hold is not None:
            return self.hold
        return not streamed or (self.objective in _HELD_FOR and "objective" in self.model_fields_set)


class ModelSettings(UseLimits):
    """A public model name and its deployments. A name that ends in a star stands for all names that begin so."""

    deployments: Annotated[tuple[DeploymentSettings, ...], Field(min_length=1)]
    race: RaceSettings = RaceSettings()
    timeouts: Timeouts = Timeouts()
    takeover: TakeoverSettings = TakeoverSettings()
    fallbacks: tuple[FallbackSettings, ...] = ()  # tried in this order
    fallback_after: FallbackAfter = "auto"  # when they are asked beside this model, if its first token is late
    keepalive_s: Seconds | None = None  # signs of life in silence; the first commits the status
    defaults: dict[str, object] = {}  # parameters of requests that do not set them: {temperature: 0.2}
    maximums: dict[str, Annotated[float, Field(ge=0)]] = {}  # maximums of such parameters: {max_tokens: 4000}
    cache_marks: Literal["auto"] | None = None  # auto: deployments that take marks get them, if the client sends none
    probes: bool | None = None  # whether its quiet deployments are probed; None: as ``probes.enabled`` says
    system_prefix: str | None = None  # put before every request's own system prompt

    @field_validator("fallbacks", mode="before", json_schema_input_type=tuple[str | FallbackSettings, ...])
    @classmethod
    def _accept_plain_models(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            return [{"model": item} if isinstance(item, str) else item for item in value]
        return value

    @field_validator(
        "deployments",
        mode="before",
        json_schema_input_type=Annotated[tuple[_DeploymentName | DeploymentSettings, ...], Field(min_length=1)],
    )
    @classmethod
    def _accept_plain_names(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            return [{"deployment": item} if isinstance(item, str) else item for item in value]
        return value


NO_DIGEST = "must be 64 hexadecimal digits, the SHA-256 that `holeshot keys new NAME` prints"


class ClientSettings(LimitSettings):
    """A client, known by the SHA-256 of its key, or of each of its keys."""

    # Several: the old and the new key of a rotation. In a variable a list is JSON, and one digest is itself.
    # None: a client that only tokens name (``issuers``).
    key_sha256: Annotated[tuple[_Digest, ...], Field(min_length=1), NOT_JSON] = ()
    admin: bool = False  # the older word for ``role: admin``
    role: ClientRole = Field(default_factory=lambda data: ClientRole.ADMIN if data.get("admin") else ClientRole.CLIENT)
    expires: Instant | None = None  # its keys are refused from then on; None: never
    adhoc: bool = False  # may name provider/model and comma lists directly
    max_width: Annotated[int, Field(ge=1, le=8)] = 2  # the widest race that its requests may set
    profile: Profile | None = None  # of its calls, instead of the model's
    override: bool = True  # whether its requests may override race settings
    models: tuple[str, ...] | None = None  # None: all
    only: tuple[str, ...] | None = None  # providers that may see its prompts; None: all
    ignore: tuple[str, ...] = ()  # providers that may not see its prompts
    require: DataPolicy = DataPolicy()  # requirements for a deployment that sees its prompts
    limits_zone: ZoneName | None = None  # of its hours, days, weeks and months; None: the ``limits_zone`` of all
    team: str | None = None  # its calls also count against this team's limits
    end_user: Annotated[str, Field(min_length=1, max_length=512)] | None = None  # of its calls, whatever they say
    priority: int = 0  # under overload, calls of a higher one are served first and refused last
    # Its own keys of providers, by the provider's name: its calls use these providers only (``tenant_keys``).
    provider_keys: dict[str, SecretStr] = {}
    # For calls with a part without a known price, if a limit in dollars counts them. None: only speech is refused.
    unpriced: Unpriced | None = None

    @field_validator(
        "key_sha256",
        mode="before",
        json_schema_input_type=_Digest | Annotated[tuple[_Digest, ...], Field(min_length=1)],
    )
    @classmethod
    def _accept_one(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            digests = msgspec.json.decode(value) if value.startswith("[") else (value,)
        except msgspec.DecodeError:
            raise ValueError(NO_DIGEST) from None
        if digests == (value,) and re.fullmatch(_DIGEST, value) is None:
            raise ValueError(NO_DIGEST)  # here, so that the message does not name an item of a list
        return digests

    @model_validator(mode="after")
    def _agree_on_the_role(self) -> Self:
        if {"admin", "role"} <= self.model_fields_set and self.admin is not (self.role is ClientRole.ADMIN):
            raise ValueError(f"admin: {str(self.admin).lower()} and role: {self.role} contradict: keep only the role")
        return self


class TlsSettings(Section):
    """TLS on the gateway's port. Both files are PEM, and are read again when they change."""

    certificate: str  # with the chain up to the authority
    key: str  # of the certificate, without a passphrase
    min_version: Literal["1.2", "1.3"] = "1.2"  # 1.0 and 1.1 are insecure

    @field_validator("min_version", mode="before", json_schema_input_type=_TlsVersion)
    @classmethod
    def _as_written(cls, value: object) -> object:
        """Accept a version that YAML has read as a number."""
        return str(value) if isinstance(value, float) else value


class LedgerSettings(Section):
    """For how many days rows are kept. Default: for ever; refusals, which need no key, for 30 days."""

    keep_calls_days: Days | None = None
    keep_attempts_days: Days | None = None  # rows of attempts are more and larger
    # Sums of hours and days, which are small. Those of the last month are always kept, as limits in dollars need them.
    keep_rollups_days: Days | None = None
    keep_refusals_days: Days = 30.0  # refused requests, with the addresses they came from
    keep_outages_days: Days | None = None  # when breakers were open
    slowdowns: bool = (
        True  # whether a deployment that got slower is noticed (docs/monitoring.md#when-a-provider-gets-slower)
    )
    # More than a day, as a day's spending on probes is counted from these rows.
    keep_probes_days: Annotated[float, Field(gt=1, le=MOST_DAYS)] | None = None
    clickhouse: ClickHouseSettings | None = None  # a second store of calls and attempts (docs/guides/clickhouse.md)
    # Whether calls are refused (503) while neither the database nor the disk takes their rows. `ledger: required` too.
    required: bool = False

    @model_validator(mode="before")
    @classmethod
    def _accept_one_word(cls, value: object) -> object:
        return {"required": True} if value == "required" else value


class RefusalSettings(Section):
    """What is kept of requests that the gateway refuses."""

    addresses: bool = True  # false: neither the ledger nor the log has the addresses they came from


class ConnectionSettings(Section):
    """The limits for connections without an admitted request; for each process, if there are several workers.

    Above a limit the longest silent one is closed, so that a new connection is always served.
    """

    max: Annotated[int, Field(ge=1)] = 4096  # about 20 kB each
    # From one address, or one IPv6 /64. Many people may share an address, and a program may open all its connections
    # before its first call; connections with an admitted request do not count.
    max_per_address: Annotated[int, Field(ge=1)] = 1024
    headers_timeout_s: Seconds = 10.0  # for TLS and a request's headers
    # The most for all headers of a request, and for each of them; a path may have 8 KB. nginx takes as much in all
    # (large_client_header_buffers 4 8k), but 8 KB for one header: too little for a sign-in with many groups or cookies.
    headers_max_kb: Annotated[int, Field(ge=8, le=256)] = 32


class BodyLimits(Section):
    """The limits of what one request may have built: objects take far more memory and time than their bytes."""

    # JSON values of a body that is translated to another API, or of a field that is read here. Agents of today send
    # up to 35,000, with 200 tools and 1,000 messages.
    max_values: Annotated[int, Field(ge=1000)] = 50_000


class Settings(Section):
    """The whole configuration. Load it with ``gateway.settings.load``."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 4000
    tls: TlsSettings | None = None  # default: a proxy in front has TLS, or it is not needed on loopback
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    replica: str | None = None  # default: the host's name
    region: str | None = None
    database_url: SecretStr = SecretStr("sqlite:///var/holeshot.db")
    reports_database_url: SecretStr | None = None
    redis_url: SecretStr | None = None
    # The beginning of all keys in Redis. Environments that share a Redis need one each.
    redis_prefix: Annotated[str, Field(pattern="^[A-Za-z0-9_.:-]{1,64}$")] = "holeshot"
    spool_dir: str = "var/spool"
    ledger: LedgerSettings = LedgerSettings()
    refusals: RefusalSettings = RefusalSettings()
    alerts: AlertSettings = AlertSettings()
    max_body_mb: Annotated[float, Field(gt=0)] = 64.0  # images and long prompts need tens of MiB
    limits: BodyLimits = BodyLimits()
    connections: ConnectionSettings = ConnectionSettings()
    overload: OverloadSettings = OverloadSettings()
    # Trusted proxies: their clients are counted by the address in x-forwarded-for.
    trusted_proxies: tuple[IPvAnyNetwork, ...] = ()
    # After SIGTERM calls are still answered for this long while /health/ready is 503, so that load balancers notice
    # before the port closes: two probes, one every two seconds.
    lame_duck_s: Annotated[float, Field(ge=0)] = 5.0
    shutdown_grace_s: Annotated[float, Field(ge=0)] = 30.0  # then running calls may take this long to end
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"  # auto: console on a terminal, JSON elsewhere
    tracing: TracingSettings = TracingSettings()
    secrets: SecretSettings = SecretSettings()
    timeouts: DefaultTimeouts = DefaultTimeouts()
    # Keys of a request's `metadata` that become tags; `x-holeshot-tags` goes before. All of it is forwarded.
    tags_from_metadata: tuple[str, ...] = ()
    # How long a call waits, in all, for a slot under max_in_flight, or for the first deployment if all are limited and
    # say that they are free again so soon: long enough for a short answer to end, but less than any client's timeout,
    # so that the client can try elsewhere early. 0: no wait.
    queue_timeout_s: Annotated[float, Field(ge=0, le=600)] = 2.0
    # How many requests one call makes at most, in all: deployments, keys, forms and fallbacks multiply. Those that
    # never reached a provider do not count. None: by the rings of keys (``most_requests``).
    max_requests: Annotated[int, Field(ge=1, le=1000)] | None = None
    client_timeouts: ClientTimeouts = ClientTimeouts()
    # The value of `store` for responses and interactions whose request has none: with the APIs' own default, true, they
    # could not be raced.
    responses_store: bool = False
    # Recent responses and interactions that were not stored, kept for `previous_response_id`, `item_reference` and
    # `previous_interaction_id`.
    responses_memory: ResponsesMemorySettings = ResponsesMemorySettings()
    response_ids_ttl_s: Seconds = 30 * 24 * 3600.0  # how long the provider of a stored response is known
    # What clients may name that a provider stores under the operator's key (files, conversations, items, …).
    provider_state: Literal["own", "any", "none"] = "own"
    # MCP servers that a provider may call for clients, by host, and connectors, by id. Default: all while there are no
    # clients, else none.
    mcp_hosts: tuple[str, ...] | None = None
    providers: dict[str, ProviderSettings] = {}
    models: dict[str, ModelSettings] = {}
    # Where clients' keys are: only below, or also in the database, where they can be made and revoked at run time. With
    # ``database`` every call needs a key, even if the database has none.
    keys: Literal["file", "database"] = "file"
    clients: dict[str, ClientSettings] = {}
    teams: dict[str, TeamSettings] = {}  # of clients, by name
    prices: PriceTableSettings = PriceTableSettings()
    tenant_keys: TenantKeySettings = TenantKeySettings()
    end_users: EndUserSettings | None = None  # the limits of each end user of a client, unless its team has others
    issuers: dict[str, IssuerSettings] = {}  # of tokens that count as keys, by a name that the operator chooses
    cors: tuple[_Origin, ...] = ()  # origins of web pages that may call /v1, with a key of their own
    page: PageSettings = PageSettings()
    slo: dict[str, TargetSettings] = {}  # targets, by name
    probes: ProbeSettings = ProbeSettings()
    anonymous: LimitSettings = LimitSettings()  # of programs on this machine, while there are no clients
    limits_zone: ZoneName = "UTC"  # of the hours, days, weeks and months of limits

    @property
    def limits_dollars(self) -> bool:
        """Whether a client or a model has a limit in US dollars, or a client may get one at run time."""
        return self.keys == "database" or any(each.in_dollars for each in (*self._limited, *self._payers))

    @property
    def _limited(self) -> Sequence[UseLimits]:
        return (*self.clients.values(), self.anonymous, *self.models.values())

    @property
    def _payers(self) -> Sequence[LimitSettings]:
        """The limits of teams and end users."""
        of_teams = [team.end_users for team in self.teams.values()]
        of_end_users = [each for each in (self.end_users, *of_teams) if each is not None]
        named = [limits for each in of_end_users for limits in each.named.values()]
        return (*self.teams.values(), *of_end_users, *named)

    @property
    def limits_of_payers(self) -> frozenset[str]:
        """The names of limits of teams and end users that continue from the use before a start."""
        return frozenset(UseLimits.model_fields.keys() & {name for each in self._payers for name in each.by_name})

    @property
    def counts_use(self) -> bool:
        """Whether any limit, also one on extra attempts, continues from the use before a start."""
        lasting = UseLimits.model_fields.keys()
        return (
            self.limits_dollars
            or any(not lasting.isdisjoint(each.by_name) for each in (*self._limited, *self._payers))
            or any(model.race.usd_per_day is not None for model in self.models.values())
        )

    @property
    def clients_of_people(self) -> frozenset[str]:
        """The clients whose calls may belong to the team of a person whom a token names."""
        people = (each for each in self.issuers.values() if each.teams or each.team)
        return frozenset(each.client for each in people if each.client is not None)

    @property
    def people_of_page(self) -> IssuerSettings | None:
        """The issuer whose people see their own calls after ``page.sign_in``; None: people see them by tokens only."""
        named = (self.issuers.get(name) for name in self.page.people)
        address = None if self.page.sign_in is None else self.page.sign_in.issuer
        return next((each for each in named if each is not None and each.issuer == address), None)

    @property
    def most_requests(self) -> int:
        """How many requests one call makes at most."""
        longest = max((len(each.api_keys) for each in self.providers.values()), default=0)
        return self.max_requests or most_of_call(longest)

    @property
    def zones(self) -> dict[str, str]:
        """The zone of each client that has one of its own."""
        return {name: each.limits_zone for name, each in self.clients.items() if each.limits_zone is not None}

    @field_validator("providers", "models", "clients", "teams", "issuers", "slo", mode="before")
    @classmethod
    def _take_an_empty_entry_as_an_empty_section(cls, value: object) -> object:
        return (
            {key: {} if entry is None else entry for key, entry in value.items()} if isinstance(value, dict) else value
        )
