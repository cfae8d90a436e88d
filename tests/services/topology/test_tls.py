"""Limits and standings over TLS: to all masters of a Cluster, and to Sentinels and the master that they name.

The servers of the wheels have no TLS: a front before each does it, and the servers are known by the fronts' ports only.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from threading import Thread

import pytest
import trustme
from redis.exceptions import ConnectionError as RedisConnectionError

from gateway.topology import connect
from tests.patience import PATIENCE_S, end_others, until
from tests.services.topology.process import NOW_S, Process, agree, standings, use_up
from tests.services.topology.test_cluster import client_at, model_at
from tests.support.servers import RedisCluster, free_port, redis_sentinels

pytestmark = pytest.mark.usefixtures("redis_binary")

TLS_HANDSHAKE = b"\x16"  # the first byte of a connection


class Fronts:
    """Listens for servers, ends TLS where a connection begins with it, and passes everything on.

    In a thread of its own, as servers reach each other through it while a test waits for them. ``seen`` counts
    connections by whether they were encrypted.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.seen: Counter[bool] = Counter()
        self._ports: dict[int, int] = {}
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._passing: set[asyncio.Task[None]] = set()
        self._thread = Thread(target=self._loop.run_forever)
        self._thread.start()

    def of(self, port: int) -> int:
        """Return the port of the front of a server, which need not run yet."""
        if port not in self._ports:
            self._ports[port] = free_port()
            listener = socket.create_server(("127.0.0.1", self._ports[port]))
            listener.settimeout(0)
            asyncio.run_coroutine_threadsafe(self._listen(listener, port), self._loop)
        return self._ports[port]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(end_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self, listener: socket.socket, port: int) -> None:
        with listener:
            while True:
                connection, _ = await self._loop.sock_accept(listener)
                task = self._loop.create_task(self._pass_on(connection, port))
                self._passing.add(task)
                task.add_done_callback(self._passing.discard)

    async def _pass_on(self, connection: socket.socket, port: int) -> None:
        with connection, suppress(OSError):  # ``ssl.SSLError`` is one
            is_encrypted = await self._first(connection) == TLS_HANDSHAKE
            self.seen[is_encrypted] += 1
            reader, writer = await self._opened(connection, self._context if is_encrypted else None)
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    async with asyncio.TaskGroup() as ways:
                        ways.create_task(_copy(reader, far_writer))
                        ways.create_task(_copy(far_reader, writer))
                finally:
                    far_writer.transport.abort()
            finally:
                writer.transport.abort()

    async def _first(self, connection: socket.socket) -> bytes:
        """Return the first byte, and leave it there."""
        readable = asyncio.Event()
        self._loop.add_reader(connection, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(connection)
        return connection.recv(1, socket.MSG_PEEK)

    async def _opened(
        self, connection: socket.socket, context: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, connection, ssl=context)
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while block := await reader.read(65_536):
            writer.write(block)
            await writer.drain()
    writer.transport.abort()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def fronts(authority: trustme.CA) -> Iterator[Fronts]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    made = Fronts(context)
    yield made
    made.close()


@pytest.fixture
def trusting(authority: trustme.CA, tmp_path: Path) -> str:
    """What a URL says to trust the certificates."""
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    return f"?ssl_ca_certs={file}"


async def test_all_masters_of_a_cluster_are_reached_over_tls(fronts: Fronts, trusting: str) -> None:
    with ExitStack() as stack:
        cluster = RedisCluster(stack, replicas=False)
        for node in cluster.masters:
            node.say("CONFIG", "SET", "cluster-announce-port", fronts.of(node.port))
        cluster.join()
        cluster.set("cluster-node-timeout", "60000")
        url = f"rediss+cluster://127.0.0.1:{fronts.of(cluster.masters[0].port)}"
        stranger = connect(url, PATIENCE_S)
        with pytest.raises(RedisConnectionError):
            await stranger.check()
        await stranger.aclose()
        async with AsyncExitStack() as processes:
            pair = [await processes.enter_async_context(Process(url + trusting, number)) for number in range(2)]
            nodes = pair[0].leases.nodes
            await until(lambda: len({nodes.address(shard) for shard in nodes.shards}) == 3)
            assert {nodes.address(shard) for shard in nodes.shards} == {
                f"127.0.0.1:{fronts.of(node.port)}" for node in cluster.masters
            }
            models = [model_at(nodes, shard) for shard in nodes.shards]
            for shard, model in zip(nodes.shards, models, strict=True):
                assert await use_up(pair, client_at(nodes, shard, "rpm"), {"rpm": 20.0}, least=20.0) == 20.0
                for each in pair:
                    each.board.add(model, {"a|n": 2.0}, NOW_S)
            await agree([each.board for each in pair])
            assert [standings(each.board, models) for each in pair] == [[4.0, 4.0, 4.0]] * 2
        assert fronts.seen[False] == 0


async def test_sentinels_and_the_next_master_are_reached_over_tls(fronts: Fronts, trusting: str) -> None:
    with redis_sentinels(fronts.of) as (plain, (master, _)):
        url = plain.replace("redis+", "rediss+")
        stranger = connect(url, PATIENCE_S)
        with pytest.raises(RedisConnectionError):
            await stranger.check()
        await stranger.aclose()
        async with AsyncExitStack() as processes:
            pair = [await processes.enter_async_context(Process(url + trusting, number)) for number in range(2)]
            limit = {"usd_per_day": 12.0}
            for each in pair:
                each.end(await each.begin("limited", limit, usd=1.0), 1.0)
            await until(lambda: all(each.quota("limited").elsewhere.used == 1.0 for each in pair))
            before = fronts.seen[True]
            assert before >= 4  # two processes at the Sentinels and at the master

            master.kill()
            await until(lambda: not any(each.leases.connected for each in pair))
            await until(lambda: all(each.leases.connected for each in pair))
            await until(lambda: not any(each.quota("limited").lease.is_share for each in pair))
            assert 2.0 + await use_up(pair, "limited", limit, 0.1, least=9.5) <= 12.0 + 1e-6
            assert fronts.seen[True] > before
