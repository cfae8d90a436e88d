"""Prices and capabilities of vendors' models, from an extract of litellm's table.

The extract, ``models.json``, has the version of the table and its own date (requirements/extract_datasheets.py, run by
`make lock`). Only base prices are used: no surcharges for very long prompts and one-hour caches, no discounts for
batches.

A missing flag means unknown: the table does not say that gpt-3.5-turbo takes no images, or that many models support
tools. Only an explicit false is a no. A row's list of input kinds (``image``, ``audio``) is complete: a kind that is
not listed and has no flag of its own is a no as well.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

# Prices of tokens, and the cost of a call.


class Price(msgspec.Struct, frozen=True):
    """US dollars per token."""

    input_usd: float
    output_usd: float
    cached_input_usd: float | None = None  # read from the prompt cache; None: unknown, input_usd is used
    cache_write_usd: float | None = None  # written to the prompt cache; None: input_usd
    reasoning_usd: float | None = None  # None: output_usd


def cost_usd(
    price: Price | None,
    prompt_tokens: int | None,
    completion_tokens: int | None,
    *,
    cached_tokens: int | None = None,
    cache_write_tokens: int | None = None,
    reasoning_tokens: int | None = None,
) -> float | None:
    """Return the cost in US dollars; None if the price, the prompt tokens or the completion tokens are unknown.

    ``cached_tokens`` and ``cache_write_tokens`` are parts of ``prompt_tokens``, ``reasoning_tokens`` of
    ``completion_tokens``, as in OpenAI's counts. A part that is larger than the whole is reduced to that.
    """
    if price is None or prompt_tokens is None or completion_tokens is None:
        return None
    usd = prompt_tokens * price.input_usd + completion_tokens * price.output_usd
    cached = 0
    if cached_tokens and price.cached_input_usd is not None:
        cached = min(cached_tokens, prompt_tokens)
        usd += cached * (price.cached_input_usd - price.input_usd)
    if cache_write_tokens and price.cache_write_usd is not None:
        written = min(cache_write_tokens, prompt_tokens - cached)
        usd += written * (price.cache_write_usd - price.input_usd)
    if reasoning_tokens and price.reasoning_usd is not None:
        usd += min(reasoning_tokens, completion_tokens) * (price.reasoning_usd - price.output_usd)
    return usd


def cache_saved_usd(price: Price | None, prompt_tokens: int | None, cached_tokens: int | None) -> float | None:
    """Return how much reading ``cached_tokens`` from the prompt cache saved, in US dollars; None if unknown.

    The cost of writing them to the cache is not subtracted: another call paid it.
    """
    if price is None or price.cached_input_usd is None or cached_tokens is None:
        return None
    cached = cached_tokens if prompt_tokens is None else min(cached_tokens, prompt_tokens)
    return cached * (price.input_usd - price.cached_input_usd)


# What a model at a provider can do. Unknown is None, and excludes no deployment.


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The capabilities of a deployment. None: unknown, so it is tried."""

    tools: bool | None = None  # can call functions
    json_schema: bool | None = None  # can answer in JSON by a schema
    vision: bool | None = None  # accepts images
    audio: bool | None = None  # accepts audio
    documents: bool | None = None  # accepts PDF
    reasoning: bool | None = None  # can reason before it answers
    context_tokens: int | None = None  # the longest prompt; with some vendors the longest prompt and answer together
    max_output_tokens: int | None = None  # the longest answer


UNKNOWN = Capabilities()


_TABLE = Path(__file__).with_name("models.json")

ModelKey = tuple[str, str]  # litellm's name for the vendor, the vendor's name for the model


class Datasheet(msgspec.Struct, frozen=True):
    """The price and the capabilities of one model at one vendor."""

    price: Price | None = None  # None: unknown
    capabilities: Capabilities = UNKNOWN


UNLISTED = Datasheet()


class _Prices(msgspec.Struct, frozen=True):
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    input_cost_per_token_cache_hit: float | None = None  # the older name, used for DeepSeek
    cache_creation_input_token_cost: float | None = None
    output_cost_per_reasoning_token: float | None = None

    def price(self) -> Price | None:
        if self.input_cost_per_token is None:
            return None
        cached = self.cache_read_input_token_cost
        return Price(
            input_usd=self.input_cost_per_token,
            output_usd=self.output_cost_per_token or 0.0,  # embeddings have no output
            cached_input_usd=self.input_cost_per_token_cache_hit if cached is None else cached,
            cache_write_usd=self.cache_creation_input_token_cost or None,  # 0: the price of input applies
            reasoning_usd=self.output_cost_per_reasoning_token,
        )


class _Abilities(msgspec.Struct, frozen=True):
    supports_function_calling: bool | None = None
    supports_response_schema: bool | None = None
    supports_vision: bool | None = None
    supports_audio_input: bool | None = None
    supports_pdf_input: bool | None = None
    supports_reasoning: bool | None = None
    supported_modalities: tuple[str, ...] | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None

    def capabilities(self) -> Capabilities:
        return Capabilities(
            tools=self.supports_function_calling,
            json_schema=self.supports_response_schema,
            vision=self._takes("image", self.supports_vision),
            audio=self._takes("audio", self.supports_audio_input),
            documents=self.supports_pdf_input,
            reasoning=self.supports_reasoning,
            context_tokens=_limit(self.max_input_tokens),
            max_output_tokens=_limit(self.max_output_tokens),
        )

    def _takes(self, modality: str, flag: bool | None) -> bool | None:
        return flag if flag is not None or not self.supported_modalities else modality in self.supported_modalities


class _Seller(msgspec.Struct, frozen=True):
    litellm_provider: str = ""


class Source(msgspec.Struct, frozen=True):
    """The source of the table."""

    name: str
    version: str
    date: str  # of the extract, ISO
    url: str
    license: str


class _Table(msgspec.Struct):
    source: Source
    models: dict[str, msgspec.Raw]  # by model, or vendor/model


_table_decoder = msgspec.json.Decoder(_Table)
_seller_decoder = msgspec.json.Decoder(_Seller)
_prices_decoder = msgspec.json.Decoder(_Prices)
_abilities_decoder = msgspec.json.Decoder(_Abilities)


class DatasheetTable:
    """A table of models with rows in litellm's format. It stays on disk: a gateway needs few of its thousands of rows.

    Each lookup reads the file (1 MB, about 3 ms) and keeps nothing, so look up all deployments at once.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path  # None: an empty table

    @classmethod
    def shipped(cls) -> "DatasheetTable":
        """Return the table of this release."""
        return cls(_TABLE)

    def source(self) -> Source | None:
        """Return the source and the date of the table; None if it is empty."""
        return _table_decoder.decode(self._path.read_bytes()).source if self._path else None

    def look_up(self, models: Iterable[ModelKey]) -> dict[ModelKey, Datasheet]:
        """Return the datasheet of each ``(litellm_prefix, model)``, ``UNLISTED`` if it is not in the table.

        Raises:
            OSError, msgspec.DecodeError: the table cannot be read.

        """
        table = _table_decoder.decode(self._path.read_bytes()).models if self._path else {}
        return {(prefix, model): _find(table, prefix, model) for prefix, model in models}


def fields() -> tuple[str, ...]:
    """Return litellm's names of the fields that are read."""
    return tuple(name for part in (_Seller, _Prices, _Abilities) for name in part.__struct_fields__)


def _find(table: Mapping[str, msgspec.Raw], prefix: str, model: str) -> Datasheet:
    """Return the row of ``prefix/model``, or of the bare name, or that after its publisher, if it is this vendor's."""
    if (row := table.get(f"{prefix}/{model}")) is not None:
        return _read(row)
    for name in (model, model.partition("/")[2]):  # Vertex AI writes google/gemini-2.5-flash
        if (row := table.get(name)) is not None and _sells(row, prefix):
            return _read(row)
    return UNLISTED


def _sells(row: msgspec.Raw, prefix: str) -> bool:
    """Whether a row's provider is the vendor or a branch of it (``cohere_chat``, ``vertex_ai-llama_models``)."""
    try:
        provider = _seller_decoder.decode(row).litellm_provider
    except msgspec.ValidationError:
        return False
    return provider == prefix or provider.startswith((f"{prefix}_", f"{prefix}-"))


def _read(row: msgspec.Raw) -> Datasheet:
    """Read a row. If its prices or its capabilities have unexpected types, only these are unknown."""
    try:
        price = _prices_decoder.decode(row).price()
    except msgspec.ValidationError:
        price = None
    try:
        capabilities = _abilities_decoder.decode(row).capabilities()
    except msgspec.ValidationError:
        capabilities = UNKNOWN
    return Datasheet(price, capabilities)


def _limit(tokens: int | None) -> int | None:
    return tokens if tokens is not None and tokens > 0 else None
