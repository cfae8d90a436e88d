"""Serves a gateway on a socket: the acceptor, the one aiohttp runner, their shutdown, and the workers of one port."""

import asyncio
import errno
import mmap
import os
import resource
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog
from aiohttp import web

from gateway.api import GatewayPhase, calls_first
from gateway.app import Gateway
from gateway.http import serving_task
from gateway.overload import connections_in, memory_limit
from gateway.server.connection import Connection
from gateway.server.connections import Connections

# Closes connections at shutdown: each when it is no longer needed, none during an answer.

QUIET_S = 1.0  # a connection that was opened or answered more recently may have its next request on the way
CUT_LIMIT_S = 5.0  # cancelled calls need much less to write their records
FLUSH_S = 0.5  # for the last events of streams that were cut
_LOOK_S = 0.02


async def drain(server: web.Server, *, grace_s: float, quiet_s: float) -> None:
    """Wait until all connections are closed, at most ``grace_s`` seconds; close idle ones.

    New connections are not accepted any more. A request on an open connection is still answered, with ``connection:
    close``. A connection is closed after ``quiet_s`` seconds without data: HTTP/1.1 cannot announce a close between two
    answers, so a request may arrive just then; the longer it was idle, the less likely.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + grace_s
    await asyncio.sleep(0)  # data that has arrived is read before a connection counts as idle
    await asyncio.sleep(0)
    while connections := server.connections:
        now = loop.time()
        for connection in connections:
            if isinstance(connection, Connection) and _is_idle(connection) and now - connection.quiet_since >= quiet_s:
                connection.force_close()
        if now >= end:
            return
        await asyncio.sleep(min(_LOOK_S, end - now))


async def cut(server: web.Server) -> None:
    """Cancel running requests and await their end; drop data that clients do not read at once."""
    connections = server.connections
    tasks = [task for connection in connections if (task := serving_task(connection)) is not None]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CUT_LIMIT_S)
    transports = [each.transport for each in connections if isinstance(each.transport, asyncio.WriteTransport)]
    end = asyncio.get_running_loop().time() + FLUSH_S
    for transport in transports:
        transport.close()  # sends what it has: a stream that was cut ends with an error event
    while any(map(_has_more, transports)) and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(_LOOK_S)
    for transport in transports:
        with suppress(RuntimeError):  # closed since
            transport.abort()


def _has_more(transport: asyncio.WriteTransport) -> bool:
    """Whether some of what was written is not sent yet."""
    try:
        return transport.get_write_buffer_size() > 0
    except RuntimeError:  # closed since
        return False


def _is_idle(connection: Connection) -> bool:
    """Whether no part of a request is left: received, handled, answered, or being sent to a slow client."""
    return connection.is_idle and not connection.head_bytes


# How many file descriptors this process may open, and how many of them are for clients.

MOST = 1_048_576  # common in containers; more would cost kernel memory without use
_MACOS_MOST = 10_240  # OPEN_MAX: the actual maximum if the hard limit is "unlimited"

# For everything that has no client: stores, spool, logs, health, metrics, the demo, and a reload's second fleet.
RESERVED = 128
# A call has its client's connection and, in a race of two, two upstream connections.
PER_CLIENT = 3
FEWEST_CLIENTS = 16


def raise_limit() -> int:
    """Raise the soft limit of open descriptors towards the hard limit; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft >= most:
        return soft
    for wanted in (most, min(most, _MACOS_MOST)):
        if soft != resource.RLIM_INFINITY and wanted <= soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            continue
        return wanted
    return most if soft == resource.RLIM_INFINITY else soft


def descriptor_budget(limit: int | None = None) -> int:
    """Return how many client connections are allowed with ``limit`` descriptors (default: this process's limit).

    The rest is for upstream connections and the stores.
    """
    if limit is None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = MOST if soft == resource.RLIM_INFINITY else soft
    return max(FEWEST_CLIENTS, (limit - RESERVED) // PER_CLIENT)


# The listening socket, or one for each worker, between which the kernel distributes connections.

BACKLOG = 4096  # a burst of new connections is not rejected; the kernel may limit it (somaxconn)
_LEAST_FREE_PORT = 1024
_SPREADS = sys.platform == "linux"  # elsewhere one of several sockets on a port gets all connections


class ListenError(OSError):
    """The gateway cannot listen there; ``strerror`` has the reason and the remedy."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address; connections wait until they are served.

    The socket listens at once. Two sockets may be bound to one address, but only one may listen: the second is refused,
    and uvloop would close it silently.

    Raises:
        ListenError: the address is in use, not of this machine, or not permitted.
        OSError: there are no file descriptors, or no memory.

    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a valid host name"
        unknown = f"there is no address for the host {host!r} ({why}): give one with --host"
        raise ListenError(errno.EADDRNOTAVAIL, unknown) from None
    family, kind, protocol, _, address = found[0]
    try:
        return _listening(socket.socket(family, kind, protocol), address)
    except OSError as error:
        explained = _explained(error, host, port)
        if explained is None:
            raise
        raise ListenError(error.errno, explained) from None


class SharedPort:
    """The port of several workers, in their parent process.

    With one shared socket, one worker would take most connections, above all when the others are busy. So each
    worker has its own socket (SO_REUSEPORT), and the kernel selects a socket by the connection's addresses and ports,
    however busy the workers are. Only Linux does so; elsewhere, and where this is refused, workers share a socket. All
    processes hold all ``sockets``: one worker can accept for another, and no waiting connection ends with its worker.
    """

    def __init__(self, host: str, port: int, number: int) -> None:
        """Start to listen, for ``number`` workers.

        Raises:
            ListenError: the address is in use, not of this machine, or not permitted.
            OSError: there are no file descriptors, or no memory.

        """
        claim = bind(host, port)  # refused while another process listens there, with or without SO_REUSEPORT
        self.sockets: Sequence[socket.socket] = [claim]
        if _spreads(claim):
            with claim:  # closed then: as it was bound without the option, no other socket could listen beside it
                address = claim.getsockname()
                self.sockets = [self._another(claim, address) for _ in range(number)]

    def of(self, place: int) -> socket.socket:
        """Return the socket of the worker at ``place``."""
        return self.sockets[place % len(self.sockets)]

    def close(self) -> None:
        """Close this process's sockets. The port is free when the workers have closed theirs."""
        for sock in self.sockets:
            sock.close()

    @staticmethod
    def _another(claim: socket.socket, address: Any) -> socket.socket:
        made = socket.socket(claim.family, claim.type, claim.proto)
        _spreads(made)
        return _listening(made, address)


def _spreads(sock: socket.socket) -> bool:
    """Let our other sockets listen there too; False if the kernel does not distribute connections among them."""
    if not (_SPREADS and hasattr(socket, "SO_REUSEPORT")):
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:  # some kernels and sandboxes know the option and refuse it
        return False
    return True


def _listening(sock: socket.socket, address: Any) -> socket.socket:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)  # noqa: FBT003 - its only argument
    return sock


def _explained(error: OSError, host: str, port: int) -> str | None:
    """Return the problem with the address, in one sentence; None if the address is not the cause."""
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"port {port} on {host} is already in use: stop what listens there, or choose another with --port;"
                f" for `make run`: HOLESHOT_PORT={port % 65535 + 1} make run"
            )
        case errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine: set one with --host, or 0.0.0.0 for all of them"
        case errno.EACCES if port < _LEAST_FREE_PORT:
            return (
                f"port {port} needs privileges, as all ports below 1024: choose another with --port,"
                " or give the gateway the capability CAP_NET_BIND_SERVICE"
            )
        case errno.EACCES | errno.EPERM:
            return f"the system does not let this user listen on port {port} of {host}: choose another with --port"
        case errno.EAFNOSUPPORT:
            return f"this machine has no IPv6, which {host} needs: give another address with --host"
        case _:
            return None


# Accepts connections in batches: at most ``BATCH`` in each turn of the event loop, however busy it is. libuv, and so
# uvloop's own servers, accepts one connection per turn: under load a turn takes long, and a new connection waits for
# as many turns as there are connections before it.

BATCH = 8  # connections accepted in one turn; opening 64 and refusing their requests blocks the event loop for 100 ms
PAUSE_S = 0.1  # pause after the process or the machine ran out of file descriptors or memory

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Errors of accept() about the next connection: the client or the network failed, or a firewall blocks the connection.
_GONE = frozenset(
    {errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN}
    | {errno.EHOSTUNREACH, errno.ENOPROTOOPT, errno.EOPNOTSUPP}
)


class Acceptor:
    """Accepts connections on a listening, non-blocking socket, from ``start`` to ``stop``.

    ``take`` is called with each accepted socket and its remote address. Where ``has_room`` is false, connections wait
    in the kernel's queue; it is told whether one does. They also wait for lack of a file descriptor, after a call of
    ``on_exhausted``.
    """

    def __init__(
        self,
        sock: socket.socket,
        take: Callable[[socket.socket, str], None],
        *,
        on_exhausted: Callable[[], None],
        has_room: Callable[[bool], bool] = lambda _: True,
    ) -> None:
        self.batches = 0  # turns in which connections were accepted
        self._sock = sock
        self._take = take
        self._on_exhausted = on_exhausted
        self._has_room = has_room
        self._loop = asyncio.get_running_loop()
        self._accepts = False
        self._pause: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start accepting, unless it does already."""
        if not self._accepts:
            self._accepts = True
            self._loop.add_reader(self._sock, self._accept)

    def rest(self) -> None:
        """Stop accepting for a while; the socket stays open."""
        if self._accepts:
            self._accepts = False
            self._end()

    def stop(self) -> None:
        """Accept the connections that are waiting, then close the socket. Accepted connections stay open."""
        if self._sock.fileno() == -1:
            return
        for _ in range(BACKLOG // BATCH):
            if not self._accept():
                break
        self._end()
        self._sock.close()

    def _end(self) -> None:
        if self._pause is None:
            self._loop.remove_reader(self._sock)
        else:
            self._pause.cancel()
            self._pause = None

    def _accept(self) -> bool:
        """Accept a batch; return whether there may be more."""
        for number in range(BATCH):
            if not self._has_room(number == 0):
                if number == 0:
                    self._pause_accepting()
                return False
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                if error.errno in _GONE:
                    continue
                if error.errno in _EXHAUSTED:
                    self._on_exhausted()
                self._pause_accepting()
                return False
            self.batches += number == 0
            sock.setblocking(False)  # noqa: FBT003 - its only argument
            self._take(sock, address[0])
        return True

    def _pause_accepting(self) -> None:
        """Pause accepting: a socket with waiting connections is always readable."""
        if self._pause is None:
            self._loop.remove_reader(self._sock)
            self._pause = self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock, self._accept)


_NOTHING_LEFT_S = 0.1  # for aiohttp to wait for connections; there are none left
KEEPALIVE_S = 75.0  # longer than load balancers keep idle connections, so that they close first


@asynccontextmanager
async def listening(
    gateway: Gateway, sock: socket.socket, grace_s: float, ssl_context: ssl.SSLContext | None = None
) -> AsyncIterator[Connections]:
    """Serve ``gateway`` on the listening ``sock``, with TLS if there is a context; yield its connections.

    On exit, close the socket, and let calls end within ``grace_s`` seconds.
    """
    async with serving(gateway, grace_s) as connections:
        connections.ssl_context = ssl_context
        acceptor = Acceptor(sock, connections.take, on_exhausted=connections.exhausted, has_room=connections.has_room)
        acceptor.start()
        try:
            yield connections
        finally:
            acceptor.stop()


@asynccontextmanager
async def serving(gateway: Gateway, grace_s: float) -> AsyncIterator[Connections]:
    """Yield the connections of ``gateway``, which serve the sockets passed to ``take``.

    On exit (when no more sockets are passed), let calls end within ``grace_s`` seconds.

    The only place that builds the runner: with ``handler_cancellation``, as otherwise the race of a client that
    disconnects would go on. It has no site, as we accept connections ourselves.
    """
    runner = web.AppRunner(
        gateway.application, handler_cancellation=True, shutdown_timeout=_NOTHING_LEFT_S, handle_signals=False
    )
    await runner.setup()
    assert runner.server is not None
    server: Any = runner.server  # typed as if its requests had no application
    server.request_handler = calls_first(server.request_handler)
    most = descriptor_budget()
    gateway.context.intake.cap_default(most)
    most = min(most, connections_in(memory_limit(), gateway.context.settings.workers))
    connections = Connections(
        gateway,
        runner.server,
        most=most,
        access_log=None,
        auto_decompress=False,  # it would inflate bodies on the event loop before admission; we inflate after it
        lingering_time=0,  # the rest of a body is drained with our own limits
        keepalive_timeout=KEEPALIVE_S,
    )
    try:
        yield connections
    finally:
        # Clients that could not yet see that this gateway is stopping may have a request on the way.
        quiet_s = QUIET_S if gateway.context.phase is GatewayPhase.LAME_DUCK else 0.0
        gateway.context.phase = GatewayPhase.DRAINING
        gateway.context.drains.set()
        gateway.context.wrong_keys.release()
        gateway.operations.live.end()
        await connections.opened()
        await drain(runner.server, grace_s=grace_s, quiet_s=quiet_s)
        gateway.context.phase = GatewayPhase.CUTTING
        await cut(runner.server)
        connections.close()
        await runner.cleanup()


# The workers of one port, as they and their parent see each other: whose event loop stands still, and who accepts.

BEAT_S = 0.5  # between two beats of a worker
STOPPED_S = 2.0  # without a beat: others accept its connections
REPLACED_S = 10.0  # without a beat: its parent kills it, and starts another one
LATELY_S = (
    60.0  # for so long it is said that a worker has stopped: alerts are looked for less often than it is replaced
)

_BYTES = 8


class Beats:
    """A counter and a process id for each worker, in memory that the parent shares with all of them.

    A count of 0 means that the worker does not accept connections yet.
    """

    def __init__(self, number: int) -> None:
        """Make them for ``number`` workers, before the first is forked."""
        self._cells = memoryview(mmap.mmap(-1, 2 * _BYTES * number)).cast("Q")

    def __len__(self) -> int:
        """Return the number of workers."""
        return len(self._cells) // 2

    def count(self, place: int) -> int:
        """Return how often the worker at ``place`` has beaten."""
        return self._cells[2 * place]

    def pid(self, place: int) -> int:
        """Return the worker's process id."""
        return self._cells[2 * place + 1]

    def clear(self, place: int) -> None:
        """Note that no worker is at ``place``."""
        self._cells[2 * place] = 0

    def beat(self, place: int) -> None:
        """Count a beat of this process, the worker at ``place``."""
        self._cells[2 * place + 1] = os.getpid()
        self._cells[2 * place] += 1


class Silence:
    """The seconds since each worker's last beat, as seen by one process that looks now and then.

    A process that was stopped itself must not blame the others, so the time between two looks counts as ``most_s``
    at most.
    """

    def __init__(self, beats: Beats, *, most_s: float) -> None:
        self._beats = beats
        self._most_s = most_s
        self._looked_at_s: float | None = None
        self._counts = [0] * len(beats)
        self.silent_s = [0.0] * len(beats)

    def look(self, now_s: float) -> None:
        """Look at all beats; ``now_s`` is the monotonic clock. A worker that has not begun to beat is not silent."""
        passed_s = 0.0 if self._looked_at_s is None else min(self._most_s, now_s - self._looked_at_s)
        self._looked_at_s = now_s
        for place, known in enumerate(self._counts):
            count = self._counts[place] = self._beats.count(place)
            self.silent_s[place] = self.silent_s[place] + passed_s if count and count == known else 0.0


class WorkerPeers:
    """A worker's view of the others: each beats, and accepts connections at the sockets of workers that do not beat.

    So connections that wait for a worker that was stopped, hangs or has died are served by another worker. When the
    worker is back, its connections are its own again.
    """

    def __init__(
        self, beats: Beats, place: int, sockets: Sequence[socket.socket], *, clock: Callable[[], float]
    ) -> None:
        """``sockets`` are those of all places; one alone is shared by all workers. ``place`` is our own."""
        self._beats = beats
        self._place = place
        self._sockets = sockets
        self._clock = clock
        self._silence = Silence(beats, most_s=2 * BEAT_S)
        self._acceptors: dict[int, Acceptor] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._stopped_at_s: dict[int, float] = {}  # by process id

    @property
    def stopped(self) -> list[int]:
        """The process ids of the other workers whose event loop stands still now."""
        silent_s = self._silence.silent_s
        return [self._beats.pid(place) for place in range(len(self._beats)) if silent_s[place] >= STOPPED_S]

    @property
    def stopped_lately(self) -> list[int]:
        """The process ids of those that stood still within the last minute."""
        now_s = self._clock()
        return [pid for pid, at_s in self._stopped_at_s.items() if now_s - at_s < LATELY_S]

    def start(self, connections: Connections) -> None:
        """Begin to beat, and to accept for others; ``connections`` serve what is accepted."""
        if len(self._sockets) > 1:
            self._acceptors = {
                place: Acceptor(
                    sock, connections.take, on_exhausted=connections.exhausted, has_room=connections.has_room
                )
                for place, sock in enumerate(self._sockets)
                if place != self._place
            }
        self._look()

    def stop_accepting(self) -> None:
        """Accept what waits at every socket, then close them. Beats go on until ``close``."""
        acceptors, self._acceptors = self._acceptors, {}
        for acceptor in acceptors.values():
            acceptor.stop()

    def close(self) -> None:
        """Stop beating."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._beats.beat(self._place)
        now_s = self._clock()
        self._silence.look(now_s)
        for place, acceptor in self._acceptors.items():
            if self._beats.count(place) and self._silence.silent_s[place] < STOPPED_S:
                acceptor.rest()
            else:
                acceptor.start()
        for pid in self.stopped:
            if pid not in self._stopped_at_s:
                # Event worker.stopped: The event loop of another worker (`stopped`) has stood still for two seconds.
                # This one accepts its new connections; its calls are held up. After ten seconds it is replaced.
                # Do: Find out what stops it: a debugger, a signal, no CPU or memory. Else it is a bug: report it with
                # what the gateway was asked.
                structlog.get_logger().error("worker.stopped", stopped=pid)
            self._stopped_at_s[pid] = now_s
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._look)
