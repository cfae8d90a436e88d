"""HTTP to one provider: kept connections, the connect clock, and aborts that the provider notices at once.

Whatever aiohttp raises leaves this module as an ``UpstreamError``.
"""

import functools
import ssl
from collections.abc import Callable, Mapping
from time import perf_counter
from types import TracebackType
from typing import Any, Self, cast
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.payload import BytesPayload, Payload
from aiohttp.tracing import Trace
from yarl import URL

from providers.errors import ErrorKind, UpstreamError
from providers.redaction import redact

# Below the 60 s after which the load balancers of many vendors drop a silent connection; shorter-lived ones are noticed
# when they close, and retried when that crosses our request.
_KEEP_ALIVE_S = 50.0
_DNS_CACHE_S = 30
# One read of a large event should not be cut into many: each is a turn of the event loop.
_READ_BUFFER_BYTES = 256 * 1024


def default_ssl_context() -> ssl.SSLContext:
    """Return a context that trusts the system's authorities, or those of SSL_CERT_FILE. Costs 18 ms: make it once."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class _AbortingHandler(ResponseHandler):
    """A client connection that is dropped, not closed.

    aiohttp's own ``close`` says close_notify over TLS and waits for the peer's. A provider that only looks at TCP
    (nginx) does not notice before it next writes: the loser of a race would run on, unseen, and be billed. Idle
    connections have nothing to lose by an abort.
    """

    connect_ms: float | None = None  # set when the connection is made, taken by its first response

    def close(self) -> None:
        self.abort()

    def resume_reading(self, resume_parser: bool = True) -> None:
        # aiohttp calls this for every HTTP chunk that is read, which are as many as tokens, paused or not.
        if self._reading_paused:
            super().resume_reading(resume_parser)


class _Connector(aiohttp.TCPConnector):
    """aiohttp's connector, making connections that abort and know how long they took to be made."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # There is no public place to name the protocol; test_transport.py fails if this one moves.
        self._factory = cast("functools.partial[ResponseHandler]", functools.partial(_AbortingHandler, loop=self._loop))

    async def _create_connection(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # aiohttp's signature
    ) -> ResponseHandler:
        started = perf_counter()
        protocol = await super()._create_connection(req, traces, timeout)
        if isinstance(protocol, _AbortingHandler):
            protocol.connect_ms = (perf_counter() - started) * 1000
        return protocol

    def drop_idle(self) -> None:
        """Abort the kept connections; the next request makes a fresh one."""
        for kept in self._conns.values():
            for protocol, _ in kept:
                protocol.close()


class _StaleConnectionError(aiohttp.ClientConnectionError):
    """A kept connection turned out to be gone before anything of a response came."""


class Response(aiohttp.ClientResponse):
    """A response that knows how long its connection took to be made: ``connect_ms``, None when a kept one was used."""

    connect_ms: float | None = None

    async def start(self, connection: Connection) -> Self:
        """Read the headers.

        Raises:
            _StaleConnectionError: the connection was a kept one, and gone.

        """
        protocol = connection.protocol
        if isinstance(protocol, _AbortingHandler):
            self.connect_ms, protocol.connect_ms = protocol.connect_ms, None
        try:
            await super().start(connection)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            # The message of a disconnect is text unless part of a response had come.
            if self.connect_ms is None and isinstance(getattr(error, "message", ""), str):
                raise _StaleConnectionError("kept connection lost") from error
            raise
        return self


class _Body(BytesPayload):
    """A JSON request body of any size. aiohttp warns of large ones; ours are in memory anyway, and written once."""

    def __init__(self, value: bytes) -> None:
        Payload.__init__(self, value, content_type="application/json")
        self._size = len(value)


class Transport:
    """The connections to one provider. Opens nothing before the first request."""

    def __init__(
        self,
        *,
        headers: Mapping[str, str],
        ssl_context: Callable[[], ssl.SSLContext] = default_ssl_context,
    ) -> None:
        self._headers = dict(headers)
        self._ssl_context = ssl_context
        self._session: aiohttp.ClientSession | None = None
        self._connector: _Connector | None = None

    async def request(
        self,
        method: str,
        url: URL,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout_s: float,
    ) -> Response:
        """Send a request and return its response once its headers are in, whatever its status. The caller closes it.

        Redirects are not followed: a key must not travel. There is one clock, on DNS, TCP and TLS together. A request
        that meets a kept connection the provider has just closed is sent once more, on a fresh one.

        Raises:
            UpstreamError: connect_error, connect_timeout, disconnected, or invalid_response (no HTTP).

        """
        session, connector = self._open(url)
        send = functools.partial(
            session.request,
            method,
            url,
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout_s),
        )
        with UpstreamErrors():
            try:
                response = await send(data=_Body(body) if body else None)
            except _StaleConnectionError:
                # The other idle ones are as old.
                connector.drop_idle()
                response = await send(data=_Body(body) if body else None)
        assert isinstance(response, Response)
        return response

    async def aclose(self) -> None:
        """Drop all connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self, url: URL) -> tuple[aiohttp.ClientSession, _Connector]:
        if self._session is None or self._connector is None:
            self._connector = _Connector(
                ssl=self._ssl_context() if url.scheme == "https" else True,
                limit=0,
                keepalive_timeout=_KEEP_ALIVE_S,
                ttl_dns_cache=_DNS_CACHE_S,
            )
            self._session = aiohttp.ClientSession(
                connector=self._connector,
                headers=self._headers,
                response_class=Response,
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=_proxy_of(url),
                read_bufsize=_READ_BUFFER_BYTES,
            )
        return self._session, self._connector


class UpstreamErrors:
    """``with UpstreamErrors():`` turns what aiohttp raises into an UpstreamError."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, aiohttp.ClientError | OSError):
            # Without its cause: aiohttp's errors hold the request, key included, and their repr shows it.
            raise _upstream_error(error) from None


def _upstream_error(error: aiohttp.ClientError | OSError) -> UpstreamError:
    match error:
        case aiohttp.ConnectionTimeoutError():
            kind, message = ErrorKind.CONNECT_TIMEOUT, "no connection within connect_timeout_s"
        case aiohttp.ClientConnectorCertificateError():
            kind = ErrorKind.CONNECT_ERROR
            message = f"its certificate is not trusted ({error.certificate_error}); name a private CA in SSL_CERT_FILE"
        case aiohttp.ClientConnectorDNSError():
            kind, message = ErrorKind.CONNECT_ERROR, f"the name {error.host} does not resolve"
        case aiohttp.ClientConnectorError():
            kind = ErrorKind.CONNECT_ERROR
            message = f"no connection to {error.host}:{error.port} ({error.os_error.strerror or error.os_error})"
        case aiohttp.ClientHttpProxyError():
            kind, message = ErrorKind.CONNECT_ERROR, f"the proxy answered {error.status} {error.message}"
        case aiohttp.InvalidURL():
            kind, message = ErrorKind.CONNECT_ERROR, "its base_url is no URL"
        case aiohttp.ClientResponseError():
            kind, message = ErrorKind.INVALID_RESPONSE, f"its answer is no HTTP ({error.message})"
        case aiohttp.ClientPayloadError():
            kind, message = ErrorKind.DISCONNECTED, "the connection broke in the middle of the answer"
        case aiohttp.ServerDisconnectedError():
            kind, message = ErrorKind.DISCONNECTED, "the connection was closed before the answer"
        case _:
            kind, message = ErrorKind.DISCONNECTED, f"the connection broke ({error})"
    return UpstreamError(kind, redact(message))


def _proxy_of(url: URL) -> URL | None:
    """Return the proxy the environment names for ``url``.

    aiohttp's ``trust_env`` would look it up anew for each request, in a thread, and read .netrc besides.
    """
    proxy = getproxies().get(url.scheme)
    if proxy is None or proxy_bypass(url.host or ""):
        return None
    return URL(proxy if "://" in proxy else f"http://{proxy}")
