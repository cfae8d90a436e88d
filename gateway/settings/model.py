"""The configuration as types: what may stand in the file, its defaults, and why each is what it is."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from gateway.calls import Mode, Objective, WinOn
from gateway.settings.profiles import PROFILE_TIMEOUTS, PROFILES, Profile

Seconds = Annotated[float, Field(gt=0)]


def _without_nulls(value: object) -> object:
    """Drop keys with nothing behind them, like ``race:`` with every line commented out: as if they were left out."""
    return {key: entry for key, entry in value.items() if entry is not None} if isinstance(value, dict) else value


class Section(BaseModel):
    """A part of the file. Unknown keys are errors; values never change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _take_empty_as_unsaid(cls, value: object) -> object:
        return _without_nulls(value)


class Timeouts(Section):
    """The four clocks of an attempt; each has an error kind of its own. Unset ones fall back: model, provider, here."""

    connect_timeout_s: Seconds | None = None
    ttft_timeout_s: Seconds | None = None  # launch, DNS included, to first meaningful delta
    stall_timeout_s: Seconds | None = None  # between events; comments and pings do not count
    total_timeout_s: Seconds | None = None  # off by default: it cuts long answers


def profile_timeouts(profile: Profile | None) -> Timeouts:
    """Return the clocks that go with a profile."""
    return Timeouts.model_validate(PROFILE_TIMEOUTS.get(profile, {}) if profile is not None else {})


class DefaultTimeouts(Timeouts):
    """The clocks of whoever sets none; naming one of them leaves the others as they are."""

    connect_timeout_s: Seconds | None = 5
    ttft_timeout_s: Seconds | None = 120  # reasoning models need it long, and the next candidate starts long before
    stall_timeout_s: Seconds | None = 120


class ProviderSettings(Section):
    """A vendor or server with a base URL and a key. What a preset knows may be left out."""

    preset: str | None = None  # the catalog row to start from; by default the row of the provider's own name
    kind: Literal["openai_compatible", "litellm"] | None = None  # openai_compatible unless the preset says otherwise
    base_url: str | None = None
    api_key: SecretStr | None = None
    organization: str | None = None  # sent as openai-organization
    headers: dict[str, SecretStr] = {}  # sent with every request
    http_version: Literal["auto", "1.1", "2"] = "auto"  # auto: HTTP/2 where TLS negotiates it
    timeouts: Timeouts = Timeouts()

    @field_validator("http_version", mode="before")
    @classmethod
    def _as_written(cls, value: object) -> object:
        """Take the number that YAML makes of it."""
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class Price(Section):
    """US dollars per million tokens."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]
    cached_input: Annotated[float, Field(ge=0)] | None = None


class DeploymentSettings(Section):
    """One model at one provider, ``provider/model``; as a plain string in the file when nothing else is to be said."""

    deployment: str
    as_: str | None = Field(default=None, alias="as")  # the name it has in the ledger and on the leaderboard
    extra_body: dict[str, object] = {}
    upstream_stream: bool = True  # False: this deployment cannot stream; it is raced on its whole answer
    price_per_mtok: Price | None = None  # overrides the price table
    max_in_flight: Annotated[int, Field(ge=1)] | None = None  # of this replica; for servers of one's own

    @field_validator("deployment")
    @classmethod
    def _names_provider_and_model(cls, value: str) -> str:
        provider, slash, model = value.partition("/")
        if not (provider and slash and model):
            raise ValueError(
                f"{value!r} is no deployment; write provider/model, for example groq/llama-3.3-70b-versatile"
            )
        return value

    @property
    def name(self) -> str:
        """What it is called everywhere outside the configuration."""
        return self.as_ or self.deployment


class RaceSettings(Section):
    """How calls of a model are raced. A profile changes the defaults of the rest."""

    profile: Profile | None = None
    objective: Objective = Objective.AUTO
    ttft_ms: Annotated[float, Field(gt=0)] | None = None  # objective cost: the time to first token to be met
    min_tok_s: Annotated[float, Field(gt=0)] | None = None  # decode speed below which a deployment is a last resort
    mode: Mode = Mode.AUTO
    width: Annotated[int, Field(ge=1, le=8)] = 2  # attempts started at once in mode race
    hedge_delay_s: Annotated[float, Field(ge=0)] | None = None  # mode hedge; by default the policy's quantile
    # Extra attempts per call: 1.0 races the best two, 0.1 is economy. By default what the width asks for, at least 1.0.
    budget: float = Field(default_factory=lambda data: max(1.0, data.get("width", 2) - 1.0), ge=0, le=7)
    # The most that extra attempts may cost in a UTC day, at list price, all replicas together. US dollars.
    usd_per_day: Annotated[float, Field(ge=0)] | None = None
    win_on: WinOn = WinOn.ANY
    max_prompt_tokens: Annotated[int, Field(ge=0)] = 16_000  # longer prompts are hedged: every attempt pays its prefill

    @model_validator(mode="before")
    @classmethod
    def _start_from_the_profile(cls, value: object) -> object:
        if isinstance(value, dict) and isinstance(profile := value.get("profile"), str) and profile in PROFILES:
            return {**PROFILES[Profile(profile)], **{key: entry for key, entry in value.items() if entry is not None}}
        return value

    def under(self, profile: Profile) -> "RaceSettings":
        """Return these settings with ``profile`` over them, in place of the one they began with.

        The budget is the operator's: a profile may lower it, never raise it.
        """
        began = {} if self.profile is None else PROFILES[self.profile]
        own = {name: value for name in self.model_fields_set if (value := getattr(self, name)) != began.get(name)}
        laid = RaceSettings.model_validate({**own, **PROFILES[profile], "profile": profile})
        return laid.model_copy(update={"budget": min(self.budget, laid.budget)})


class ModelSettings(Section):
    """A public model name and the deployments that serve it."""

    deployments: Annotated[tuple[DeploymentSettings, ...], Field(min_length=1)]
    race: RaceSettings = RaceSettings()
    timeouts: Timeouts = Timeouts()

    @field_validator("deployments", mode="before")
    @classmethod
    def _accept_plain_names(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            return [{"deployment": item} if isinstance(item, str) else item for item in value]
        return value


class ClientSettings(Section):
    """Someone who may call, known by the SHA-256 of a key."""

    key_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    admin: bool = False  # may read /metrics, /leaderboard and /
    adhoc: bool = False  # may name provider/model and comma lists directly
    max_width: Annotated[int, Field(ge=1, le=8)] = 2  # the widest race a request of theirs may ask for
    profile: Profile | None = None  # how their calls are raced, over the model's own settings
    override: bool = True  # may their requests say how they are raced?
    models: tuple[str, ...] | None = None  # None: all
    only: tuple[str, ...] | None = None  # providers their prompts may be shown to; None: all
    ignore: tuple[str, ...] = ()  # providers their prompts are kept from


class Settings(BaseSettings):
    """The whole configuration. Read it with ``gateway.settings.load``."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix="HOLESHOT_", hide_input_in_errors=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 4000
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    replica: str | None = None  # by default the host's name
    region: str | None = None
    database_url: SecretStr = SecretStr("sqlite+aiosqlite:///var/holeshot.db")
    redis_url: SecretStr | None = None
    spool_dir: str = "var/spool"
    max_body_mb: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 64.0  # images and long prompts need tens of MiB
    shutdown_grace_s: Annotated[float, Field(ge=0)] = 30.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"  # auto: console on a terminal, JSON elsewhere
    timeouts: DefaultTimeouts = DefaultTimeouts()
    providers: dict[str, ProviderSettings] = {}
    models: dict[str, ModelSettings] = {}
    clients: dict[str, ClientSettings] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings' signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing but the arguments: ``load`` merges the sources, and knows who said what."""
        return (init_settings,)

    @model_validator(mode="before")
    @classmethod
    def _take_empty_as_unsaid(cls, value: object) -> object:
        return _without_nulls(value)

    @field_validator("providers", "models", "clients", mode="before")
    @classmethod
    def _take_an_empty_entry_as_an_empty_section(cls, value: object) -> object:
        return (
            {key: {} if entry is None else entry for key, entry in value.items()} if isinstance(value, dict) else value
        )
