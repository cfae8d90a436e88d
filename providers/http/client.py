"""The client of one origin: sends requests and returns responses, over HTTP/1.1 or HTTP/2."""

import asyncio
from collections import deque
from collections.abc import Mapping

from yarl import URL

from providers.errors import ErrorKind, UpstreamError
from providers.http.dialing import Dialer, TlsContexts, Versions
from providers.http.limits import HTTP2_WINDOWS, MAX_TRIES
from providers.http.message import Head, Request, checked
from providers.http.pool import Pool
from providers.http.proxies import proxy_of
from providers.http.response import Response, Unsent

# An origin that refuses a tenth of the HTTP/2 requests gets HTTP/1.1 for a while, as each refusal costs a round trip.
_REFUSALS, _OF_REQUESTS, _AVOIDED_S = 10, 100, 600.0


class Client:
    """Sends requests to one origin. It connects at the first request, and belongs to the event loop of that."""

    def __init__(
        self,
        origin: URL,
        *,
        headers: Mapping[str, str],
        versions: Versions = "auto",
        tls: TlsContexts | None = None,
    ) -> None:
        """Send requests to ``origin`` (only its scheme, host and port matter), each with ``headers``.

        Raises:
            ValueError: the origin is invalid, a header cannot be sent, or the environment names an unusable proxy.

        """
        if origin.scheme not in {"http", "https"} or origin.host is None or origin.port is None:
            raise ValueError(f"{origin} is not an http:// or https:// URL")
        self._scheme, self._host, self._port = origin.scheme, origin.raw_host or origin.host, origin.port
        self._authority = origin.raw_authority.rpartition("@")[2]
        self._headers = dict(headers)
        self._versions: Versions = versions
        self._tls = tls or TlsContexts()
        self._proxy = proxy_of(origin.scheme, origin.host)
        self._loop: asyncio.AbstractEventLoop | None = None  # of the first request
        self._pools: dict[Versions, Pool] = {}
        self._requests = 0  # sent over HTTP/2, while the choice of protocol is ours
        self._refusals: deque[int] = deque(maxlen=_REFUSALS)  # the numbers of requests that the server refused
        self._http1_until = 0.0
        checked(self._headers)

    def head(self, method: str, target: str, headers: Mapping[str, str]) -> Head:
        """Return the constant part of requests for ``target``, a path with its query. Keep it for later requests.

        ``headers`` replace those of the client.

        Raises:
            ValueError: a part of it could split the request.

        """
        proxy = self._proxy if self._scheme == "http" else None  # over TLS, the CONNECT request has asked the proxy
        headers = {**self._headers, **headers}
        if proxy is not None and proxy.authorization is not None:
            headers["proxy-authorization"] = proxy.authorization
        return Head(method, self._scheme, self._authority, target, headers, absolute=proxy is not None)

    async def send(self, request: Request, connect_timeout_s: float) -> Response:
        """Send a request; return its response, of any status, once its headers are there. The caller ends the response.

        A request that the server did not begin to process is sent again, the last time over a new connection: when a
        server reloads, all kept connections turn out to be closed. A request that may be sent only ``once`` gets a new
        connection from the start. Redirects are not followed: the key must not be sent elsewhere.

        Raises:
            UpstreamError: connect_error, connect_timeout, disconnected, or invalid_response (no HTTP).

        """
        loop = self._loop
        if loop is None:  # asked for once: on Python 3.11 each time costs a system call
            loop = self._loop = asyncio.get_running_loop()
        for number in range(1, MAX_TRIES + 1):
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

    async def aclose(self) -> None:
        """Drop all connections."""
        for pool in self._pools.values():
            await pool.aclose()

    def _pool(self, loop: asyncio.AbstractEventLoop, request: Request) -> Pool:
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
            self._scheme, self._host, self._port, loop=loop, versions=versions, tls=self._tls, proxy=self._proxy
        )
        pool = self._pools[versions] = Pool(dialer.dial, loop, may_share=may_share)
        return pool

    def _refused(self, pool: Pool, now_s: float) -> None:
        """Learn from a request that the server did not begin to process."""
        if pool.version != "2":
            pool.drop_idle()  # the other idle connections are as old as the closed one
            return
        self._refusals.append(self._requests)
        if len(self._refusals) == _REFUSALS and self._requests - self._refusals[0] < _OF_REQUESTS:
            self._refusals.clear()
            self._http1_until = now_s + _AVOIDED_S
