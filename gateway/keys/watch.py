"""Watches the keys in the database: what has changed there is in force here within about a second."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog

from gateway.key_errors import KeysUnreachable
from gateway.keys.store import KeyStore
from gateway.keys.stored_key import StoredKey
from gateway.keys.table import KeyTable

POLL_S = 1.0
STALE_S = 5.0  # without an answer for longer than this, the keys count as stale
SAID_AGAIN_S = 300.0  # between two lines of the log about that
FULL_READ_S = 60.0  # then everything is read again, for what was changed with SQL by hand
LEARNED_AT_ONCE = 100  # clients: about two milliseconds; then the event loop runs other tasks
COMPARED_AT_ONCE = 1000  # rows or clients, likewise


class KeyWatch:
    """Keeps ``table`` as the database has it, from ``start`` to ``close``."""

    def __init__(self, store: KeyStore, table: KeyTable[Any], clock: Callable[[], float]) -> None:
        self._store = store
        self._table = table
        self._clock = clock
        self._known: dict[str, dict[str, StoredKey]] = {}  # rows by their client's name and their id
        self._changed: set[str] = set()  # clients that the table has still to learn
        self._version: int | None = None
        self._read_at = clock()  # when the database answered last; before it ever has, the start
        self._full_at = clock()
        self._said_at: float | None = None  # when the log was last told that the keys are stale
        self._looking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def stale_s(self) -> float:
        """For how many seconds the database has not told whether anything has changed; 0 up to ``STALE_S``."""
        silent_s = self._clock() - self._read_at
        return silent_s if silent_s > STALE_S else 0.0

    @property
    def clients(self) -> int:
        """The number of clients in the database."""
        return len(self._known)

    async def start(self) -> None:
        """Read the keys, and look for changes from now on. If the database does not answer, that is not an error."""
        await self._try_to_look()
        self._task = asyncio.get_running_loop().create_task(self._poll(), name="keys.watch")

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self) -> None:
        """Read what has changed since the last time, and put it in force.

        Raises:
            KeysUnreachable: the database does not answer.

        """
        async with self._looking:
            version = await self._store.version()
            now = self._clock()
            is_full = self._version is None or version < self._version or now - self._full_at >= FULL_READ_S
            if is_full:
                await self._compare(await self._store.rows())
                self._full_at = now
            elif version != self._version:
                self._update(await self._store.rows(self._version))
            self._version, self._read_at = version, self._clock()
            await self._learn()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            await self._try_to_look()

    async def _try_to_look(self) -> None:
        try:
            await self.look()
        except KeysUnreachable as error:
            self._say_stale(error.message)
        except Exception:  # noqa: BLE001 - a bug in one round must not stop all later ones
            structlog.get_logger().exception("keys.watch_failed")
        else:
            if self._said_at is not None:
                self._said_at = None
                structlog.get_logger().info("keys.fresh_again", clients=self.clients)

    def _say_stale(self, problem: str) -> None:
        now = self._clock()
        if self._said_at is None or now - self._said_at >= SAID_AGAIN_S:
            self._said_at = now
            effect = (
                "the keys known so far stay in force; changes are not seen"
                if self._table.is_loaded
                else "keys of the database are refused with 503 until they can be read"
            )
            structlog.get_logger().warning(
                "keys.stale", problem=problem, silent_s=round(now - self._read_at, 1), effect=effect
            )

    async def _compare(self, rows: Sequence[StoredKey]) -> None:
        """Take over ``rows``, which are all there are, and note the clients that have changed."""
        fresh: dict[str, dict[str, StoredKey]] = {}
        for start in range(0, len(rows), COMPARED_AT_ONCE):
            for row in rows[start : start + COMPARED_AT_ONCE]:
                fresh.setdefault(row.name, {})[row.id] = row
            await asyncio.sleep(0)
        before = self._known
        names = [*fresh, *(name for name in before if name not in fresh)]
        for start in range(0, len(names), COMPARED_AT_ONCE):
            some = names[start : start + COMPARED_AT_ONCE]
            self._changed.update(name for name in some if before.get(name) != fresh.get(name))
            await asyncio.sleep(0)
        self._known = fresh  # not before: who is cancelled has not noted all of them

    def _update(self, rows: Iterable[StoredKey]) -> None:
        """Take over the changed ``rows``, and note their clients."""
        for row in rows:
            self._changed.add(row.name)
            keys = self._known.setdefault(row.name, {})
            keys[row.id] = row
            if row.revoked_at is not None:
                del keys[row.id]
            if not keys:
                del self._known[row.name]

    async def _learn(self) -> None:
        """Put the keys of the changed clients in force, all at once."""
        if not self._changed and self._table.is_loaded:
            return
        changed = list(self._changed)
        for start in range(0, len(changed), LEARNED_AT_ONCE):
            self._table.learn({name: self._in_order(name) for name in changed[start : start + LEARNED_AT_ONCE]})
            await asyncio.sleep(0)
        self._table.use_rows()
        self._changed.clear()  # not before: who is cancelled has put nothing in force

    def _in_order(self, name: str) -> list[StoredKey]:
        return sorted(self._known.get(name, {}).values(), key=_age)


def _age(row: StoredKey) -> tuple[Any, str]:
    return row.created_at, row.id
