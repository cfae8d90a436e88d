"""Prices and capabilities of vendors' models, from an extract of litellm's table.

The extract, ``models.json``, has the version of the table and its own date (requirements/extract_datasheets.py, run by
`make lock`).

A missing flag means unknown: the table does not say that gpt-3.5-turbo takes no images, or that many models support
tools. Only an explicit false is a no. A row's list of input kinds (``image``, ``audio``) is complete: a kind that is
not listed and has no flag of its own is a no as well.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from providers.prices import Price, read

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

    price: Price | None = None  # None: unknown for input or output
    capabilities: Capabilities = UNKNOWN
    listed: Price | None = None  # the prices that are known where that of input or output is not


UNLISTED = Datasheet()


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
    dearest: dict[str, dict[str, float]] = {}  # by vendor, the highest price of each unit


_table_decoder = msgspec.json.Decoder(_Table)
_row_decoder = msgspec.json.Decoder(dict[str, Any])
_seller_decoder = msgspec.json.Decoder(_Seller)
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
        table = _table_decoder.decode(self._path.read_bytes()) if self._path else None
        if table is None:
            return dict.fromkeys(models, UNLISTED)
        return {(prefix, model): _find(table, prefix, model) for prefix, model in models}


def fields() -> tuple[str, ...]:
    """Return litellm's names of the fields that are read besides prices."""
    return (*_Seller.__struct_fields__, "mode", *_Abilities.__struct_fields__)


def _find(table: _Table, prefix: str, model: str) -> Datasheet:
    """Return the row of ``prefix/model``, or of the bare name, or that after its publisher, if it is this vendor's."""
    dearest = table.dearest.get(prefix, {})
    if (row := table.models.get(f"{prefix}/{model}")) is not None:
        return _read(row, dearest)
    for name in (model, model.partition("/")[2]):  # Vertex AI writes google/gemini-2.5-flash
        if (row := table.models.get(name)) is not None and _sells(row, prefix):
            return _read(row, dearest)
    return UNLISTED


def _sells(row: msgspec.Raw, prefix: str) -> bool:
    """Whether a row's provider is the vendor or a branch of it (``cohere_chat``, ``vertex_ai-llama_models``)."""
    try:
        provider = _seller_decoder.decode(row).litellm_provider
    except msgspec.ValidationError:
        return False
    return provider == prefix or provider.startswith((f"{prefix}_", f"{prefix}-"))


def _read(row: msgspec.Raw, dearest: Mapping[str, float]) -> Datasheet:
    """Read a row. If its prices or its capabilities have unexpected types, only these are unknown."""
    price = read(_row_decoder.decode(row))
    if price is not None and dearest:
        price = msgspec.structs.replace(price, dearest=tuple(dearest.items()))
    try:
        capabilities = _abilities_decoder.decode(row).capabilities()
    except msgspec.ValidationError:
        capabilities = UNKNOWN
    if price is not None and price.unknown:
        return Datasheet(None, capabilities, price)
    return Datasheet(price, capabilities)


def _limit(tokens: int | None) -> int | None:
    return tokens if tokens is not None and tokens > 0 else None
