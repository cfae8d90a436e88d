"""Clients' keys in Postgres or SQLite."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row, Select, func, insert, null, or_, select, update

from gateway.core.errors import KeysUnreachable
from gateway.keys import Decide, KeyChange, StoredKey
from gateway.ledger.connections import Database, OwnConnection
from gateway.ledger.tables import client_keys, key_changes
from gateway.ledger.turns import KEYS, read_instant

TIMEOUT_S = 3.0  # of each query, which takes some milliseconds
READ_AT_ONCE = 500  # rows: they take some milliseconds of the event loop
WRITTEN_AT_ONCE = 1000  # ids; SQLite takes 32,766 values in a statement
_COLUMNS = tuple(column for column in client_keys.columns if column.name != "last_used_at")


class SqlKeyStore:
    """The tables ``client_keys`` and ``key_changes``; connects when first used."""

    def __init__(self, database: Database) -> None:
        """Use the ledger's database at a URL, or a shared pool.

        Raises:
            DatabaseUrlError: the URL is invalid.

        """
        self._database = OwnConnection(database, KeysUnreachable)
        self._instant = self._database.instant

    async def version(self) -> int:
        """Return the id of the last change; 0 if there was none."""
        async with self._database.open(TIMEOUT_S) as connection:
            return int(await connection.scalar(select(func.coalesce(func.max(key_changes.c.id), 0))) or 0)

    async def rows(self, changed_after: int | None = None) -> list[StoredKey]:
        """Return the fields for authentication: of unrevoked keys, or of all keys changed after ``changed_after``."""
        query = select(*_COLUMNS)
        if changed_after is None:
            return await self._read(query.where(client_keys.c.revoked_at.is_(None)))
        return await self._read(query.where(client_keys.c.change_id > changed_after))

    async def listed(self, *, revoked: bool = False) -> list[StoredKey]:
        """Return rows with all fields."""
        query = select(client_keys)
        return await self._read(query if revoked else query.where(client_keys.c.revoked_at.is_(None)))

    async def change(self, name: str, decide: Decide, *, who: str, at: datetime) -> KeyChange:
        """Let ``decide`` make a change of the keys named ``name``, and store it; changes are made one at a time."""
        async with self._database.open(TIMEOUT_S, writes=True, turn=KEYS) as connection:
            query = select(client_keys).where(client_keys.c.name == name, client_keys.c.revoked_at.is_(None))
            rows = await connection.execute(query.order_by(client_keys.c.created_at, client_keys.c.id))
            before = [_stored(row) for row in rows]
            change = decide(before)
            ids = {row.id for row in before}
            recorded = await connection.execute(
                insert(key_changes).values(
                    at=self._instant(at),
                    who=who,
                    action=change.action,
                    name=name,
                    before=null() if change.before is None else change.before,
                    after=null() if change.after is None else change.after,
                )
            )
            assert recorded.inserted_primary_key is not None
            change_id = int(recorded.inserted_primary_key[0])
            for row in change.rows:
                values = self._values(msgspec.structs.replace(row, change_id=change_id))
                if row.id in ids:
                    del values["last_used_at"]  # written meanwhile, perhaps
                    await connection.execute(update(client_keys).where(client_keys.c.id == row.id).values(values))
                else:
                    await connection.execute(insert(client_keys).values(values))
            await connection.commit()
        return change

    async def note_uses(self, ids: Collection[str], at: datetime) -> None:
        """Record uses. Rows that another replica is updating are skipped, as its instant is about the same."""
        instant = self._instant(at)
        used = client_keys.c
        rest = sorted(ids)
        while rest:
            some, rest = rest[:WRITTEN_AT_ONCE], rest[WRITTEN_AT_ONCE:]
            stale = select(used.id).where(
                used.id.in_(some), or_(used.last_used_at.is_(None), used.last_used_at < instant)
            )
            if not self._database.is_sqlite:
                stale = stale.with_for_update(skip_locked=True)
            async with self._database.open(TIMEOUT_S) as connection:
                await connection.execute(update(client_keys).where(used.id.in_(stale)).values(last_used_at=instant))
                await connection.commit()

    async def aclose(self) -> None:
        """Dispose of the engine; a server that hangs delays this only briefly, and its connections are aborted."""
        await self._database.aclose(TIMEOUT_S)

    async def _read(self, query: Select[Any]) -> list[StoredKey]:
        """Return the rows of ``query``, a page at a time."""
        keys: list[StoredKey] = []
        query = query.order_by(client_keys.c.id).limit(READ_AT_ONCE)
        async with self._database.open(TIMEOUT_S) as connection:
            page: Sequence[Row[Any]] = (await connection.execute(query)).all()
            while page:
                keys += [_stored(row) for row in page]
                if len(page) < READ_AT_ONCE:
                    break
                page = (await connection.execute(query.where(client_keys.c.id > page[-1].id))).all()
        return keys

    def _values(self, row: StoredKey) -> dict[str, Any]:
        values = {**msgspec.structs.asdict(row), "settings": dict(row.settings)}
        return {name: self._instant(value) if isinstance(value, datetime) else value for name, value in values.items()}


def _stored(row: Row[Any]) -> StoredKey:
    items = row._mapping.items()  # noqa: SLF001 - SQLAlchemy's public name
    values: dict[str, Any] = {}
    for name, value in items:
        values[name] = read_instant(value) if isinstance(value, datetime) else value
    return StoredKey(**values)
