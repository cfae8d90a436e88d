"""Opening connections: name resolution, both IP families, TLS with ALPN, and proxies."""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from time import perf_counter
from typing import Literal, cast

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType

from providers.errors import ErrorKind, UpstreamError
from providers.http.connection import Connection, Owner
from providers.http.http1 import Http1Connection
from providers.http.http2 import Http2Connection
from providers.http.proxies import Proxy
from providers.http.resumption import resume_sessions
from providers.http.tunnel import ProxyRefused, Tunnel
from providers.redaction import redact
from providers.shortage import is_shortage, out_of_descriptors

Versions = Literal["auto", "1.1", "2"]

_DNS_CACHE_S = 30.0
NEXT_ADDRESS_S = 0.25  # RFC 8305: after this, the next address is tried in parallel
_OFFERED = {"auto": ["h2", "http/1.1"], "1.1": ["http/1.1"], "2": ["h2"]}


class TlsContexts:
    """TLS contexts that trust the system's certificate authorities, or those in SSL_CERT_FILE.

    There is one for each list of protocols, since ALPN is configured per context. Each costs 18 ms, so they are made at
    their first use, and shared by all providers.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext] = ssl.create_default_context) -> None:
        self._make = make
        self._made: dict[Versions, ssl.SSLContext] = {}

    def offering(self, versions: Versions) -> ssl.SSLContext:
        """Return the context that offers ``versions``.

        Raises:
            OSError: it cannot be made for lack of file descriptors. Python would make one that trusts no authority.

        """
        context = self._made.get(versions)
        if context is None:
            made = self._make()
            if out_of_descriptors():
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            context = self._made[versions] = made
            context.set_alpn_protocols(_OFFERED[versions])
            resume_sessions(context)
        return context


class Dialer:
    """Opens connections to one origin."""

    def __init__(
        self,
        scheme: str,
        host: str,
        port: int,
        *,
        loop: asyncio.AbstractEventLoop,
        versions: Versions,
        tls: TlsContexts,
        proxy: Proxy | None,
    ) -> None:
        self.versions = versions
        self._loop = loop
        self._scheme = scheme
        self._host = host
        self._port = port
        self._tls = tls
        self._proxy = proxy
        self._addresses: list[AddrInfoType] = []
        self._resolved_at = -_DNS_CACHE_S

    async def dial(self, owner: Owner, timeout_s: float) -> Connection:
        """Open a connection for ``owner``.

        Raises:
            UpstreamError: connect_error; connect_timeout after ``timeout_s`` for name resolution, TCP and TLS together;
                or local_resources, if this machine has no more file descriptors, ports or memory.

        """
        deadline = _Deadline(asyncio.current_task(self._loop))
        clock = self._loop.call_later(timeout_s, deadline.expire)
        try:
            return await self._dial(owner)
        except asyncio.CancelledError:
            if not deadline.is_cause():
                raise
            raise _too_late() from None
        except TimeoutError:  # the kernel's own
            raise _too_late() from None
        except (OSError, RuntimeError, ValueError, ProxyRefused, MemoryError) as error:  # uvloop's are RuntimeErrors
            if is_shortage(error):
                raise UpstreamError(ErrorKind.LOCAL_RESOURCES, self._lacking(error)) from None
            self._addresses = []  # they may have changed
            raise UpstreamError(ErrorKind.CONNECT_ERROR, redact(self._words(error))) from None
        finally:
            clock.cancel()

    async def _dial(self, owner: Owner) -> Connection:
        loop = self._loop
        choice = _Choice(owner, loop, self.versions)
        secure = self._tls.offering(self.versions) if self._scheme == "https" else None
        if self._proxy is None or secure is None:
            await self._open(loop, lambda: choice, secure)
        else:
            tunnel = Tunnel(loop, f"{_bracketed(self._host)}:{self._port}", self._proxy.authorization)
            outer = self._tls.offering("1.1") if self._proxy.scheme == "https" else None
            transport = await self._open(loop, lambda: tunnel, outer)
            try:
                await tunnel.opened()
                inner = await loop.start_tls(transport, choice, secure, server_hostname=self._host)
            except BaseException:
                transport.abort()
                raise
            assert inner is not None
            choice.connection_made(inner)  # the caller of start_tls has to do that
        if choice.connection is None:
            raise ConnectionError("it does not speak HTTP/2, which http_version: 2 demands")
        return choice.connection

    async def _open(
        self,
        loop: asyncio.AbstractEventLoop,
        factory: Callable[[], asyncio.Protocol],
        secure: ssl.SSLContext | None,
    ) -> asyncio.Transport:
        """Connect to the origin, or to its proxy."""
        host = self._proxy.host if self._proxy is not None else self._host
        if self._proxy is not None and self._scheme == "http" and self._proxy.scheme == "https":
            secure = self._tls.offering("1.1")
        addresses = await self._resolve(loop, host)
        name = host if secure is not None else None
        if len(addresses) == 1:
            address = addresses[0][4]
            transport, _ = await loop.create_connection(
                factory, str(address[0]), cast("int", address[1]), ssl=secure, server_hostname=name
            )
        else:
            connected = await aiohappyeyeballs.start_connection(
                addresses, happy_eyeballs_delay=NEXT_ADDRESS_S, interleave=1, loop=loop
            )
            try:
                transport, _ = await loop.create_connection(factory, sock=connected, ssl=secure, server_hostname=name)
            except BaseException:
                connected.close()
                raise
        return transport

    async def _resolve(self, loop: asyncio.AbstractEventLoop, host: str) -> list[AddrInfoType]:
        if not self._addresses or loop.time() - self._resolved_at >= _DNS_CACHE_S:
            port = self._proxy.port if self._proxy is not None else self._port
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self._addresses = cast("list[AddrInfoType]", found)
            self._resolved_at = loop.time()
        return self._addresses

    def _lacking(self, error: BaseException) -> str:
        reason = "Out of memory" if isinstance(error, MemoryError) else getattr(error, "strerror", None) or str(error)
        if out_of_descriptors():
            reason = os.strerror(errno.EMFILE)  # the resolver and OpenSSL report it with other texts
        return f"no connection to {self._host}:{self._port}, as the gateway's machine is short of resources ({reason})"

    def _words(self, error: OSError | RuntimeError | ValueError | ProxyRefused | MemoryError) -> str:
        through = "" if self._proxy is None else f" through the proxy {self._proxy.host}:{self._proxy.port}"
        match error:
            case ProxyRefused():
                return f"the proxy answered {error}"
            case ssl.SSLCertVerificationError():
                return f"its certificate is not trusted ({error}); name a private CA in SSL_CERT_FILE"
            case socket.gaierror() | UnicodeError():  # an unknown name, or one that IDNA does not allow
                host = self._proxy.host if self._proxy is not None else self._host
                return f"the name {host} does not resolve"
            case _:
                reason = getattr(error, "strerror", None) or error
                return f"no connection to {self._host}:{self._port}{through} ({reason})"


class _Deadline:
    """Cancels ``task`` once its time is up. ``asyncio.timeout`` does as well, for three system calls on Python 3.11."""

    __slots__ = ("_is_over", "_task")

    def __init__(self, task: asyncio.Task[object] | None) -> None:
        self._task = task
        self._is_over = False

    def expire(self) -> None:
        self._is_over = True
        if self._task is not None:
            self._task.cancel()

    def is_cause(self) -> bool:
        """Return whether the task was cancelled by this alone, and take that back."""
        return self._is_over and self._task is not None and self._task.uncancel() == 0


class _Choice(asyncio.Protocol):
    """A protocol that takes the place of HTTP/1.1 and HTTP/2 until ALPN has chosen one."""

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop, versions: Versions) -> None:
        self.connection: Http1Connection | Http2Connection | None = None
        self._owner = owner
        self._loop = loop
        self._versions = versions
        self._began = perf_counter()
        self._early = bytearray()  # start_tls may deliver data before it returns

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Choose the protocol."""
        stream = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        secure = transport.get_extra_info("ssl_object")
        spoken = secure.selected_alpn_protocol() if secure is not None else None
        http2 = spoken == "h2" or (secure is None and self._versions == "2")
        if self._versions == "2" and not http2:
            stream.abort()
            return
        kind = Http2Connection if http2 else Http1Connection
        self.connection = kind(self._owner, self._loop, (perf_counter() - self._began) * 1000)
        stream.set_protocol(self.connection)
        self.connection.connection_made(transport)
        if self._early:
            self.connection.data_received(bytes(self._early))

    def data_received(self, data: bytes) -> None:
        """Keep data that arrives before the choice."""
        self._early += data


def _too_late() -> UpstreamError:
    return UpstreamError(ErrorKind.CONNECT_TIMEOUT, "no connection within connect_timeout_s")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
