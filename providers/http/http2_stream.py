"""One exchange on an HTTP/2 connection: the state of its request and of its response."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from struct import Struct
from typing import Protocol

from providers.http.frames import (
    DEFAULT_WINDOW_BYTES,
    END_STREAM,
    HEADER,
    MAX_FRAME_BYTES,
    MAX_WINDOW_BYTES,
    PREFACE,
    Code,
    ConnectionFault,
    FrameKind,
    StreamFault,
    check_regular,
    frame,
    response_head,
    window_update,
)
from providers.http.message import (
    HEAD_BYTES,
    HTTP2_CONNECTION_BYTES,
    HTTP2_STREAM_BYTES,
    HTTP2_STREAMS,
    HTTP2_WHOLE_BYTES,
    INTERIM_RESPONSES,
    Field,
    Response,
)

_FIRST_FINAL_STATUS = 200


class StreamConnection(Protocol):
    """The connection, as far as an exchange needs it."""

    def credit(self, stream: "Stream") -> None:
        """Send a WINDOW_UPDATE for the bytes that were read."""

    def cancel(self, stream: "Stream") -> None:
        """Reset the exchange now."""


class Stream:
    """An exchange that has not ended. It is the ``Source`` of its response.

    ``plain`` is set when DATA only has to be passed on: the head has arrived, without a content-length.
    """

    __slots__ = (
        *("_line", "_method", "id", "may_resend", "response"),
        *("body", "send_window", "sent"),
        *("_interim", "_left_bytes", "_wide", "begun", "plain", "taken_bytes", "window"),
    )

    def __init__(
        self,
        line: StreamConnection,
        loop: asyncio.AbstractEventLoop,
        stream_id: int,
        method: str,
        connect_ms: float | None,
    ) -> None:
        self.id = stream_id
        self.response = Response(self, loop, connect_ms)
        self.may_resend = False  # if the connection turns out to be closed: it was kept, and nothing has arrived
        # Of the request:
        self.body: memoryview | None = None  # None: all of it was sent
        self.sent = 0  # bytes of ``body`` that were sent
        self.send_window = 0
        # Of the response:
        self.begun = False
        self.plain = False
        self.window = HTTP2_STREAM_BYTES
        self.taken_bytes = 0  # bytes that were read, without a WINDOW_UPDATE so far
        self._line = line
        self._method = method
        self._interim = 0
        self._left_bytes: int | None = None  # of a body with a content-length
        self._wide = False

    def taken(self, response: Response, size: int) -> None:  # noqa: ARG002 - a stream has only one
        """Let the server send more, once enough was read for a WINDOW_UPDATE."""
        self.taken_bytes += size
        if self.taken_bytes >= HTTP2_STREAM_BYTES // 2:
            self._line.credit(self)

    def widen(self, response: Response) -> None:  # noqa: ARG002 - a stream has only one
        """Widen the window, so that the server may send more in advance."""
        if not self._wide:
            self._wide = True
            self.taken_bytes += HTTP2_WHOLE_BYTES - HTTP2_STREAM_BYTES
            self._line.credit(self)

    def drop(self, response: Response) -> None:  # noqa: ARG002 - a stream has only one
        """Reset the exchange now."""
        self._line.cancel(self)

    def take_head(self, fields: Sequence[Field], *, ends: bool) -> None:
        """Process a header block: the head, an interim response, or trailers.

        Raises:
            StreamFault: HTTP/2 does not allow it.

        """
        if self.begun:
            if not ends:
                raise StreamFault(Code.PROTOCOL_ERROR, "trailers in the middle of the body")
            check_regular(fields)
            return
        self.may_resend = False
        status, length = response_head(fields, self._method)
        if status < _FIRST_FINAL_STATUS:
            self._interim += 1
            if ends:
                raise StreamFault(Code.PROTOCOL_ERROR, f"nothing after status {status}")
            if self._interim > INTERIM_RESPONSES:
                raise StreamFault(Code.ENHANCE_YOUR_CALM, f"more than {INTERIM_RESPONSES} interim responses")
            return
        self.begun = True
        self._left_bytes = length
        self.plain = length is None
        self.response.begin(status, fields[1:])

    def take_data(self, data: bytes, size: int) -> None:
        """Process a piece of the body, which may be empty; ``size`` is its length with padding.

        Raises:
            StreamFault: a body is not allowed here, or it is too long.

        """
        self.window -= size
        if self.window < 0:
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "more than the stream's window")
        if not self.begun:
            raise StreamFault(Code.PROTOCOL_ERROR, "a body without a head")
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                raise StreamFault(Code.PROTOCOL_ERROR, "more body than its content-length says")
        if data:
            self.response.feed(data)

    def check_end(self) -> None:
        """Check that the body may end here.

        Raises:
            StreamFault: it is shorter than its content-length.

        """
        if self._left_bytes:
            raise StreamFault(Code.PROTOCOL_ERROR, "less body than its content-length says")


# The SETTINGS of both sides of an HTTP/2 connection (RFC 9113, section 6.5).

_SETTING = Struct(">HI")
_MAX_FRAME_BYTES = 2**24 - 1


class Setting(IntEnum):
    """The identifier of a setting."""

    HEADER_TABLE_SIZE = 0x1
    ENABLE_PUSH = 0x2
    MAX_CONCURRENT_STREAMS = 0x3
    INITIAL_WINDOW_SIZE = 0x4
    MAX_FRAME_SIZE = 0x5
    MAX_HEADER_LIST_SIZE = 0x6


# The dynamic table for header fields keeps its default size, as some servers ignore another one: with 0, the second
# answer of h2o 2.2 on a connection could not be decoded (likewise haproxy #1498, and nghttp2 #396 for 4096).
_OURS = {
    Setting.ENABLE_PUSH: 0,
    Setting.INITIAL_WINDOW_SIZE: HTTP2_STREAM_BYTES,
    Setting.MAX_HEADER_LIST_SIZE: HEAD_BYTES,
}


def hello() -> bytes:
    """Return the connection preface of a client, with its SETTINGS."""
    settings = b"".join(_SETTING.pack(setting, value) for setting, value in _OURS.items())
    window = window_update(0, HTTP2_CONNECTION_BYTES - DEFAULT_WINDOW_BYTES)
    return PREFACE + frame(FrameKind.SETTINGS, 0, 0, settings) + window


class PeerSettings:
    """The server's settings: the defaults, until it changes them."""

    __slots__ = ("initial_window", "max_frame", "streams")

    def __init__(self) -> None:
        self.initial_window = DEFAULT_WINDOW_BYTES
        self.max_frame = MAX_FRAME_BYTES
        self.streams = HTTP2_STREAMS  # at a time: the server's limit, at most ours

    def update(self, payload: bytes) -> int:
        """Apply a SETTINGS frame; return by how much the window of each open stream changes.

        Raises:
            ConnectionFault: a value that is not allowed.

        """
        if len(payload) % _SETTING.size:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
        window_before = self.initial_window
        for setting, value in _SETTING.iter_unpack(payload):
            match setting:
                case Setting.ENABLE_PUSH if value:
                    raise ConnectionFault(Code.PROTOCOL_ERROR, "a server that enables push")
                case Setting.MAX_CONCURRENT_STREAMS:
                    self.streams = min(value, HTTP2_STREAMS)
                case Setting.INITIAL_WINDOW_SIZE:
                    if value > MAX_WINDOW_BYTES:
                        raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "an initial window that is too large")
                    self.initial_window = value
                case Setting.MAX_FRAME_SIZE:
                    if not MAX_FRAME_BYTES <= value <= _MAX_FRAME_BYTES:
                        raise ConnectionFault(Code.PROTOCOL_ERROR, "a maximal frame size out of range")
                    self.max_frame = value
        return self.initial_window - window_before


# The request bodies being sent on one HTTP/2 connection: they take turns, within the server's windows.

_TURN_BYTES = 64 * 1024  # of one body before the next one's turn; joined to one write


class BodySender:
    """Sends bodies as far as the windows and the transport's buffer allow. ``window`` is the connection's."""

    __slots__ = ("_ready", "_settings", "_write", "paused", "window")

    def __init__(self, settings: PeerSettings, write: Callable[[bytes], None]) -> None:
        self.window = DEFAULT_WINDOW_BYTES
        self.paused = False
        self._settings = settings
        self._write = write
        self._ready: deque[Stream] = deque()  # streams with more to send, and room in their own window

    def start(self, stream: Stream, head: bytes, body: bytes | None) -> None:
        """Send a request: its head, and as much of its body as possible."""
        stream.send_window = self._settings.initial_window
        if not body:
            self._write(head)
            return
        stream.body = memoryview(body)
        if stream.send_window > 0:
            self._ready.append(stream)
        self.go_on(head)

    def stop(self, stream: Stream) -> None:
        """Stop sending a body."""
        stream.body = None
        if stream in self._ready:
            self._ready.remove(stream)

    def widen(self, size: int) -> None:
        """Widen the connection's window by ``size`` bytes, after a WINDOW_UPDATE.

        Raises:
            ConnectionFault: the size is 0, or the window becomes too large.

        """
        if not size:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a WINDOW_UPDATE of zero bytes")
        self.window += size
        if self.window > MAX_WINDOW_BYTES:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a connection's window that is too large")

    def widen_stream(self, stream: Stream, size: int) -> None:
        """Widen the window of ``stream`` by ``size`` bytes, after a WINDOW_UPDATE.

        Raises:
            StreamFault: the size is 0, or the window becomes too large.

        """
        if not size:
            raise StreamFault(Code.PROTOCOL_ERROR, "a WINDOW_UPDATE of zero bytes")
        self.change_window(stream, size)

    def change_window(self, stream: Stream, size: int) -> None:
        """Change a stream's window by ``size``, which may be negative, as may the window.

        Raises:
            StreamFault: the window becomes too large.

        """
        stream.send_window += size
        if stream.send_window > MAX_WINDOW_BYTES:
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "a stream's window that is too large")
        if stream.body is not None and stream.send_window > 0 and stream not in self._ready:
            self._ready.append(stream)

    def go_on(self, before: bytes = b"") -> int:
        """Send ``before``, and as much of bodies as possible; return the number of their bytes."""
        pieces: list[bytes | memoryview] = [before] if before else []
        sent = batch = 0
        while self._ready and self.window > 0 and not self.paused:
            stream = self._ready.popleft()
            size = self._take_turn(stream, pieces)
            sent += size
            batch += size
            if batch >= _TURN_BYTES:
                self._write(b"".join(pieces))  # may call pause_writing
                pieces.clear()
                batch = 0
        if pieces:
            self._write(b"".join(pieces))
        return sent

    def _take_turn(self, stream: Stream, pieces: list[bytes | memoryview]) -> int:
        """Add the next frames of a body to ``pieces``."""
        body, begin = stream.body, stream.sent
        if body is None or stream.send_window <= 0:  # the server may have reduced the window
            return 0
        size = min(len(body) - begin, stream.send_window, self.window, _TURN_BYTES)
        end = begin + size
        last = end == len(body)
        max_frame = self._settings.max_frame
        for at in range(begin, end, max_frame):
            after = min(at + max_frame, end)
            flags = END_STREAM if last and after == end else 0
            pieces.append(HEADER.pack((after - at) << 8 | FrameKind.DATA, flags, stream.id))
            pieces.append(body[at:after])
        self.window -= size
        stream.send_window -= size
        stream.sent = end
        if last:
            stream.body = None
        elif stream.send_window > 0:
            self._ready.append(stream)
        return size


# Outgoing frames of an HTTP/2 connection: sent at once, or while reading, all in one write at the end of the read.


class Outgoing:
    """Writes to the connection's transport."""

    __slots__ = ("_frames", "_held", "_transport")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._held = False
        self._frames: list[bytes] = []  # those held

    def connect(self, transport: asyncio.Transport) -> None:
        """Write to ``transport`` from now on."""
        self._transport = transport

    def disconnect(self) -> None:
        """Forget the transport, which is closed."""
        self._transport = None

    def is_open(self) -> bool:
        """Whether frames can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send ``data``, or hold it."""
        if self._held:
            self._frames.append(data)
        elif self._transport is not None and not self._transport.is_closing():  # uvloop raises when it is closed
            self._transport.write(data)

    def hold(self) -> None:
        """Hold frames from now on."""
        self._held = True

    def release(self) -> bytes:
        """Hold no more, and return what was held."""
        self._held = False
        held = b"".join(self._frames)
        self._frames.clear()
        return held

    def abort(self) -> None:
        """Abort the transport, with all that is held or buffered."""
        self._frames.clear()
        if self._transport is not None:
            self._transport.abort()
