"""Opening connections: name resolution, both IP families, TLS with ALPN, and proxies."""

import asyncio
import base64
import errno
import os
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

import aiohappyeyeballs
from msgspec import Struct

from providers.http.addresses import Names, Place
from providers.http.http1 import Http1Connection
from providers.http.message import ConnectionOwner, UpstreamConnection
from providers.refusals import MASK, ErrorKind, MaskedRecord, UpstreamError, is_shortage, out_of_descriptors, redact

if TYPE_CHECKING:
    from providers.http.http2 import Http2Connection

# TLS session resumption: the handshake of a connection that replaces a lost race's becomes cheaper, as no certificates
# are sent, read and checked. If the server does not know the session any more, OpenSSL makes a whole handshake. A
# session is resumed only under the name that its certificate was checked for, and only in the context that checked it.


def resume_sessions(context: ssl.SSLContext) -> None:
    """Have the connections of ``context`` resume the session of the last whole handshake with the same name."""
    context.sslobject_class = type("Resuming", (_Resuming,), {"whole": {}, "sessions": {}})


class _Resuming(ssl.SSLObject):
    whole: dict[str | None, ssl.SSLObject]  # by name: the last whole handshake whose session was not taken yet
    sessions: dict[str | None, ssl.SSLSession]  # by name
    _begun = False

    def do_handshake(self) -> None:
        """Shake hands; the caller calls this again until it does not raise."""
        name = self.server_hostname
        if not self._begun:
            self._begun = True
            self._resume(name)
        super().do_handshake()
        if not self.session_reused:
            self.whole[name] = self

    def getpeercert(self, binary_form: bool = False) -> Any:
        """Return None: no caller needs a certificate that OpenSSL has checked, and parsing one takes 40 µs."""
        del binary_form

    def _resume(self, name: str | None) -> None:
        whole = self.whole.pop(name, None)
        latest = None if whole is None else whole.session  # the session's tickets have come by now
        if latest is not None:
            self.sessions[name] = latest
        session = self.sessions.get(name)
        if session is not None:
            self.session = session


# A tunnel through a proxy to a TLS origin: the CONNECT request, and its answer.

_LONGEST_ANSWER = 16 * 1024
_END = b"\r\n\r\n"


class ProxyRefused(Exception):
    """The proxy refuses the tunnel; the message is the proxy's status line."""


class Tunnel(asyncio.Protocol):
    """Asks a proxy for a tunnel. ``opened`` returns when the tunnel is established; after that, TLS takes over."""

    def __init__(self, loop: asyncio.AbstractEventLoop, authority: str, authorization: str | None) -> None:
        self._opened: asyncio.Future[None] = loop.create_future()
        self._answer = bytearray()
        request = f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\nuser-agent: holeshot\r\n"
        if authorization is not None:
            request += f"proxy-authorization: {authorization}\r\n"
        self._request = request.encode() + b"\r\n"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the CONNECT request."""
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Process the answer. No data follow it, as in TLS the client sends first."""
        self._answer += data
        if self._opened.done():
            return
        line, _, _ = bytes(self._answer).partition(b"\r\n")
        if _END in self._answer:
            version, _, status = line.partition(b" ")
            if version.startswith(b"HTTP/1.") and status.startswith(b"2"):
                self._opened.set_result(None)
            else:
                self._refuse(status.decode("latin-1") if version.startswith(b"HTTP/") else "with no HTTP")
        elif len(self._answer) > _LONGEST_ANSWER:
            self._refuse("with too long a head")

    def connection_lost(self, exc: Exception | None) -> None:
        """Process the end of the connection."""
        del exc
        if not self._opened.done():
            self._refuse("by closing the connection")

    async def opened(self) -> None:
        """Wait for the tunnel.

        Raises:
            ProxyRefused: the proxy refuses the tunnel.

        """
        await self._opened

    def _refuse(self, words: str) -> None:
        self._opened.set_exception(ProxyRefused(redact(words[:200])))


# The proxy for an origin, from the environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY, in upper or lower case).

_PORTS = {"http": 80, "https": 443}
_LARGEST_PORT = 65535
_SEPARATORS = re.compile(r"[\s,]+")
_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*):(\d{1,5})")
_NETWORK = re.compile(r"[0-9a-f.:]+(/\d{1,3})?")
_NAME = re.compile(r"([a-z0-9_-]++\.)*+(?!\d+\Z)[a-z0-9_-]++")  # only an address ends in a number
_MAPPED_BITS = 96  # ::ffff:0:0/96, in which IPv4 addresses are written as IPv6
_LONGEST_SHOWN = 100  # characters of an entry of NO_PROXY


class Proxy(MaskedRecord, frozen=True):
    """A proxy. ``authorization``: the value of proxy-authorization, a secret."""

    scheme: str  # of the proxy itself: http or https
    host: str
    port: int
    authorization: str | None = None

    def shown(self) -> Iterable[tuple[str, object]]:
        """Return the proxy's address."""
        yield "url", f"{self.scheme}://{self.host}:{self.port}"


def _proxies() -> Mapping[str, str]:
    """Return what the environment says of proxies, by scheme; mostly nothing, and each provider asks."""
    return getproxies_environment() if any(name[-6:].lower() == "_proxy" for name in os.environ) else {}


def proxy_of(scheme: str, host: str, port: int | None = None) -> Proxy | None:
    """Return the proxy for an origin, None if there is none. ``port`` None: the scheme's.

    Raises:
        ValueError: the environment names a proxy that is not supported.

    """
    named = _proxies().get(scheme)
    if not named or is_direct(scheme, host, port):
        return None
    parts = urlsplit(named if "://" in named else f"http://{named}")
    variable = f"{scheme.upper()}_PROXY"
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{variable} must be http://host:port or https://host:port; other kinds are not supported")
    try:
        proxy_port = parts.port or _PORTS[parts.scheme]
    except ValueError:
        raise ValueError(f"the port in {variable} is none") from None
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(parts.scheme, parts.hostname, proxy_port, authorization)


def is_direct(scheme: str, host: str, port: int | None) -> bool:
    """Return whether NO_PROXY lists an origin. ``port`` None: the scheme's.

    A name is not looked up, so no network contains it.
    """
    port = _PORTS.get(scheme, 0) if port is None else port
    plain = _plain(host)
    address = _network(plain.partition("%")[0])  # without the name of a link
    return any(
        (entry := _read_entry(each)) is not None and entry.holds(plain, address, port) for each in _listed_direct()
    )


def not_understood() -> list[str]:
    """Return the words of NO_PROXY that are no entries, if there is a proxy; possible passwords are masked."""
    if _PORTS.keys().isdisjoint(_proxies()):
        return []
    unread = (entry for entry in _listed_direct() if _read_entry(entry) is None)
    return [MASK if "@" in entry else redact(entry[:_LONGEST_SHOWN]) for entry in unread]


class _Direct(Struct, frozen=True):
    """An entry of NO_PROXY: a network, or a domain with the names below it."""

    network: IPv4Network | IPv6Network | None = None
    domain: str = ""  # empty: every name
    is_below: bool = False  # only names below the domain
    port: int | None = None  # None: every port

    def holds(self, name: str, address: IPv4Network | IPv6Network | None, port: int) -> bool:
        """Return whether a host is one of these. ``address``: the network of the host's address alone."""
        if self.port not in {None, port}:
            return False
        if self.network is not None:
            mine: Any = self.network
            return address is not None and address.version == mine.version and address.subnet_of(mine)
        return not self.domain or name.endswith(f".{self.domain}") or (name == self.domain and not self.is_below)


def _listed_direct() -> list[str]:
    return [each for each in _SEPARATORS.split(_proxies().get("no", "")) if each]


def _read_entry(entry: str) -> _Direct | None:
    """Return an entry of NO_PROXY as curl (separators, networks) and Go (ports, ``*.domain``) read it, None if neither.

    ``.domain`` as in curl: the domain and all names below.
    """
    if entry == "*":
        return _Direct()
    network = _network(entry.lower())  # first, as the colons of an address are before no port
    if network is not None:
        return _Direct(network)
    whole = _AND_PORT.fullmatch(entry)
    host, port = (entry, None) if whole is None else (whole[1], int(whole[2]))
    if port is not None and not 0 < port <= _LARGEST_PORT:
        return None
    if host.startswith("["):
        network = _network(host[1:-1].lower()) if host.endswith("]") else None
        return None if network is None or network.prefixlen < network.max_prefixlen else _Direct(network, port=port)
    network = _network(host)
    if network is not None:
        return None if "/" in host else _Direct(network, port=port)
    is_below = host.startswith("*.")
    domain = _plain(host.removeprefix("*." if is_below else "."))
    return _Direct(domain=domain, is_below=is_below, port=port) if _NAME.fullmatch(domain) else None


def _network(written: str) -> IPv4Network | IPv6Network | None:
    """Return the network, or that of a single address; an IPv4 address that is written as IPv6 is IPv4."""
    if not _NETWORK.fullmatch(written):
        return None
    try:
        found = ip_network(written, strict=False)
    except ValueError:
        return None
    mapped = found.network_address.ipv4_mapped if isinstance(found, IPv6Network) else None
    bits = found.prefixlen - _MAPPED_BITS
    return found if mapped is None or bits < 0 else IPv4Network((int(mapped), bits))


def _plain(name: str) -> str:
    """Return a name in lower case and ASCII, without the dot at the end."""
    lower = name.lower().removesuffix(".")
    try:
        return lower.encode("idna").decode()
    except UnicodeError:  # no name
        return lower


Versions = Literal["auto", "1.1", "2"]

NEXT_ADDRESS_S = 0.25  # RFC 8305: after this, the next address is tried in parallel
_OFFERED = {"auto": ["h2", "http/1.1"], "1.1": ["http/1.1"], "2": ["h2"]}


class TlsContexts:
    """TLS contexts that trust the system's certificate authorities, or those in SSL_CERT_FILE.

    Each list of protocols has its own context, as ALPN is configured per context. A context costs 18 ms, so it is made
    at the first use, and shared by all that connect. Contexts are made again after ``renew``, as OpenSSL reads a file
    of authorities once; open connections stay.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext] = ssl.create_default_context) -> None:
        self._make = make
        self._made: dict[Versions, ssl.SSLContext] = {}

    def offering(self, versions: Versions) -> ssl.SSLContext:
        """Return the context that offers ``versions``.

        Raises:
            OSError: the context cannot be made for lack of file descriptors. Python would make one that trusts no
                authority.

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

    def renew(self) -> None:
        """Let new connections trust the authorities that are there now."""
        self._made.clear()

    def of(self, url: str) -> ssl.SSLContext | Literal[True]:
        """Return what aiohttp takes as ``ssl`` of a request. aiohttp makes its own context once, when it is imported.

        Raises:
            OSError: as of ``offering``.

        """
        return self.offering("1.1") if url[:8].lower() == "https://" else True


_MOST_FILES = 1000  # watched in the folders of SSL_CERT_DIR, at most


def authority_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files and folders that OpenSSL reads authorities from.

    Of a folder that a variable names, the files too: a file that is written again does not change the folder. In the
    system's own folder, which has hundreds, each file is a link that is made again.
    """
    paths = ssl.get_default_verify_paths()
    yield Path(environ.get(paths.openssl_cafile_env) or paths.openssl_cafile)
    named = environ.get(paths.openssl_capath_env)
    for folder in map(Path, (named or paths.openssl_capath).split(os.pathsep)):
        yield folder
        if named:
            with suppress(OSError):
                yield from sorted(islice(folder.iterdir(), _MOST_FILES))


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
        names: Names,
    ) -> None:
        self.versions = versions
        self.addresses = names.of(loop, *((host, port) if proxy is None else (proxy.host, proxy.port)))
        self._loop = loop
        self._scheme = scheme
        self._host = host
        self._port = port
        self._tls = tls
        self._proxy = proxy

    async def dial(self, owner: ConnectionOwner, timeout_s: float) -> UpstreamConnection:
        """Open a connection for ``owner``.

        Raises:
            UpstreamError: connect_error; connect_timeout after ``timeout_s`` for name resolution, TCP and TLS together;
                or local_resources, if this machine has no more file descriptors, ports or memory.

        """
        deadline = _Deadline(asyncio.current_task(self._loop))
        clock = self._loop.call_later(timeout_s, deadline.expire)
        way = _Way()
        try:
            return await self._dial(owner, way)
        except asyncio.CancelledError:
            if not deadline.is_cause():
                raise
            way.failed(self._loop.time())
            raise _too_late() from None
        except TimeoutError:  # the kernel's own
            way.failed(self._loop.time())
            raise _too_late() from None
        except (OSError, RuntimeError, ValueError, ProxyRefused, MemoryError) as error:  # uvloop's are RuntimeErrors
            if is_shortage(error):
                raise self._lacking(error) from None
            way.failed(self._loop.time())
            self.addresses.doubt()
            raise self._failure(error) from None
        finally:
            clock.cancel()
            way.end()

    async def _dial(self, owner: ConnectionOwner, way: "_Way") -> UpstreamConnection:
        loop = self._loop
        choice = _Choice(owner, loop, self.versions)
        secure = self._tls.offering(self.versions) if self._scheme == "https" else None
        if self._proxy is None or secure is None:
            await self._open(loop, way, lambda: choice, secure)
        else:
            tunnel = Tunnel(loop, f"{_bracketed(self._host)}:{self._port}", self._proxy.authorization)
            outer = self._tls.offering("1.1") if self._proxy.scheme == "https" else None
            transport = await self._open(loop, way, lambda: tunnel, outer)
            try:
                await tunnel.opened()
                inner = await loop.start_tls(transport, choice, secure, server_hostname=self._host)
            except BaseException:
                transport.abort()
                raise
            assert inner is not None
            choice.connection_made(inner)  # the caller of start_tls has to do this
        if choice.connection is None:
            raise ConnectionError("it does not speak HTTP/2, which http_version: 2 demands")
        if self._proxy is None:
            choice.connection.place = way.place
        return choice.connection

    async def _open(
        self,
        loop: asyncio.AbstractEventLoop,
        way: "_Way",
        factory: Callable[[], asyncio.Protocol],
        secure: ssl.SSLContext | None,
    ) -> asyncio.Transport:
        """Connect to the origin, or to its proxy."""
        host = self._proxy.host if self._proxy is not None else self._host
        if self._proxy is not None and self._scheme == "http" and self._proxy.scheme == "https":
            secure = self._tls.offering("1.1")
        places = await self.addresses.found()
        if self._proxy is None:
            places = self.addresses.in_turn(places)
            way.begin(places[0], loop.time())
        name = host if secure is not None else None
        if len(places) == 1:
            address = places[0].info[4]
            transport, _ = await loop.create_connection(
                factory, str(address[0]), cast("int", address[1]), ssl=secure, server_hostname=name
            )
        else:
            connected = await aiohappyeyeballs.start_connection(
                [place.info for place in places], happy_eyeballs_delay=NEXT_ADDRESS_S, interleave=1, loop=loop
            )
            try:
                way.arrive(places, connected.getpeername(), loop.time())
                transport, _ = await loop.create_connection(factory, sock=connected, ssl=secure, server_hostname=name)
            except BaseException:
                connected.close()
                raise
        way.arrived()
        return transport

    def _lacking(self, error: BaseException) -> UpstreamError:
        reason = "Out of memory" if isinstance(error, MemoryError) else getattr(error, "strerror", None) or str(error)
        if out_of_descriptors():
            reason = os.strerror(errno.EMFILE)  # the resolver and OpenSSL report it with other texts
        why = f"as the gateway's machine is short of resources ({reason})"
        message = f"no connection to {self._host}:{self._port}, {why}"
        return UpstreamError(ErrorKind.LOCAL_RESOURCES, message, caller=f"no connection, {why}")

    def _failure(self, error: OSError | RuntimeError | ValueError | ProxyRefused | MemoryError) -> UpstreamError:
        """Return the error without a host in its text for the caller."""
        match error:
            case ProxyRefused():
                caller = "no connection (refused on the way)"
            case ssl.SSLCertVerificationError():
                caller = "its certificate is not trusted"
            case socket.gaierror() | UnicodeError():
                caller = "its name does not resolve"
            case OSError(errno=int(number)) if number > 0 and not isinstance(error, ssl.SSLError):
                caller = f"no connection ({os.strerror(number)})"
            case _:
                caller = "no connection"
        return UpstreamError(ErrorKind.CONNECT_ERROR, redact(self._words(error)), caller=caller)

    def _words(self, error: OSError | RuntimeError | ValueError | ProxyRefused | MemoryError) -> str:
        through = "" if self._proxy is None else f" through the proxy {self._proxy.host}:{self._proxy.port}"
        match error:
            case ProxyRefused():
                return f"the proxy answered {error}"
            case ssl.SSLCertVerificationError():
                return f"its certificate is not trusted ({error}); name a private CA in SSL_CERT_FILE"
            case socket.gaierror() | UnicodeError():  # an unknown name, or one that IDNA forbids
                host = self._proxy.host if self._proxy is not None else self._host
                return f"the name {host} does not resolve"
            case _:
                reason = getattr(error, "strerror", None) or error
                return f"no connection to {self._host}:{self._port}{through} ({reason})"


class _Way:
    """Which of a name's addresses one connection goes to; the address counts as used meanwhile."""

    __slots__ = ("place",)

    def __init__(self) -> None:
        self.place: Place | None = None  # None: not known yet, or a proxy's

    def begin(self, place: Place, now_s: float) -> None:
        """Go to ``place`` first."""
        if place.retry_at:  # one connection tries whether the address still fails; others keep to addresses that do not
            place.failed(now_s)
        self.place = place
        place.used += 1

    def arrive(self, places: Sequence[Place], address: object, now_s: float) -> None:
        """Note that the place at ``address`` has answered, of the ``places`` that were tried in this order."""
        if self.place is None or self.place.info[4] == address:
            return
        found = next((place for place in places if place.info[4] == address), None)
        if found is not None:
            self.place.failed(now_s)
            self.place.used -= 1
            self.place = found
            found.used += 1

    def arrived(self) -> None:
        """Note that the connection was made."""
        if self.place is not None:
            self.place.retry_at = 0.0

    def failed(self, now_s: float) -> None:
        """Note that no connection was made."""
        if self.place is not None:
            self.place.failed(now_s)

    def end(self) -> None:
        """Count no longer: who has the connection does."""
        if self.place is not None:
            self.place.used -= 1


class _Deadline:
    """Cancels ``task`` after its time. ``asyncio.timeout`` would cost three system calls on Python 3.11."""

    __slots__ = ("_is_over", "_task")

    def __init__(self, task: asyncio.Task[object] | None) -> None:
        self._task = task
        self._is_over = False

    def expire(self) -> None:
        self._is_over = True
        if self._task is not None:
            self._task.cancel()

    def is_cause(self) -> bool:
        """Return whether only this deadline cancelled the task, and if so undo the cancellation."""
        return self._is_over and self._task is not None and self._task.uncancel() == 0


class _Choice(asyncio.Protocol):
    """The protocol of a connection until ALPN has chosen HTTP/1.1 or HTTP/2."""

    def __init__(self, owner: ConnectionOwner, loop: asyncio.AbstractEventLoop, versions: Versions) -> None:
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
        kind = _http2() if http2 else Http1Connection
        self.connection = kind(self._owner, self._loop, (perf_counter() - self._began) * 1000)
        stream.set_protocol(self.connection)
        self.connection.connection_made(transport)
        if self._early:
            self.connection.data_received(bytes(self._early))

    def data_received(self, data: bytes) -> None:
        """Keep data that arrive before the choice."""
        self._early += data


def _http2() -> "type[Http2Connection]":
    from providers.http.http2 import Http2Connection  # noqa: PLC0415 - with its HPACK, only where it is spoken

    return Http2Connection


def _too_late() -> UpstreamError:
    return UpstreamError(ErrorKind.CONNECT_TIMEOUT, "no connection within connect_timeout_s")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
