"""The database of keys in memory: with the same promises, and a switch."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec

from gateway.core.errors import KeysUnreachable
from gateway.keys import Decide, KeyChange, StoredKey


class MemoryKeyStore:
    """``away``: it does not answer. ``full_reads`` counts how often everything was read."""

    def __init__(self) -> None:
        self.away = False
        self.full_reads = 0
        self.uses: list[frozenset[str]] = []
        self.stored: dict[str, StoredKey] = {}
        self._version = 0

    async def version(self) -> int:
        self._answer()
        return self._version

    async def rows(self, changed_after: int | None = None) -> list[StoredKey]:
        self._answer()
        self.full_reads += changed_after is None
        rows = [msgspec.structs.replace(row, last_used_at=None) for row in self.stored.values()]
        if changed_after is None:
            return [row for row in rows if row.revoked_at is None]
        return [row for row in rows if row.change_id > changed_after]

    async def listed(self, *, revoked: bool = False) -> list[StoredKey]:
        self._answer()
        return [row for row in self.stored.values() if revoked or row.revoked_at is None]

    async def change(self, name: str, decide: Decide, *, who: str, at: datetime) -> KeyChange:
        self._answer()
        rows = [row for row in self.stored.values() if row.name == name and row.revoked_at is None]
        change = decide(sorted(rows, key=lambda row: (row.created_at, row.id)))
        self._version += 1
        self.stored |= {row.id: msgspec.structs.replace(row, change_id=self._version) for row in change.rows}
        return change

    async def note_uses(self, ids: Collection[str], at: datetime) -> None:
        self._answer()
        self.uses.append(frozenset(ids))

    async def aclose(self) -> None:
        """There is nothing to close."""

    def by_hand(self, key_id: str, **values: Any) -> None:
        """Change a row as somebody does with SQL: no change is recorded."""
        self.stored[key_id] = msgspec.structs.replace(self.stored[key_id], **values)

    def restored(self, rows: dict[str, StoredKey], version: int) -> None:
        """Put back an older state, as from a backup."""
        self.stored, self._version = dict(rows), version

    def _answer(self) -> None:
        if self.away:
            raise KeysUnreachable("the database does not answer")
