"""Which deployment made a client's stored response: only the provider that keeps it can go on from it."""

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog

if TYPE_CHECKING:
    from redis.asyncio import Redis

LONGEST_NAME = 1_000  # characters of a deployment's
MOST_KEPT = 100_000  # of this replica, when there is no Redis

_ID = re.compile(rb'"id"\s*:\s*"(resp[^"\\]{1,200})"')
_PREFIX = "holeshot:response:"


class StoredResponses:
    """Response ids, whose they are and the deployments that made them, for ``ttl_s`` seconds.

    To a provider all clients are one, so nobody but the client that was answered may go on from a response.

    In Redis where there is one, so that every replica knows; always in memory, so that a Redis that is away hurts only
    those who come back by way of another replica.
    """

    def __init__(self, ttl_s: float, *, clock: Callable[[], float], store: "Redis | None" = None) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._store = store
        self._made: OrderedDict[tuple[str | None, str], tuple[str, float]] = OrderedDict()  # the latest last

    async def keep(self, client: str | None, answer: bytes, deployment: str) -> None:
        """Remember who made the response of ``client`` whose JSON or events begin with ``answer``."""
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
            except Exception as error:  # noqa: BLE001 - of any kind a client has; the answer must not wait for it
                structlog.get_logger().warning("responses.not_shared", error=type(error).__name__)

    async def find(self, client: str | None, response_id: str) -> str | None:
        """Return the deployment that made a response of ``client``, None where that is not known (any more)."""
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
        return name if 0 < len(name) <= LONGEST_NAME and name.isprintable() else None  # anybody may write there


def _key(client: str | None, response_id: str) -> str:
    """Return the key in Redis; no client's name can be made to look like another's with part of an id."""
    return f"{_PREFIX}{quote(client or '', safe='')}:{response_id}"
