"""The server's side of an HTTP/2 connection, which a test speaks frame by frame.

Its frames and header blocks are written and read by hand, so that the client's code is not tested against itself.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from jh2._hazmat import Decoder  # type: ignore[import-untyped]  # ships its types without the marker

from providers.http import Head, HttpRequest, Response
from providers.http.http2 import Http2Connection
from providers.http.message import Field, Unsent, UpstreamConnection
from providers.refusals import UpstreamError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
KINDS = (
    *("DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS"),
    *("PUSH_PROMISE", "PING", "GOAWAY", "WINDOW_UPDATE", "CONTINUATION"),
)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20

OK = ((b":status", b"200"), (b"content-type", b"text/event-stream"))
HEAD = Head("POST", "https", "api.example", "/v1/chat", {"Authorization": "Bearer k", "X-Own": "1"}, absolute=False)


class Frame(NamedTuple):
    """A frame that the client has sent."""

    kind: str
    flags: int
    stream_id: int
    payload: bytes

    @property
    def number(self) -> int:
        """What RST_STREAM and WINDOW_UPDATE say; of a GOAWAY the code."""
        return int.from_bytes(self.payload[-4:], "big")


def frame(kind: str | int, stream_id: int, payload: bytes = b"", flags: int = 0) -> bytes:
    code = kind if isinstance(kind, int) else KINDS.index(kind)
    return len(payload).to_bytes(3, "big") + bytes((code, flags)) + stream_id.to_bytes(4, "big") + payload


def frames_in(data: bytes) -> list[Frame]:
    """Return the frames of ``data``, which must hold whole ones."""
    found = []
    while data:
        size = int.from_bytes(data[:3], "big")
        assert len(data) >= 9 + size, "half a frame"
        payload = data[9 : 9 + size]
        found.append(Frame(KINDS[data[3]], data[4], int.from_bytes(data[5:9], "big"), payload))
        data = data[9 + size :]
    return found


def block(fields: Sequence[Field]) -> bytes:
    """Return a header block of literals whose parts are shorter than 127 bytes."""
    return b"".join(b"\0%c%b%c%b" % (len(name), name, len(value), value) for name, value in fields)


def headers(stream_id: int, fields: Sequence[Field] = OK, *, end: bool = False) -> bytes:
    return frame("HEADERS", stream_id, block(fields), END_HEADERS | (END_STREAM if end else 0))


def data(stream_id: int, payload: bytes, *, end: bool = False) -> bytes:
    return frame("DATA", stream_id, payload, END_STREAM if end else 0)


def settings(**values: int) -> bytes:
    numbers = {"max_concurrent_streams": 3, "initial_window_size": 4, "max_frame_size": 5}
    numbers |= {"header_table_size": 1, "enable_push": 2, "unknown": 99}
    pairs = (numbers[name].to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in values.items())
    return frame("SETTINGS", 0, b"".join(pairs))


def window_update(stream_id: int, size: int) -> bytes:
    return frame("WINDOW_UPDATE", stream_id, size.to_bytes(4, "big"))


def reset(stream_id: int, code: int) -> bytes:
    return frame("RST_STREAM", stream_id, code.to_bytes(4, "big"))


def goaway(last_id: int, code: int = 0, words: bytes = b"") -> bytes:
    return frame("GOAWAY", 0, last_id.to_bytes(4, "big") + code.to_bytes(4, "big") + words)


def post(body: bytes | None = b"{}", *, extra: Sequence[Field] = (), head: Head = HEAD) -> HttpRequest:
    return HttpRequest(head, extra, body)


class Garage:
    """An owner that writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def freed(self, connection: UpstreamConnection) -> None:
        assert connection.room, "freed without room"
        self.heard.append("freed")

    def wearing(self, connection: UpstreamConnection) -> None:
        self.heard.append("wearing")

    def gone(self, connection: UpstreamConnection, *, dropped: bool) -> None:
        assert not dropped
        assert not connection.room
        self.heard.append("gone")


class Timer:
    """A call that is still to be made."""

    def __init__(self, clock: "Clock", due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback = callback
        self._clock = clock

    def cancel(self) -> None:
        self._clock.timers.remove(self)


class Clock:
    """What a connection needs of a loop: the time, and timers."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        self.timers.append(Timer(self, self.now + delay, callback))
        return self.timers[-1]

    def pass_by(self, delay_s: float) -> None:
        """Let time pass, and make the calls that are due."""
        self.now += delay_s
        for timer in [each for each in self.timers if each.due <= self.now]:
            timer.cancel()
            timer.callback()


class Wire(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self, extra: dict[str, Any] | None = None) -> None:
        super().__init__(extra)
        self.writes: list[bytes] = []
        self.aborted = False
        self.protocol: asyncio.Protocol | None = None
        self.full_at: int | None = None  # bytes unsent at which it asks for a pause
        self.unsent = 0

    def write(self, data: Any) -> None:
        assert not self.aborted, "written after the abort"
        assert data, "an empty write"
        self.writes.append(bytes(data))
        self.unsent += len(data)
        if self.full_at is not None and self.unsent > self.full_at and self.protocol is not None:
            self.protocol.pause_writing()

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted


class Outcome(NamedTuple):
    """What the reader of a response gets."""

    status: int
    body: bytes
    error: UpstreamError | Unsent | None


class Server:
    """A client's connection, and what this end of it hears and says."""

    def __init__(self, *first: bytes) -> None:
        """Greet with SETTINGS, or with ``first``."""
        self.clock = Clock()
        self.owner = Garage()
        self.wire = Wire()
        self.client = Http2Connection(self.owner, cast("asyncio.AbstractEventLoop", self.clock), 12.5)
        self.wire.protocol = self.client
        self.client.connection_made(self.wire)
        self._decoder = Decoder(1 << 20)
        self.greeting = self.wire.writes.pop()
        self.say(*(first or (settings(),)))
        self.heard()

    def say(self, *what: bytes) -> None:
        """Have the client receive ``what`` in one read."""
        self.client.data_received(b"".join(what))

    def heard(self, *kinds: str) -> list[Frame]:
        """Return the frames that have come since the last time, or those of ``kinds`` among them."""
        frames = frames_in(b"".join(self.wire.writes))
        self.wire.writes.clear()
        return [each for each in frames if not kinds or each.kind in kinds]

    def fields(self, frames: Sequence[Frame]) -> list[Field]:
        """Return the fields of a request's header block."""
        whole = b"".join(each.payload for each in frames)
        return [(name, value) for name, value, _ in self._decoder.decode(whole, raw=True)]

    def outcome(self, response: Response) -> Outcome:
        """Read ``response`` to its end, which must already have been said."""
        try:
            read(response).send(None)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        raise AssertionError("the response has not ended")

    def exchange(self) -> None:
        """Carry one exchange from beginning to end."""
        response = self.client.send(post())
        self.say(headers(self.client.next_id - 2, end=True))
        assert self.outcome(response).error is None
        self.heard()

    def failed_with(self, code: int) -> bool:
        """Whether the client has given up the connection for ``code``, and told everybody."""
        last = self.heard()[-1]
        done = self.wire.aborted and not self.client.alive() and not self.client.room and not self.client.streams
        return (last.kind, last.stream_id, last.number) == ("GOAWAY", 0, code) and done


async def read(response: Response) -> Outcome:
    body = bytearray()
    try:
        await response.begun()
        while piece := await response.read():
            body += piece
    except (UpstreamError, Unsent) as error:
        return Outcome(response.status, bytes(body), error)
    return Outcome(response.status, bytes(body), None)
