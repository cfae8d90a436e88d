"""The section of a deployment: one model at one provider, what it costs and can do, and to whom it may be shown."""

from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from gateway.settings.section import Section, Share
from gateway.settings.timeouts import Timeouts
from providers.catalog import Api


class Price(Section):
    """US dollars per million tokens."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]
    cached_input: Annotated[float, Field(ge=0)] | None = None  # read from the prompt cache; by default as input
    cache_write: Annotated[float, Field(ge=0)] | None = None  # written to it; by default as input
    reasoning: Annotated[float, Field(ge=0)] | None = None  # by default as output


class CapabilitySettings(Section):
    """What a deployment can do, where the catalog does not know or is wrong. Unsaid: as the catalog says, or unknown.

    A call is never sent to a deployment that is known not to be able to answer it.
    """

    tools: bool | None = None
    json_schema: bool | None = None
    vision: bool | None = None
    audio: bool | None = None  # takes sound
    documents: bool | None = None  # takes PDF
    reasoning: bool | None = None
    context_tokens: Annotated[int, Field(ge=1)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None


class DataPolicy(Section):
    """What a deployment must be for a prompt to be shown to it. Unsaid: anything goes."""

    zdr: bool | None = None  # true: only those that keep nothing (zero data retention)
    regions: tuple[str, ...] | None = None  # only those in one of them
    quantizations: tuple[str, ...] | None = None  # only those, as fp16 or fp8


class DeploymentSettings(Section):
    """One model at one provider, ``provider/model``; as a plain string in the file when nothing else is to be said."""

    deployment: str
    as_: str | None = Field(default=None, alias="as")  # the name it has in the ledger and on the leaderboard
    enabled: bool = True  # false: no new calls; those under way end in peace
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0  # its chances against others about as fast
    canary: Share | None = None  # the share of calls it is given, whatever its score; it is not chosen otherwise
    apis: tuple[Api, ...] | None = None  # which it speaks; by default what its provider speaks
    capabilities: CapabilitySettings = CapabilitySettings()
    drop_params: bool = False  # leave out what it does not know, and say so, instead of not asking it
    zdr: bool | None = None  # it keeps nothing of what it is sent
    region: str | None = None
    quantization: str | None = None
    extra_body: dict[str, object] = {}
    extra_headers: dict[str, SecretStr] = {}
    upstream_stream: bool = True  # False: this deployment cannot stream; it is raced on its whole answer
    timeouts: Timeouts = Timeouts()  # over the model's
    price_per_mtok: Price | None = None  # overrides the price table
    bills_after_disconnect: bool | None = None  # does a loser that is cut cost a whole answer? By default as known
    max_in_flight: Annotated[int, Field(ge=1)] | None = None  # of this replica, whatever the model; for own servers

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
        """What it is called everywhere outside the configuration."""
        return self.as_ or self.deployment
