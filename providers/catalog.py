"""The vendors known by name, read from ``vendors.toml`` beside this file: a vendor is a row of data, not a class."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Literal

import msgspec

from providers.quirks import Quirks


class Vendor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What has to be known to send a vendor requests, and to judge what they cost.

    ``chat_path`` and ``embeddings_path`` are relative to the base URL and may hold ``{model}``.
    """

    name: str
    title: str  # as its owner writes it
    base_url: str | None = None  # None: the user gives it, or litellm knows
    key_env: tuple[str, ...] = ()  # variables its key is usually found in, the most usual first
    kind: Literal["openai_compatible", "litellm"] = "openai_compatible"
    key_required: bool = True
    auth: Literal["bearer", "api-key"] = "bearer"  # authorization: Bearer KEY, or api-key: KEY
    chat_path: str = "chat/completions"
    embeddings_path: str = "embeddings"
    query: Mapping[str, str] = {}  # sent with every request
    quirks: Quirks = Quirks()
    bills_after_disconnect: bool | None = None  # None: unknown
    litellm_prefix: str | None = None  # the vendor's name in litellm and its price table; None: no prices
    docs_url: str | None = None


def load_catalog() -> Mapping[str, Vendor]:
    """Read the catalog: vendors by name, in the order of the file. Reads the file each time; keep the result."""
    rows = tomllib.loads(files("providers").joinpath("vendors.toml").read_text(encoding="utf-8"))
    return msgspec.convert({name: {"name": name, **row} for name, row in rows.items()}, dict[str, Vendor])
