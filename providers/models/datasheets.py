"""Prices and capabilities of vendors' models, from an extract of litellm's table.

The extract, ``models.json``, has the version of the table, the date of its release and its own date
(tools/requirements/extract_datasheets.py, run by `make lock`).

A missing flag means unknown: the table does not say that gpt-3.5-turbo takes no images, or that many models support
tools. Only an explicit false is a no. A row's list of input kinds (``image``, ``audio``) is complete: a kind that is
not listed and has no flag of its own is a no as well. The table marks chat models that think; an unmarked model is
plain if its family does not think. In other families an unmarked model is unknown, as vendors of open models forget the
mark.
"""

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from providers.models.families import is_plain, kin_of
from providers.models.listed_prices import SEARCH_BILLING, UPLIFTS, leaves, parse, read
from providers.models.usage import Price

# What a model at a provider can do. Unknown is None, and excludes no deployment.


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The capabilities of a deployment. None: unknown, so a request that needs the capability is tried."""

    tools: bool | None = None  # can call functions
    json_schema: bool | None = None  # can answer in JSON by a schema
    vision: bool | None = None  # accepts images
    audio: bool | None = None  # accepts audio
    documents: bool | None = None  # accepts PDF
    reasoning: bool | None = None  # can reason before the answer
    context_tokens: int | None = None  # the longest prompt; with some vendors the longest prompt and answer together
    max_output_tokens: int | None = None  # the longest answer
    max_documents: int | None = None  # documents in one request for ranks
    max_dimensions: int | None = None  # of vectors


UNKNOWN = Capabilities()


_TABLE = Path(__file__).with_name("models.json")

ModelKey = tuple[str, str]  # litellm's name for the vendor, the vendor's name for the model


class Datasheet(msgspec.Struct, frozen=True):
    """The price and the capabilities of one model at one vendor."""

    price: Price | None = None  # None: unknown for input or output
    capabilities: Capabilities = UNKNOWN
    listed: Price | None = None  # the known prices, if that of input or output is unknown
    uplifts: Mapping[str, float] = {}  # what tokens cost in a region, over these prices; "endpoint": any but global
    only_api: str | None = None  # the only API in which the model answers; None: unknown, or any API of the vendor


UNLISTED = Datasheet()


_CHATS = frozenset({"chat", "responses"})


def thinks(model: str, mode: str | None, flag: bool | None) -> bool | None:
    """Return whether a model of the table thinks before the answer; None: the table does not say."""
    if flag is not None or mode not in _CHATS:
        return flag
    return False if is_plain(model.rpartition("/")[2]) else None


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

    def capabilities(self, model: str, mode: str | None) -> Capabilities:
        return Capabilities(
            tools=self.supports_function_calling,
            json_schema=self.supports_response_schema,
            vision=self._takes("image", self.supports_vision),
            audio=self._takes("audio", self.supports_audio_input),
            documents=self.supports_pdf_input,
            reasoning=thinks(model, mode, self.supports_reasoning),
            context_tokens=_limit(self.max_input_tokens),
            max_output_tokens=_limit(self.max_output_tokens),
        )

    def _takes(self, modality: str, flag: bool | None) -> bool | None:
        return flag if flag is not None or not self.supported_modalities else modality in self.supported_modalities


# The modes that name the only API of a model. ``chat`` does not: such models have Responses, too. ``completion`` is
# wrong of Ollama's models that chat, and right of OpenAI's (platform.openai.com/docs/deprecations).
_ONLY_API: Mapping[str, str] = {"responses": "responses", "completion": "completions"}
_OF_COMPLETIONS = frozenset({"text-completion-openai", "azure_text"})


class _Seller(msgspec.Struct, frozen=True):
    litellm_provider: str = ""
    mode: str | None = None

    def only_api(self) -> str | None:
        """Return the only API of the model; None if the mode names none."""
        if self.mode == "completion" and self.litellm_provider not in _OF_COMPLETIONS:
            return None
        return _ONLY_API.get(self.mode or "")


class TableSource(msgspec.Struct, frozen=True):
    """The source of the table."""

    name: str
    version: str
    date: str  # of the extract, ISO
    url: str
    license: str
    released: str = ""  # when the version was, ISO: prices are at least as old

    def age_days(self, today: dt.date) -> int | None:
        """Return how many days ago the version was released; None if unknown."""
        try:
            return (today - dt.date.fromisoformat(self.released)).days
        except ValueError:
            return None

    def is_old(self, today: dt.date) -> str | None:
        """Return a sentence about the table's age, if vendors may have changed many prices since its release."""
        age = self.age_days(today)
        if age is None or age <= OLD_DAYS:
            return None
        return (
            f"prices are of {self.name} {self.version}, released {age} days ago ({self.released}): vendors may have"
            " others by now, so upgrade holeshot, or set price_per_mtok"
        )


OLD_DAYS = 90  # of a table of prices


class _Table(msgspec.Struct):
    source: TableSource | None  # None: a person wrote the file
    models: dict[str, msgspec.Raw]  # by model, or vendor/model
    dearest: dict[str, dict[str, float]] = {}  # by vendor, the highest price of each unit
    own: dict[str, msgspec.Raw] = {}  # the rows of the operator's file, which win


class _Named(msgspec.Struct):
    source: Any = None


def _read_own(path: Path) -> _Table | None:
    """Return the operator's file, as ``holeshot models --prices`` writes it or as rows alone; None if there is none.

    Raises:
        OSError, msgspec.DecodeError: the file cannot be read, or has neither form.

    """
    try:
        given = path.read_bytes()
    except FileNotFoundError:
        return None
    if msgspec.json.decode(given, type=_Named).source is not None:
        return _table_decoder.decode(given)
    rows = msgspec.json.decode(given, type=dict[str, dict[str, Any]])
    return _Table(None, msgspec.json.decode(given, type=dict[str, msgspec.Raw]), dearest_of(rows))


def dearest_of(models: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the highest price of each unit in standard service, by vendor."""
    found: dict[str, dict[str, float]] = {}
    for row in models.values():
        if (price := read(row)) is not None:
            _raise(found.setdefault(str(row.get("litellm_provider", "")), {}), _units_of(price))
    return {vendor: dict(sorted(found[vendor].items())) for vendor in sorted(found)}


def _units_of(price: Price) -> dict[str, float]:
    units = dict(price.units)
    return units | {unit: getattr(price, f"{unit}_usd") for unit in ("input", "output") if unit not in price.unknown}


def _raise(highest: dict[str, float], units: Mapping[str, float]) -> None:
    """Have ``highest`` hold the higher price of each of ``units``."""
    highest |= {unit: max(usd, highest.get(unit, 0.0)) for unit, usd in units.items()}


def prices_in(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the prices of a row by path."""
    return {path: usd for path, usd in leaves(row) if path in UPLIFTS or parse(path, usd, row) is not None}


def kept(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row that this module reads."""
    priced = {re.split(r"[.\[]", path)[0] for path in prices_in(row)}
    return {field: row[field] for field in (*fields(), *sorted(priced - {*fields()})) if field in row}


def table_of(models: Mapping[str, Mapping[str, Any]], source: TableSource) -> bytes:
    """Return a table as text for a file: one model a line, so that one changed price is one changed line in a diff."""

    def lines(rows: Mapping[str, Any]) -> str:
        return ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())

    said, highest = json.dumps(msgspec.to_builtins(source)), lines(dearest_of(models))
    return f'{{"source": {said}, "models": {{\n{lines(models)}\n}}, "dearest": {{\n{highest}\n}}}}\n'.encode()


class PriceChanged(msgspec.Struct, frozen=True):
    """A price of one model that differs in a newer table. None: only one of the tables has the price."""

    model: str
    price: str  # litellm's name of the price
    before_usd: float | None
    after_usd: float | None

    @property
    def has_fallen(self) -> bool:
        """Whether the price is now 0, or below a tenth: more often a mistake than a gift."""
        before, after = self.before_usd or 0.0, self.after_usd
        return after is not None and after < before / 10


def prices_changed(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> list[PriceChanged]:
    """Return the prices that differ, of models that both tables have."""
    found = []
    for name in sorted(before.keys() & after.keys()):
        old, new = prices_in(before[name]), prices_in(after[name])
        found += [
            PriceChanged(name, path, old.get(path), new.get(path))
            for path in sorted({*old, *new})
            if old.get(path) != new.get(path)
        ]
    return found


_table_decoder = msgspec.json.Decoder(_Table)
_row_decoder = msgspec.json.Decoder(dict[str, Any])
_seller_decoder = msgspec.json.Decoder(_Seller)
_abilities_decoder = msgspec.json.Decoder(_Abilities)


class DatasheetTable:
    """A table of models with rows in litellm's format. It stays on disk: a gateway needs few of thousands of rows.

    Each lookup reads the file (1 MB, about 3 ms) and keeps nothing, so look up all deployments at once.
    """

    def __init__(self, path: Path | None, own: Path | None = None) -> None:
        """``own``: the operator's file, whose rows win. The file need not exist."""
        self._path = path  # None: an empty table
        self._own = own

    @classmethod
    def shipped(cls, own: str | None = None) -> "DatasheetTable":
        """Return the table of this release, with the operator's ``own`` file beside the table."""
        return cls(_TABLE, None if own is None else Path(own))

    def source(self) -> TableSource | None:
        """Return the source and the date of the table: what the operator's file states, if it does; None: empty."""
        return None if (table := self._table()) is None else table.source

    def names_of(self, prefix: str) -> list[str]:
        """Return the names of a vendor's models in the table, by the vendor's ``litellm_prefix``.

        Raises:
            OSError, msgspec.DecodeError: the table cannot be read.

        """
        if (table := self._table()) is None:
            return []
        whole = f"{prefix}/"
        return [
            name.removeprefix(whole)
            for name, row in _all_rows(table).items()
            if name.startswith(whole) or ("/" not in name and _sells(row, prefix))
        ]

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return all rows, the operator's in place of the others."""
        table = self._table()
        return {} if table is None else {name: _row_decoder.decode(row) for name, row in _all_rows(table).items()}

    def _table(self) -> _Table | None:
        table = _table_decoder.decode(self._path.read_bytes()) if self._path else None
        own = None if table is None or self._own is None else _read_own(self._own)
        if table is None or own is None:
            return table
        table.own, table.source = own.models, own.source or table.source
        for vendor, units in own.dearest.items():
            _raise(table.dearest.setdefault(vendor, {}), units)
        return table

    def look_up(self, models: Iterable[ModelKey]) -> dict[ModelKey, Datasheet]:
        """Return the datasheet of each ``(litellm_prefix, model)``; ``UNLISTED`` if the vendor is not in the table.

        Raises:
            OSError, msgspec.DecodeError: the table cannot be read.

        """
        table = self._table()
        if table is None:
            return dict.fromkeys(models, UNLISTED)
        return {(prefix, model): _find(table, prefix, model) for prefix, model in models}


def fields() -> tuple[str, ...]:
    """Return litellm's names of the fields that are read besides prices."""
    return (*_Seller.__struct_fields__, SEARCH_BILLING, *_Abilities.__struct_fields__)


def _find(table: _Table, prefix: str, model: str) -> Datasheet:
    """Return the vendor's row of ``prefix/model``, of the bare name, or of the name after the publisher.

    A fine-tuned model has the figures of ``ft:BASE``, else only the abilities of BASE, as the price differs. Of a model
    without a row only the dearest price of each unit is known: in the model's family, see ``_kin``, or at the vendor.
    """
    dearest: dict[str, float] = {}
    for vendor, units in table.dearest.items():
        if _is_of(vendor, prefix):
            _raise(dearest, units)
    listed = Price(0.0, 0.0, unknown=("input", "output"), dearest=tuple(dearest.items())) if dearest else None
    if (row := _row(table, prefix, model)) is not None:
        return _read(row, model, dearest)
    if (tuned := _TUNED.search(model)) is not None:
        base = tuned["base"] or tuned["azures"]
        if (row := _row(table, prefix, f"ft:{base}")) is not None:
            return _read(row, base, dearest)
        if (row := _row(table, prefix, base)) is not None:
            return Datasheet(None, _read(row, base, dearest).capabilities, listed)
    if listed is None:
        return UNLISTED
    if tuned is not None:
        return Datasheet(listed=listed)
    name, usd = _kin(table, prefix, model)
    return Datasheet(listed=msgspec.structs.replace(listed, dearest=tuple((dearest | usd).items()), dearest_of=name))


# The fewest models of a family that a vendor must sell if only their names say that they are one family: the price of a
# single small model says too little about a large one.
_LEAST_FAMILY = 3


def _kin(table: _Table, prefix: str, model: str) -> tuple[str, dict[str, float]]:
    """Return this vendor's models that are nearest to a ``model`` without a row, and the highest prices of these.

    They are of the same family and line. If there are none: of the family's newest version up to the model's own, else
    of the family. Nothing is returned if the family is unknown, or has no price either.
    """
    own = kin_of(model)
    if own is None:
        return "", {}
    sold = [
        (kin, row)
        for name, row in _all_rows(table).items()
        if (kin := kin_of(name, own.family)) is not None and (name.startswith(f"{prefix}/") or _sells(row, prefix))
    ]
    if not own.is_known and len(sold) < _LEAST_FAMILY:
        return "", {}
    newest = max((each.major for each, _ in sold if each.major and each.major <= (own.major or 0)), default=None)
    groups = {
        f"{own.family} {own.line}": [row for each, row in sold if own.line and each.line == own.line],
        f"{own.family} {newest}": [row for each, row in sold if newest and each.major == newest],
        own.family: [row for _, row in sold],
    }
    for name, rows in groups.items():
        highest: dict[str, float] = {}
        for price in filter(None, (read(_row_decoder.decode(row)) for row in rows)):
            _raise(highest, _units_of(price))
        if highest.get("input") and highest.get("output"):
            return name, highest
    return "", {}


# OpenAI's names of fine-tuned models, ft:BASE:ORGANISATION:NAME:ID, which Mistral has as well
# (developers.openai.com/api/docs/guides/supervised-fine-tuning), and Azure's, BASE.ft-ID
# (learn.microsoft.com/azure/ai-foundry/openai/how-to/fine-tuning-deploy), read on 2026-11-27.
_TUNED = re.compile(r"(?:^|/)ft:(?P<base>[^:]+):|(?:^|/)(?P<azures>[^/]+)\.ft-")


def _all_rows(table: _Table) -> dict[str, msgspec.Raw]:
    return table.models | table.own if table.own else table.models


def _row(table: _Table, prefix: str, model: str) -> msgspec.Raw | None:
    for models in (table.own, table.models):
        if (row := models.get(f"{prefix}/{model}")) is not None:
            return row
        for name in (model, model.partition("/")[2]):  # Vertex AI writes google/gemini-2.5-flash
            if (row := models.get(name)) is not None and _sells(row, prefix):
                return row
    return None


def _is_of(provider: str, prefix: str) -> bool:
    """Whether ``provider`` is the vendor or a branch (``cohere_chat``, ``vertex_ai-…``, ``text-completion-openai``)."""
    return provider.removeprefix("text-completion-") == prefix or provider.startswith((f"{prefix}_", f"{prefix}-"))


def _sells(row: msgspec.Raw, prefix: str) -> bool:
    try:
        return _is_of(_seller_decoder.decode(row).litellm_provider, prefix)
    except msgspec.ValidationError:
        return False


def _read(row: msgspec.Raw, model: str, dearest: Mapping[str, float]) -> Datasheet:
    """Read a row. Prices or capabilities of unexpected types become unknown, and only these."""
    decoded = _row_decoder.decode(row)
    price = read(decoded)
    uplifts = {UPLIFTS[path]: factor for path, factor in leaves(decoded) if path in UPLIFTS}
    if price is not None and dearest:
        price = msgspec.structs.replace(price, dearest=tuple(dearest.items()))
    try:
        capabilities = _abilities_decoder.decode(row).capabilities(model, decoded.get("mode"))
    except msgspec.ValidationError:
        capabilities = UNKNOWN
    try:
        only_api = _seller_decoder.decode(row).only_api()
    except msgspec.ValidationError:
        only_api = None
    if price is not None and price.unknown:
        return Datasheet(None, capabilities, price, uplifts, only_api)
    return Datasheet(price, capabilities, uplifts=uplifts, only_api=only_api)


def _limit(tokens: int | None) -> int | None:
    return tokens if tokens is not None and tokens > 0 else None
