"""One HTTP/1.1 connection: how its exchanges begin and end."""

import asyncio
from itertools import chain
from typing import TYPE_CHECKING, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from providers.http.batches import Batches
from providers.http.message import (
    BUFFERED_BYTES,
    FRAMING_BYTES,
    HEAD_BYTES,
    HEAD_FIELDS,
    INTERIM_RESPONSES,
    LARGE_READ_BYTES,
    READ_BYTES,
    ConnectionOwner,
    HttpRequest,
    Response,
    Unsent,
    rendered,
)
from providers.refusals import ErrorKind, UpstreamError, redact

if TYPE_CHECKING:
    from providers.http.addresses import Place
    from providers.http.message import Field

# What httptools finds in the answers of one HTTP/1.1 connection: a head, pieces of a body, and an end.

OVERSIZED = f"more than {HEAD_BYTES // 1024} KiB or {HEAD_FIELDS} fields of head"
TOO_MUCH_FRAMING = "its chunks are too small"
_FIRST_STATUS, _FIRST_FINAL_STATUS = 100, 200  # interim responses have a status between these


class Fault(Exception):
    """The server violates the protocol. Raised inside a callback of the parser, which stops then."""


class Message:
    """The current answer, as far as it has been parsed; ``parser`` calls the methods below while it is fed."""

    __slots__ = ("complete", "fields", "interim", "keep_alive", "on_body", "parser", "pieces", "response")

    def __init__(self) -> None:
        self.parser: HttpResponseParser | None = None  # None: the connection is not open
        self.response: Response | None = None  # None: nothing was requested
        self.fields: list[Field] = []
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append  # called by httptools for each chunk, so about once per token
        self.complete = False
        self.interim = 0
        self.keep_alive = False

    def open(self) -> None:
        """Begin to parse."""
        self.parser = HttpResponseParser(self)

    def on_message_begin(self) -> None:
        """Begin a message: an interim response, or the one response."""
        if self.complete:
            raise Fault("a second response to one request")  # its body must not be added to this one's
        self.fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a field of the head, or of the trailers, which are ignored."""
        if len(self.fields) == HEAD_FIELDS:
            raise Fault(OVERSIZED)
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin the response."""
        assert self.parser is not None
        assert self.response is not None
        status = self.parser.get_status_code()
        if sum(map(len, chain.from_iterable(self.fields))) > HEAD_BYTES:
            raise Fault(OVERSIZED)
        if status >= _FIRST_FINAL_STATUS:
            self.keep_alive = self.parser.should_keep_alive()
            self.response.begin(status, self.fields)
            self.fields = []
            return
        self.interim += 1
        if status < _FIRST_STATUS or self.interim > INTERIM_RESPONSES:
            raise Fault(f"{self.interim} interim responses, the last with status {status}")

    def on_message_complete(self) -> None:
        """End the response, unless it is an interim one."""
        if self.response is not None and self.response.status:
            self.complete = True


# Reads of limited size from a connection; an event loop would deliver up to a quarter of a megabyte at once.


class ConnectionReader(Protocol):
    """The protocol of a connection."""

    def data_received(self, data: bytes) -> None:
        """Process data that was read."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Process the end of the connection."""

    def pause_writing(self) -> None:
        """Stop writing for now."""

    def resume_writing(self) -> None:
        """Continue writing."""


class BoundedReads(asyncio.BufferedProtocol):
    """Wraps ``reader`` after it has fallen behind for the first time; each read costs a little more this way."""

    def __init__(self, reader: ConnectionReader) -> None:
        self._reader = reader
        self._buffer = memoryview(bytearray(READ_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the buffer to read into."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the data on."""
        self._reader.data_received(bytes(self._buffer[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self._reader.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._reader.resume_writing()


_COPIED_BYTES = 64 * 1024  # a body up to this is sent with its head in one write, and over TLS in one record


class Http1Connection(asyncio.Protocol):
    """A connection with one exchange at a time. Dropping an exchange closes the connection."""

    version = "1.1"

    def __init__(self, owner: ConnectionOwner, loop: asyncio.AbstractEventLoop, connect_ms: float | None) -> None:
        self.room = 0
        self.streams = 0
        self.connect_ms = connect_ms  # for the first response; later ones did not wait for the connection
        self.idle_since = loop.time()
        self.batches: Batches | None = None
        self.place: Place | None = None
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._message = Message()
        self._retired = False  # it ends with its exchange
        self._notified = False  # its owner was notified that it is gone
        self._paused = False
        self._is_secure = False  # over TLS
        self._rests = False  # reading was paused for a batch
        self._read_at = 0.0  # the last read of an answer under way, while the loop is busy
        self._bounded = False  # reads are limited, since its reader has fallen behind before
        self._framing_bytes = 0  # in reads that are mostly framing
        self._unproductive = 0  # bytes since the last part of the body: head, trailers, chunk extensions

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to accept requests."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        self._is_secure = transport.get_extra_info("ssl_object") is not None
        self._message.open()
        self.room = 1

    def alive(self) -> bool:
        """Whether the connection can be used."""
        return self._transport is not None and not self._transport.is_closing()

    def takes(self, size: int) -> bool:  # noqa: ARG002 - HTTP/2 needs it
        """Return True: HTTP/1.1 has no flow control of its own."""
        return True

    def send(self, request: HttpRequest) -> Response:
        """Send ``request`` and return the response before it arrives."""
        assert self._transport is not None
        response = self._message.response = Response(self, self._loop, self.connect_ms)
        self.connect_ms = None
        if self._is_secure:  # to pause it would not stop reads, and uvloop drops what waits when the server closes
            response.batches = self.batches
        request.sendings.number += 1
        self.room = 0
        self.streams = 1
        head, body = request.head.http1, request.body
        if request.extra:
            head += rendered(request.extra)
        if body is None:
            self._transport.write(head + b"\r\n")
        elif len(body) <= _COPIED_BYTES:
            self._transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        else:
            self._transport.write(b"%bcontent-length: %d\r\n\r\n" % (head, len(body)))
            self._transport.write(body)
        return response

    def taken(self, response: Response, size: int) -> None:  # noqa: ARG002 - HTTP/2 needs it
        """Resume reading, if it was paused because the reader had fallen behind."""
        if self._paused and response.buffered <= BUFFERED_BYTES // 2 and self._transport is not None:
            self._paused = False
            if not self._rests:
                self._transport.resume_reading()

    def widen(self, response: Response) -> None:
        """Do nothing: there are no flow control windows."""

    def drop(self, response: Response) -> None:  # noqa: ARG002 - there is only one
        """Abort the connection: after a TLS close the server might continue to generate."""
        self._message.response = None
        self._give_up(dropped=True)

    def retire(self) -> None:
        """End, or do so once the exchange has ended."""
        self._retired = True
        if self._message.response is None:
            self._give_up()

    def close(self) -> None:
        """Abort the connection and its exchange."""
        self._fail(UpstreamError(ErrorKind.DISCONNECTED, "the connection was closed by the gateway"))

    def data_received(self, data: bytes) -> None:
        """Process data from the server."""
        message = self._message
        response, parser = message.response, message.parser
        if response is None or parser is None:
            self._give_up()  # unrequested data: it would be taken for the response to the next request
            return
        problem = None
        self._unproductive += len(data)
        try:
            parser.feed_data(data)
        except HttpParserUpgrade:
            problem = "it switched protocols"
        except HttpParserError as error:
            problem = str(error.__context__ or error)  # the parser wraps a Fault
        pieces = message.pieces
        if number := len(pieces):
            body = pieces[0] if number == 1 else b"".join(pieces)
            pieces.clear()
            self._unproductive = 0 if len(data) <= LARGE_READ_BYTES else self._excess(len(body), len(data))
            response.feed(body)
        if message.complete:
            self._finish(response, reusable=problem is None)
        elif problem is not None:
            self._fail(_no_http(problem))
        elif self._unproductive > HEAD_BYTES:
            self._fail(_no_http(OVERSIZED if self._framing_bytes <= FRAMING_BYTES else TOO_MUCH_FRAMING))
        elif response.buffered > BUFFERED_BYTES and not self._paused and self._transport is not None:
            self._fall_behind(self._transport)
        elif response.listener is not None and self.batches is not None and self.batches.rest_s and not self._is_secure:
            self._rest(self.batches, len(data), number)

    def _fall_behind(self, transport: asyncio.Transport) -> None:
        """Stop reading until the reader has taken what there is."""
        self._paused = True
        if not self._rests:
            transport.pause_reading()
        if not self._bounded:
            self._bounded = True
            transport.set_protocol(BoundedReads(self))

    def _rest(self, batches: Batches, size: int, tokens: int) -> None:
        """Rest before the next read of an answer under way, unless that would bring no more than one token anyway.

        ``size``, ``tokens``: of this read. A large one is no matter of tokens.
        """
        now = self._loop.time()
        came_after_s, self._read_at = now - self._read_at, now
        if self._rests or self._transport is None or size >= READ_BYTES:
            return
        if tokens <= 1 and came_after_s >= batches.rest_s:
            return
        self._rests = True
        self._transport.pause_reading()
        batches.rest(self._loop, self._go_on)

    def _go_on(self) -> None:
        if self._rests and self._transport is not None and not self._transport.is_closing():
            self._rests = False
            if not self._paused:
                self._transport.resume_reading()

    def _excess(self, body: int, size: int) -> int:
        """Count the framing in a large read of ``size`` bytes, of which ``body`` are of the answer's body.

        Return how many were unproductive: 0, or too many.
        """
        framing = size - body
        if 2 * framing > size:
            self._framing_bytes += framing
        return self._framing_bytes if self._framing_bytes > FRAMING_BYTES else 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Process the end of the connection, which also ends a response without a length."""
        response = self._message.response
        self._transport = self._message.parser = None
        is_whole = exc is None and not self._paused  # uvloop drops what waits at the end of a paused one over TLS
        if response is not None and response.status and self._ends_with_connection and is_whole:
            self._message.response = None
            response.end()
        self._fail(self._lost(response, exc))

    @property
    def _ends_with_connection(self) -> bool:
        response = self._message.response
        headers = response.headers if response is not None else {}
        return "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", "").lower()

    def _lost(self, response: Response | None, error: Exception | None) -> UpstreamError | Unsent:
        if response is not None and response.status:
            return UpstreamError(ErrorKind.DISCONNECTED, "the connection broke in the middle of the answer")
        if response is not None and response.connect_ms is None and not self._unproductive:
            return Unsent("kept connection lost")
        if error is not None:
            return UpstreamError(ErrorKind.DISCONNECTED, redact(f"the connection broke ({error})"))
        return UpstreamError(ErrorKind.DISCONNECTED, "the connection was closed before the answer")

    def _finish(self, response: Response, *, reusable: bool) -> None:
        """End ``response``, and accept the next request if the server keeps the connection open."""
        message = self._message
        message.response = None
        message.complete = False
        message.interim = 0
        message.fields = []
        self.streams = self._unproductive = 0
        response.end()
        transport = self._transport
        if self._retired or transport is None or not (reusable and message.keep_alive):
            self._give_up()
            return
        if transport.get_write_buffer_size():
            self._give_up()
            return
        if self._paused or self._rests:
            self._paused = self._rests = False
            transport.resume_reading()
        self.room = 1
        self.idle_since = self._loop.time()
        self._owner.freed(self)

    def _fail(self, error: UpstreamError | Unsent) -> None:
        response, self._message.response = self._message.response, None
        self._give_up()
        if response is not None:
            response.fail(error)

    def _give_up(self, *, dropped: bool = False) -> None:
        self.room = self.streams = 0
        if self._transport is not None:
            self._transport.abort()
        if not self._notified:
            self._notified = True
            self._owner.gone(self, dropped=dropped)


def _no_http(problem: str) -> UpstreamError:
    return UpstreamError(ErrorKind.INVALID_RESPONSE, redact(f"its answer is not HTTP ({problem})"))
