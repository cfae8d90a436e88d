"""The decoder of AWS event streams, beside botocore's on the same bytes."""

import struct
import zlib
from itertools import pairwise
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer, ParserError

from providers.dialects import FrameMessage, Frames
from providers.refusals import ErrorKind, UpstreamError


def header(name: str, kind: int, value: bytes) -> bytes:
    return struct.pack("!B", len(name)) + name.encode() + struct.pack("!B", kind) + value


def string(name: str, value: str) -> bytes:
    return header(name, 7, struct.pack("!H", len(value.encode())) + value.encode())


def frame(headers: bytes, payload: bytes) -> bytes:
    prelude = struct.pack("!II", len(headers) + len(payload) + 16, len(headers))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack("!I", zlib.crc32(message))


EVENT = string(":event-type", "contentBlockDelta") + string(":message-type", "event")
EVERY_TYPE = b"".join(
    [
        header("true", 0, b""),
        header("false", 1, b""),
        header("byte", 2, b"\x07"),
        header("short", 3, b"\x00\x07"),
        header("int", 4, b"\x00" * 3 + b"\x07"),
        header("long", 5, b"\x00" * 7 + b"\x07"),
        header("bytes", 6, b"\x00\x02ab"),
        string("text", "grün"),
        header("time", 8, b"\x00" * 8),
        header("uuid", 9, b"\x00" * 16),
    ]
)
STREAM = frame(EVENT, b'{"delta":{"text":"Hel"}}') + frame(EVERY_TYPE, b"") + frame(b"", b"\x00" * 40) + frame(b"", b"")


def by_botocore(*pieces: bytes) -> list[FrameMessage]:
    buffer: Any = EventStreamBuffer()
    found = []
    for piece in pieces:
        buffer.add_data(piece)
        found += [
            FrameMessage(
                {name: value for name, value in each.headers.items() if isinstance(value, str)},
                each.payload,
            )
            for each in buffer
        ]
    return found


def by_us(*pieces: bytes) -> list[FrameMessage]:
    frames = Frames()
    return [message for piece in pieces for message in frames.feed(piece)]


def test_every_type_of_header_is_read_as_botocore_reads_it() -> None:
    found = by_us(STREAM)
    assert found == by_botocore(STREAM)
    assert len(found) == 4
    assert found[1].headers == {"text": "grün"}


def test_a_cut_anywhere_changes_nothing() -> None:
    for at in range(len(STREAM) + 1):
        pieces = STREAM[:at], STREAM[at:]
        assert by_us(*pieces) == by_botocore(*pieces) == by_us(STREAM), at


def test_single_bytes_are_enough() -> None:
    pieces = [STREAM[start:end] for start, end in pairwise(range(len(STREAM) + 1))]
    assert by_us(*pieces) == by_us(STREAM)


def test_one_wrong_byte_anywhere_is_noticed_where_botocore_notices_it() -> None:
    for at in range(len(STREAM)):
        broken = STREAM[:at] + bytes([STREAM[at] ^ 0x10]) + STREAM[at + 1 :]
        with pytest.raises(ParserError):
            by_botocore(broken)
        with pytest.raises(UpstreamError) as raised:
            by_us(broken)
        assert raised.value.kind is ErrorKind.INVALID_RESPONSE, at


@pytest.mark.parametrize(
    "bad",
    [
        b"HTTP/1.1 200 OK\r\n\r\n{}",
        frame(string("a", "1") + string("a", "2"), b""),
        frame(header("a", 7, b"\x00\x09abc"), b""),
        frame(header("a", 10, b""), b""),
        frame(b"\x05ab", b""),
    ],
)
def test_what_is_no_event_stream_is_refused(bad: bytes) -> None:
    with pytest.raises(UpstreamError, match="invalid AWS event stream"):
        by_us(bad)


@pytest.mark.parametrize("sizes", [(15, 0), (0xFFFFFFFF, 0), (200_000, 140_000), (20, 10)])
def test_impossible_lengths_are_refused_before_anything_is_waited_for(sizes: tuple[int, int]) -> None:
    prelude = struct.pack("!II", *sizes)
    with pytest.raises(UpstreamError):
        by_us(prelude + struct.pack("!I", zlib.crc32(prelude)))


def test_what_is_held_of_an_unfinished_message_is_told() -> None:
    frames = Frames()
    assert frames.is_between
    frames.feed(STREAM[:20])
    assert not frames.is_between
