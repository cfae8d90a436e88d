"""The vendors known by name, read from ``vendors.toml`` beside this file: a vendor is a row of data, not a class."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

import msgspec

from providers.dialects.index import DIALECTS, PIVOT
from providers.quirks import Quirks

Kind = Literal["openai_compatible", "anthropic", "litellm"]
Auth = Literal["bearer", "api-key", "x-api-key"]  # authorization: Bearer KEY, or the key under one of these names
if TYPE_CHECKING:
    Api = str
else:  # a configuration is held against the names that there are
    Api = Literal[(*DIALECTS, "embeddings", "moderations", "rerank", "audio", "images")]

_USUAL: Mapping[Kind, tuple[Api, ...]] = {
    "openai_compatible": ("chat", "completions", "embeddings"),
    "anthropic": ("messages",),
    "litellm": ("chat", "embeddings"),
}
# A server nobody knows may have any of those that are not raced: only asking it can tell.
_UNKNOWN: tuple[Api, ...] = (*_USUAL["openai_compatible"], "moderations", "rerank", "audio", "images")


class Vendor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What has to be known to send a vendor requests, and to judge what they cost.

    Paths are relative to the base URL; ``chat_path`` and ``embeddings_path`` may hold ``{model}``.
    """

    name: str
    title: str  # as its owner writes it
    base_url: str | None = None  # None: the user gives it, or litellm knows
    key_env: tuple[str, ...] = ()  # variables its key is usually found in, the most usual first
    kind: Kind = "openai_compatible"
    apis: tuple[Api, ...] | None = None  # None: what is usual for its kind
    key_required: bool = True
    auth: Auth = "bearer"
    chat_path: str = PIVOT.path
    embeddings_path: str = "embeddings"
    models_path: str = "models"
    query: Mapping[str, str] = {}  # sent with every request
    headers: Mapping[str, str] = {}  # likewise
    quirks: Quirks = Quirks()
    bills_after_disconnect: bool | None = None  # None: unknown
    litellm_prefix: str | None = None  # the vendor's name in litellm and its price table; None: no prices
    docs_url: str | None = None


def apis_of(vendor: Vendor | None, kind: Kind | None) -> tuple[Api, ...]:
    """Return the APIs of a vendor, or of a server that is none's, of a ``kind`` (None: the vendor's own)."""
    if vendor is None:
        return _UNKNOWN if kind in (None, "openai_compatible") else _USUAL[kind]
    if kind is not None and kind != vendor.kind:
        return _USUAL[kind]
    return vendor.apis or _USUAL[vendor.kind]


def load_catalog() -> Mapping[str, Vendor]:
    """Read the catalog: vendors by name, in the order of the file. Reads the file each time; keep the result."""
    rows = tomllib.loads(files("providers").joinpath("vendors.toml").read_text(encoding="utf-8"))
    return msgspec.convert({name: {"name": name, **row} for name, row in rows.items()}, dict[str, Vendor])
