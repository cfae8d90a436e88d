"""The client of one origin: sends requests and returns responses, over HTTP/1.1 or HTTP/2."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import inf
from operator import attrgetter
from typing import Final

import msgspec
from yarl import URL

from providers.http.addresses import Addresses, Names, Place
from providers.http.batches import Batches
from providers.http.dialing import Dialer, TlsContexts, Versions, proxy_of
from providers.http.message import (
    HTTP2_STREAMS,
    HTTP2_WINDOWS,
    IDLE_S,
    MAX_IDLE,
    MAX_TRIES,
    UNKNOWN_DIALS,
    ConnectionOwner,
    Head,
    HttpRequest,
    Response,
    Unsent,
    UpstreamConnection,
    checked,
)
from providers.refusals import ErrorKind, UpstreamError

# The connections to one origin, and the requests that wait for one. A lost race closes its HTTP/1.1 connection. A new
# connection replaces it at once in the background, and an origin that loses races has a spare one, so that the next
# call finds an open connection. Connections that were idle for too long are dropped. A connection that reaches its age
# gives way to one to another address of the name, if that address has fewer. Otherwise servers that came later would
# get nothing while old connections live.

Dial = Callable[[ConnectionOwner, float], Awaitable[UpstreamConnection]]  # the owner, and the timeout in seconds


_ROOM = attrgetter("room")
_JITTER = 0.25  # of an age, so that connections that began together do not end together


class _Waiting:
    """A request that waits for a connection."""

    __slots__ = ("fresh", "request", "sent")

    def __init__(self, request: HttpRequest, loop: asyncio.AbstractEventLoop, *, fresh: bool) -> None:
        self.request = request
        self.fresh = fresh  # only a new connection will do
        self.sent: asyncio.Future[Response] = loop.create_future()


class Pool:
    """Opens and keeps connections, and assigns them to requests. The first request makes the first connection."""

    def __init__(
        self,
        dial: Dial,
        loop: asyncio.AbstractEventLoop,
        *,
        may_share: bool = False,
        batches: Batches | None = None,
        addresses: Addresses | None = None,
        age_s: float | None = None,
    ) -> None:
        """Keep connections that ``dial`` opens. ``may_share``: they may be HTTP/2, as the first one shows.

        ``batches``: in which running answers are read; None: as they come. ``addresses``: where ``dial`` goes. At
        ``age_s`` a connection may leave its address for another of these; None: never.
        """
        self._batches = batches
        self._may_share = may_share
        self._addresses = addresses
        self._age_s = age_s
        self._ages: dict[UpstreamConnection, float] = {}  # when each comes of age
        self._aging: asyncio.TimerHandle | None = None  # for the first to come of age: a loser needs none of its own
        self._aging_at = inf  # when the timer fires; uvloop's own handle cannot say so shortly before
        self._renewals: set[asyncio.Task[None]] = set()
        self._n_addresses = 0  # how many of several addresses calls over HTTP/2 should go to; 0: there is one
        self.version: str | None = None  # the protocol of the last connection
        self._dial = dial
        self._loop = loop
        self._free: dict[UpstreamConnection, None] = {}  # connections with room, the last freed one at the end
        self._all: set[UpstreamConnection] = set()
        self._waiting: deque[_Waiting] = deque()
        self._dials: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._connect_timeout_s = 0.0  # the timeout of the last request
        self._lost_at = -IDLE_S  # when a lost race last closed a connection
        self._closed = False
        self._retired = False

    async def send(self, request: HttpRequest, connect_timeout_s: float, *, fresh: bool = False) -> Response:
        """Send ``request`` over the next connection with room; return before the response arrives.

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

        If all connections are full, a new one is opened, and assumed to be like the open ones.
        """
        among = self._free or self._all
        return not among or any(connection.takes(size) for connection in among)

    def connect(self, connect_timeout_s: float) -> None:
        """Have a connection that the next request can use, and that is not about to be dropped."""
        young_s = self._loop.time() - IDLE_S / 2
        if self._dials or any(each.streams or each.idle_since > young_s for each in self._free):
            return
        self._connect_timeout_s = self._connect_timeout_s or connect_timeout_s
        self._dial_spare()

    def drop_idle(self) -> None:
        """Drop idle connections: one of them turned out to be closed, and the others are about as old."""
        for connection in [each for each in self._free if not each.streams]:
            connection.close()

    def retire(self) -> None:
        """Keep no connection without an exchange from now on. Exchanges go on, and more may be sent."""
        self._retired = True
        self._forget_timers()
        self.drop_idle()

    async def aclose(self) -> None:
        """Drop all connections with their exchanges, and fail the requests that wait."""
        self._closed = True
        while self._waiting:
            self._disappoint(_closed())
        self._forget_timers()
        tasks = self._dials | self._renewals
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for connection in list(self._all):
            connection.close()

    def _forget_timers(self) -> None:
        for timer in (self._sweeping, self._aging):
            if timer is not None:
                timer.cancel()
        self._sweeping = self._aging = None
        self._aging_at = inf

    def freed(self, connection: UpstreamConnection) -> None:
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
            self._free.pop(connection, None)  # moves the connection to the end
            self._free[connection] = None
            if not connection.streams and (self._retired or len(self._free) > MAX_IDLE):
                connection.close()
            elif self._sweeping is None and not self._retired:
                self._sweeping = self._loop.call_later(IDLE_S, self._sweep)

    def wearing(self, connection: UpstreamConnection) -> None:
        """Open another connection in advance."""
        if connection in self._all and not self._dials and len(self._free) <= 1:
            self._dial_spare()

    def gone(self, connection: UpstreamConnection, *, dropped: bool) -> None:
        """Forget a connection. Replace one that a lost race has closed, unless there are enough spare ones."""
        self._free.pop(connection, None)
        if connection in self._all:
            self._all.remove(connection)
            if connection.place is not None:
                connection.place.used -= 1
            self._ages.pop(connection, None)
        if dropped and not self._closed:
            self._lost_at = self._loop.time()
            if len(self._free) + len(self._dials) - len(self._waiting) < MAX_IDLE:
                self._dial_spare()

    def _take(self) -> UpstreamConnection | None:
        while self._free:
            connection = next(reversed(self._free)) if not self._n_addresses else max(self._free, key=_ROOM)
            if connection.room and connection.alive():
                if connection.room == 1:
                    del self._free[connection]
                    if not (self._free or self._dials) and (connection.version == "2" or self._loses()):
                        self._dial_spare()  # so that the next request need not wait
                elif len(self._all) < self._n_addresses and connection.streams and not self._dials:
                    self._dial_spare()  # to an address without one
                return connection
            self._free.pop(connection, None)
            if not connection.alive():
                connection.close()
        return None

    def _loses(self) -> bool:
        """Whether this request may lose a race, and its connection with it: a spare connection is useful then."""
        return self._loop.time() - self._lost_at < IDLE_S

    def _dial_for_waiting(self) -> None:
        wanted = len(self._waiting)
        if self.version == "2":
            wanted = -(-wanted // HTTP2_STREAMS)
        elif self.version is None and self._may_share:
            wanted = min(wanted, UNKNOWN_DIALS)
        while len(self._dials) < wanted:
            self._start_dial()

    def _dial_spare(self) -> None:
        if not self._retired:
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
            if error.kind is not ErrorKind.CONNECT_TIMEOUT:  # each waiting request has its own timeout
                self._disappoint(error)
            return
        if not (connection.alive() and connection.room):
            connection.close()
            self._disappoint(UpstreamError(ErrorKind.CONNECT_ERROR, "the connection was closed as soon as it was made"))
            return
        self._keep(connection)

    def _keep(self, connection: UpstreamConnection) -> None:
        """Use a new connection."""
        connection.batches = self._batches
        self._all.add(connection)
        self.version = connection.version
        if (place := connection.place) is not None:
            place.used += 1
            if self._addresses is not None:
                self._begin_age(connection, place, self._addresses)
        if not self._waiting:
            connection.connect_ms = None  # no request waited for this connection
        self.freed(connection)

    def _begin_age(self, connection: UpstreamConnection, place: Place, addresses: Addresses) -> None:
        if connection.version == "2":
            beside = addresses.beside(place)
            self._n_addresses = beside if beside > 1 else 0
        if self._age_s is not None and not self._retired:
            at = self._loop.time() + self._age_s * (1 - _JITTER * addresses.random())
            self._ages[connection] = at
            if at < self._aging_at:
                self._watch_ages(at)

    def _watch_ages(self, at: float) -> None:
        if self._aging is not None:
            self._aging.cancel()
        self._aging, self._aging_at = self._loop.call_at(at, self._come_of_age), at

    def _come_of_age(self) -> None:
        """Renew the connections that are old enough."""
        assert self._addresses is not None
        self._aging, self._aging_at = None, inf
        now = self._loop.time()
        for connection in [each for each, at in self._ages.items() if at <= now]:
            del self._ages[connection]
            if connection.place is not None:
                task = self._loop.create_task(self._renew(connection, connection.place, self._addresses))
                self._renewals.add(task)
                task.add_done_callback(self._renewals.discard)
        if self._ages:
            self._watch_ages(min(self._ages.values()))

    async def _renew(self, connection: UpstreamConnection, place: Place, addresses: Addresses) -> None:
        """Replace a connection by one to an address that has fewer; keep the connection if no address has fewer.

        No call waits for this: the new connection is opened first, and running requests go on to their end.
        """
        with suppress(OSError, ValueError):  # the connection is good, whatever has become of the name
            await addresses.found()
        if connection not in self._all or self._retired:
            return
        is_used = connection.streams or self._loop.time() - connection.idle_since < IDLE_S / 2
        if addresses.evens_out(place) and (not is_used or await self._dialled_another()):
            connection.retire()
        elif connection in self._all:
            self._begin_age(connection, place, addresses)

    async def _dialled_another(self) -> bool:
        try:
            connection = await self._dial(self, self._connect_timeout_s)
        except UpstreamError:
            return False
        if connection.alive() and connection.room:
            self._keep(connection)
            return True
        connection.close()
        return False

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


# An origin that refuses a tenth of the HTTP/2 requests gets HTTP/1.1 for a while: each refusal costs a round trip.
_REFUSALS, _OF_REQUESTS, _AVOIDED_S = 10, 100, 600.0


class Connecting(msgspec.Struct, frozen=True):
    """How connections to an origin are made and read, and what they share with connections to other origins."""

    tls: TlsContexts | None = None  # shared, as making a context costs 18 ms; None: not shared
    names: Names | None = None  # names that others connect to as well; None: not shared
    batches: Batches | None = None  # in which running answers are read; None: as they come
    versions: Versions = "auto"
    age_s: float | None = None  # when a connection may leave for another address of its name; None: never


ALONE: Final = Connecting()  # nothing is shared


class HttpClient:
    """Sends requests to one origin. Connects at the first request, and belongs to that request's event loop."""

    def __init__(self, origin: URL, *, headers: Mapping[str, str], connecting: Connecting = ALONE) -> None:
        """Send requests to ``origin`` (only its scheme, host and port matter), each with ``headers``.

        Raises:
            ValueError: the origin is invalid, a header cannot be sent, or the environment names an unusable proxy.

        """
        if origin.scheme not in {"http", "https"} or origin.host is None or origin.port is None:
            raise ValueError(f"{origin} is not an http:// or https:// URL")
        self._scheme, self._host, self._port = origin.scheme, origin.raw_host or origin.host, origin.port
        self._authority = origin.raw_authority.rpartition("@")[2]
        self._headers = dict(headers)
        self._versions = connecting.versions
        self._tls = connecting.tls or TlsContexts()
        self._batches = connecting.batches
        self._names = connecting.names or Names()
        self._age_s = connecting.age_s
        self._proxy = proxy_of(origin.scheme, origin.host, origin.port)
        self._loop: asyncio.AbstractEventLoop | None = None  # of the first request
        self._pools: dict[Versions, Pool] = {}
        self._requests = 0  # sent over HTTP/2, while either protocol may be used
        self._refusals: deque[int] = deque(maxlen=_REFUSALS)  # the numbers of requests that the server refused
        self._http1_until = 0.0
        self._retired = False
        checked(self._headers)

    def use_headers(self, headers: Mapping[str, str]) -> None:
        """Send each request with these ``headers`` from now on; heads built earlier keep the old ones.

        Raises:
            ValueError: one could split the request.

        """
        checked(headers)
        self._headers = dict(headers)

    def head(self, method: str, target: str, headers: Mapping[str, str]) -> Head:
        """Return the constant part of requests for ``target``, a path with its query. Keep it for later requests.

        ``headers`` replace those of the client.

        Raises:
            ValueError: a part of the request could split it.

        """
        proxy = self._proxy if self._scheme == "http" else None  # over TLS, the CONNECT request has asked the proxy
        headers = {**self._headers, **headers}
        if proxy is not None and proxy.authorization is not None:
            headers["proxy-authorization"] = proxy.authorization
        return Head(method, self._scheme, self._authority, target, headers, absolute=proxy is not None)

    async def send(self, request: HttpRequest, connect_timeout_s: float) -> Response:
        """Send a request; return the response, of any status, once its headers have come. The caller ends the response.

        A request that the server did not begin to process is sent again. The last time it is sent over a new
        connection: when a server reloads, all kept connections turn out to be closed. A request that may be sent only
        ``once`` gets a new connection from the start. Redirects are not followed: the key must not be sent elsewhere.

        Raises:
            UpstreamError: connect_error, connect_timeout, disconnected, or invalid_response (no HTTP).

        """
        loop = self._loop
        if loop is None:  # looked up once: on Python 3.11 this costs a system call
            loop = self._loop = asyncio.get_running_loop()
        for number in range(1, MAX_TRIES + 1):
            pool = self._pools.get(self._versions)
            if pool is None or pool.version == "2":
                pool = self._pool(loop, request)
            response = await pool.send(request, connect_timeout_s, fresh=request.once or number == MAX_TRIES)
            try:
                await response.begun()
            except Unsent:
                self._refused(pool, loop.time())
            except BaseException:
                response.abort()
                raise
            else:
                return response
        raise UpstreamError(ErrorKind.DISCONNECTED, "the connection was closed before the answer at every try")

    def connect(self, connect_timeout_s: float) -> None:
        """Connect, unless a connection is there for the next request."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        (self._pools.get(self._versions) or self._open_pool(self._versions, loop)).connect(connect_timeout_s)

    def retire(self) -> None:
        """Keep no connection without an exchange from now on. Exchanges go on, and more may be sent."""
        self._retired = True
        for pool in self._pools.values():
            pool.retire()

    async def aclose(self) -> None:
        """Drop all connections."""
        for pool in self._pools.values():
            await pool.aclose()

    def _pool(self, loop: asyncio.AbstractEventLoop, request: HttpRequest) -> Pool:
        """Return the pool to use: HTTP/1.1's for a body that would wait for many flow control windows of HTTP/2."""
        versions = self._versions
        pool = self._pools.get(versions)
        if pool is None:
            pool = self._open_pool(versions, loop)
        if versions != "auto" or pool.version != "2":
            return pool
        self._requests += 1
        fits = request.body is None or pool.suits(len(request.body) // HTTP2_WINDOWS)
        if fits and loop.time() >= self._http1_until:
            return pool
        return self._pools.get("1.1") or self._open_pool("1.1", loop)

    def _open_pool(self, versions: Versions, loop: asyncio.AbstractEventLoop) -> Pool:
        may_share = versions == "2" or (versions == "auto" and self._scheme == "https")
        dialer = Dialer(
            self._scheme,
            self._host,
            self._port,
            loop=loop,
            versions=versions,
            tls=self._tls,
            proxy=self._proxy,
            names=self._names,
        )
        pool = self._pools[versions] = Pool(
            dialer.dial,
            loop,
            may_share=may_share,
            batches=self._batches,
            addresses=dialer.addresses if self._proxy is None else None,
            age_s=self._age_s,
        )
        if self._retired:
            pool.retire()
        return pool

    def _refused(self, pool: Pool, now_s: float) -> None:
        """Count a request that the server did not begin to process."""
        if pool.version != "2":
            pool.drop_idle()  # the other idle connections are as old as the closed one
            return
        self._refusals.append(self._requests)
        if len(self._refusals) == _REFUSALS and self._requests - self._refusals[0] < _OF_REQUESTS:
            self._refusals.clear()
            self._http1_until = now_s + _AVOIDED_S
