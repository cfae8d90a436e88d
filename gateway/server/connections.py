"""All client connections: the limit on strangers, and the time limit for sending a request.

A stranger is a connection without an admitted request. If there are too many strangers, from one address or in all, the
stranger that has been silent longest is cut, so that a flood of silent connections keeps no client out. If connections
with an admitted request leave no room for more, an idle connection is cut.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from enum import StrEnum
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import structlog
from aiohttp import web

from gateway.access import FORWARDED_FOR, Trust, counted_as, read_address
from gateway.app import Gateway
from gateway.core.errors import ClientStalled, HeadersTimeout
from gateway.keys import Ended
from gateway.overload import return_scattered_memory
from gateway.server.connection import Connection, too_large
from gateway.server.fast_refusal import FastRefusal
from gateway.server.framing import FramingPace
from gateway.settings import ConnectionSettings

if TYPE_CHECKING:
    from ssl import SSLContext

# The reasons for cutting connections: counted in the metrics, and logged in batches.

LINE_S = 10.0  # between two lines of the log, at least
_MORE_FILES = "raise this process's limit of open files (LimitNOFILE= in systemd, ulimit -n in a shell), or its memory"


class Reason(StrEnum):
    """Why a connection is cut."""

    ADDRESS = "address"  # too many strangers from one address
    STRANGERS = "strangers"  # too many strangers in all
    DESCRIPTORS = "descriptors"  # the process has no room for more connections: descriptors, or memory
    LATE_HEAD = "late_head"  # a request's head was not complete in time
    LARGE_HEAD = "large_head"  # a request's head was too large
    STALLED = "stalled"  # the client does not read an answer
    AHEAD = "ahead"  # the client pipelines too much behind a request that is not answered yet
    KEY = "key"  # the key of the running request was revoked or has expired


class Cuts:
    """Counts cut connections by reason, each by ``count_one``. ``opened`` returns the number of open ones."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, count_one: Callable[[Reason], None], opened: Callable[[], int]
    ) -> None:
        self._count_one = count_one
        self._loop = loop
        self._opened = opened
        self._untold: Counter[Reason] = Counter()
        self._line: asyncio.TimerHandle | None = None

    def count(self, reason: Reason) -> None:
        """Count an event in the metrics, and in the next line of the log."""
        self._count_one(reason)
        self._untold[reason] += 1
        if self._line is None:
            self._log()
            self._line = self._loop.call_later(LINE_S, self._log_again)

    def close(self) -> None:
        """Log the counts that were not logged yet."""
        if self._line is not None:
            self._line.cancel()
        self._log()

    def _log_again(self) -> None:
        self._line = None
        self._log()

    def _log(self) -> None:
        if self._untold:
            counts = {str(reason): number for reason, number in self._untold.items()}
            hint = {"hint": _MORE_FILES} if Reason.DESCRIPTORS in self._untold else {}
            # Event connections.cut: The gateway closed clients' connections, counted since the last such line:
            # `address` and `strangers` (too many without an admitted request), `descriptors` (no room for more),
            # `late_head` and `large_head` (headers too slow or too large), `stalled` (reads no answer), `ahead` (sends
            # much before it has its answer), `key` (revoked or expired).
            # Do: Many of `address`: raise `connections.max_per_address` if they are yours behind one proxy, or block
            # the address. Many of `descriptors`: raise the limit of open files, or the memory.
            structlog.get_logger().warning("connections.cut", **counts, open=self._opened(), **hint)
            self._untold.clear()


# The time limit for request heads, with one timer for all connections.

LOOK_S = 0.25  # between two checks for late heads, at least

_C = TypeVar("_C", bound=Hashable)


class HeadTimeouts(Generic[_C]):
    """Connections whose request head is incomplete, oldest first; those over ``limit_s`` are passed to ``cut``."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit_s: Callable[[], float], cut: Callable[[_C], None]
    ) -> None:
        self._loop = loop
        self._limit_s = limit_s
        self._cut = cut
        self._since: dict[_C, float] = {}
        self._look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of connections whose head is awaited."""
        return len(self._since)

    def start(self, connection: _C) -> None:
        """Start the time limit of a connection."""
        self._since[connection] = self._loop.time()
        if self._look is None:  # each request of a quiet gateway starts and cancels the timer
            self._look = self._loop.call_later(max(LOOK_S, self._limit_s()), self._cut_late)

    def stop(self, connection: _C) -> None:
        """End the time limit of a connection; after the last one, stop the timer."""
        if self._since.pop(connection, None) is not None and not self._since and self._look is not None:
            self._look.cancel()
            self._look = None

    def close(self) -> None:
        """Stop the timer."""
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _cut_late(self) -> None:
        """Cut the connections over the limit, and set the timer for the next one."""
        self._look = None
        limit_s, now = self._limit_s(), self._loop.time()
        late = []
        for connection, since in self._since.items():
            if now - since < limit_s:
                self._look = self._loop.call_later(max(LOOK_S, since + limit_s - now), self._cut_late)
                break
            late.append(connection)
        for connection in late:
            self._cut(connection)


# Finds clients that do not read their answers, by checking from time to time, without timers.


class Wire(Hashable, Protocol):
    """A connection that is written to."""

    @property
    def read_progress(self) -> int | None:
        """A number that changes when the peer reads data; None if no data is waiting to be read."""


_W = TypeVar("_W", bound=Wire)


class StalledConnections(Generic[_W]):
    """The connections whose clients do not read, and since when."""

    def __init__(self) -> None:
        self._since: dict[_W, tuple[int, float]] = {}

    def look(self, wires: Iterable[_W], now_s: float, limit_s: float) -> list[_W]:
        """Check all connections; return those whose clients have read nothing for ``limit_s`` seconds."""
        before, self._since = self._since, {}
        stalled = []
        for wire in wires:
            read_progress = wire.read_progress
            if read_progress is None:
                continue
            known = before.get(wire)
            if known is None or known[0] != read_progress:
                known = (read_progress, now_s)
            if now_s - known[1] >= limit_s:
                stalled.append(wire)
            else:
                self._since[wire] = known
        return stalled


# Strangers: connections without an admitted request, by address, the longest silent first.

LOOKS = 64  # how many of the longest silent ones are checked for an idle one, which is preferred


class Stranger(Protocol):
    """A connection that can be selected."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is running on the connection."""


T = TypeVar("T", bound=Stranger)


class Strangers(Generic[T]):
    """All strangers. Those with the address None count in the total only."""

    def __init__(self) -> None:
        self._addresses: dict[T, Hashable | None] = {}
        self._by_address: dict[Hashable, dict[T, None]] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def address(self, one: T) -> Hashable | None:
        """Return the peer's address; None if it is unknown, or there is none."""
        return self._addresses.get(one)

    def number_from(self, address: Hashable) -> int:
        """Return the number of strangers from ``address``."""
        return len(self._by_address.get(address, ()))

    def add(self, one: T, address: Hashable | None) -> None:
        """Add a stranger as the least silent; a known one may have another address now."""
        self.discard(one)
        self._addresses[one] = address
        if address is not None:
            self._by_address.setdefault(address, {})[one] = None

    def discard(self, one: T) -> None:
        """Remove a stranger, if it is one."""
        address = self._addresses.pop(one, None)
        if address is not None:
            same = self._by_address[address]
            del same[one]
            if not same:
                del self._by_address[address]

    def mark_active(self, one: T) -> None:
        """Record data from a stranger, which is the least silent now."""
        if one in self._addresses:
            self.add(one, self._addresses[one])

    def longest_silent(self, address: Hashable | None = None) -> T | None:
        """Return the stranger to cut, of all or of those from ``address``: the longest silent, rather an idle one."""
        among: Iterable[T] = self._addresses if address is None else self._by_address.get(address, ())
        first = None
        for number, one in enumerate(among):
            if one.is_idle:
                return one
            first = one if first is None else first
            if number == LOOKS:
                break
        return first


OPENING_S = 0.5  # for connections that are being opened when the gateway stops
FRESH_S = 1.0  # a connection that was opened or answered more recently may have a request on the way
FIRST_LOOK_S = 0.25  # until the first check for stalled clients; later ones depend on the limit
STALL_LOOKS = 4  # checks of all connections within the time limit for stalled clients


CROWD = 64  # connections
RETURNED_AFTER_S = 2.0  # after most of them have gone: others may come at once


class Connections:
    """Opens accepted connections, counts them, and cuts those that exceed a limit.

    More than ``most`` open ones (which may change at any time) would leave too few descriptors, or too little memory,
    for everything else: then ``has_room`` closes a silent stranger, else an idle client, or is false. ``options`` are
    aiohttp's for a connection. At shutdown, first stop calling ``take``, then await ``opened``, then call ``close``.
    """

    def __init__(self, gateway: Gateway, server: web.Server, *, most: int, **options: Any) -> None:
        self.ssl_context: SSLContext | None = None  # of connections that are taken from now on
        self._gateway = gateway
        self._server = server
        self.most = most
        self._options = {"fast_refusal": FastRefusal(gateway.context), **options}
        self._loop = asyncio.get_running_loop()
        self.pace = FramingPace(self._loop.time)
        self._told_s = -inf  # when it was logged that connections wait
        self._all: set[Connection] = set()
        self._crowd = 0  # the most open connections since the memory of an earlier crowd was returned
        self._returns: asyncio.TimerHandle | None = None  # its memory
        self._opening: set[asyncio.Task[None]] = set()
        self._strangers: Strangers[Connection] = Strangers()
        self._proxied: set[Connection] = set()  # strangers from a trusted proxy: each request has its own address
        self._clients: dict[Connection, None] = {}  # the others, in the order in which they are checked for idle ones
        self._heads: HeadTimeouts[Connection] = HeadTimeouts(
            self._loop,
            lambda: gateway.context.settings.connections.headers_timeout_s,
            lambda connection: self._cut(connection, Reason.LATE_HEAD),
        )
        self._stalled: StalledConnections[Connection] = StalledConnections()
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
        """Open a connection from ``host``; cut another one, or this one, if a limit is exceeded."""
        connection = self._accepted(host)
        task = connection.open(sock, self.ssl_context, self._limits().headers_timeout_s)
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        self._make_room(connection)

    def has_room(self, waits: bool) -> bool:
        """Whether one more connection can be opened. If not and one ``waits``, close one that is not used."""
        return len(self._all) < self.most or (waits and self._free_one())

    def exhausted(self) -> None:
        """Close an unused connection, so that a connection that waits for a descriptor can be accepted."""
        self._free_one()

    def _free_one(self) -> bool:
        """Close the longest silent stranger without a request, else an idle client; return whether there was one.

        One that was opened or answered just now may have a request on the way, and is left alone.
        """
        now_s = self._loop.time()
        candidates = (self._strangers.longest_silent(), self._idle_client())
        one = next((each for each in candidates if each is not None and each.is_unused(now_s - FRESH_S)), None)
        if one is None:
            if now_s >= self._told_s + LINE_S:
                self._told_s = now_s
                # Event connections.waiting: New connections wait: there is no file descriptor or memory for more, and
                # all open ones are in use.
                # Do: Raise the limit of open files (`LimitNOFILE=` in systemd, `ulimit -n`) or the memory.
                structlog.get_logger().warning("connections.waiting", open=len(self._all), hint=_MORE_FILES)
            return False
        self._cut(one, Reason.DESCRIPTORS)
        return True

    async def opened(self) -> None:
        """Wait a moment for connections that are being opened, and drop the rest."""
        if self._opening:
            await asyncio.wait(self._opening, timeout=OPENING_S)
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    def close(self) -> None:
        """Stop checking the remaining connections."""
        self._stall_look.cancel()
        if self._returns is not None:
            self._returns.cancel()
        self._heads.close()
        self._cuts.close()

    def head_grows(self, connection: Connection, number: int) -> None:
        """Start the time limit of a head (a new connection's has started), and limit the head's size."""
        connection.head_bytes += number
        if connection.head_bytes > connection.max_field_size:
            self._cut(connection, Reason.LARGE_HEAD)
        elif not connection.awaits_head:
            connection.awaits_head = connection.watched = True
            self._heads.start(connection)

    def head_came(self, connection: Connection) -> None:
        """End the connection's time limit for the head; of a stranger, record the activity and the address."""
        if connection.awaits_head:
            connection.awaits_head = False
            connection.head_bytes = 0
            self._heads.stop(connection)
        connection.watched = connection.is_stranger
        if not connection.is_stranger:
            return
        self._strangers.mark_active(connection)
        if connection in self._proxied:
            self._name(connection)

    def admitted(self, connection: Connection) -> None:
        """Remove a connection from the strangers."""
        connection.is_stranger = connection.watched = False
        self._strangers.discard(connection)
        self._proxied.discard(connection)
        if connection in self._all:  # else it was cut just now
            self._clients[connection] = None

    def sent_ahead(self, connection: Connection) -> None:
        """Cut a connection with much pipelined data, which stay in memory until the previous answer has ended."""
        self._cut(connection, Reason.AHEAD)

    def ended(self, connection: Connection) -> None:
        """Forget the connection; once most of a crowd has gone, give its memory back."""
        self._all.discard(connection)
        self._forget(connection)
        if self._crowd >= CROWD and 2 * len(self._all) < self._crowd:
            self._crowd = len(self._all)
            if self._returns is not None:
                self._returns.cancel()
            self._returns = self._loop.call_later(RETURNED_AFTER_S, return_scattered_memory)

    def _accepted(self, host: str) -> Connection:
        """Return a new connection from ``host``: a stranger whose head is awaited from now on."""
        refusals = self._gateway.context.refusals
        limit = self._limits().headers_max_kb * 1024
        connection = Connection(self, self._server, refusals, loop=self._loop, max_field_size=limit, **self._options)
        self._gateway.metrics.connection_accepted()
        self._all.add(connection)
        self._crowd = max(self._crowd, len(self._all))
        address = read_address(host)
        if address is None or self._current_trust().trusts(address):
            self._proxied.add(connection)
            self._strangers.add(connection, None)
        else:
            self._strangers.add(connection, counted_as(address))
        self._heads.start(connection)
        return connection

    def _limits(self) -> ConnectionSettings:
        return self._gateway.context.settings.connections

    def _current_trust(self) -> Trust:
        """Return the trusted proxies, which a reload may have changed."""
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
        """Close one connection if ``newest`` exceeds a limit of strangers: the longest silent one, else ``newest``."""
        limits = self._limits()
        address = self._strangers.address(newest)
        if address is not None and self._strangers.number_from(address) > limits.max_per_address:
            self._cut(self._strangers.longest_silent(address) or newest, Reason.ADDRESS)
        if len(self._strangers) > limits.max:
            self._cut(self._strangers.longest_silent() or newest, Reason.STRANGERS)

    def _idle_client(self) -> Connection | None:
        """Return the longest idle of some clients' connections, so that one key cannot occupy all places for good.

        Checked ones move to the end of the order.
        """
        some = [*islice(self._clients, LOOKS)]
        for each in some:
            del self._clients[each]
            self._clients[each] = None
        return min((each for each in some if each.is_spare), key=lambda each: each.quiet_since, default=None)

    def _cut(self, connection: Connection, reason: Reason) -> None:
        self._all.discard(connection)  # the end of the connection is reported later, but it no longer counts
        self._forget(connection)
        self._cuts.count(reason)
        if reason is Reason.LATE_HEAD and connection.head_bytes:  # any other is idle, and its client awaits no answer
            limit_s = self._limits().headers_timeout_s
            connection.refuse(HeadersTimeout(f"the headers did not arrive within {limit_s:g} s (headers_timeout_s)"))
        elif reason is Reason.LARGE_HEAD:
            connection.refuse(too_large(connection.max_field_size))
        elif reason is Reason.STALLED:
            connection.reset(ClientStalled)
        else:
            connection.cut()

    def _forget(self, connection: Connection) -> None:
        self._strangers.discard(connection)
        self._proxied.discard(connection)
        self._clients.pop(connection, None)
        self._heads.stop(connection)

    def _cut_stalled(self) -> None:
        limit_s = self._gateway.context.settings.client_timeouts.write_timeout_s
        for connection in self._stalled.look(self._all, self._loop.time(), limit_s):
            self._cut(connection, Reason.STALLED)
        for connection in [each for each in self._all if each.has_left]:
            connection.cut()
        self._stall_look = self._loop.call_later(limit_s / STALL_LOOKS, self._cut_stalled)

    def _cut_ended(self, ended: Ended) -> None:
        """End the requests of keys that are no longer valid: their providers are cancelled, their clients cut off."""
        for connection in list(self._all):
            digest = connection.digest
            if digest is not None and (reason := ended.get(digest)) is not None:
                self._all.discard(connection)
                self._forget(connection)
                self._cuts.count(Reason.KEY)
                connection.reset(reason)
