"""A request as bytes of either protocol. The part that is the same for every call to a provider is built once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from providers.http.addresses import Place
from providers.http.batches import Batches
from providers.refusals import UpstreamError

# The limits on what a server can make the client store or do, all in one place. They are far above what providers
# need. A server that exceeds one is broken or hostile, and its connection is dropped.

HEAD_BYTES = 64 * 1024  # the header fields of one response, and its trailers
HEAD_FIELDS = 256
INTERIM_RESPONSES = 16  # with a status of 1xx, before the response
# Bytes of chunk sizes or heads of frames on one connection, counted in reads of which they are more than half. A byte
# of body that comes alone costs as much CPU as kilobytes.
FRAMING_BYTES = 2 * 1024 * 1024
LARGE_READ_BYTES = 4096  # only larger reads are looked at: single tokens may be short
BUFFERED_BYTES = 48 * 1024  # unread bytes of one response's body, before reading from the connection pauses
READ_BYTES = 32 * 1024  # of a body at once: a slow client may delay the reader before it can pass on more
WHOLE_READ_BYTES = 1024 * 1024  # the same, for readers of a whole body
PIECES = 128  # unread pieces, before they are joined: a piece of one byte takes forty

IDLE_S = 50.0  # less than the 60 s after which many vendors' load balancers close an idle connection
UNKNOWN_DIALS = 4  # at a time, until it is known whether connections can be shared (HTTP/2)
MAX_IDLE = 256  # idle connections that are kept, per origin
MAX_TRIES = 3  # of one request that the server did not begin to process

HTTP2_STREAMS = 16  # exchanges at a time on one connection: a lost packet delays all of these
HTTP2_WINDOWS = 8  # a longer body goes over HTTP/1.1, where it does not wait a round trip for each window
HTTP2_RESETS_WEARING = 75  # our resets on one connection, until another one is opened
HTTP2_RESETS = 100  # resets of one connection, then it is retired: nghttp2, Envoy and netty tolerate 200 or more
HTTP2_CONNECTION_BYTES = 16 * 1024 * 1024  # unread bytes on one connection
HTTP2_STREAM_BYTES = 96 * 1024  # unread bytes of one response; enough for 1 MB/s at a round trip of 0.1 s
HTTP2_WHOLE_BYTES = 1024 * 1024  # the same, for readers of a whole body
HTTP2_CONTINUATIONS = 64  # CONTINUATION frames of one header block
HTTP2_USELESS_FRAMES = 1000  # consecutive frames without progress of any request or response
HTTP2_QUIET_S = 10.0  # after this idle time a PING checks the connection: a NAT or a firewall may have forgotten it
HTTP2_ANSWER_S = 5.0  # the time limit for an answer to that PING, or any other data
HTTP2_WINDOW_S = 5.0  # the time limit for a server to take more of the bodies that wait for it


# A response while it arrives. A connection fills it, one task reads it. It is the same for both protocols.

Field = tuple[bytes, bytes]  # name, value


class Unsent(Exception):
    """The server did not begin to process the request, so it may be sent again over another connection.

    A kept connection turned out to be closed, or the server sent HTTP/2's GOAWAY or REFUSED_STREAM.
    """


class ResponseSource(Protocol):
    """The connection of a response."""

    def taken(self, response: "Response", size: int) -> None:
        """Be notified that ``size`` bytes were read: let the server send more. Not called after the response's end."""

    def widen(self, response: "Response") -> None:
        """Be notified that the reader reads the whole body without pauses: let the server send more in advance."""

    def drop(self, response: "Response") -> None:
        """Drop the exchange now, so that the server notices at once."""


class Response(msgspec.Struct, eq=False):  # a struct is made without a Python call
    """One response. ``status`` and ``headers`` are set once ``begun`` has returned.

    A connection calls ``begin``, ``feed``, then ``end`` or ``fail``; the reader calls ``begun``, ``read``, ``abort``.
    """

    _source: ResponseSource | None  # None after the end
    _loop: asyncio.AbstractEventLoop
    connect_ms: float | None  # the time to connect; None: a kept connection was used
    status: int = 0  # until the headers have arrived
    buffered: int = 0  # unread bytes
    # Gets data that arrive while the reader waits. False: the reader is woken instead.
    listener: Callable[[bytes], bool] | None = None
    _fields: Sequence[Field] = ()
    _headers: Mapping[str, str] | None = None
    _pieces: list[bytes] = []
    _most: int = READ_BYTES  # of one read
    _ended: bool = False
    _error: "UpstreamError | Unsent | None" = None
    _waiter: "asyncio.Future[None] | None" = None
    batches: Batches | None = None  # the response is offered in these, where its connection does not rest

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields by lower-case names, decoded as Latin-1; repeated fields are joined with a comma."""
        if self._headers is None:
            headers: dict[str, str] = {}
            for raw_name, raw_value in self._fields:
                name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
            self._headers = headers
            self._fields = ()
        return self._headers

    @property
    def ended(self) -> bool:
        """Whether the response has ended: the connection broke, or all data have arrived, perhaps not yet read."""
        return self._source is None

    async def begun(self) -> None:
        """Wait for the headers of the response; interim ones (1xx) do not count.

        Raises:
            Unsent: the server did not begin to process the request.
            UpstreamError: disconnected, or invalid_response (not HTTP).

        """
        while not self.status:
            if self._error is not None:
                raise self._error
            waiter = self._waiter = self._loop.create_future()  # ``_more``, inlined
            try:
                await waiter
            finally:
                self._waiter = None

    async def read(self) -> bytes:
        """Return the next bytes of the body, a limited number at once. Waits if there are none; ``b""`` at the end.

        Raises:
            UpstreamError: the connection broke before the end; raised after everything that arrived was read.

        """
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            await self._more()
        if self.buffered > self._most:
            data = self._first()
        else:
            data = self._joined()
            self._pieces.clear()
        self._taken(len(data))
        return data

    def expect_all(self) -> None:
        """Declare that the reader will read the whole body without pauses."""
        self._most = WHOLE_READ_BYTES
        if self._source is not None:
            self._source.widen(self)

    def abort(self) -> None:
        """Drop the exchange at once, so that the server notices. Does nothing after the end. Wakes no reader."""
        source, self._source = self._source, None
        self.listener = None
        if source is not None:
            source.drop(self)

    def begin(self, status: int, fields: Sequence[Field]) -> None:
        """Set the status and the header fields."""
        self.status = status
        self._fields = fields
        self._wake()

    def feed(self, data: bytes) -> None:
        """Add a piece of the body."""
        self._pieces.append(data)
        self.buffered += len(data)
        if self.listener is None:
            self._wake()
        elif len(self._pieces) == 1:
            if self.batches is not None and self.batches.rest_s and len(data) < READ_BYTES:
                self.batches.rest(self._loop, self._offer)
                return
            self._loop.call_soon(self._offer)  # once for all data that arrive together, as for a reader
        elif self.batches is not None and self.buffered >= READ_BYTES:
            self._loop.call_soon(self._offer)  # no matter of tokens
        if len(self._pieces) > PIECES:
            self._pieces[:] = [b"".join(self._pieces)]

    def end(self) -> None:
        """Mark the end of the body."""
        self._ended = True
        self._source = self.listener = None
        self._wake()

    def fail(self, error: UpstreamError | Unsent) -> None:
        """Mark the response as broken: nothing more will arrive."""
        self._error = error
        self._source = self.listener = None
        self._wake()

    def _offer(self) -> None:
        waiter = self._waiter
        # A reader that is not waiting will read the data later; after the end it was woken already.
        if waiter is None or waiter.done() or self._source is None or not self._pieces or self.listener is None:
            return
        if self.buffered > self._most:
            waiter.set_result(None)
            return
        data = self._joined()
        try:
            wanted = self.listener(data)
        except Exception as defect:  # noqa: BLE001 - raised to the reader, as the caller here is the event loop
            waiter.set_exception(defect)
            return
        if wanted:
            self._pieces.clear()
            self._taken(len(data))
        else:
            waiter.set_result(None)

    def _joined(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def _first(self) -> bytes:
        """Cut off the data for one read, if more have arrived."""
        number = size = 0
        while size < self._most:
            size += len(self._pieces[number])
            number += 1
        taken = self._pieces[:number]
        del self._pieces[:number]
        if size > self._most:
            last = taken.pop()
            cut = len(last) - (size - self._most)
            taken.append(last[:cut])
            self._pieces.insert(0, last[cut:])
        return b"".join(taken)

    def _taken(self, size: int) -> None:
        self.buffered -= size
        if self._source is not None:
            self._source.taken(self, size)

    async def _more(self) -> None:
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


_NAMES_WITH_MEANING = frozenset({"connection", "content-length", "host", "keep-alive", "te", "transfer-encoding"})


class Head:
    """The constant part of a request: method, target and the provider's own header fields.

    ``fields`` have lower-case names. ``http1`` is the request line and the fields, without the empty line at the end;
    ``http2`` is the beginning of the header block.
    """

    __slots__ = ("authority", "fields", "http1", "http2", "method", "scheme", "target")

    def __init__(
        self, method: str, scheme: str, authority: str, target: str, headers: Mapping[str, str], *, absolute: bool
    ) -> None:
        """Build the constant part. ``absolute``: the target is the whole URL, which a proxy needs.

        Raises:
            ValueError: a method, target or field that could split the message.

        """
        if not (_is_token(method) and target.startswith("/") and _is_visible(target)):
            raise ValueError(f"{method!r} {target!r} cannot be sent as a request line")
        self.method = method
        self.scheme = scheme
        self.authority = authority
        self.target = target
        self.fields = checked(headers)
        where = f"{scheme}://{authority}{target}" if absolute else target
        line = f"{method} {where} HTTP/1.1\r\nhost: {authority}\r\n".encode("latin-1")
        self.http1 = line + rendered(self.fields)
        self.http2: bytes | None = None  # set by the first HTTP/2 connection that needs it


class SendCount(msgspec.Struct, eq=False):  # a struct is made without a Python call
    """How often one request was written to a connection."""

    number: int = 0


class HttpRequest(msgspec.Struct, eq=False):
    """One request: a head, further header fields of this call, and the body."""

    head: Head
    extra: Sequence[Field]
    body: bytes | None  # None: no body, and no content-length
    once: bool = False  # the request has side effects at the server, so it must not be sent again
    sendings: SendCount = msgspec.field(default_factory=SendCount)


def checked(headers: Mapping[str, str]) -> tuple[Field, ...]:
    """Return header fields with lower-case names.

    Raises:
        ValueError: a field is not valid: it has control characters, or only the connection may set it.

    """
    fields = []
    for name, value in headers.items():
        lower = name.lower()
        if not (_is_token(lower) and value.isprintable()) or lower in _NAMES_WITH_MEANING:
            raise ValueError(f"{name!r} cannot be sent as a header field")
        fields.append((lower.encode("ascii"), value.strip().encode("utf-8")))
    return tuple(fields)


def rendered(fields: Sequence[Field]) -> bytes:
    """Return fields in the format of HTTP/1.1."""
    return b"".join(name + b": " + value + b"\r\n" for name, value in fields)


def _is_visible(text: str) -> bool:
    """Whether all characters are visible ASCII."""
    return text.isascii() and text.isprintable() and " " not in text


def _is_token(name: str) -> bool:
    return bool(name) and name.isascii() and name.replace("-", "").replace("_", "").replace(".", "").isalnum()


# A connection as the pool sees it, over either protocol.


class ConnectionOwner(Protocol):
    """The owner of connections, which is notified of their state."""

    def freed(self, connection: "UpstreamConnection") -> None:
        """Be notified that ``connection`` has room for a request again."""

    def wearing(self, connection: "UpstreamConnection") -> None:
        """Be notified, once, that ``connection`` will soon accept no more requests, so that a new one can be opened."""

    def gone(self, connection: "UpstreamConnection", *, dropped: bool) -> None:
        """Be notified, once, that ``connection`` accepts no more requests; ``dropped``: because of a lost exchange."""


class UpstreamConnection(Protocol):
    """An established connection. ``room``: how many more requests it accepts now: 1 or 0 over HTTP/1.1."""

    version: str  # "1.1" or "2"
    batches: Batches | None  # set by its pool
    connect_ms: float | None  # the time to connect, for the first response; None if no request waited for it
    room: int
    idle_since: float  # when the connection's last exchange ended, in the event loop's time
    place: Place | None  # the address at the other end; None: a proxy is between

    @property
    def streams(self) -> int:
        """The number of exchanges under way."""

    def send(self, request: HttpRequest) -> Response:
        """Send ``request`` and return its response, which has not arrived yet. Call this only while there is room."""

    def alive(self) -> bool:
        """Whether the connection can be used: the other side has not closed it, as far as is known."""

    def takes(self, size: int) -> bool:
        """Whether a body of ``size`` bytes can be sent without waiting for the server to open a window."""

    def retire(self) -> None:
        """Accept no more requests; end once the running exchanges have ended."""

    def close(self) -> None:
        """Drop the connection at once, with all its exchanges."""
