"""Incoming data of an HTTP/2 connection: it is split into frames, and each frame is processed.

What RFC 9113 forbids, and what exceeds ``limits.py``, raises a fault.
"""

from typing import Protocol

from providers.http import frames
from providers.http.frames import (
    END_HEADERS,
    END_STREAM,
    HEADER,
    HEADER_BYTES,
    MAX_FRAME_BYTES,
    PRIORITIZED,
    Code,
    ConnectionFault,
    FrameKind,
    StreamFault,
    unpadded,
)
from providers.http.http2_stream import BodySender, Outgoing, PeerSettings, Stream
from providers.http.message import (
    FRAMING_BYTES,
    HEAD_BYTES,
    HTTP2_CONNECTION_BYTES,
    HTTP2_CONTINUATIONS,
    HTTP2_USELESS_FRAMES,
    LARGE_READ_BYTES,
    Field,
)

# Incoming header blocks: a HEADERS frame and its CONTINUATION frames become one list of fields.

_PRIORITY_BYTES = 5


class Heads:
    """The header blocks of one connection, one at a time. ``stream_id`` is that of the open block, 0 for none."""

    __slots__ = ("_block", "_continuations", "_decoder", "ends_stream", "stream_id")

    def __init__(self) -> None:
        self.stream_id = 0
        self.ends_stream = False
        self._block = b""
        self._continuations = 0
        self._decoder = frames.decoder()

    def begin(self, stream_id: int, flags: int, payload: bytes) -> list[Field] | None:
        """Add a HEADERS frame; return the fields unless more frames follow.

        Raises:
            ConnectionFault: it cannot be decoded, or is too large.

        """
        block = unpadded(payload, flags)
        if flags & PRIORITIZED:
            if len(block) < _PRIORITY_BYTES:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "HEADERS too short for their priority")
            block = block[_PRIORITY_BYTES:]
        self.ends_stream = bool(flags & END_STREAM)
        if flags & END_HEADERS:
            return frames.decoded(self._decoder, block)
        self.stream_id = stream_id
        self._block = block
        self._continuations = 0
        return None

    def go_on(self, stream_id: int, flags: int, payload: bytes) -> list[Field] | None:
        """Add a CONTINUATION frame; return the fields unless more frames follow.

        Raises:
            ConnectionFault: no block is open, it cannot be decoded, or is too large.

        """
        if stream_id != self.stream_id or not stream_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a CONTINUATION without an open header block")
        self._continuations += 1
        if self._continuations > HTTP2_CONTINUATIONS or len(self._block) + len(payload) > HEAD_BYTES:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a header block that does not end")
        self._block += payload
        if not flags & END_HEADERS:
            return None
        block, self._block, self.stream_id = self._block, b"", 0
        return frames.decoded(self._decoder, block)


_GOAWAY_BYTES = 8  # at least; debug data may follow
_OF_THE_CONNECTION = frozenset({FrameKind.SETTINGS, FrameKind.PING, FrameKind.GOAWAY})
_OF_A_STREAM = frozenset(
    {FrameKind.DATA, FrameKind.HEADERS, FrameKind.CONTINUATION, FrameKind.RST_STREAM, FrameKind.WINDOW_UPDATE}
)


class Exchanges(Protocol):
    """The connection, as far as incoming frames affect it."""

    closed: bool
    next_id: int  # the id of the next stream; all odd ids below were used

    def end(self, stream: Stream) -> None:
        """End an exchange whose response is complete."""

    def refute(self, stream: Stream, fault: StreamFault, *, ended: bool) -> None:
        """End an exchange after a stream error; ``ended``: the server has ended its side already."""

    def was_reset(self, stream: Stream, code: int) -> None:
        """End an exchange that the server reset."""

    def resettle(self) -> None:
        """Apply new SETTINGS to the number of streams."""

    def go_away(self, last_id: int) -> None:
        """Accept no more requests, and end those that the server did not begin to process."""


class Receiving:
    """The receiving side of one connection. ``streams`` is the connection's own dictionary."""

    def __init__(
        self,
        connection: Exchanges,
        streams: dict[int, Stream],
        settings: PeerSettings,
        bodies: BodySender,
        out: Outgoing,
    ) -> None:
        self.useless = 0  # consecutive frames without progress
        self.widened = False  # request bodies may be able to continue
        self.resets = 0  # RST_STREAMs that we sent
        self.goaway: int | None = None  # the server's error code
        self._framing_bytes = 0  # in reads that are mostly framing
        self._orphan_bytes = 0  # that the server may still send on streams that we reset
        self._connection = connection
        self._streams = streams
        self._settings = settings
        self._bodies = bodies
        self._out = out
        self._heads = Heads()
        self._rest = b""  # an incomplete frame
        self._greeted = False  # the server's SETTINGS have arrived
        self._untold_bytes = 0  # received, and not yet added to the connection's window again
        self._unread_acks = 0  # our acknowledgements since the server has last read anything

    def read(self, data: bytes) -> None:
        """Process the frames in ``data``, and keep an incomplete one for the next call.

        Raises:
            ConnectionFault: the connection must be dropped.

        """
        if self._rest:
            data = self._rest + data
        stream_of, heads, unpack = self._streams.get, self._heads, HEADER.unpack_from
        at, end = 0, len(data)
        received = 0
        while (begin := at + HEADER_BYTES) <= end:
            word, flags, stream_id = unpack(data, at)
            size = word >> 8
            if size > MAX_FRAME_BYTES:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            after = begin + size
            if after > end:
                break
            at = after
            # Nearly all frames are DATA (0) without flags.
            if not (word & 0xFF or flags or heads.stream_id) and size:
                stream = stream_of(stream_id)
                if stream is not None and stream.plain and stream.window >= size:
                    stream.window -= size
                    received += size
                    stream.response.feed(data[begin:after])
                    continue
            self._act(word & 0xFF, flags, stream_id & frames.MAX_STREAM_ID, data[begin:after])
            if self._connection.closed:
                return
        if received:
            self.useless = 0
            self._count(received, end)
        self._rest = data[at:]

    def orphan(self, stream: Stream) -> int:
        """Allow for data that the server may still send on a stream that we reset; return the number of our resets."""
        self._orphan_bytes += max(0, stream.window)
        self.resets += 1
        return self.resets

    def _act(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._heads.stream_id and kind != FrameKind.CONTINUATION:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a header block with another frame in it")
        if not self._greeted and (kind != FrameKind.SETTINGS or flags & frames.ACK):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "it does not begin with its SETTINGS")
        self.useless += 1
        if kind in _OF_THE_CONNECTION:
            if stream_id:
                raise ConnectionFault(Code.PROTOCOL_ERROR, f"{FrameKind(kind).name} of a stream")
            self._act_on_connection(kind, flags, payload)
        elif kind in _OF_A_STREAM:
            self._act_on_stream(kind, flags, stream_id, payload)
        elif kind == FrameKind.PUSH_PROMISE:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a PUSH_PROMISE, although push is disabled")
        # The others are PRIORITY, and unknown types, which must be ignored.
        if self.useless > HTTP2_USELESS_FRAMES:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a flood of frames without progress")

    def _act_on_connection(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == FrameKind.SETTINGS:
            self._on_settings(flags, payload)
        elif kind == FrameKind.GOAWAY:
            if len(payload) < _GOAWAY_BYTES:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "GOAWAY of a wrong size")
            code = frames.LONG.unpack_from(payload, 4)[0]
            if code != Code.NO_ERROR:
                self.goaway = code
            self._connection.go_away(frames.number(payload))
        elif len(payload) != frames.PING_BYTES:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "PING of a wrong size")
        elif not flags & frames.ACK:
            self._acknowledge(frames.frame(FrameKind.PING, frames.ACK, 0, payload))

    def _act_on_stream(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == FrameKind.WINDOW_UPDATE and not stream_id:
            self._bodies.widen(_increment(payload))
            self.widened = True
            return
        if not stream_id & 1 or stream_id >= self._connection.next_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"{FrameKind(kind).name} of a stream that was never opened")
        stream = self._streams.get(stream_id)  # None: it has ended; the server may not know that yet
        match kind:
            case FrameKind.DATA:
                self._on_data(stream, flags, payload)
            case FrameKind.HEADERS:
                self._on_fields(stream, self._heads.begin(stream_id, flags, payload))
            case FrameKind.CONTINUATION:
                self._on_fields(stream, self._heads.go_on(stream_id, flags, payload))
            case FrameKind.WINDOW_UPDATE:
                self._on_window_update(stream, _increment(payload))
            case _:
                self._on_reset(stream, payload)

    def _on_data(self, stream: Stream | None, flags: int, payload: bytes) -> None:
        size = len(payload)
        self._count(size)
        data = frames.unpadded(payload, flags)
        if stream is None:
            self.useless -= bool(size)  # data is limited by its bytes, so it does not count as a frame without progress
            self._orphan_bytes -= size
            if self._orphan_bytes < 0:
                raise ConnectionFault(Code.STREAM_CLOSED, "more for a stream that has ended")
            return
        ended = bool(flags & frames.END_STREAM)
        if data or ended:
            self.useless = 0
        try:
            stream.take_data(data, size)
            if ended:
                stream.check_end()
        except StreamFault as fault:
            self._connection.refute(stream, fault, ended=ended)
        else:
            if ended:
                self._connection.end(stream)
            elif size > len(data):
                stream.taken(stream.response, size - len(data))  # the reader does not see padding

    def _on_fields(self, stream: Stream | None, fields: list[Field] | None) -> None:
        if stream is None or fields is None:  # fields are None if more frames follow
            return
        self.useless = 0
        ended = self._heads.ends_stream
        try:
            stream.take_head(fields, ends=ended)
            if ended:
                stream.check_end()
        except StreamFault as fault:
            self._connection.refute(stream, fault, ended=ended)
        else:
            if ended:
                self._connection.end(stream)

    def _on_window_update(self, stream: Stream | None, size: int) -> None:
        if stream is None:
            return
        try:
            self._bodies.widen_stream(stream, size)
            self.widened = True
        except StreamFault as fault:
            self._connection.refute(stream, fault, ended=False)

    def _on_reset(self, stream: Stream | None, payload: bytes) -> None:
        if len(payload) != frames.LONG.size:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "RST_STREAM of a wrong size")
        if stream is not None:
            self.useless = 0
            self._connection.was_reset(stream, frames.LONG.unpack(payload)[0])

    def _on_settings(self, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            if payload:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a SETTINGS acknowledgement with settings")
            return
        self._greeted = True
        self.useless += len(payload) // 8  # each setting costs as much work as a small frame
        wider = self._settings.update(payload)
        for stream in self._streams.values():
            try:
                self._bodies.change_window(stream, wider)
            except StreamFault as fault:
                raise ConnectionFault(fault.code, fault.problem) from None
        self.widened = True
        self._acknowledge(frames.frame(FrameKind.SETTINGS, frames.ACK, 0))
        self._connection.resettle()

    def _acknowledge(self, ack: bytes) -> None:
        """Send an acknowledgement; their number is limited for a server that does not read."""
        if self._bodies.paused:
            self._unread_acks += 1
            if self._unread_acks > HTTP2_USELESS_FRAMES:
                raise ConnectionFault(
                    Code.ENHANCE_YOUR_CALM, "a flood of PING or SETTINGS frames without reading our acknowledgements"
                )
        else:
            self._unread_acks = 0
        self._out.write(ack)

    def _count(self, size: int, read: int = 0) -> None:
        """Subtract ``size`` bytes from the connection's window, and open that again when half of it is used.

        ``read``: the length of the read that they came with.
        """
        if read > 2 * size and read > LARGE_READ_BYTES:
            self._framing_bytes += read - size
            if self._framing_bytes > FRAMING_BYTES:
                raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "frames of a few bytes each")
        self._untold_bytes += size
        if self._untold_bytes > HTTP2_CONNECTION_BYTES:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "more than the connection's window")
        if self._untold_bytes >= HTTP2_CONNECTION_BYTES // 2:
            self._out.write(frames.window_update(0, self._untold_bytes))
            self._untold_bytes = 0


def _increment(payload: bytes) -> int:
    if len(payload) != frames.LONG.size:
        raise ConnectionFault(Code.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size")
    return frames.number(payload)
