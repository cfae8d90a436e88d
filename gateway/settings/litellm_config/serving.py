"""Converts LiteLLM's general settings: its master key and its database."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from gateway.settings.litellm_config.notes import Notes
from gateway.settings.litellm_config.variables import Variables
from gateway.settings.problems import Place

CLIENT = "litellm-master"
LEDGER = "LEDGER_DATABASE_URL"  # not HOLESHOT_…: those variables are settings themselves
_REFERENCE = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)")
_DEFAULT_LEDGER = "sqlite:///var/holeshot.db"


def client(key: Any, place: Place, variables: Variables, notes: Notes, *, adhoc: bool) -> dict[str, Any]:
    """Return the entry of ``clients`` for LiteLLM's master key; it has only the key's digest."""
    value = variables.value_of(key)
    entry: dict[str, Any] = {}
    if value is not None:
        entry["key_sha256"] = hashlib.sha256(value.encode()).hexdigest()
        notes.add(
            place,
            f"became client {CLIENT!r}, known by the key's SHA-256; give each user a key with `holeshot keys new NAME`",
        )
    else:
        match = _REFERENCE.fullmatch(str(key))
        name = f"{match[1] if match else 'LITELLM_MASTER_KEY'}_SHA256"
        entry["key_sha256"] = variables.plain(f"os.environ/{name}", place)
        notes.add(
            place,
            f"became client {CLIENT!r}, known by the key's SHA-256, which must be in {name}:"
            ' printf %s "$KEY" | sha256sum; better, make new keys with `holeshot keys new NAME`',
        )
    entry["admin"] = True
    if adhoc:
        entry["adhoc"] = True
    return entry


def ledger(general: Mapping[str, Any], place: Place, notes: Notes) -> str | None:
    """Return a ``database_url`` if LiteLLM had one: not its own, as its migrations may drop unknown tables."""
    if not general.get("database_url"):
        return None
    notes.add(
        (*place, "database_url"),
        f"LiteLLM's database has its own tables: make another one for the ledger, put its postgresql:// URL into"
        f" {LEDGER}, and run `holeshot migrate`; without it the ledger is in {_DEFAULT_LEDGER.removeprefix('sqlite:///')}",
    )
    return f"${{{LEDGER}:-{_DEFAULT_LEDGER}}}"
