"""What arrives on an HTTP/2 connection: it is cut into frames, and each frame has its consequence.

Whoever does what RFC 9113 forbids, or more than ``limits.py`` allows, raises a fault.
"""

from typing import Protocol

from providers.http import frames
from providers.http.frames import HEADER, HEADER_BYTES, MAX_FRAME_BYTES, Code, ConnectionFault, Kind, StreamFault
from providers.http.http2_bodies import Bodies
from providers.http.http2_heads import Heads
from providers.http.http2_settings import PeerSettings
from providers.http.http2_stream import Stream
from providers.http.limits import HTTP2_CONNECTION_BYTES, HTTP2_USELESS_FRAMES
from providers.http.response import Field

_GOAWAY_BYTES = 8  # at least; words for people may follow
_OF_THE_CONNECTION = frozenset({Kind.SETTINGS, Kind.PING, Kind.GOAWAY})
_OF_A_STREAM = frozenset({Kind.DATA, Kind.HEADERS, Kind.CONTINUATION, Kind.RST_STREAM, Kind.WINDOW_UPDATE})


class Exchanges(Protocol):
    """The connection, as what arrives changes it."""

    closed: bool
    next_id: int  # of the next stream; those below have been opened

    def write(self, data: bytes) -> None:
        """Send ``data``."""

    def end(self, stream: Stream) -> None:
        """End an exchange whose response is complete."""

    def refute(self, stream: Stream, fault: StreamFault, *, ended: bool) -> None:
        """End an exchange in which the server broke the protocol; ``ended``: it has nothing more to say in it."""

    def was_reset(self, stream: Stream, code: int) -> None:
        """End an exchange that the server has reset."""

    def resettle(self) -> None:
        """Do what new SETTINGS demand of the number of streams."""

    def go_away(self, last_id: int, code: int) -> None:
        """Take no more requests, and forget those that the server has not begun with."""


class Receiving:
    """The receiving side of one connection. ``streams`` is the connection's own."""

    def __init__(
        self, connection: Exchanges, streams: dict[int, Stream], settings: PeerSettings, bodies: Bodies
    ) -> None:
        self.useless = 0  # frames in a row that achieved nothing
        self.widened = False  # bodies may have become able to go on
        self.orphan_bytes = 0  # what the server may still send for streams that we reset
        self._connection = connection
        self._streams = streams
        self._settings = settings
        self._bodies = bodies
        self._heads = Heads()
        self._rest = b""  # the beginning of a frame
        self._greeted = False  # the server's SETTINGS have come
        self._untold_bytes = 0  # received and not yet given back to the connection's window
        self._unread_acks = 0  # of ours, while the server reads nothing

    def read(self, data: bytes) -> None:
        """Act on the frames in ``data``, and keep an incomplete one for the next time.

        Raises:
            ConnectionFault: the connection is to be dropped.

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
            # Nearly all frames are pieces of a body that end nothing: 0 is DATA.
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
            self._count(received)
        self._rest = data[at:]

    def _act(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._heads.stream_id and kind != Kind.CONTINUATION:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a header block with another frame in it")
        if not self._greeted and (kind != Kind.SETTINGS or flags & frames.ACK):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "it does not begin with its SETTINGS")
        self.useless += 1
        if kind in _OF_THE_CONNECTION:
            if stream_id:
                raise ConnectionFault(Code.PROTOCOL_ERROR, f"{Kind(kind).name} of a stream")
            self._act_on_connection(kind, flags, payload)
        elif kind in _OF_A_STREAM:
            self._act_on_stream(kind, flags, stream_id, payload)
        elif kind == Kind.PUSH_PROMISE:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a push, which was not allowed")
        # What is left is PRIORITY, and what later RFCs may bring.
        if self.useless > HTTP2_USELESS_FRAMES:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a flood of frames that achieve nothing")

    def _act_on_connection(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == Kind.SETTINGS:
            self._on_settings(flags, payload)
        elif kind == Kind.GOAWAY:
            if len(payload) < _GOAWAY_BYTES:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "GOAWAY of a wrong size")
            code = frames.LONG.unpack_from(payload, 4)[0]
            self._connection.go_away(frames.number(payload), code)
        elif len(payload) != frames.PING_BYTES:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "PING of a wrong size")
        elif not flags & frames.ACK:
            self._acknowledge(frames.frame(Kind.PING, frames.ACK, 0, payload))

    def _act_on_stream(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == Kind.WINDOW_UPDATE and not stream_id:
            self._bodies.widen(_increment(payload))
            self.widened = True
            return
        if not stream_id & 1 or stream_id >= self._connection.next_id:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"{Kind(kind).name} of a stream that nobody opened")
        stream = self._streams.get(stream_id)  # None: it has ended, perhaps by us, without the server knowing yet
        match kind:
            case Kind.DATA:
                self._on_data(stream, flags, payload)
            case Kind.HEADERS:
                self._on_fields(stream, self._heads.begin(stream_id, flags, payload))
            case Kind.CONTINUATION:
                self._on_fields(stream, self._heads.go_on(stream_id, flags, payload))
            case Kind.WINDOW_UPDATE:
                self._on_window_update(stream, _increment(payload))
            case _:
                self._on_reset(stream, payload)

    def _on_data(self, stream: Stream | None, flags: int, payload: bytes) -> None:
        size = len(payload)
        self._count(size)
        data = frames.unpadded(payload, flags)
        if stream is None:
            self.useless -= bool(size)  # it is bounded by its bytes
            self.orphan_bytes -= size
            if self.orphan_bytes < 0:
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
                stream.taken(stream.response, size - len(data))  # nobody else will take the padding

    def _on_fields(self, stream: Stream | None, fields: list[Field] | None) -> None:
        if stream is None or fields is None:  # None: more frames follow
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
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "SETTINGS that acknowledge and set")
            return
        self._greeted = True
        self.useless += len(payload) // 8  # each setting is as much work as a small frame
        wider = self._settings.update(payload)
        for stream in self._streams.values():
            try:
                self._bodies.change_window(stream, wider)
            except StreamFault as fault:
                raise ConnectionFault(fault.code, fault.problem) from None
        self.widened = True
        self._acknowledge(frames.frame(Kind.SETTINGS, frames.ACK, 0))
        self._connection.resettle()

    def _acknowledge(self, ack: bytes) -> None:
        """Answer; but not for ever to a server that does not read the answers."""
        if self._bodies.paused:
            self._unread_acks += 1
            if self._unread_acks > HTTP2_USELESS_FRAMES:
                raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "a flood of questions, and nobody reads the answers")
        else:
            self._unread_acks = 0
        self._connection.write(ack)

    def _count(self, size: int) -> None:
        """Count ``size`` bytes against the connection's window, and open it again when half is used."""
        self._untold_bytes += size
        if self._untold_bytes > HTTP2_CONNECTION_BYTES:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "more than the connection's window")
        if self._untold_bytes >= HTTP2_CONNECTION_BYTES // 2:
            self._connection.write(frames.window_update(0, self._untold_bytes))
            self._untold_bytes = 0


def _increment(payload: bytes) -> int:
    if len(payload) != frames.LONG.size:
        raise ConnectionFault(Code.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size")
    return frames.number(payload)
