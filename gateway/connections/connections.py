"""All client connections: how many strangers are allowed, and how long each may take to send a request.

A stranger is a connection without an admitted request. If there are too many, from one address or in all, the longest
silent one is cut, so that a flood of silent connections does not keep other clients out.
"""

import asyncio
import socket
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from gateway.app import Gateway
from gateway.connections.connection import Connection
from gateway.connections.stalled import Stalled
from gateway.connections.strangers import Strangers
from gateway.errors import HeadersTimeout, HeadersTooLarge
from gateway.ingress.addresses import FORWARDED_FOR, Trust, counted_as, read_address
from gateway.settings.model import ConnectionSettings

if TYPE_CHECKING:
    from ssl import SSLContext

# aiohttp limits the length of a line (8 kB) and their number (128): 2 MB of memory for each connection.
HEAD_BYTES = 32_768
OPENING_S = 0.5  # for connections that are being opened when the gateway stops
LOOK_S = 0.25  # between two checks for late heads, at least
STALL_LOOKS = 4  # of all connections, within the time in which a client must read something
LINE_S = 10.0  # between two log lines, at least


class Reason(StrEnum):
    """Why a connection is cut."""

    ADDRESS = "address"  # too many strangers from one address
    STRANGERS = "strangers"  # too many in all
    DESCRIPTORS = "descriptors"  # the process has no descriptors for more connections
    LATE_HEAD = "late_head"  # the head of a request was not complete in time
    LARGE_HEAD = "large_head"  # or was too large
    STALLED = "stalled"  # its client does not read an answer


class Connections:
    """Opens accepted connections, counts them, and cuts those that exceed a limit.

    More than ``most`` open ones would leave too few descriptors for everything else. ``options`` are aiohttp's for a
    connection. At shutdown, first stop calling ``take``, then await ``opened``, then call ``close``.
    """

    def __init__(self, gateway: Gateway, server: web.Server, *, most: int, **options: Any) -> None:
        self.ssl_context: SSLContext | None = None  # of connections from now on
        self._context = gateway.context
        self._metrics = gateway.metrics
        self._server = server
        self._most = most
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._all: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._strangers: Strangers[Connection] = Strangers()
        self._proxied: set[Connection] = set()  # strangers through a trusted proxy: each request has its own address
        self._owing: dict[Connection, float] = {}  # since when the head of a request is expected; the longest first
        self._look: asyncio.TimerHandle | None = None
        self._stalled: Stalled[Connection] = Stalled()
        self._stall_look = self._loop.call_later(LOOK_S, self._cut_stalled)
        self._trust = Trust(())
        self._untold: Counter[Reason] = Counter()
        self._line: asyncio.TimerHandle | None = None
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
        """Count a connection that was refused for lack of a descriptor."""
        self._metrics.connection_accepted()
        self._count(Reason.DESCRIPTORS)
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
        """Stop watching the remaining connections."""
        for timer in (self._look, self._line, self._stall_look):
            if timer is not None:
                timer.cancel()
        self._tell()

    def head_grows(self, connection: Connection, number: int) -> None:
        """Start its time limit for the head (for a new connection, that from its acceptance), and limit the size."""
        connection.head_bytes += number
        if connection.head_bytes > HEAD_BYTES:
            self._cut(connection, Reason.LARGE_HEAD)
        elif not connection.owes_head:
            connection.owes_head = connection.watched = True
            self._owing[connection] = self._loop.time()
            self._look_in(self._limits().headers_timeout_s)

    def head_came(self, connection: Connection) -> None:
        """End its time limit for the head; for a stranger, record its activity and its address."""
        if connection.owes_head:
            connection.owes_head = False
            connection.head_bytes = 0
            self._settle(connection)
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
        """Return a connection from ``host``, as a stranger whose request head is expected from now on."""
        limits = self._limits()
        connection = Connection(self, self._server, self._context.refusals, loop=self._loop, **self._options)
        self._metrics.connection_accepted()
        self._all.add(connection)
        address = read_address(host)
        if address is None or self._trust.trusts(address):
            self._proxied.add(connection)
            self._strangers.add(connection, None)
        else:
            self._strangers.add(connection, counted_as(address))
        self._owing[connection] = self._loop.time()
        self._look_in(limits.headers_timeout_s)
        return connection

    def _limits(self) -> ConnectionSettings:
        """Return the current limits; trusted proxies may have changed with them."""
        settings = self._context.settings
        if settings.trusted_proxies is not self._trust.networks:
            self._trust = Trust(settings.trusted_proxies)
        return settings.connections

    def _name(self, connection: Connection) -> None:
        """Count a stranger behind a proxy by the client's address in its request."""
        for head in connection.heads:
            client = self._trust.client(head.headers.getall(FORWARDED_FOR, ()))
            self._strangers.add(connection, None if client is None else counted_as(client))
        self._make_room(connection)

    def _make_room(self, newest: Connection) -> None:
        """If ``newest`` exceeds a limit, cut one connection, in the last resort itself."""
        limits = self._context.settings.connections
        address = self._strangers.address(newest)
        if address is not None and self._strangers.number_from(address) > limits.max_per_address:
            self._cut(self._strangers.longest_silent(address) or newest, Reason.ADDRESS)
        if len(self._strangers) > limits.max:
            self._cut(self._strangers.longest_silent() or newest, Reason.STRANGERS)
        elif len(self._all) > self._most:
            self._cut(self._strangers.longest_silent() or newest, Reason.DESCRIPTORS)

    def _cut(self, connection: Connection, reason: Reason) -> None:
        self._all.discard(connection)  # its end is reported later, but it must not be counted until then
        self._forget(connection)
        self._count(reason)
        if reason is Reason.LATE_HEAD and connection.head_bytes:  # else it is idle and does not wait for an answer
            limit_s = self._limits().headers_timeout_s
            connection.refuse(HeadersTimeout(f"the headers did not arrive within {limit_s:g} s (headers_timeout_s)"))
        elif reason is Reason.LARGE_HEAD:
            connection.refuse(HeadersTooLarge(f"the headers are longer than {HEAD_BYTES} bytes"))
        elif reason is Reason.STALLED:
            connection.give_up()
        else:
            connection.cut()

    def _forget(self, connection: Connection) -> None:
        self._strangers.discard(connection)
        self._proxied.discard(connection)
        self._settle(connection)

    def _settle(self, connection: Connection) -> None:
        """Stop waiting for its head, and stop checking if it was the last one."""
        if self._owing.pop(connection, None) is not None and not self._owing and self._look is not None:
            self._look.cancel()
            self._look = None

    def _look_in(self, delay_s: float) -> None:
        if self._look is None:
            self._look = self._loop.call_later(max(LOOK_S, delay_s), self._cut_late_heads)

    def _cut_late_heads(self) -> None:
        """Cut connections whose head is late, and check again when the next one will be."""
        self._look = None
        limit_s, now = self._limits().headers_timeout_s, self._loop.time()
        late = []
        for connection, since in self._owing.items():
            if now - since < limit_s:
                self._look_in(since + limit_s - now)
                break
            late.append(connection)
        for connection in late:
            self._cut(connection, Reason.LATE_HEAD)

    def _cut_stalled(self) -> None:
        limit_s = self._context.settings.client_timeouts.write_timeout_s
        for connection in self._stalled.look(self._all, self._loop.time(), limit_s):
            self._cut(connection, Reason.STALLED)
        self._stall_look = self._loop.call_later(limit_s / STALL_LOOKS, self._cut_stalled)

    def _count(self, reason: Reason) -> None:
        """Count it in the metrics, and in a log line that summarises several."""
        self._metrics.connection_cut(reason)
        self._untold[reason] += 1
        if self._line is None:
            self._tell()
            self._line = self._loop.call_later(LINE_S, self._tell_again)

    def _tell_again(self) -> None:
        self._line = None
        self._tell()

    def _tell(self) -> None:
        if self._untold:
            counts = {str(reason): number for reason, number in self._untold.items()}
            structlog.get_logger().warning("connections.cut", **counts, open=len(self._all))
            self._untold.clear()
