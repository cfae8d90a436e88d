"""Reads and writes AWS event streams (``application/vnd.amazon.eventstream``), the binary format of Bedrock's answers.

A message is its length and the length of its headers (4 bytes each, big-endian), the CRC-32 of these 8 bytes, headers,
payload, and the CRC-32 of all bytes before. A header is a name (its length in a byte), a type, and a value.
"""

from collections.abc import Mapping
from struct import Struct
from zlib import crc32

import msgspec

from providers.refusals import ErrorKind, UpstreamError

_PRELUDE = Struct("!III")
_LENGTHS = Struct("!II")
_CRC = Struct("!I")
_AROUND_BYTES = _PRELUDE.size + _CRC.size
_LARGEST_HEADERS_BYTES = 128 * 1024  # the format's limits
_LARGEST_PAYLOAD_BYTES = 24 * 1024 * 1024
_FIXED_BYTES: Mapping[int, int] = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # by a header's type
_BYTES, _STRING = 6, 7  # types with a length of two bytes before the value
_KEPT = 64  # headers of messages: few, and repeated


class FrameMessage(msgspec.Struct, frozen=True, gc=False):
    """One message, with those of its headers that are strings."""

    headers: Mapping[str, str]
    payload: bytes


class Frames:
    """Decodes one stream, in whatever pieces the stream arrives."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._headers: dict[bytes, Mapping[str, str]] = {}  # decoded headers, by their bytes

    @property
    def is_between(self) -> bool:
        """Whether no part of an unfinished message is held."""
        return not self._buffer

    def feed(self, data: bytes) -> list[FrameMessage]:
        """Return the messages that are complete now.

        Raises:
            UpstreamError: a checksum, a length or a header is wrong (invalid_response).

        """
        buffer = self._buffer
        buffer += data
        messages = []
        at, held = 0, len(buffer)
        while held - at >= _PRELUDE.size:
            size, headers_size, crc = _PRELUDE.unpack_from(buffer, at)
            if crc32(buffer[at : at + 8]) != crc:
                raise _broken("the checksum of a message's lengths is wrong")
            if headers_size > _LARGEST_HEADERS_BYTES or size - headers_size - _AROUND_BYTES > _LARGEST_PAYLOAD_BYTES:
                raise _broken("a message is larger than the format allows")
            if size < headers_size + _AROUND_BYTES:
                raise _broken("a message is smaller than its parts")
            end = at + size
            if held < end:
                break
            if crc32(buffer[at : end - 4]) != _CRC.unpack_from(buffer, end - 4)[0]:
                raise _broken("the checksum of a message is wrong")
            begun = at + _PRELUDE.size
            headers = bytes(buffer[begun : begun + headers_size])
            messages.append(FrameMessage(self._read(headers), bytes(buffer[begun + headers_size : end - 4])))
            at = end
        del buffer[:at]
        return messages

    def _read(self, raw: bytes) -> Mapping[str, str]:
        known = self._headers.get(raw)
        if known is None:
            known = headers_in(raw)
            if len(self._headers) < _KEPT:
                self._headers[raw] = known
        return known


def framed(payload: bytes, headers: Mapping[str, str]) -> bytes:
    """Return one message, with headers that are strings."""
    said = b"".join(
        b"%c%b%c%b%b" % (len(name), name.encode(), _STRING, len(value).to_bytes(2), value.encode())
        for name, value in headers.items()
    )
    lengths = _LENGTHS.pack(len(payload) + len(said) + _AROUND_BYTES, len(said))
    message = b"".join((lengths, _CRC.pack(crc32(lengths)), said, payload))
    return message + _CRC.pack(crc32(message))


def headers_in(raw: bytes) -> Mapping[str, str]:
    """Return the headers that are strings.

    Raises:
        UpstreamError: the headers are malformed, or a header is there twice (invalid_response).

    """
    strings: dict[str, str] = {}
    names: set[bytes] = set()
    at = 0
    try:
        while at < len(raw):
            name = raw[at + 1 : (at := at + 1 + raw[at])]
            kind = raw[at]
            at += 1
            if kind in (_BYTES, _STRING):
                size = int.from_bytes(raw[at : at + 2])
                at += 2
            else:
                size = _FIXED_BYTES[kind]
            value = raw[at : (at := at + size)]
            if name in names or at > len(raw):
                raise _broken("a message's headers are malformed")
            names.add(name)
            if kind == _STRING:
                strings[name.decode()] = value.decode()
    except (IndexError, KeyError, UnicodeDecodeError):
        raise _broken("a message's headers are malformed") from None
    return strings


def _broken(what: str) -> UpstreamError:
    return UpstreamError(ErrorKind.INVALID_RESPONSE, f"answered with an invalid AWS event stream: {what}")
