"""The deployment that made a client's stored response, as only the provider that stores a response can continue it."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

import msgspec
import structlog

from gateway.core.calls import CallRecord, Maker
from gateway.core.errors import NamesUnreachable
from providers import UNREADABLE

if TYPE_CHECKING:
    from gateway.topology import Nodes

LONGEST_NAME = 1_000  # characters of a deployment's name
LONGEST_TAKEN = 20_000  # characters stored for a response in the background
LONGEST_KEPT = 500  # characters of a name; longer names are kept as hashes
MOST_KEPT = 100_000  # responses in the memory of this replica

_PREFIX = "holeshot:response:"
_BACKGROUND_PREFIX = "holeshot:background:"
MAKERS_PREFIX = "holeshot:maker:"  # of reasoning, by its hash
_NEARLY = 0.99  # of the time for which names are kept
_FOUND_S = 600.0  # a name from the disk is not looked up again for so long
_AT_ONCE = 50  # ids written to Redis at the same time

# KEYS[1]: a name. ARGV: the process that takes the name, and the maximum of characters of its value. Returns the value
# to the first process that takes the name; again to that process, as the reply may have been lost; nothing to others.
_TAKE = """
local known = redis.call('GETRANGE', KEYS[1], 0, tonumber(ARGV[2]) + 40)
local taker, rest = string.match(known, '^taken by (%x+) (.*)$')
if taker then return taker == ARGV[1] and rest or '' end
if known ~= '' then
  local left = math.max(1, redis.call('TTL', KEYS[1]))
  redis.call('SET', KEYS[1], 'taken by ' .. ARGV[1] .. ' ' .. known, 'EX', left)
end
return known
"""


class RedisNames:
    """Names with values that all replicas share in Redis for ``ttl_s`` seconds."""

    def __init__(self, store: "Nodes", prefix: str, ttl_s: Callable[[], float]) -> None:
        self._store = store
        self._prefix = prefix
        self._ttl_s = ttl_s
        self._taker = token_hex(8)  # of this process

    def wants(self, maker: Maker) -> bool:  # noqa: ARG002 - other implementations want only some
        """Return True: Redis has all makers of reasoning."""
        return True

    async def share(self, name: str, value: str) -> None:
        """Write a name for the other replicas; without effect while Redis is away."""
        await self.put(name, value)

    async def put(self, name: str, value: str) -> bool:
        """Write a name for the other replicas; return False if Redis is away."""
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
        """Return the value of a name and forget the name; only one of all processes gets the value. None: no value.

        A process that did not get Redis' reply may ask again, and gets the value then.

        Raises:
            Exception: Redis is away; its clients raise many types.

        """
        key = self._prefix + name
        reply = await self._store.call(key, ("EVAL", _TAKE, 1, key, self._taker, LONGEST_TAKEN))
        if not reply or not isinstance(reply, str):
            return None
        with suppress(Exception):  # if this fails, the name expires
            await self._store.call(key, ("DEL", key))
        return reply.encode()

    async def ask(self, name: str) -> str | None:
        """Return the value of a name; None: no value, or Redis is away."""
        key = self._prefix + name
        try:
            reply = await self._store.call(key, ("GETRANGE", key, 0, LONGEST_NAME))
        except Exception as error:  # noqa: BLE001 - likewise
            structlog.get_logger().warning("responses.not_shared", error=type(error).__name__)
            return None
        value = reply if isinstance(reply, str) else ""
        return value if 0 < len(value) <= LONGEST_NAME and value.isprintable() else None  # Redis may have other writers


class NamesOnDisk(Protocol):
    """Names with values that outlast a restart."""

    def tell(self, client: str | None, names: Iterable[str], known: str) -> None:
        """Store ``known`` as the value of names that ``client`` was given."""

    async def ask(self, client: str | None, name: str) -> str | None:
        """Return the value of a name; None: no value.

        Raises:
            NamesUnreachable: the store of the names does not answer.

        """

    async def take(
        self, client: str | None, name: str, row_of: Callable[[str], CallRecord | None]
    ) -> CallRecord | None:
        """Forget a name and return the row that ``row_of`` makes of the value; only one of all callers gets the row.

        The row is written even if this process is killed now.

        Raises:
            NamesUnreachable: the store of the names does not answer.

        """


class RunningOnDisk(NamesOnDisk, Protocol):
    """Responses in the background; a process finds their ids after a restart."""

    def tell_running(self, client: str | None, name: str, known: str) -> None:
        """Store ``known`` as the value of a response of ``client`` that still runs."""


class InBackground(msgspec.Struct, frozen=True):
    """A response that still runs in the background after its call has ended."""

    attempt_id: str
    model: str  # the model that the client asked for
    ran_as: str  # the model that runs: perhaps a fallback
    since_s: float  # Unix seconds
    counted_usd: float | None  # the dollars that limits count for the response; None: not known
    owners: tuple[str, ...]  # of the accounts that count these dollars
    size_class: int
    tags: Mapping[str, str]
    deployment: str | None = None  # the deployment that runs it, if the gateway may ask for the response by itself
    api: str | None = None  # the answer's dialect; None: Responses (in values of a former version)


class StoredResponses:
    """Ids of responses, each with its client and the deployment that made it, kept for ``ttl_s`` seconds.

    The same is kept for other ids in answers whose objects a provider stores: items, containers, files, …

    A reload may change ``ttl_s``, for responses from then on.

    Providers see all clients as one, so the gateway checks that only the client that got a response continues it.

    The ids are always in memory, and in Redis, if configured, for the other replicas: while Redis is away, only
    requests that reach another replica fail. Without Redis the ids are on disk, as hashes, for the time after a
    restart.
    """

    def __init__(
        self,
        ttl_s: float,
        *,
        clock: Callable[[], float],
        store: "Nodes | None" = None,
        on_disk: NamesOnDisk | None = None,
        begun_on_disk: RunningOnDisk | None = None,
    ) -> None:
        """``on_disk``: names, and ``begun_on_disk``: responses in the background; both only without Redis."""
        self.ttl_s = ttl_s
        self._clock = clock
        self._on_disk = on_disk
        self._begun_on_disk = begun_on_disk
        self._shared = None if store is None else RedisNames(store, _PREFIX, lambda: self.ttl_s)
        self._made: OrderedDict[tuple[str | None, str], tuple[Maker, float]] = OrderedDict()  # the newest last
        self._background = None if store is None else RedisNames(store, _BACKGROUND_PREFIX, lambda: self.ttl_s)
        # Responses in the background, each with the time until which it is kept, and whether Redis has it; the newest
        # last.
        self._begun: OrderedDict[tuple[str | None, str], tuple[InBackground, float, bool]] = OrderedDict()
        # Responses that began before this process, by attempt: limits count so many US dollars for each.
        self._left: dict[str, tuple[InBackground, float]] = {}
        self.on_left: Callable[[Collection[tuple[InBackground, float]]], None] | None = None

    async def keep_all(
        self,
        client: str | None,
        names: Iterable[str],
        deployment: str,
        key_name: str | None = None,
        tenant: str | None = None,
    ) -> None:
        """Store the ``names`` that an answer of ``deployment``, made with the key ``key_name``, gave to ``client``."""
        maker = Maker(deployment, key_name, tenant)
        rest, now_s = [*map(_short, names)], self._clock()
        if self._on_disk is not None and (new := [each for each in rest if self._is_new(client, each, maker, now_s)]):
            maker_parts = {"deployment": deployment, "key_name": key_name, "tenant": tenant}
            maker_fields = {name: value for name, value in maker_parts.items() if value is not None}
            self._on_disk.tell(client, new, msgspec.json.encode(maker_fields).decode())
        for name in rest:
            self._know(client, name, maker, now_s + self.ttl_s)
        while rest and self._shared is not None:
            await self._share(self._shared, client, rest[:_AT_ONCE], maker)
            rest = rest[_AT_ONCE:]

    def _know(self, client: str | None, name: str, maker: Maker, until_s: float) -> None:
        self._made[client, name] = (maker, until_s)
        self._made.move_to_end((client, name))
        while len(self._made) > MOST_KEPT:
            self._made.popitem(last=False)

    def _is_new(self, client: str | None, name: str, maker: Maker, now_s: float) -> bool:
        """Whether a name is not on disk for about as long as it is to be kept; an answer has each name twice."""
        known_maker = self._made.get((client, name))
        return known_maker is None or known_maker[0] != maker or known_maker[1] < now_s + _NEARLY * self.ttl_s

    async def _share(self, shared: RedisNames, client: str | None, names: Sequence[str], maker: Maker) -> None:
        # The former version knows only plain deployments.
        keyed = maker.key_name is not None or maker.tenant is not None
        value = msgspec.json.encode(maker).decode() if keyed else maker.deployment
        await asyncio.gather(*(shared.share(_key(client, name), value) for name in names))

    async def begin(self, client: str | None, response_id: str, begun: InBackground) -> None:
        """Store a response of ``client`` that still runs in the background."""
        begun_json = msgspec.json.encode(begun, enc_hook=dict).decode()
        if self._begun_on_disk is not None and begun.deployment is None:
            self._begun_on_disk.tell(client, (response_id,), begun_json)
        elif self._begun_on_disk is not None:
            self._begun_on_disk.tell_running(client, response_id, begun_json)
        shared = self._background is not None and await self._background.put(_key(client, response_id), begun_json)
        self._begun[client, response_id] = (begun, self._clock() + self.ttl_s, shared)
        while len(self._begun) > MOST_KEPT:
            self._begun.popitem(last=False)

    async def end(
        self, client: str | None, response_id: str, row_of: Callable[[InBackground], CallRecord]
    ) -> tuple[InBackground, CallRecord] | None:
        """Return a response in the background and the row of its end, to only one of all callers that see the end.

        None: the response did not run in the background, another replica has seen the end, or the store does not
        answer.
        """
        kept = self._begun.pop((client, response_id), None)
        if self._begun_on_disk is not None:
            return await self._ended(self._begun_on_disk, client, response_id, kept, row_of)
        if self._background is None or (kept is not None and not kept[2]):
            return None if kept is None or self._clock() >= kept[1] else (kept[0], row_of(kept[0]))
        try:
            begun_json = await self._background.take(_key(client, response_id))
            begun = None if begun_json is None else msgspec.json.decode(begun_json, type=InBackground)
            return None if begun is None else (begun, row_of(begun))
        except UNREADABLE:  # Redis has other writers
            return None
        except Exception as error:  # noqa: BLE001 - Redis clients raise many types; the answer must not fail
            structlog.get_logger().warning("responses.not_shared", error=type(error).__name__)
        if kept is not None:
            self._begun[client, response_id] = kept  # the next request about the response tries again
        return None

    async def _ended(
        self,
        on_disk: NamesOnDisk,
        client: str | None,
        response_id: str,
        own: tuple[InBackground, float, bool] | None,
        row_of: Callable[[InBackground], CallRecord],
    ) -> tuple[InBackground, CallRecord] | None:
        """Do as ``end``, without Redis."""
        rows: list[InBackground] = []

        def row_of_known(known: str) -> CallRecord | None:
            try:
                rows.append(msgspec.json.decode(known, type=InBackground))
            except UNREADABLE:  # written by a later version
                return None
            return row_of(rows[0])

        try:
            row = await on_disk.take(client, response_id, row_of_known)
        except NamesUnreachable:
            if own is not None:
                self._begun[client, response_id] = own  # as above
            return None
        if row is None:
            return None
        begun = rows[0]
        if own is not None or begun.counted_usd is None or begun.attempt_id in self._left:
            return begun, row
        return msgspec.structs.replace(begun, counted_usd=0.0), row  # another process has counted the cost

    def has_begun(self, attempt_id: str) -> bool:
        """Whether this process has begun the response of this attempt, and has not seen its end."""
        return any(begun.attempt_id == attempt_id for begun, _, _ in self._begun.values())

    def count_left(self, begun: Iterable[InBackground]) -> None:
        """Have limits count responses that began before this process, as if it had counted their beginning."""
        for each in begun:
            if each.counted_usd is not None:
                self._left[each.attempt_id] = (each, each.counted_usd)
        self._tell_left()

    def settle_left(self, begun: InBackground, usd: float) -> bool:
        """Have limits count the cost ``usd`` instead; False: ``count_left`` did not include the response."""
        if begun.attempt_id not in self._left:
            return False
        self._left[begun.attempt_id] = (begun, usd)
        self._tell_left()
        return True

    def _tell_left(self) -> None:
        if self.on_left is not None:
            self.on_left(self._left.values())

    async def find(self, client: str | None, response_id: str) -> str | None:
        """Return the deployment that made a response of ``client``; None: unknown or expired."""
        maker = await self.maker(client, response_id)
        return None if maker is None else maker.deployment

    async def hint(self, client: str | None, name: str) -> Maker | None:
        """Do as ``maker``, but do not ask the disk, as each turn of a conversation calls this."""
        if self._on_disk is not None and (client, _short(name)) not in self._made:
            return None
        with suppress(NamesUnreachable):
            return await self.maker(client, name)
        return None

    async def maker(self, client: str | None, name: str) -> Maker | None:
        """Return the maker of the answer that gave ``name`` to ``client``; None: unknown or expired.

        Raises:
            NamesUnreachable: without Redis, this process does not know the name, and the ledger's database is away.

        """
        name = _short(name)
        known_maker = self._made.get((client, name))
        if known_maker is not None:
            maker, until = known_maker
            if self._clock() < until:
                return maker
            del self._made[client, name]
        if self._on_disk is not None:
            maker_json = await self._on_disk.ask(client, name)
        else:
            maker_json = None if self._shared is None else await self._shared.ask(_key(client, name))
        if maker_json is None:
            return None
        if not maker_json.startswith("{"):
            return Maker(maker_json)
        try:
            maker = msgspec.json.decode(maker_json, type=Maker)
        except UNREADABLE:  # Redis may have other writers
            return None
        if self._on_disk is not None:  # files and containers are named again and again
            self._know(client, name, maker, self._clock() + min(_FOUND_S, self.ttl_s))
        return maker


def _short(name: str) -> str:
    """Return a name short enough to keep, or its hash; some names (sealed credits) are long texts."""
    return name if len(name) <= LONGEST_KEPT else sha256(name.encode(errors="replace")).hexdigest()


def _key(client: str | None, response_id: str) -> str:
    """Return the name in Redis. The client is quoted, so that different pairs have different keys.

    Only a response's id is readable there, as other ids are of use to anyone who reads them.
    """
    if not response_id.startswith("resp"):
        response_id = sha256(response_id.encode(errors="replace")).hexdigest()
    return f"{quote(client or '', safe='')}:{response_id}"
