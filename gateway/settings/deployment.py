"""The section of a deployment: one model at one provider, its price, capabilities and data policy."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.settings.sections import Section, Share, Timeouts
from providers import Api, ProviderKind
from providers.dialects import Way

Continues = Literal[Way, "no"]


Usd = Annotated[float, Field(ge=0)]


class PriceChange(Section):
    """US dollars per million tokens that differ from the deployment's other prices."""

    input: Usd | None = None
    output: Usd | None = None
    cached_input: Usd | None = None
    cache_write: Usd | None = None
    cache_write_1h: Usd | None = None
    reasoning: Usd | None = None
    audio_input: Usd | None = None
    audio_output: Usd | None = None
    image_input: Usd | None = None
    image_output: Usd | None = None


class TierPrice(PriceChange):
    """US dollars per million tokens in one tier of service. Default: as in standard service."""

    above_tokens: dict[Annotated[int, Field(ge=1)], PriceChange] = {}  # by size of the prompt


class PriceSettings(Section):
    """US dollars per million tokens."""

    input: Usd
    output: Usd
    cached_input: Usd | None = None  # tokens read from the prompt cache; default: as input
    cache_write: Usd | None = None  # tokens written to the cache; default: as input
    cache_write_1h: Usd | None = None  # tokens written to the cache for an hour; default: as cache_write
    reasoning: Usd | None = None  # by default as output
    audio_input: Usd | None = None  # sound; by default as input
    audio_output: Usd | None = None  # by default as output
    image_input: Usd | None = None  # pictures; by default as input
    image_output: Usd | None = None  # by default as output
    web_search: Usd | None = None  # each search of the vendor's own tool, in dollars
    above_tokens: dict[Annotated[int, Field(ge=1)], PriceChange] = {}  # whole calls with more tokens in their prompt
    tiers: dict[str, TierPrice] = {}  # by service_tier: priority, flex, …; without any, all cost the same


class CapabilitySettings(Section):
    """The capabilities of a deployment, if the catalog's are unknown or wrong. Default: the catalog's, or unknown.

    A call is never sent to a deployment that is known to be unable to answer it.
    """

    tools: bool | None = None
    json_schema: bool | None = None
    vision: bool | None = None
    audio: bool | None = None  # accepts audio
    documents: bool | None = None  # accepts PDF
    reasoning: bool | None = None
    context_tokens: Annotated[int, Field(ge=1)] | None = None
    max_documents: Annotated[int, Field(ge=1)] | None = None  # documents that one request may have ranked
    max_dimensions: Annotated[int, Field(ge=1)] | None = None  # the most dimensions of its vectors
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None


class DataPolicy(Section):
    """The requirements for a deployment that sees a prompt. Default: none."""

    zdr: bool | None = None  # true: only those that store nothing (zero data retention)
    regions: tuple[str, ...] | None = None  # only those in one of them
    quantizations: tuple[str, ...] | None = None  # only these, such as fp16 or fp8


class DeploymentSettings(Section):
    """One model at one provider, ``provider/model``; in the file a plain string if it has no other settings.

    A provider alone is what its vendor calls the public model (``with_names`` of ``doors.py``).
    """

    deployment: str
    as_: str | None = Field(default=None, alias="as")  # its name in the ledger and on the leaderboard
    enabled: bool = True  # false: no new calls; running ones continue
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0  # its share among deployments that are about as fast
    canary: Share | None = None  # the share of calls it gets, whatever its score; it gets no others
    apis: tuple[Api, ...] | None = None  # default: those of its provider
    capabilities: CapabilitySettings = CapabilitySettings()
    forced_tools: Literal["adapt", "refuse"] = "adapt"  # for a forced tool call that its model does not accept
    drop_params: bool = False  # leave out unsupported parameters, and report them, instead of not using the deployment
    zdr: bool | None = None  # whether it stores neither prompts nor answers (zero data retention)
    region: str | None = None
    hardware: str | None = None
    quantization: str | None = None
    same_as: str | None = None  # another of the same model, if the names do not show it: models' embeddings differ
    extra_body: dict[str, object] = {}
    extra_headers: dict[str, SecretStr] = {}
    upstream_stream: bool = True  # False: it cannot stream, and is raced by its whole answer
    timeouts: Timeouts = Timeouts()  # overrides the model's
    price_per_mtok: PriceSettings | None = None  # overrides the price table
    bills_after_disconnect: bool | None = None  # whether a cut loser costs a whole answer; default: as known
    continues: Continues | None = None  # how it continues an answer that another began; default: as known
    max_in_flight: Annotated[int, Field(ge=1)] | None = None  # in this replica, over all models; for your own servers
    max_in_flight_fleet: Annotated[int, Field(ge=1)] | None = None  # of all replicas together, over all models

    @field_validator("continues", mode="before", json_schema_input_type=Continues | Literal[False] | None)
    @classmethod
    def _as_written(cls, value: object) -> object:
        """Accept false, which YAML reads for a plain ``no``."""
        return "no" if value is False else value

    @field_validator("deployment")
    @classmethod
    def _names_provider_and_model(cls, value: str) -> str:
        provider, slash, model = value.partition("/")
        if not provider or (slash and not model):
            raise ValueError(
                f"{value!r} is not a deployment; write provider/model, for example groq/openai/gpt-oss-120b"
            )
        return value

    @property
    def name(self) -> str:
        """The deployment's name outside the configuration."""
        return self.as_ or self.deployment


# The section of a provider: its address, keys and APIs.

# What the file may contain before the validator converts it: for the JSON Schema.
_HttpVersion = Literal["auto", "1.1", "2"] | Annotated[float, Field(json_schema_extra={"enum": [1.1, 2]})]


class CallIdsSettings(Section):
    """The ids of tool calls that one API of a server takes; others are replaced by a hash."""

    longest: Annotated[int, Field(ge=9)]  # characters
    shortest: Annotated[int, Field(ge=1)] = 1
    letters: Literal["any", "word", "alphanumeric"] = "any"


class HistorySettings(Section):
    """What a server accepts in a conversation's history. What is not set is as its vendor's row says."""

    call_ids: dict[Api, CallIdsSettings] = {}
    assistant_fields: tuple[str, ...] | None = None
    call_fields: tuple[str, ...] | None = None
    refused_fields: tuple[str, ...] = ()
    missing_reasoning: str | None = None
    user_after_tool: bool = True
    one_system: bool = False
    alternating: bool = False
    plain_texts: bool = False


class ProviderSettings(Section):
    """A vendor or server with a base URL and a key. What the preset has may be left out."""

    preset: str | None = None  # the catalog row to start from; default: the row of the provider's own name
    kind: ProviderKind | None = None  # openai_compatible unless the preset says otherwise
    apis: tuple[Api, ...] | None = None  # default: those of its preset
    base_url: str | None = None
    paths: dict[Api, str] = {}  # paths of APIs that are not below base_url, from the host's root; default: the preset's
    api_key: SecretStr | None = None
    # Instead of api_key: several, each with its own rate limits. A list, or names for the ledger with their keys.
    api_keys: dict[int | str, SecretStr] = {}
    organization: str | None = None  # sent as openai-organization
    account: str | None = None  # models read only thoughts of their account; default: the provider's own
    headers: dict[str, SecretStr] = {}  # sent with every request
    query: dict[str, str] = {}  # parameters in every request's URL: Azure's api-version; not for secrets
    http_version: Literal["auto", "1.1", "2"] = "auto"  # auto: HTTP/2 if TLS negotiates it
    # The age at which a connection is replaced by one to an address of the host that has fewer; None: never.
    connection_age_s: Annotated[float, Field(ge=1)] | None = 60.0
    # Streams (chat, completions) that end with [DONE] and no finish reason count as whole, not as broken off.
    omits_finish_reason: bool = False
    history: HistorySettings = HistorySettings()
    store: bool | None = None  # the value for requests without `store`; default: as known of the vendor
    timeouts: Timeouts = Timeouts()

    @property
    def keys(self) -> tuple[SecretStr, ...]:
        """Every key, in the order of the file."""
        return tuple(self.api_keys.values()) or (() if self.api_key is None else (self.api_key,))

    @property
    def key_names(self) -> tuple[str | None, ...]:
        """The operator's names for several keys; None for keys in a list."""
        return tuple(name if isinstance(name, str) else None for name in self.api_keys)

    @property
    def has_key(self) -> bool:
        """Whether the provider has a key here that is not empty."""
        return any(key.get_secret_value() for key in self.keys)

    @property
    def has_login(self) -> bool:
        """Whether the base URL names a user: then no key can be sent besides."""
        return self.base_url is not None and "@" in urlsplit(self.base_url).netloc

    @field_validator("api_keys", mode="before", json_schema_input_type=list[SecretStr] | dict[str, SecretStr])
    @classmethod
    def _by_place_or_name(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            return dict(enumerate(value))
        if not isinstance(value, dict):
            raise ValueError("must be a list of keys, or a section of names and keys")  # noqa: TRY004 - pydantic's own
        return value

    @model_validator(mode="after")
    def _has_one_list_of_keys(self) -> "ProviderSettings":
        if self.api_key is not None and self.api_keys:
            raise ValueError("has api_key and api_keys: put all keys into api_keys")
        return self

    @field_validator("http_version", mode="before", json_schema_input_type=_HttpVersion)
    @classmethod
    def _as_written(cls, value: object) -> object:
        """Accept a version that YAML has read as a number."""
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
