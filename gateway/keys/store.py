"""The database as the keys need it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from gateway.keys.stored_key import StoredKey


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one client's keys, and its row of ``key_changes``. Neither has a secret."""

    action: str  # created, changed, rotated, revoked
    name: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    rows: tuple[StoredKey, ...]  # the new and the changed ones


# Returns the change of a client that has these keys (not revoked ones, the newest last), or raises an ApiError.
Decide = Callable[[Sequence[StoredKey]], Change]


class KeyStore(Protocol):
    """Stores keys and their changes. Every method raises ``KeysUnreachable`` if it has no answer within seconds."""

    async def version(self) -> int:
        """Return a number that each change increases; a lower one than before means that the database was replaced."""

    async def rows(self, changed_after: int | None = None) -> list[StoredKey]:
        """Return the rows that are not revoked, without their last use, which changes nothing.

        ``changed_after``: only those that were changed after this version, and revoked ones too.
        """

    async def listed(self, *, revoked: bool = False) -> list[StoredKey]:
        """Return the rows with everything, to be shown; with ``revoked`` also those of revoked keys."""

    async def change(self, name: str, decide: Decide, *, who: str, at: datetime) -> Change:
        """Carry out what ``decide`` returns, and record it, as one transaction; one change at a time.

        Raises:
            ApiError: that of ``decide``; then nothing has changed.

        """

    async def note_uses(self, ids: Collection[str], at: datetime) -> None:
        """Record that the keys with these ids were used at ``at``."""

    async def aclose(self) -> None:
        """Close all connections."""
