"""All client connections: how many strangers are allowed, and how long each may take to send a request.

A stranger is a connection without an admitted request. If there are too many, from one address or in all, the longest
silent one is cut, so that a flood of silent connections does not keep other clients out.
"""

import asyncio
import socket
from typing import TYPE_CHECKING, Any

from aiohttp import web

from gateway.app import Gateway
from gateway.connections.connection import Connection
from gateway.connections.cuts import Cuts, Reason
from gateway.connections.door import Door
from gateway.connections.owed_heads import OwedHeads
from gateway.connections.stalled import Stalled
from gateway.connections.strangers import Strangers
from gateway.errors import ClientStalled, HeadersTimeout, HeadersTooLarge
from gateway.ingress.addresses import FORWARDED_FOR, Trust, counted_as, read_address
from gateway.keys.table import Ended
from gateway.settings.model import ConnectionSettings

if TYPE_CHECKING:
    from ssl import SSLContext

# aiohttp limits the length of a line (8 kB) and their number (128): 2 MB of memory for each connection.
HEAD_BYTES = 32_768
OPENING_S = 0.5  # for what is being opened when the gateway stops
FIRST_LOOK_S = 0.25  # at who takes nothing; later ones as the limit says
STALL_LOOKS = 4  # at all connections, in the time that a client may take nothing


class Connections:
    """Opens accepted connections, counts them, and cuts those that exceed a limit.

    More than ``most`` open ones, a figure that may change at any time, would leave too few descriptors for everything
    else. ``options`` are aiohttp's for a connection. At shutdown, first stop calling ``take``, then await ``opened``,
    then call ``close``.
    """

    def __init__(self, gateway: Gateway, server: web.Server, *, most: int, **options: Any) -> None:
        self.ssl_context: SSLContext | None = None  # of connections that are taken from now on
        self._gateway = gateway
        self._server = server
        self.most = most
        self._options = {"door": Door(gateway.context), **options}
        self._loop = asyncio.get_running_loop()
        self._all: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._strangers: Strangers[Connection] = Strangers()
        self._proxied: set[Connection] = set()  # strangers that a trusted proxy made: each request has its own address
        self._heads: OwedHeads[Connection] = OwedHeads(
            self._loop,
            lambda: gateway.context.settings.connections.headers_timeout_s,
            lambda connection: self._cut(connection, Reason.LATE_HEAD),
        )
        self._stalled: Stalled[Connection] = Stalled()
        self._stall_look = self._loop.call_later(FIRST_LOOK_S, self._cut_stalled)
        self._trust = Trust(())
        gateway.context.admission.keys.table.on_ended = self._cut_ended
        self._cuts = Cuts(self._loop, count_one=gateway.metrics.connection_cut, opened=lambda: len(self._all))
        gateway.metrics.gauge("holeshot_connections", "Open connections from clients.", lambda: len(self._all))
        gateway.metrics.gauge(
            "holeshot_connections_unadmitted",
            "Open connections on which no request has been admitted yet.",
            lambda: len(self._strangers),
        )

    def __len__(self) -> int:
        """Return the number of connections that are open or being opened."""
        return len(self._all)

    def take(self, sock: socket.socket, host: str) -> None:
        """Open a connection from ``host``; cut another one, or this one, if that is one too many."""
        connection = self._welcome(host)
        task = connection.open(sock, self.ssl_context, self._limits().headers_timeout_s)
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        self._make_room(connection)

    def exhausted(self) -> None:
        """Count a connection that was refused because there was no descriptor for it."""
        self._gateway.metrics.connection_accepted()
        self._cuts.count(Reason.DESCRIPTORS)
        longest_silent = self._strangers.longest_silent()
        if longest_silent is not None:
            self._cut(longest_silent, Reason.DESCRIPTORS)

    async def opened(self) -> None:
        """Wait a moment for connections that are being opened, and drop the rest."""
        if self._opening:
            await asyncio.wait(self._opening, timeout=OPENING_S)
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    def close(self) -> None:
        """Look after those that are left no more."""
        self._stall_look.cancel()
        self._heads.close()
        self._cuts.close()

    def head_grows(self, connection: Connection, number: int) -> None:
        """Start its time limit for the head (for a new connection, that from its acceptance), and limit the size."""
        connection.head_bytes += number
        if connection.head_bytes > HEAD_BYTES:
            self._cut(connection, Reason.LARGE_HEAD)
        elif not connection.owes_head:
            connection.owes_head = connection.watched = True
            self._heads.owe(connection)

    def head_came(self, connection: Connection) -> None:
        """End its time limit for the head; for a stranger, record its activity and its address."""
        if connection.owes_head:
            connection.owes_head = False
            connection.head_bytes = 0
            self._heads.settle(connection)
        connection.watched = connection.is_stranger
        if not connection.is_stranger:
            return
        self._strangers.mark_active(connection)
        if connection in self._proxied:
            self._name(connection)

    def admitted(self, connection: Connection) -> None:
        """Remove it from the strangers."""
        connection.is_stranger = connection.watched = False
        self._strangers.discard(connection)
        self._proxied.discard(connection)

    def ended(self, connection: Connection) -> None:
        """Forget it."""
        self._all.discard(connection)
        self._forget(connection)

    def _welcome(self, host: str) -> Connection:
        """Return a connection from ``host``, as a stranger who owes a head from now on."""
        refusals = self._gateway.context.refusals
        connection = Connection(self, self._server, refusals, loop=self._loop, **self._options)
        self._gateway.metrics.connection_accepted()
        self._all.add(connection)
        address = read_address(host)
        if address is None or self._current_trust().trusts(address):
            self._proxied.add(connection)
            self._strangers.add(connection, None)
        else:
            self._strangers.add(connection, counted_as(address))
        self._heads.owe(connection)
        return connection

    def _limits(self) -> ConnectionSettings:
        return self._gateway.context.settings.connections

    def _current_trust(self) -> Trust:
        """Return who is trusted, which a reload may have changed."""
        networks = self._gateway.context.settings.trusted_proxies
        if networks is not self._trust.networks:
            self._trust = Trust(networks)
        return self._trust

    def _name(self, connection: Connection) -> None:
        """Count a stranger behind a proxy by the client's address in its request."""
        for head in connection.heads:
            client = self._current_trust().client(head.headers.getall(FORWARDED_FOR, ()))
            self._strangers.add(connection, None if client is None else counted_as(client))
        self._make_room(connection)

    def _make_room(self, newest: Connection) -> None:
        """Cut whoever is one too many now that there is ``newest``: itself, if there is nobody else."""
        limits = self._limits()
        address = self._strangers.address(newest)
        if address is not None and self._strangers.number_from(address) > limits.max_per_address:
            self._cut(self._strangers.longest_silent(address) or newest, Reason.ADDRESS)
        if len(self._strangers) > limits.max:
            self._cut(self._strangers.longest_silent() or newest, Reason.STRANGERS)
        elif len(self._all) > self.most:
            self._cut(self._strangers.longest_silent() or newest, Reason.DESCRIPTORS)

    def _cut(self, connection: Connection, reason: Reason) -> None:
        self._all.discard(connection)  # its end is reported later, but it must not be counted until then
        self._forget(connection)
        self._cuts.count(reason)
        if reason is Reason.LATE_HEAD and connection.head_bytes:  # else it is idle, and nobody waits for an answer
            limit_s = self._limits().headers_timeout_s
            connection.refuse(HeadersTimeout(f"the headers did not arrive within {limit_s:g} s (headers_timeout_s)"))
        elif reason is Reason.LARGE_HEAD:
            connection.refuse(HeadersTooLarge(f"the headers are longer than {HEAD_BYTES} bytes"))
        elif reason is Reason.STALLED:
            connection.give_up(ClientStalled)
        else:
            connection.cut()

    def _forget(self, connection: Connection) -> None:
        self._strangers.discard(connection)
        self._proxied.discard(connection)
        self._heads.settle(connection)

    def _cut_stalled(self) -> None:
        limit_s = self._gateway.context.settings.client_timeouts.write_timeout_s
        for connection in self._stalled.look(self._all, self._loop.time(), limit_s):
            self._cut(connection, Reason.STALLED)
        self._stall_look = self._loop.call_later(limit_s / STALL_LOOKS, self._cut_stalled)

    def _cut_ended(self, ended: Ended) -> None:
        """End what runs with keys that are not good any more: its provider is cancelled, its client cut off."""
        for connection in list(self._all):
            digest = connection.digest
            if digest is not None and (reason := ended.get(digest)) is not None:
                self._all.discard(connection)
                self._forget(connection)
                self._cuts.count(Reason.KEY)
                connection.give_up(reason)
