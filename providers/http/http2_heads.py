"""Incoming header blocks: a HEADERS frame and its CONTINUATION frames become one list of fields."""

from providers.http import header_blocks
from providers.http.frames import END_HEADERS, END_STREAM, PRIORITIZED, Code, ConnectionFault, unpadded
from providers.http.limits import HEAD_BYTES, HTTP2_CONTINUATIONS
from providers.http.response import Field

_PRIORITY_BYTES = 5


class Heads:
    """The header blocks of one connection, one at a time. ``stream_id`` is that of the open block, 0 for none."""

    __slots__ = ("_block", "_continuations", "_decoder", "ends_stream", "stream_id")

    def __init__(self) -> None:
        self.stream_id = 0
        self.ends_stream = False
        self._block = b""
        self._continuations = 0
        self._decoder = header_blocks.decoder()

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
            return header_blocks.decoded(self._decoder, block)
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
        return header_blocks.decoded(self._decoder, block)
