"""The SETTINGS of both sides of an HTTP/2 connection (RFC 9113, section 6.5)."""

from enum import IntEnum
from struct import Struct

from providers.http.frames import (
    DEFAULT_WINDOW_BYTES,
    MAX_FRAME_BYTES,
    MAX_WINDOW_BYTES,
    PREFACE,
    Code,
    ConnectionFault,
    Kind,
    frame,
    window_update,
)
from providers.http.limits import HEAD_BYTES, HTTP2_CONNECTION_BYTES, HTTP2_STREAM_BYTES, HTTP2_STREAMS

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
    return PREFACE + frame(Kind.SETTINGS, 0, 0, settings) + window


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
