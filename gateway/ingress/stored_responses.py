"""Which deployment made a client's stored response: only the provider that stores it can continue it."""

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog

if TYPE_CHECKING:
    from redis.asyncio import Redis

LONGEST_NAME = 1_000  # characters of a deployment's name
MOST_KEPT = 100_000  # in the memory of this replica, if there is no Redis

_ID = re.compile(rb'"id"\s*:\s*"(resp[^"\\]{1,200})"')
_PREFIX = "holeshot:response:"


class StoredResponses:
    """Response ids with their client and the deployment that made them, kept for ``ttl_s`` seconds.

    Providers see all clients as one, so the gateway checks that only the client of a response continues it.

    The ids are in Redis if it is configured, so that every replica has them, and always in memory: while Redis is
    away, only requests that reach another replica fail.
    """

    def __init__(self, ttl_s: float, *, clock: Callable[[], float], store: "Redis | None" = None) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._store = store
        self._made: OrderedDict[tuple[str | None, str], tuple[str, float]] = OrderedDict()  # the newest last

    async def keep(self, client: str | None, answer: bytes, deployment: str) -> None:
        """Store which deployment made the response of ``client`` whose JSON or events begin with ``answer``."""
        found = _ID.search(answer)
        if found is None:
            return
        name = found[1].decode(errors="replace")
        self._made[client, name] = (deployment, self._clock() + self._ttl_s)
        self._made.move_to_end((client, name))
        while len(self._made) > MOST_KEPT:
            self._made.popitem(last=False)
        if self._store is not None:
            try:
                await self._store.set(_key(client, name), deployment, ex=max(1, int(self._ttl_s)))
            except Exception as error:  # noqa: BLE001 - Redis clients raise many types; the answer must not fail
                structlog.get_logger().warning("responses.not_shared", error=type(error).__name__)

    async def find(self, client: str | None, response_id: str) -> str | None:
        """Return the deployment that made a response of ``client``; None if it is unknown or expired."""
        known = self._made.get((client, response_id))
        if known is not None:
            deployment, until = known
            if self._clock() < until:
                return deployment
            del self._made[client, response_id]
        if self._store is None:
            return None
        try:
            found = await self._store.getrange(_key(client, response_id), 0, LONGEST_NAME)
        except Exception as error:  # noqa: BLE001 - likewise
            structlog.get_logger().warning("responses.not_shared", error=type(error).__name__)
            return None
        name = found if isinstance(found, str) else ""
        return name if 0 < len(name) <= LONGEST_NAME and name.isprintable() else None  # others may write to Redis too


def _key(client: str | None, response_id: str) -> str:
    """Return the key in Redis. The client's name is encoded, so that no name and id look like another pair."""
    return f"{_PREFIX}{quote(client or '', safe='')}:{response_id}"
