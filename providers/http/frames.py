"""HTTP/2's frames (RFC 9113, sections 4, 6 and 7): their types, flags and error codes, and how ours are encoded."""

from enum import IntEnum
from struct import Struct

MAX_FRAME_BYTES = 16_384  # the default, which we do not change: servers may send no larger frame
MAX_WINDOW_BYTES = 2**31 - 1
MAX_STREAM_ID = 2**31 - 1
PING_BYTES = 8
DEFAULT_WINDOW_BYTES = 65_535

HEADER_BYTES = 9
HEADER = Struct(">IBI")  # length (24 bits) and kind (8); flags; stream
LONG = Struct(">I")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# Flags; the meaning of a bit depends on the type of frame.
END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITIZED = 0x20


class Kind(IntEnum):
    """The type of a frame."""

    DATA = 0x0
    HEADERS = 0x1
    PRIORITY = 0x2
    RST_STREAM = 0x3
    SETTINGS = 0x4
    PUSH_PROMISE = 0x5
    PING = 0x6
    GOAWAY = 0x7
    WINDOW_UPDATE = 0x8
    CONTINUATION = 0x9


class Code(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class ConnectionFault(Exception):
    """A connection error: the server violated the protocol, and the connection ends."""

    def __init__(self, code: Code, problem: str) -> None:
        super().__init__(problem)
        self.code = code
        self.problem = problem


class StreamFault(Exception):
    """A stream error: the server violated the protocol, and one exchange ends."""

    def __init__(self, code: Code, problem: str) -> None:
        super().__init__(problem)
        self.code = code
        self.problem = problem


def code_name(code: int) -> str:
    """Return the name of an error code for messages; servers may send unknown codes."""
    try:
        return Code(code).name
    except ValueError:
        return f"code {code:#x}"


def frame(kind: Kind, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return HEADER.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def headers(stream_id: int, block: bytes, max_frame_bytes: int, *, end: bool) -> bytes:
    """Return a request's header block as one HEADERS frame, and CONTINUATION frames if it is too long for that."""
    flags = END_STREAM if end else 0
    if len(block) <= max_frame_bytes:
        return HEADER.pack(len(block) << 8 | Kind.HEADERS, flags | END_HEADERS, stream_id) + block
    frames = [frame(Kind.HEADERS, flags, stream_id, block[:max_frame_bytes])]
    for at in range(max_frame_bytes, len(block), max_frame_bytes):
        last = END_HEADERS if at + max_frame_bytes >= len(block) else 0
        frames.append(frame(Kind.CONTINUATION, last, stream_id, block[at : at + max_frame_bytes]))
    return b"".join(frames)


def reset(stream_id: int, code: Code) -> bytes:
    """Return an RST_STREAM."""
    return HEADER.pack(4 << 8 | Kind.RST_STREAM, 0, stream_id) + LONG.pack(code)


def window_update(stream_id: int, size: int) -> bytes:
    """Return a WINDOW_UPDATE; stream 0 is the connection."""
    return HEADER.pack(4 << 8 | Kind.WINDOW_UPDATE, 0, stream_id) + LONG.pack(size)


def goaway(code: Code) -> bytes:
    """Return a GOAWAY. Its last stream is 0, as servers open no streams to us."""
    return frame(Kind.GOAWAY, 0, 0, LONG.pack(0) + LONG.pack(code))


def unpadded(payload: bytes, flags: int) -> bytes:
    """Return the content of a DATA or HEADERS frame, without padding.

    Raises:
        ConnectionFault: the padding is longer than the frame.

    """
    if not flags & PADDED:
        return payload
    if not payload:
        raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a padded frame without a padding length")
    if payload[0] >= len(payload):
        raise ConnectionFault(Code.PROTOCOL_ERROR, "more padding than frame")
    return payload[1 : len(payload) - payload[0]]


def number(payload: bytes, at: int = 0) -> int:
    """Return the 31-bit number at ``at``: a stream id or a window increment. The highest bit is reserved."""
    value: int = LONG.unpack_from(payload, at)[0]
    return value & MAX_WINDOW_BYTES
