"""A key of the database: one row of ``client_keys``. A client has a row for each of its keys, all with its settings."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec


class State(StrEnum):
    """What a key is good for now."""

    ACTIVE = "active"
    RETIRING = "retiring"  # replaced, and good until ``retires_at``
    EXPIRED = "expired"
    REVOKED = "revoked"


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A row. Instants are UTC. ``settings`` are its client's as in the file, without keys, role and expiry."""

    id: str
    name: str  # the client's
    sha256: str  # 64 hexadecimal digits
    hint: str  # the key's last characters
    role: str
    settings: Mapping[str, Any]
    expires_at: datetime | None = None  # of the client, so of all its keys
    retires_at: datetime | None = None  # of this key: the end of its rotation's grace
    created_at: datetime
    created_by: str
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None  # to the minute
    change_id: int = 0  # the last change of this row, an id of ``key_changes``

    @property
    def ends_at(self) -> datetime | None:
        """The instant from which it is refused, if it is not revoked before; None: never."""
        ends = [instant for instant in (self.expires_at, self.retires_at) if instant is not None]
        return min(ends, default=None)

    def state(self, now: datetime) -> State:
        """Return its state at ``now``."""
        if self.revoked_at is not None:
            return State.REVOKED
        if self.ends_at is not None and self.ends_at <= now:
            return State.EXPIRED
        return State.ACTIVE if self.retires_at is None else State.RETIRING
