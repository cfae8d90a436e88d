"""The section of a deployment: one model at one provider, its price, capabilities and data policy."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from gateway.settings.section import Section, Share
from gateway.settings.timeouts import Timeouts
from providers.catalog import Api
from providers.dialects.continuing import Way

Continues = Literal[Way, "no"]


class Price(Section):
    """US dollars per million tokens."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]
    cached_input: Annotated[float, Field(ge=0)] | None = None  # read from the prompt cache; by default as input
    cache_write: Annotated[float, Field(ge=0)] | None = None  # written to it; by default as input
    reasoning: Annotated[float, Field(ge=0)] | None = None  # by default as output


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
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None


class DataPolicy(Section):
    """The requirements for a deployment that sees a prompt. Default: none."""

    zdr: bool | None = None  # true: only those that store nothing (zero data retention)
    regions: tuple[str, ...] | None = None  # only those in one of them
    quantizations: tuple[str, ...] | None = None  # only these, such as fp16 or fp8


class DeploymentSettings(Section):
    """One model at one provider, ``provider/model``; in the file a plain string if it has no other settings."""

    deployment: str
    as_: str | None = Field(default=None, alias="as")  # its name in the ledger and on the leaderboard
    enabled: bool = True  # false: no new calls; running ones continue
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0  # its chance against others that are about as fast
    canary: Share | None = None  # the share of calls it gets, whatever its score; it gets no others
    apis: tuple[Api, ...] | None = None  # default: those of its provider
    capabilities: CapabilitySettings = CapabilitySettings()
    drop_params: bool = False  # leave out unsupported parameters, and report them, instead of not using it
    zdr: bool | None = None  # whether it stores nothing of what it is sent
    region: str | None = None
    quantization: str | None = None
    extra_body: dict[str, object] = {}
    extra_headers: dict[str, SecretStr] = {}
    upstream_stream: bool = True  # False: it cannot stream; it is raced on its whole answer
    timeouts: Timeouts = Timeouts()  # over the model's
    price_per_mtok: Price | None = None  # overrides the price table
    bills_after_disconnect: bool | None = None  # whether a cut loser costs a whole answer; default: as known
    continues: Continues | None = None  # how it continues an answer that another began; default: as known
    max_in_flight: Annotated[int, Field(ge=1)] | None = None  # of this replica, for all models; for one's own servers

    @field_validator("continues", mode="before", json_schema_input_type=Continues | Literal[False] | None)
    @classmethod
    def _as_written(cls, value: object) -> object:
        """Accept the false that YAML makes of a plain ``no``."""
        return "no" if value is False else value

    @field_validator("deployment")
    @classmethod
    def _names_provider_and_model(cls, value: str) -> str:
        provider, slash, model = value.partition("/")
        if not (provider and slash and model):
            raise ValueError(
                f"{value!r} is not a deployment; write provider/model, for example groq/openai/gpt-oss-120b"
            )
        return value

    @property
    def name(self) -> str:
        """Its name outside the configuration."""
        return self.as_ or self.deployment
