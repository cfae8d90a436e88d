"""How clients and their keys are shown, to people and in JSON: nothing here is a secret."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from gateway.keys.fields import as_fields, instant_text
from gateway.keys.stored_key import State, StoredKey
from gateway.settings.model import ClientSettings

FILE, DATABASE = "file", "database"


def shown_stored(name: str, rows: Sequence[StoredKey], now: datetime, *, shadowed: bool = False) -> dict[str, Any]:
    """Return a client of the database; ``rows`` are its keys, the newest last. ``shadowed``: the file has the name."""
    keys = [{**shown_key(row), "state": str(row.state(now))} for row in rows]
    shown = {"name": name, "source": DATABASE, **fields_of(rows[-1]), "keys": keys}
    return {**shown, "shadowed": True} if shadowed else shown


def shown_configured(name: str, settings: ClientSettings, now: datetime) -> dict[str, Any]:
    """Return a client of the file."""
    is_over = settings.expires is not None and settings.expires <= now
    keys = [{"state": str(State.EXPIRED if is_over else State.ACTIVE)} for _ in settings.key_sha256]
    return {"name": name, "source": FILE, **as_fields(settings), "keys": keys}


def shown_all(clients: Mapping[str, ClientSettings], rows: Iterable[StoredKey], now: datetime) -> list[dict[str, Any]]:
    """Return every client, by name: those of the file, then those of the database."""
    listed = [shown_configured(name, settings, now) for name, settings in clients.items()]
    listed += [shown_stored(name, keys, now, shadowed=name in clients) for name, keys in sorted(by_name(rows).items())]
    return listed


def shown_key(row: StoredKey) -> dict[str, Any]:
    """Return one key of the database."""
    return {
        "id": row.id,
        "hint": row.hint,
        "created_at": instant_text(row.created_at, "seconds"),
        "created_by": row.created_by,
        "last_used_at": instant_text(row.last_used_at, "seconds"),
        "retires_at": instant_text(row.retires_at, "seconds"),
        "revoked_at": instant_text(row.revoked_at, "seconds"),
    }


def fields_of(row: StoredKey) -> dict[str, Any]:
    """Return the settings of the row's client, as they were given."""
    return {"role": row.role, **row.settings, "expires": instant_text(row.expires_at)}


def by_name(rows: Iterable[StoredKey]) -> dict[str, list[StoredKey]]:
    """Return the rows of each client, the newest last."""
    found: dict[str, list[StoredKey]] = {}
    for row in sorted(rows, key=lambda row: (row.created_at, row.id)):
        found.setdefault(row.name, []).append(row)
    return found
