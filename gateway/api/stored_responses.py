"""Which deployment made a client's stored response: only the provider that stores it can continue it."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
import structlog

from gateway.core.calls import Maker
from providers import UNREADABLE

if TYPE_CHECKING:
    from gateway.topology.nodes import Nodes

LONGEST_NAME = 1_000  # characters of a deployment's name
LONGEST_TAKEN = 20_000  # characters of what is known of a response in the background
LONGEST_KEPT = 500  # characters of a name: of a longer one the hash is kept
MOST_KEPT = 100_000  # responses in the memory of this replica

_ID = re.compile(rb'"id"\s*:\s*"(resp[^"\\]{1,200})"')
_PREFIX = "holeshot:response:"
_BACKGROUND_PREFIX = "holeshot:background:"
MAKERS_PREFIX = "holeshot:maker:"  # of reasoning, by its hash
_AT_ONCE = 50  # ids that Redis is told together


class RedisNames:
    """Names, and what is known of each, that all replicas have in Redis for ``ttl_s`` seconds."""

    def __init__(self, store: "Nodes", prefix: str, ttl_s: Callable[[], float]) -> None:
        self._store = store
        self._prefix = prefix
        self._ttl_s = ttl_s

    async def share(self, name: str, value: str) -> None:
        """Tell the others; without effect while Redis is away."""
        await self.put(name, value)

    async def put(self, name: str, value: str) -> bool:
        """Tell the others; return whether they know it now: Redis may be away."""
        key = self._prefix + name
        try:
            await self._store.call(key, ("SET", key, value, "EX", max(1, int(self._ttl_s()))))
        except Exception as error:  # noqa: BLE001 - Redis clients raise many types; the answer must not fail
            # Event responses.not_shared: Redis did not answer, so replicas do not know of each other who stores a
            # response, or who made encrypted reasoning.
            # Do: Make Redis reachable. Calls go on.
            structlog.get_logger().warning("responses.not_shared", error=type(error).__name__)
            return False
        return True

    async def take(self, name: str) -> bytes | None:
        """Return what is known of a name, to one of all that ask, and forget it; None: nothing is.

        Raises:
            Exception: Redis is away; its clients raise many types.

        """
        key = self._prefix + name
        found = await self._store.call(key, ("GETRANGE", key, 0, LONGEST_TAKEN))
        is_ours = bool(found) and await self._store.call(key, ("DEL", key)) == 1
        return found.encode() if is_ours and isinstance(found, str) else None

    async def ask(self, name: str) -> str | None:
        """Return what is known of a name; None: nothing, or Redis is away."""
        key = self._prefix + name
        try:
            found = await self._store.call(key, ("GETRANGE", key, 0, LONGEST_NAME))
        except Exception as error:  # noqa: BLE001 - likewise
            structlog.get_logger().warning("responses.not_shared", error=type(error).__name__)
            return None
        value = found if isinstance(found, str) else ""
        return value if 0 < len(value) <= LONGEST_NAME and value.isprintable() else None  # Redis has other writers


def id_of_response(answer: bytes) -> str | None:
    """Return the id of the response whose JSON or events begin with ``answer``; None if it has none."""
    found = _ID.search(answer)
    return None if found is None else found[1].decode(errors="replace")


class InBackground(msgspec.Struct, frozen=True):
    """A response that runs on in the background: what is known of it since its call has ended."""

    attempt_id: str
    model: str  # that was asked for
    ran_as: str  # the model that runs: a fallback of it
    since_s: float  # Unix seconds
    counted_usd: float | None  # what limits in dollars count for it; None: not known
    owners: tuple[str, ...]  # of the accounts that count it
    size_class: int
    tags: Mapping[str, str]


class StoredResponses:
    """Response ids with their client and the deployment that made them, kept for ``ttl_s`` seconds.

    So are the ids of all else that an answer named and its provider stores: items, containers, files, …

    A reload may change ``ttl_s``, for the responses that are kept from then on.

    Providers see all clients as one, so the gateway checks that only the client of a response continues it.

    The ids are in Redis if it is configured, so that every replica has them, and always in memory: while Redis is
    away, only requests that reach another replica fail.
    """

    def __init__(self, ttl_s: float, *, clock: Callable[[], float], store: "Nodes | None" = None) -> None:
        self.ttl_s = ttl_s
        self._clock = clock
        self._shared = None if store is None else RedisNames(store, _PREFIX, lambda: self.ttl_s)
        self._made: OrderedDict[tuple[str | None, str], tuple[Maker, float]] = OrderedDict()  # the newest last
        self._background = None if store is None else RedisNames(store, _BACKGROUND_PREFIX, lambda: self.ttl_s)
        # What runs on, until when that is of interest, and whether the other replicas know it; the newest last.
        self._begun: OrderedDict[tuple[str | None, str], tuple[InBackground, float, bool]] = OrderedDict()

    async def keep(
        self,
        client: str | None,
        answer: bytes,
        deployment: str,
        key_name: str | None = None,
        tenant: str | None = None,
    ) -> None:
        """Store who made the response of ``client`` whose JSON or events begin with ``answer``; see ``Maker``."""
        if (name := id_of_response(answer)) is not None:
            await self.keep_id(client, name, Maker(deployment, key_name, tenant))

    async def keep_id(self, client: str | None, name: str, maker: Maker) -> None:
        """Store that an answer of ``maker`` to ``client`` named ``name``, which its provider stores."""
        name = _short(name)
        self._made[client, name] = (maker, self._clock() + self.ttl_s)
        self._made.move_to_end((client, name))
        while len(self._made) > MOST_KEPT:
            self._made.popitem(last=False)
        if self._shared is not None:
            # The version before knows deployments only.
            keyed = maker.key_name is not None or maker.tenant is not None
            value = msgspec.json.encode(maker).decode() if keyed else maker.deployment
            await self._shared.share(_key(client, name), value)

    async def keep_all(
        self,
        client: str | None,
        names: Iterable[str],
        deployment: str,
        key_name: str | None = None,
        tenant: str | None = None,
    ) -> None:
        """Store the ``names`` that an answer of ``deployment``, made with this key, gave to ``client``."""
        left, maker = [*names], Maker(deployment, key_name, tenant)
        while left:
            await asyncio.gather(*(self.keep_id(client, name, maker) for name in left[:_AT_ONCE]))
            left = left[_AT_ONCE:]

    async def begin(self, client: str | None, response_id: str, begun: InBackground) -> None:
        """Store what is known of a response of ``client`` that runs on in the background."""
        known = msgspec.json.encode(begun, enc_hook=dict).decode()
        shared = self._background is not None and await self._background.put(_key(client, response_id), known)
        self._begun[client, response_id] = (begun, self._clock() + self.ttl_s, shared)
        while len(self._begun) > MOST_KEPT:
            self._begun.popitem(last=False)

    async def end(self, client: str | None, response_id: str) -> InBackground | None:
        """Return what is known of a response in the background, to the first of all replicas that see its end.

        None: it did not run in the background, another replica has seen its end, or Redis is away, which knows that.
        """
        own = self._begun.pop((client, response_id), None)
        if self._background is None or (own is not None and not own[2]):
            return None if own is None or self._clock() >= own[1] else own[0]
        try:
            known = await self._background.take(_key(client, response_id))
            return None if known is None else msgspec.json.decode(known, type=InBackground)
        except UNREADABLE:  # Redis has other writers
            return None
        except Exception as error:  # noqa: BLE001 - Redis clients raise many types; the answer must not fail
            structlog.get_logger().warning("responses.not_shared", error=type(error).__name__)
        if own is not None:
            self._begun[client, response_id] = own  # the next look tells it
        return None

    async def find(self, client: str | None, response_id: str) -> str | None:
        """Return the deployment that made a response of ``client``; None if it is unknown or expired."""
        maker = await self.maker(client, response_id)
        return None if maker is None else maker.deployment

    async def maker(self, client: str | None, name: str) -> Maker | None:
        """Return who named ``name`` in an answer to ``client``; None if it is unknown or expired."""
        name = _short(name)
        known = self._made.get((client, name))
        if known is not None:
            maker, until = known
            if self._clock() < until:
                return maker
            del self._made[client, name]
        found = None if self._shared is None else await self._shared.ask(_key(client, name))
        if found is None:
            return None
        if not found.startswith("{"):
            return Maker(found)
        try:
            return msgspec.json.decode(found, type=Maker)
        except UNREADABLE:  # Redis has other writers
            return None


def _short(name: str) -> str:
    """Return a name that is short enough to be kept: credits are long texts."""
    return name if len(name) <= LONGEST_KEPT else sha256(name.encode(errors="replace")).hexdigest()


def _key(client: str | None, response_id: str) -> str:
    """Return the name in Redis. The client's is encoded, so that keys of different pairs are different.

    Only a response's id is legible there, as the others could be used by those who read them.
    """
    if not response_id.startswith("resp"):
        response_id = sha256(response_id.encode(errors="replace")).hexdigest()
    return f"{quote(client or '', safe='')}:{response_id}"
