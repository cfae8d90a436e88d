"""HTTP/2's frames (RFC 9113, sections 4, 6 and 7): their types, flags and error codes, and how ours are encoded."""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct

from jh2 import _hazmat as hpack  # type: ignore[import-untyped]  # has types, but no py.typed

from providers.http.message import HEAD_BYTES, HEAD_FIELDS, Field, Head, HttpRequest

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


class FrameKind(IntEnum):
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


def frame(kind: FrameKind, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return HEADER.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def headers(stream_id: int, block: bytes, max_frame_bytes: int, *, end: bool) -> bytes:
    """Return a request's header block as one HEADERS frame, and CONTINUATION frames if it is too long for that."""
    flags = END_STREAM if end else 0
    if len(block) <= max_frame_bytes:
        return HEADER.pack(len(block) << 8 | FrameKind.HEADERS, flags | END_HEADERS, stream_id) + block
    frames = [frame(FrameKind.HEADERS, flags, stream_id, block[:max_frame_bytes])]
    for at in range(max_frame_bytes, len(block), max_frame_bytes):
        last = END_HEADERS if at + max_frame_bytes >= len(block) else 0
        frames.append(frame(FrameKind.CONTINUATION, last, stream_id, block[at : at + max_frame_bytes]))
    return b"".join(frames)


def reset(stream_id: int, code: Code) -> bytes:
    """Return an RST_STREAM."""
    return HEADER.pack(4 << 8 | FrameKind.RST_STREAM, 0, stream_id) + LONG.pack(code)


def window_update(stream_id: int, size: int) -> bytes:
    """Return a WINDOW_UPDATE; stream 0 is the connection."""
    return HEADER.pack(4 << 8 | FrameKind.WINDOW_UPDATE, 0, stream_id) + LONG.pack(size)


def goaway(code: Code) -> bytes:
    """Return a GOAWAY. Its last stream is 0, as servers open no streams to us."""
    return frame(FrameKind.GOAWAY, 0, 0, LONG.pack(0) + LONG.pack(code))


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


# Header blocks (RFC 7541): encoding those of requests, and checking those of responses (RFC 9113, section 8). Our
# requests use literals and no dynamic table, so the part that is the same for every call to a provider is encoded
# once. Servers may use a dynamic table of the default size. So every block of theirs must be decoded, also of a
# response that was dropped: otherwise the next block could not be decoded.

EMPTY_TABLE = b"\x20"  # sent before our first block on a connection: we use no dynamic table

# The indices of header names in requests, from RFC 7541, appendix A.
_INDEX_OF_NAME = {
    b":authority": 1,
    b":method": 2,
    b":path": 4,
    b":scheme": 6,
    b"accept-charset": 15,
    b"accept-encoding": 16,
    b"accept-language": 17,
    b"accept": 19,
    b"authorization": 23,
    b"cache-control": 24,
    b"content-encoding": 26,
    b"content-length": 28,
    b"content-type": 31,
    b"cookie": 32,
    b"date": 33,
    b"from": 38,
    b"proxy-authorization": 49,
    b"range": 50,
    b"referer": 51,
    b"user-agent": 58,
}
_INDEX_OF_FIELD = {
    (b":method", b"GET"): 2,
    (b":method", b"POST"): 3,
    (b":path", b"/"): 4,
    (b":scheme", b"http"): 6,
    (b":scheme", b"https"): 7,
}
# Proxies must not index these either: the contents of a dynamic table can be probed.
_SECRETS = frozenset({b"api-key", b"authorization", b"cookie", b"proxy-authorization", b"x-api-key", b"x-goog-api-key"})
# Headers about the connection, which HTTP/2 forbids.
_CONNECTION_FIELDS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_NEVER_SENT = _CONNECTION_FIELDS | {b"content-length", b"host", b"http2-settings", b"te"}

_TOKEN = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
_STATUS_DIGITS = 3
_SWITCHING = 101  # the answer to an upgrade, which HTTP/2 does not have
_NO_CONTENT, _NOT_MODIFIED = 204, 304

_LITERAL, _SECRET = 0x00, 0x10  # without indexing; never indexed
_FOUR_BITS, _FIVE_BITS, _SIX_BITS, _SEVEN_BITS = 0x0F, 0x1F, 0x3F, 0x7F
_INDEXED, _INDEXING, _RESIZING = 0x80, 0x40, 0x20


def request_block(request: HttpRequest) -> bytes:
    """Return the header block of ``request``."""
    head = request.head
    block = head.http2
    if block is None:
        block = head.http2 = _constant_block(head)
    if request.extra:
        block += _literals(request.extra)
    if request.body is not None:
        block += _literal(b"content-length", b"%d" % len(request.body))
    return block


def _constant_block(head: Head) -> bytes:
    pseudo = (
        (b":method", head.method.encode("ascii")),
        (b":scheme", head.scheme.encode("ascii")),
        (b":authority", head.authority.encode("latin-1")),
        (b":path", head.target.encode("latin-1")),
    )
    return b"".join(_literal(name, value) for name, value in pseudo) + _literals(head.fields)


def _literals(fields: Sequence[Field]) -> bytes:
    lower = ((name.lower(), value) for name, value in fields)
    return b"".join(_literal(name, value) for name, value in lower if name not in _NEVER_SENT)


def _literal(name: bytes, value: bytes) -> bytes:
    known = _INDEX_OF_FIELD.get((name, value))
    if known is not None:
        return bytes((_INDEXED | known,))
    first = _SECRET if name in _SECRETS else _LITERAL
    index = _INDEX_OF_NAME.get(name)
    spelled = bytes((first,)) + _string(name) if index is None else _integer(index, first, _FOUR_BITS)
    return spelled + _string(value)


def _string(text: bytes) -> bytes:
    return _integer(len(text), 0, _SEVEN_BITS) + text


def _integer(value: int, first: int, most: int) -> bytes:
    """Encode an integer: ``value`` follows the bits of ``first``, in a first byte that has room up to ``most``."""
    if value < most:
        return bytes((first | value,))
    digits = bytearray((first | most,))
    value -= most
    while value > _SEVEN_BITS:
        digits.append(value & _SEVEN_BITS | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def decoder() -> "hpack.Decoder":
    """Return the decoder of one connection; its dynamic table has the default size, 4 KiB."""
    return hpack.Decoder(HEAD_BYTES)


def decoded(decoder: "hpack.Decoder", block: bytes) -> list[Field]:
    """Decode a response's block into its fields.

    Raises:
        ConnectionFault: it is not a valid header block, refers to entries that no table has, or has too many fields.

    """
    _measure(block)
    try:
        return [(name, value) for name, value, _ in decoder.decode(block, raw=True)]
    except hpack.HPACKError as error:
        raise ConnectionFault(Code.COMPRESSION_ERROR, f"a header block that cannot be read: {error}") from None
    except hpack.OversizedHeaderListError:
        raise ConnectionFault(Code.ENHANCE_YOUR_CALM, f"more than {HEAD_BYTES // 1024} KiB of header fields") from None


def _measure(block: bytes) -> None:
    """Check that the block ends with its last field.

    The decoder, which is written in Rust, panics at a truncated integer: it writes to stderr and raises what ``except
    Exception`` does not catch. It also accepts a resized table after a field, which RFC 7541, section 4.2, forbids.
    """
    at, end, fields = 0, len(block), 0
    try:
        while at < end:
            first = block[at]
            if first & _INDEXED:
                at = _integer_end(block, at, _SEVEN_BITS)
            elif first & (_INDEXING | _RESIZING) == _RESIZING:
                if fields:
                    raise _unreadable("a table resized after a field")
                at = _integer_end(block, at, _FIVE_BITS)
                continue
            else:
                at = _literal_end(block, at, _SIX_BITS if first & _INDEXING else _FOUR_BITS)
            fields += 1
    except IndexError:
        at = end + 1
    if at != end:
        raise _unreadable("it is cut off")
    if fields > HEAD_FIELDS:
        raise ConnectionFault(Code.ENHANCE_YOUR_CALM, f"more than {HEAD_FIELDS} header fields")


def _literal_end(block: bytes, at: int, most: int) -> int:
    named_by_index = block[at] & most
    at = _integer_end(block, at, most)
    return _string_end(block, at if named_by_index else _string_end(block, at))


def _string_end(block: bytes, at: int) -> int:
    size = block[at] & _SEVEN_BITS
    if size < _SEVEN_BITS:
        return at + 1 + size
    size, at = _integer_at(block, at, _SEVEN_BITS)
    return at + size


def _integer_end(block: bytes, at: int, most: int) -> int:
    return at + 1 if block[at] & most < most else _integer_at(block, at, most)[1]


def _integer_at(block: bytes, at: int, most: int) -> tuple[int, int]:
    value, shift = most, 0
    while shift < 28:  # noqa: PLR2004 - four bytes encode more than the length of a block
        at += 1
        value += (block[at] & _SEVEN_BITS) << shift
        if block[at] <= _SEVEN_BITS:
            return value, at + 1
        shift += 7
    raise _unreadable("a number that is too large")


def _unreadable(problem: str) -> ConnectionFault:
    return ConnectionFault(Code.COMPRESSION_ERROR, f"a header block that cannot be read: {problem}")


def response_head(fields: Sequence[Field], method: str) -> tuple[int, int | None]:
    """Return the status, and the length of the body if known. ``fields`` begin with ``:status``.

    Raises:
        StreamFault: HTTP/2 does not allow such a head.

    """
    if not fields or fields[0][0] != b":status":
        raise StreamFault(Code.PROTOCOL_ERROR, "a response without a status")
    digits = fields[0][1]
    if len(digits) != _STATUS_DIGITS or not digits.isdigit() or digits < b"100" or digits == b"%d" % _SWITCHING:
        raise StreamFault(Code.PROTOCOL_ERROR, "an invalid status")
    status = int(digits)
    check_regular(fields[1:])
    lengths = {value for name, value in fields if name == b"content-length"}
    if not lengths or method == "HEAD" or status in {_NO_CONTENT, _NOT_MODIFIED}:
        return status, None
    length = lengths.pop()
    if lengths or not length.isdigit() or len(length) > 18:  # noqa: PLR2004 - the digits of a 64-bit number
        raise StreamFault(Code.PROTOCOL_ERROR, "an invalid content-length")
    return status, int(length)


def check_regular(fields: Sequence[Field]) -> None:
    """Check the fields after the pseudo-header, or trailers.

    Raises:
        StreamFault: HTTP/2 does not allow such fields.

    """
    names = [name for name, _ in fields]
    if b"".join(names).translate(None, _TOKEN) or b"" in names:
        raise StreamFault(Code.PROTOCOL_ERROR, "a header field with an invalid name")
    if not _CONNECTION_FIELDS.isdisjoint(names):
        raise StreamFault(Code.PROTOCOL_ERROR, "a header field of HTTP/1.1's connections")
    values = b"".join([value for _, value in fields])
    if b"\n" in values or b"\r" in values or b"\0" in values:
        raise StreamFault(Code.PROTOCOL_ERROR, "a header field with a line break or a zero in it")
