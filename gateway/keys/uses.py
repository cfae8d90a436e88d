"""Which keys were used: kept in memory, and written to the database once a minute in one batch."""

import asyncio
from collections.abc import Callable
from datetime import datetime

import structlog

from gateway.key_errors import KeysUnreachable
from gateway.keys.store import KeyStore

WRITE_S = 60.0


class Uses:
    """The ids of the keys that were used since the last time they were written. ``ids`` is one and the same set."""

    def __init__(self, store: KeyStore, utc_now: Callable[[], datetime]) -> None:
        self.ids: set[str] = set()
        self._store = store
        self._utc_now = utc_now
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Write them from now on."""
        self._task = asyncio.get_running_loop().create_task(self._repeat(), name="keys.uses")

    async def close(self) -> None:
        """Write the last ones, and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.write()

    async def write(self) -> None:
        """Write them; if the database does not answer, they are written the next time."""
        if not self.ids:
            return
        ids = frozenset(self.ids)
        self.ids.clear()
        try:
            await self._store.note_uses(ids, self._utc_now())
        except KeysUnreachable:  # the watch has logged it
            self.ids.update(ids)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(WRITE_S)
            try:
                await self.write()
            except Exception:  # noqa: BLE001 - a bug in one round must not stop all later ones
                structlog.get_logger().exception("keys.uses_not_written")
