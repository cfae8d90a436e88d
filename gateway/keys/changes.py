"""The changes of a client's keys. Pure: a store carries out the decisions.

Each function returns a ``Decide``, which the store calls with the existing keys after it has locked them.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from gateway.core.errors import ClientNotFound, InvalidRequest, KeyConflict
from gateway.keys.stored import (
    Decide,
    KeyChange,
    KeyState,
    NewKey,
    StoredKey,
    as_fields,
    fields_of,
    instant_text,
    merged,
    stored_fields,
)
from gateway.settings import ClientSettings

LONGEST_GRACE_S = 366 * 86_400.0
Check = Callable[[Mapping[str, Any]], ClientSettings]  # ``client_settings`` with the valid names


def created(name: str, settings: ClientSettings, key: NewKey, *, key_id: str, who: str, at: datetime) -> Decide:
    """Create a client with its first key."""

    def decide(rows: Sequence[StoredKey]) -> KeyChange:
        if rows:
            raise KeyConflict(f"there is a client {name!r} already: rotate its key, change it, or take another name")
        fields = as_fields(settings)
        row = StoredKey(
            id=key_id,
            name=name,
            sha256=key.sha256,
            hint=key.hint,
            role=str(settings.role),
            settings=stored_fields(fields),
            expires_at=settings.expires,
            created_at=at,
            created_by=who,
        )
        return KeyChange(action="created", name=name, before=None, after={**fields, "keys": [_named(row)]}, rows=(row,))

    return decide


def changed(name: str, patch: Mapping[str, Any], check: Check) -> Decide:
    """Change a client's settings by a merge patch (RFC 7396): null means the default.

    ``decide`` raises InvalidRequest if the settings are invalid then.
    """

    def decide(rows: Sequence[StoredKey]) -> KeyChange:
        newest = _newest(name, rows)
        before = fields_of(newest)
        start = {field: value for field, value in before.items() if field != "role" or "admin" not in patch}
        settings = check(merged(start, patch))
        after = as_fields(settings)
        values = {"role": str(settings.role), "settings": stored_fields(after), "expires_at": settings.expires}
        return KeyChange(
            action="changed",
            name=name,
            before=before,
            after=after,
            rows=tuple(msgspec.structs.replace(row, **values) for row in rows),
        )

    return decide


def rotated(name: str, key: NewKey, *, grace_s: float, key_id: str, who: str, at: datetime) -> Decide:
    """Give a client a new key. Its other keys end after ``grace_s`` seconds, or earlier if they would anyway.

    Raises:
        InvalidRequest: ``grace_s`` is out of range.

    """
    if not 0 <= grace_s <= LONGEST_GRACE_S:
        raise InvalidRequest(f"grace_s must be from 0 to {LONGEST_GRACE_S:.0f} seconds", param="grace_s")
    until = at + timedelta(seconds=grace_s)

    def decide(rows: Sequence[StoredKey]) -> KeyChange:
        newest = _newest(name, rows)
        if newest.expires_at is not None and newest.expires_at <= at:
            raise KeyConflict(f"the client {name!r} has expired, so a new key would not work: change 'expires' first")
        old = [_retired(row, until, at) for row in rows]
        row = StoredKey(
            id=key_id,
            name=name,
            sha256=key.sha256,
            hint=key.hint,
            role=newest.role,
            settings=newest.settings,
            expires_at=newest.expires_at,
            created_at=at,
            created_by=who,
        )
        after = {"grace_s": grace_s, "keys": [_named(each) for each in (*old, row)]}
        return KeyChange(
            action="rotated",
            name=name,
            before={"keys": [_named(each) for each in rows]},
            after=after,
            rows=(*old, row),
        )

    return decide


def revoked(name: str, *, at: datetime, key: str | None = None) -> Decide:
    """End all keys of a client at once, or the one with the id or the hint ``key``."""

    def decide(rows: Sequence[StoredKey]) -> KeyChange:
        _newest(name, rows)
        ended = [row for row in rows if key is None or key in {row.id, row.hint}]
        if not ended:
            raise ClientNotFound(f"the client {name!r} has no key {key!r}; it has: {', '.join(r.hint for r in rows)}")
        return KeyChange(
            action="revoked",
            name=name,
            before={"keys": [_named(row) for row in ended]},
            after=None,
            rows=tuple(msgspec.structs.replace(row, revoked_at=at) for row in ended),
        )

    return decide


def _newest(name: str, rows: Sequence[StoredKey]) -> StoredKey:
    if not rows:
        raise ClientNotFound(f"no client {name!r} has a key in the database")
    return rows[-1]


def _retired(row: StoredKey, until: datetime, at: datetime) -> StoredKey:
    """Return ``row`` after a rotation: an earlier end is kept, and a key whose end has passed stays ended."""
    if until <= at or row.state(at) is KeyState.EXPIRED:
        return msgspec.structs.replace(row, revoked_at=at)
    ends = until if row.retires_at is None else min(row.retires_at, until)
    return msgspec.structs.replace(row, retires_at=ends)


def _named(row: StoredKey) -> dict[str, Any]:
    """Return the audit log's description of a key."""
    ends = {name: instant_text(getattr(row, name), "seconds") for name in ("retires_at", "revoked_at")}
    return {"id": row.id, "hint": row.hint, **{name: end for name, end in ends.items() if end is not None}}
