"""The connections to one origin, and the requests that wait for one.

A lost race closes its HTTP/1.1 connection. That is replaced at once in the background, and an origin that loses races
has a spare connection, so that the next call finds an open one. Connections that were idle for too long are dropped.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from providers.errors import ErrorKind, UpstreamError
from providers.http.connection import Connection, Owner
from providers.http.limits import HTTP2_STREAMS, IDLE_S, MAX_IDLE, UNKNOWN_DIALS
from providers.http.message import Request
from providers.http.response import Response

Dial = Callable[[Owner, float], Awaitable[Connection]]  # the owner, and the timeout in seconds


class _Waiting:
    """A request that waits for a connection."""

    __slots__ = ("fresh", "request", "sent")

    def __init__(self, request: Request, loop: asyncio.AbstractEventLoop, *, fresh: bool) -> None:
        self.request = request
        self.fresh = fresh  # it needs a new connection
        self.sent: asyncio.Future[Response] = loop.create_future()


class Pool:
    """Opens and keeps connections, and assigns them to requests. It connects at the first request."""

    def __init__(self, dial: Dial, loop: asyncio.AbstractEventLoop, *, may_share: bool = False) -> None:
        """Keep connections that ``dial`` opens; ``may_share``: they may be HTTP/2, which the first one will tell."""
        self._may_share = may_share
        self.version: str | None = None  # the protocol of the last connection
        self._dial = dial
        self._loop = loop
        self._free: dict[Connection, None] = {}  # connections with room, the last freed one at the end
        self._all: set[Connection] = set()
        self._waiting: deque[_Waiting] = deque()
        self._dials: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._connect_timeout_s = 0.0  # that of the last request
        self._lost_at = -IDLE_S  # when a lost race last closed a connection
        self._closed = False

    async def send(self, request: Request, connect_timeout_s: float, *, fresh: bool = False) -> Response:
        """Send ``request`` over a connection with room, or the next one that has; return before the response arrives.

        ``fresh``: over a new connection, not over a kept one.

        Raises:
            UpstreamError: connect_error, or connect_timeout.

        """
        self._connect_timeout_s = connect_timeout_s
        connection = None if fresh else self._take()
        if connection is not None:
            return connection.send(request)
        if self._closed:
            raise _closed()
        waiting = _Waiting(request, self._loop, fresh=fresh)
        self._waiting.append(waiting)
        self._dial_for_waiting()
        clock = self._loop.call_later(connect_timeout_s, _time_out, waiting.sent)
        try:
            return await waiting.sent
        except asyncio.CancelledError:
            if waiting.sent.done() and not waiting.sent.cancelled() and waiting.sent.exception() is None:
                waiting.sent.result().abort()
            raise
        finally:
            clock.cancel()
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def suits(self, size: int) -> bool:
        """Whether a body of ``size`` bytes can be sent at once, or over a connection that is still to be opened.

        If all are full, one is opened, and judged by those that are open.
        """
        among = self._free or self._all
        return not among or any(connection.takes(size) for connection in among)

    def drop_idle(self) -> None:
        """Drop idle connections: one turned out to be closed, and they are as old."""
        for connection in [each for each in self._free if not each.streams]:
            connection.close()

    async def aclose(self) -> None:
        """Drop all connections with their exchanges, and fail the requests that wait."""
        self._closed = True
        while self._waiting:
            self._disappoint(_closed())
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for task in self._dials:
            task.cancel()
        if self._dials:
            await asyncio.wait(set(self._dials))
        for connection in list(self._all):
            connection.close()

    def freed(self, connection: Connection) -> None:
        """Assign a connection with room to the oldest waiter, or keep it."""
        if self._closed:
            connection.close()
            return
        new = connection.connect_ms is not None
        passed: list[_Waiting] = []
        while self._waiting and connection.room:
            waiting = self._waiting.popleft()
            if waiting.fresh and not new:
                passed.append(waiting)
            elif not waiting.sent.done():
                waiting.sent.set_result(connection.send(waiting.request))
        self._waiting.extendleft(reversed(passed))
        if connection.room:
            self._free.pop(connection, None)  # moves it to the end
            self._free[connection] = None
            if len(self._free) > MAX_IDLE and not connection.streams:
                connection.close()
            elif self._sweeping is None:
                self._sweeping = self._loop.call_later(IDLE_S, self._sweep)

    def wearing(self, connection: Connection) -> None:
        """Open another connection in advance."""
        if connection in self._all and not self._dials and len(self._free) <= 1:
            self._start_dial()

    def gone(self, connection: Connection, *, dropped: bool) -> None:
        """Forget a connection; replace it if a lost race has closed it, unless there are spare ones enough."""
        self._free.pop(connection, None)
        self._all.discard(connection)
        if dropped and not self._closed:
            self._lost_at = self._loop.time()
            if len(self._free) + len(self._dials) - len(self._waiting) < MAX_IDLE:
                self._start_dial()

    def _take(self) -> Connection | None:
        while self._free:
            connection = next(reversed(self._free))
            if connection.room and connection.alive():
                if connection.room == 1:
                    del self._free[connection]
                    if not (self._free or self._dials) and (connection.version == "2" or self._loses()):
                        self._start_dial()  # so that the next request need not wait
                return connection
            self._free.pop(connection, None)
            if not connection.alive():
                connection.close()
        return None

    def _loses(self) -> bool:
        """Whether this request may lose its race and its connection, so that a spare connection is useful."""
        return self._loop.time() - self._lost_at < IDLE_S

    def _dial_for_waiting(self) -> None:
        wanted = len(self._waiting)
        if self.version == "2":
            wanted = -(-wanted // HTTP2_STREAMS)
        elif self.version is None and self._may_share:
            wanted = min(wanted, UNKNOWN_DIALS)
        while len(self._dials) < wanted:
            self._start_dial()

    def _start_dial(self) -> None:
        task = self._loop.create_task(self._connect(self._connect_timeout_s))
        self._dials.add(task)
        task.add_done_callback(self._dialled)

    def _dialled(self, task: asyncio.Task[None]) -> None:
        self._dials.discard(task)
        if not self._closed:
            self._dial_for_waiting()

    async def _connect(self, timeout_s: float) -> None:
        try:
            connection = await self._dial(self, timeout_s)
        except UpstreamError as error:
            if error.kind is not ErrorKind.CONNECT_TIMEOUT:  # each waiter has its own timeout
                self._disappoint(error)
            return
        if not (connection.alive() and connection.room):
            connection.close()
            self._disappoint(UpstreamError(ErrorKind.CONNECT_ERROR, "the connection was closed as soon as it was made"))
            return
        self._all.add(connection)
        self.version = connection.version
        if not self._waiting:
            connection.connect_ms = None  # no request waited for it
        self.freed(connection)

    def _disappoint(self, error: UpstreamError) -> None:
        """Fail the oldest waiter; try to connect again for the others."""
        if self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.sent.done():
                waiting.sent.set_exception(error)

    def _sweep(self) -> None:
        """Drop connections that were idle for too long."""
        self._sweeping = None
        now = self._loop.time()
        next_at = now + IDLE_S
        for connection in list(self._free):
            if connection.streams:
                continue
            if now - connection.idle_since >= IDLE_S:
                connection.close()
            else:
                next_at = min(next_at, connection.idle_since + IDLE_S)
        if self._free and not self._closed:
            self._sweeping = self._loop.call_at(next_at, self._sweep)


def _closed() -> UpstreamError:
    return UpstreamError(ErrorKind.DISCONNECTED, "the client was closed")


def _time_out(sent: asyncio.Future[Response]) -> None:
    if not sent.done():
        sent.set_exception(UpstreamError(ErrorKind.CONNECT_TIMEOUT, "no connection within connect_timeout_s"))
