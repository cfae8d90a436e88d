"""The ledgers in use beside one Redis: limits and standings there are meant for one ledger, so a second is reported.

All processes of a ledger renew one entry of a hash. Another ledger's entry is in use while it is renewed; otherwise it
was left behind, as by a dropped database.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from gateway.core.log import get_logger
from gateway.core.tasks import end_if_cancelled

if TYPE_CHECKING:
    from gateway.topology import Nodes

KEY = "holeshot:ledgers"
EVERY_S = 20.0
STALE = 9  # looks, three minutes: an entry without renewal for so long is out of use
MOST = 100  # entries to read: Redis has other writers
_KEPT_S = 30 * 86_400
_TOLD_AGAIN = 180  # looks: an hour


class _Other(msgspec.Struct):
    """Another ledger's entry: its value, the number of looks without a change, and whether it has ever changed."""

    value: str
    unchanged: int = 0
    is_used: bool = False


class LedgersOnRedis:
    """Tells of other ledgers. ``ledger_id`` returns the id of this process's ledger; None: not known now."""

    def __init__(
        self, store: "Nodes", ledger_id: Callable[[], Awaitable[str | None]], *, unix_clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._ledger_id = ledger_id
        self._unix_clock = unix_clock
        self._own: str | None = None
        self._others: dict[str, _Other] = {}
        self._looks = 0  # since the last warning

    @property
    def has_others(self) -> bool:
        """Whether another ledger is in use beside this Redis."""
        return any(each.is_used for each in self._others.values())

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            end_if_cancelled()
            await asyncio.sleep(EVERY_S)

    async def look(self) -> None:
        """Renew this ledger's entry, and read the others'. While Redis or the database is away, nothing is known."""
        try:
            if self._own is None and (id_now := await self._ledger_id()) is not None:
                self._own = named(id_now)
            if self._own is None:
                return
            await self._store.call(KEY, ("HSET", KEY, self._own, f"{self._unix_clock():.3f}"))
            await self._store.call(KEY, ("EXPIRE", KEY, _KEPT_S))
            entries = await ledgers_at(self._store)
            entries.pop(self._own, None)
            had_others, stale = self.has_others, self._compared(entries)
            for name in stale:
                if await self._store.call(KEY, ("HDEL", KEY, name)) == 1:  # the first process to see the entry
                    # Event ledger.former_on_redis: Redis has the limits and standings of a `former` ledger, which no
                    # gateway uses any more: the database was dropped and made again, or another one is used now.
                    # Clients' dollars of this day go on from Redis; the board has the former one's standings until they
                    # are ten minutes old.
                    # Do: Nothing, if you changed the database. For a new beginning, set another `redis_prefix`.
                    get_logger().warning("ledger.former_on_redis", former=name, ledger=self._own)
        except Exception:  # noqa: BLE001 - Redis clients raise many types; other users of both stores log errors
            return
        self._looks = 0 if self.has_others and not had_others else self._looks + 1
        if self.has_others and self._looks % _TOLD_AGAIN == 0:
            # Event ledger.two_on_redis: Gateways with another ledger (`others`) use the same Redis and `redis_prefix`,
            # as staging beside production. Each one's spending counts in the other's limits, and so do standings.
            # Do: Give each environment its own `redis_prefix`, or its own Redis.
            get_logger().warning(
                "ledger.two_on_redis",
                others=[name for name, each in self._others.items() if each.is_used],
                ledger=self._own,
                hint="give each environment its own redis_prefix: they count in each other's limits",
            )

    def _compared(self, entries: Mapping[str, str]) -> list[str]:
        """Compare the others' entries with those of the last look; return the entries without renewal."""
        for name, value in entries.items():
            other = self._others.setdefault(name, _Other(value))
            if other.value == value:
                other.unchanged += 1
            else:
                other.value, other.unchanged, other.is_used = value, 0, True
        stale = [name for name, each in self._others.items() if each.unchanged > STALE]
        self._others = {name: each for name, each in self._others.items() if name in entries and name not in stale}
        return stale


def named(ledger_id: str) -> str:
    """Return the name of a ledger in Redis and in the log, which does not show the ledger's id."""
    return sha256(b"holeshot ledger " + ledger_id.encode()).hexdigest()[:12]


async def ledgers_at(store: "Nodes") -> dict[str, str]:
    """Return the entries of all ledgers.

    Raises:
        Exception: Redis is away; its clients raise many types.

    """
    number = await store.call(KEY, ("HLEN", KEY))
    if not isinstance(number, int) or not 0 < number <= MOST:
        return {}
    reply = await store.call(KEY, ("HGETALL", KEY))
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=False)
    return {f"{name}": f"{value}" for name, value in pairs}
