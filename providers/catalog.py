"""The catalog of vendors, read from ``vendors.toml`` beside this file: a vendor is a row of data, not a class."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

import msgspec

from providers.dialects.continuing import Way
from providers.dialects.index import DIALECTS, PIVOT
from providers.quirks import Quirks

Kind = Literal["openai_compatible", "anthropic", "litellm"]
Auth = Literal["bearer", "api-key", "x-api-key"]  # authorization: Bearer KEY, or a header of this name with the key
if TYPE_CHECKING:
    Api = str
else:  # at run time, configurations are checked against the known names
    Api = Literal[(*DIALECTS, "embeddings", "moderations", "rerank", "audio", "images")]

_USUAL: Mapping[Kind, tuple[Api, ...]] = {
    "openai_compatible": ("chat", "completions", "embeddings"),
    "anthropic": ("messages",),
    "litellm": ("chat", "embeddings"),
}
# An unknown server may have any API that is not raced; only a request shows it.
_UNKNOWN: tuple[Api, ...] = (*_USUAL["openai_compatible"], "moderations", "rerank", "audio", "images")


class Vendor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is needed to send requests to a vendor, and to know their cost.

    Paths are relative to the base URL; ``chat_path`` and ``embeddings_path`` may contain ``{model}``.
    """

    name: str
    title: str  # the spelling of the vendor
    base_url: str | None = None  # None: the user sets it, or litellm knows it
    key_env: tuple[str, ...] = ()  # the usual environment variables of its key, the most usual first
    kind: Kind = "openai_compatible"
    apis: tuple[Api, ...] | None = None  # None: the usual ones of its kind
    key_required: bool = True
    auth: Auth = "bearer"
    chat_path: str = PIVOT.path
    embeddings_path: str = "embeddings"
    models_path: str = "models"
    query: Mapping[str, str] = {}  # sent with every request
    headers: Mapping[str, str] = {}  # likewise
    quirks: Quirks = Quirks()
    continues: tuple[Way, ...] | None = None  # how it is asked to continue an answer another has begun; None: unknown
    continues_at: str | None = None  # it continues at this base URL only
    continues_models: tuple[str, ...] | None = None  # these models continue, as patterns with *; None: all
    bills_after_disconnect: bool | None = None  # None: unknown
    litellm_prefix: str | None = None  # the vendor's name in litellm and its price table; None: no prices
    docs_url: str | None = None


def apis_of(vendor: Vendor | None, kind: Kind | None) -> tuple[Api, ...]:
    """Return the APIs of a vendor, or of an unknown server, of this ``kind`` (None: the vendor's own)."""
    if vendor is None:
        return _UNKNOWN if kind in (None, "openai_compatible") else _USUAL[kind]
    if kind is not None and kind != vendor.kind:
        return _USUAL[kind]
    return vendor.apis or _USUAL[vendor.kind]


def load_catalog() -> Mapping[str, Vendor]:
    """Read the catalog: vendors by name, in the order of the file. Each call reads the file, so keep the result."""
    rows = tomllib.loads(files("providers").joinpath("vendors.toml").read_text(encoding="utf-8"))
    return msgspec.convert({name: {"name": name, **row} for name, row in rows.items()}, dict[str, Vendor])
