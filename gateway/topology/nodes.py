"""The nodes of Redis, by the part of the keys that each serves, and the round trips to them.

One node, or the master that Sentinels name, serves all keys: its only shard has the name "". Whatever the URL says, a
Cluster is detected by a query, and any of its nodes knows all masters. Commands go in one pipeline to one node and are
tried once: the next round is the retry. redis-py's own pipeline for clusters fails as a whole when one master is dead,
and takes seconds for that, whatever the time-out.
"""

import asyncio
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha1
from itertools import count
from math import log10
from pathlib import Path
from typing import Any
from zlib import crc32

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.connection import ConnectionPool, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelManagedConnection
from redis.backoff import NoBackoff
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.credentials import CredentialProvider
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from gateway.core.addresses import Address
from gateway.topology.urls import Node, RedisUrl, UnusableTopologyError, read_url
from providers import FileStates, file_states
from providers.http import authority_files

TIMEOUT_S = 1.0  # for connecting, and for each reply

_REPLY = 160  # characters of a reply that are logged

# The longest interval between two rounds of a process, as a multiple of the usual one. The interval doubles for ten
# times as many processes, so that a thousand of them query Redis 25 times as often as ten, not a hundred times.
LONGEST = 4.0

# Replies of a node that does not serve the key, or not now; the replies remain if the node that they name fails, too.
REDIRECTED = (MovedError, AskError, TryAgainError, ClusterDownError, ReadOnlyError)

PREFIX = "holeshot"  # of every key, as other rooms write them

Command = Sequence[str | bytes | int | float]


def round_s(least_s: float, processes: int, own: str) -> float:
    """Return the seconds between two rounds of the process ``own``: ``least_s`` for ten processes, twice that for 100.

    A round takes at most four times ``least_s``, and up to a tenth less by ``own``, so that rounds do not coincide.
    """
    longer = min(LONGEST, max(1.0, float(processes ** log10(2.0)) / 2.0))
    return least_s * longer * (1.0 - crc32(own.encode()) / 2**32 / 10.0)


class _Encrypted(SSLConnection):
    """A connection over TLS. Files that have changed since its last handshake, and authorities, are read again."""

    _read: FileStates | None = None

    def _connection_arguments(self) -> Mapping[str, Any]:
        tls = self.ssl_context
        named = (tls.ca_certs, tls.ca_path, tls.certfile, tls.keyfile)
        states = file_states([*(Path(each) for each in named if each), *authority_files(os.environ)])
        if states != self._read:
            self._read, tls.context = states, None
        return super()._connection_arguments()


class _EncryptedMaster(SentinelManagedConnection, _Encrypted):
    """A connection over TLS to the master that Sentinels name."""


class SlotMap:
    """The masters of a Cluster by the slots that they serve.

    A shard's name is the smallest number whose decimal digits, as a key, it serves: all processes find the same name,
    it survives a failover, and a key with the name as its hash tag is served by this shard.
    """

    def __init__(self, ranges: Sequence[tuple[int, int, Node]], others: Sequence[Node] = ()) -> None:
        self.ranges = sorted(ranges)
        self.nodes = tuple(dict.fromkeys([*(master for _, _, master in self.ranges), *others]))
        self.covered = sum(last - first + 1 for first, last, _ in self.ranges)
        self._starts = [first for first, _, _ in self.ranges]
        self.masters = self._named()
        self._names = {master: name for name, master in self.masters.items()}

    def shard_of(self, key: str) -> str:
        """Return the shard that serves ``key``; "" if none does."""
        master = self._master_of(key)
        return self._names[master] if master is not None else ""

    def _master_of(self, key: str) -> Node | None:
        slot = key_slot(key.encode())
        at = bisect_right(self._starts, slot) - 1
        return self.ranges[at][2] if at >= 0 and slot <= self.ranges[at][1] else None

    def _named(self) -> dict[str, Node]:
        unnamed = {master for first, last, master in self.ranges if first <= last}
        masters = {}
        numbers = count()
        while unnamed:
            name = str(next(numbers))
            master = self._master_of(name)
            if master in unnamed:
                masters[name] = master
                unnamed.remove(master)
        return masters


class _Login(CredentialProvider):
    """User and password of a URL, read again for each connection: ``of`` finds both in the URL."""

    def __init__(self, address: Address, of: Callable[[RedisUrl], tuple[str, str]]) -> None:
        self._address = address
        self._of = of

    def get_credentials(self) -> Any:
        """Return user and password, the password alone, or nothing, as redis-py has them."""
        user, password = self._of(read_url(self._address.url))
        if user:
            return user, password
        return (password,) if password else ()

    async def get_credentials_async(self) -> Any:
        """Return the same as ``get_credentials``."""
        return self.get_credentials()


def _options(url: RedisUrl) -> dict[str, Any]:
    """Return the URL's options, without the login."""
    said: dict[str, Any] = {**parse_url(url.plain)}
    if said.get("connection_class") is SSLConnection:
        said["connection_class"] = _Encrypted
    return {name: each for name, each in said.items() if name not in {"username", "password"}}


def _of_nodes(url: RedisUrl) -> tuple[str, str]:
    options = parse_url(url.plain)
    return str(options.get("username") or ""), str(options.get("password") or "")


def _of_sentinels(url: RedisUrl) -> tuple[str, str]:
    login = dict(url.login)
    return login.get("username", ""), login.get("password", "")


class Nodes:
    """Redis in any topology. All methods raise redis-py's errors when a node does not answer.

    ``timeout_s`` bounds connecting and each reply; a bound on a whole round is the caller's. ``version`` changes with
    the masters.
    """

    def __init__(self, address: str | Address, timeout_s: float = TIMEOUT_S, prefix: str = PREFIX) -> None:
        """Connect nowhere yet. New connections have the login that ``address`` has then.

        ``prefix`` stands in Redis in the place of ``PREFIX``, so that several environments can share it.

        Raises:
            RedisUrlError: the URL is invalid.

        """
        self.version = 0
        self._prefix = prefix
        self._address = address = address if isinstance(address, Address) else Address(address)
        url = self._url = read_url(address.url)
        self._options: Mapping[str, Any] = {
            "decode_responses": True,
            "encoding_errors": "replace",  # invalid bytes would prevent reading the other replies
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s,
            "retry": Retry(NoBackoff(), 0),  # the next round is the retry
            **_options(url),
            "credential_provider": _Login(address, _of_nodes),
        }
        self._sentinel = _sentinel(address, url, self._options, timeout_s) if url.kind == "sentinel" else None
        self._first = self._opened()
        self._clients: dict[Node, Redis] = {}
        self._map: SlotMap | None = None  # None: one node
        self._is_known = self._sentinel is not None  # whether it is a cluster
        self._discoveries = 0  # so far
        self._failed = ""  # the shard that failed last
        self._loaded: set[tuple[str, str]] = set()  # shards, and the scripts that they have
        self._took_s: dict[str, float] = {}  # by shard
        self._discovery: asyncio.Task[None] | None = None
        self._is_open = True

    @property
    def name(self) -> str:
        """The topology in words, as far as known."""
        if self._sentinel is not None:
            return f"redis sentinel, service {self._url.service}"
        if self._map is None:
            return "redis" if self._is_known or self._url.kind == "plain" else "redis cluster"
        masters = len(self._map.masters)
        return f"redis cluster, {masters} master{'s' if masters != 1 else ''}"

    @property
    def database(self) -> int:
        """The number of the database."""
        return int(self._options.get("db") or 0)

    @property
    def shards(self) -> tuple[str, ...]:
        """The names of the shards."""
        return ("",) if self._map is None or not self._map.masters else tuple(self._map.masters)

    @property
    def took_s(self) -> float:
        """The duration of the last round trip in seconds, answered or not, of the slowest shard."""
        return max(self._took_s.get(shard, 0.0) for shard in self.shards)

    def shard_of(self, key: str) -> str:
        """Return the shard that serves ``key``."""
        return "" if self._map is None else self._map.shard_of(self.named(key))

    def named(self, key: str) -> str:
        """Return the name in Redis of a key or a channel."""
        return self._prefix + key.removeprefix(PREFIX) if key.startswith(f"{PREFIX}:") else key

    def address(self, shard: str) -> str:
        """Return a shard's address for logs: host and port, or a path."""
        if self._map is not None and shard in self._map.masters:
            host, port = self._map.masters[shard]
        elif self._sentinel is not None:
            return f"service {self._url.service}"
        elif "path" in self._options:
            return str(self._options["path"])
        else:
            host, port = self._url.hosts[0]
        return f"{host}:{port}"

    async def find(self) -> None:
        """Detect whether Redis is a Cluster, unless that is known."""
        if not self._is_known:
            self._discover()
            if self._discovery is not None:
                await asyncio.shield(self._discovery)

    async def run(self, shard: str, commands: Sequence[Command]) -> list[Any]:
        """Send commands to a shard in one round trip, and return each one's reply, which may be an error of Redis.

        All keys must be served by that shard, and those of one command have one hash tag. The text of an ``EVAL`` is
        sent the first time, and again if Redis has lost it, which takes one more round trip.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        refused = self._address.url
        if self._prefix != PREFIX:
            commands = [self._with_names(words) for words in commands]
        try:
            return await self._run(shard, commands)
        except AuthenticationError:
            if not await self._address.is_renewed(refused):
                raise
            return await self._run(shard, commands)
        finally:
            self._took_s[shard] = loop.time() - began_s

    async def _run(self, shard: str, commands: Sequence[Command]) -> list[Any]:
        await self.find()
        replies = await self._sent(shard, [self._short(shard, words) for words in commands])
        lost = [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if lost:  # the node has restarted, or another one took over
            again = await self._sent(shard, [commands[at] for at in lost])
            for at, reply in zip(lost, again, strict=True):
                replies[at] = reply
        if any(isinstance(reply, AskError) for reply in replies):
            await self._follow(commands, replies)
        self._loaded.update((shard, str(words[1])) for words in commands if words[0] == "EVAL")
        return replies

    def _with_names(self, words: Command) -> Command:
        """Return a command with the names of its keys in Redis."""
        first, number = (3, int(words[2])) if words[0] == "EVAL" else (1, 1)
        keys = words[first : first + number]
        named = [self.named(each) if isinstance(each, str) else each for each in keys]
        return (*words[:first], *named, *words[first + number :])

    def _short(self, shard: str, words: Command) -> Command:
        """Return an ``EVAL`` with its script's digest, if the shard has the script."""
        if words[0] != "EVAL" or (shard, str(words[1])) not in self._loaded:
            return words
        return ("EVALSHA", _digest(str(words[1])), *words[2:])

    async def _sent(self, shard: str, commands: Sequence[Command]) -> list[Any]:
        redis, is_answered = self._client(shard), False
        try:
            pipeline = redis.pipeline(transaction=False)
            for words in commands:
                pipeline.execute_command(*words)
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
            is_answered = True
        finally:  # a time-out of the caller is a cancellation here
            if self._map is not None and not is_answered:
                self._discover(shard)
        if any(isinstance(reply, REDIRECTED) and type(reply) is not AskError for reply in replies):
            self._discover(shard)
            await redis.connection_pool.disconnect(inuse_connections=False)  # the name may be another node's by now
        return replies

    async def _follow(self, commands: Sequence[Command], replies: list[Any]) -> None:
        """Send commands again whose slot has moved, or whose keys have while it is moving, to the node in the replies.

        If that fails, the reply remains, as the next round is the retry. The same holds for a command with several keys
        of which only some have moved: it can run when all have.
        """
        moved: dict[Node, list[int]] = {}
        for at, reply in enumerate(replies):
            if isinstance(reply, AskError) and reply.host:  # ``MovedError`` is a subclass; not all nodes know names
                moved.setdefault((reply.host, reply.port), []).append(at)
        for address, places in moved.items():
            pipeline = self._client_at(address).pipeline(transaction=False)
            for at in places:
                pipeline.execute_command("ASKING")
                pipeline.execute_command(*commands[at])
            with suppress(RedisError, OSError):
                found = await pipeline.execute(raise_on_error=False)
                for at, reply in zip(places, found[1::2], strict=True):
                    replies[at] = reply

    async def call(self, key: str, command: Command) -> Any:
        """Run one command, and again if ``key`` has moved to another node. Errors of Redis are raised, too."""
        for is_last in (False, True):
            (reply,) = await self.run(self.shard_of(key), [command])
            if not isinstance(reply, Exception):
                return reply
            if is_last or not isinstance(reply, REDIRECTED) or self._discovery is None:
                raise reply
            await asyncio.shield(self._discovery)
        raise AssertionError  # the second turn is the last

    def pubsub(self, key: str) -> PubSub:
        """Return a subscription at the node that serves ``key``; a Cluster's nodes forward each message to all."""
        subscription: PubSub = self._client(self.shard_of(key)).pubsub()
        return subscription

    async def aclose(self) -> None:
        """Close all connections."""
        self._is_open = False
        if self._discovery is not None:
            self._discovery.cancel()
            await asyncio.wait({self._discovery})
        with suppress(RedisError, OSError):
            if self._sentinel is not None:
                await self._sentinel.aclose()
        for redis in (self._first, *self._clients.values()):
            with suppress(RedisError, OSError):
                await redis.aclose()

    def _opened(self, address: Node | None = None) -> Redis:
        """Return a client of the node at ``address``; None: the one in the URL."""
        if self._sentinel is not None:
            options = {name: each for name, each in self._options.items() if name not in {"host", "port"}}
            if "connection_class" in options:
                options["connection_class"] = _EncryptedMaster
            return self._sentinel.master_for(self._url.service, **options)  # type: ignore[no-any-return] # it is one
        options = dict(self._options)
        if address is not None:
            options.pop("path", None)
            options.update(host=address[0], port=address[1])
            if self._url.plain.startswith("unix:"):
                options.pop("connection_class", None)
        return Redis.from_pool(ConnectionPool(**options))

    def _client(self, shard: str) -> Redis:
        if self._map is None or shard not in self._map.masters:
            return self._first  # the shard does not exist any more: the reply redirects, and starts a discovery
        return self._client_at(self._map.masters[shard])

    def _client_at(self, address: Node) -> Redis:
        if (address,) == self._url.hosts[:1]:
            return self._first
        redis = self._clients.get(address)
        if redis is None:
            redis = self._clients[address] = self._opened(address)
        return redis

    # Discovery of the masters.

    def _discover(self, failed: str = "") -> None:
        """Start a discovery, unless one is running; the node of the shard that ``failed`` is queried last."""
        self._failed = failed
        if self._is_open and self._sentinel is None and (self._discovery is None or self._discovery.done()):
            self._discovery = asyncio.create_task(self._read_slots(), name="topology.ask")
            self._discovery.add_done_callback(_ignore_failure)

    async def _read_slots(self) -> None:
        problem: Exception = RedisConnectionError("no node of the cluster answers")
        for redis, address in list(self._nodes_in_turn()):
            try:
                rows = await redis.execute_command("CLUSTER SLOTS")  # type: ignore[no-untyped-call] # a list of ranges
            except ResponseError as error:
                if self._url.kind == "cluster" or self._map is not None:
                    problem = error
                    continue
                self._is_known = True  # a single node, as usual; or a proxy, or an ACL that forbids the command
                return
            except (RedisError, OSError, TimeoutError) as error:
                problem = error
                continue
            await self._apply(read_slots(rows, address))
            return
        raise problem

    def _nodes_in_turn(self) -> Iterator[tuple[Redis, Node]]:
        """Yield the nodes to query, each time starting with another one, and the failed one last."""
        self._discoveries += 1
        if self._map is None:
            yield self._first, (self._url.hosts or (("localhost", 0),))[0]
            for address in self._url.hosts[1:]:
                yield self._client_at(address), address
            return
        failed = self._map.masters.get(self._failed)
        known = [*self._map.nodes, *(host for host in self._url.hosts if host not in self._map.nodes)]
        first = self._discoveries % len(known)
        for address in sorted(known[first:] + known[:first], key=lambda each: each == failed):
            yield self._client_at(address), address

    async def _apply(self, found: SlotMap) -> None:
        self._is_known = True
        if self._map is None or self._map.ranges != found.ranges:
            self.version += 1
        self._map = found
        for address in [each for each in self._clients if each not in found.masters.values()]:
            with suppress(RedisError, OSError):
                await self._clients.pop(address).aclose()

    # Checks of the topology and its settings.

    async def check(self) -> None:
        """Check that limits and standings can be shared over this Redis.

        Raises:
            UnusableTopologyError: they cannot, and waiting does not help.

        """
        if self._sentinel is not None:
            await self._check_service(self._sentinel)
            return
        try:
            await self.find()
        except ResponseError as error:
            raise UnusableTopologyError(
                f"redis_url begins with redis+cluster://, but what answers is no Redis Cluster ({error}):"
                " write redis:// for one Redis"
            ) from None
        if self._map is None:
            await self._check_one()
        elif self._map.covered < REDIS_CLUSTER_HASH_SLOTS:
            raise UnusableTopologyError(
                f"the Redis Cluster of redis_url serves {self._map.covered} of {REDIS_CLUSTER_HASH_SLOTS} slots, so"
                " some limits could not be shared: assign the others (valkey-cli --cluster fix)"
            )

    async def doubts(self) -> list[str]:
        """Return notes on settings of Redis that may lose limits or standings."""
        doubts = []
        for shard in self.shards:
            policy, coverage = await self.run(
                shard, [("CONFIG GET", "maxmemory-policy"), ("CONFIG GET", "cluster-require-full-coverage")]
            )
            where = self.address(shard)
            policies = policy.values() if isinstance(policy, dict) else ()  # an error: we have no permission
            doubts += [
                f"redis_url: {where} has maxmemory-policy {each}, so it forgets limits when its memory is full:"
                " set noeviction"
                for each in policies
                if each != "noeviction"
            ]
            if self._map is not None and isinstance(coverage, dict) and "yes" in coverage.values():
                doubts.append(
                    f"redis_url: {where} has cluster-require-full-coverage yes, so while one master is away all of the"
                    " cluster refuses: set no"
                )
        return doubts

    async def _check_one(self) -> None:
        try:
            facts = await self._first.info("server")
        except ResponseError as error:
            if self.database:
                raise UnusableTopologyError(
                    f"redis_url names database {self.database}, which cannot be used ({error}): a Redis Cluster has"
                    " only database 0"
                ) from None
            return  # an ACL forbids the command
        if "sentinel" in (facts.get("redis_mode"), facts.get("server_mode")):
            raise UnusableTopologyError(
                "redis_url names a Sentinel: write redis+sentinel://host1,host2,host3/service, with the service's name"
            )

    async def _check_service(self, sentinel: Sentinel) -> None:
        known: set[str] = set()
        problem = None
        for each in sentinel.sentinels:
            try:
                masters = await each.sentinel_masters()
            except ResponseError as error:
                raise UnusableTopologyError(
                    f"a host of redis_url is no Sentinel ({error}): write redis:// for one Redis"
                ) from None
            except (RedisError, OSError, TimeoutError) as error:
                problem = error
                continue
            if self._url.service in masters:
                return
            known.update(str(name) for name in masters)
        if problem is not None and not known:
            raise problem
        raise UnusableTopologyError(
            f"no Sentinel of redis_url knows the service {self._url.service!r}; they know"
            f" {', '.join(map(repr, sorted(known))) or 'none'}"
        )


def connect(url: str | Address, timeout_s: float = TIMEOUT_S, prefix: str = PREFIX) -> Nodes:
    """Return the nodes of ``redis_url``; they connect when they are used.

    Raises:
        RedisUrlError: the URL is invalid.

    """
    return Nodes(url, timeout_s, prefix)


def why(error: BaseException) -> str:
    """Return why a round trip failed: the kind of error, and the beginning of Redis' own reply.

    The command is left out: it may have the password, if a server does not know HELLO or AUTH.
    """
    kind = type(error).__name__
    if isinstance(error, ResponseError | AuthenticationError):  # "NOPERM …", "DENIED …": the reply says what to change
        reply = str(error).rpartition(" caused error: ")[2]  # without the pipeline's command
        return f"{kind}: {reply.partition(', with args beginning with')[0][:_REPLY]}"
    return kind


@cache
def _digest(script: str) -> str:
    return sha1(script.encode()).hexdigest()  # noqa: S324 - Redis requires it


def raised(replies: Sequence[Any]) -> Sequence[Any]:
    """Return ``replies``, or raise the first that is an error."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def read_slots(rows: Sequence[Any], asked: Node) -> SlotMap:
    """Read the reply to ``CLUSTER SLOTS`` of the node at ``asked``, whose host replaces missing ones."""
    ranges, others = [], []
    for first, last, *nodes in rows:
        (master, *replicas) = [(str(host or asked[0]).replace("?", asked[0]), int(port)) for host, port, *_ in nodes]
        ranges.append((int(first), int(last), master))
        others += replicas
    return SlotMap(ranges, others)


def _sentinel(address: Address, url: RedisUrl, options: Mapping[str, Any], timeout_s: float) -> Sentinel:
    # Sentinels are queried one after the other, all within the time of a round, even if only the last one answers.
    each_s = timeout_s / (len(url.hosts) + 1)
    tls = {name: each for name, each in options.items() if name.startswith("ssl_")}
    is_encrypted = options.get("connection_class") is _Encrypted
    if is_encrypted:
        tls["ssl"] = True
    limits = {"socket_timeout": each_s, "socket_connect_timeout": each_s, "retry": Retry(NoBackoff(), 0)}
    login = _Login(address, _of_sentinels)
    kwargs = {**limits, **tls, "credential_provider": login}
    made = Sentinel(url.hosts, sentinel_kwargs=kwargs)  # type: ignore[no-untyped-call] # as its documentation has it
    for each in made.sentinels if is_encrypted else ():
        each.connection_pool.connection_class = _Encrypted
    return made


def _ignore_failure(task: "asyncio.Task[None]") -> None:
    """Ignore a discovery's error: the failed round was reported, and the next one discovers again."""
    if not task.cancelled():
        task.exception()
