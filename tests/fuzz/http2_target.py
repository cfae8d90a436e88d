"""Http2Connection under arbitrary frames, in arbitrary pieces."""

from providers.http import Head, HttpRequest
from providers.http.frames import HEADER_BYTES, MAX_FRAME_BYTES
from providers.http.http2 import Http2Connection
from providers.http.message import HEAD_BYTES, HTTP2_STREAM_BYTES
from tests.fuzz.fuzzed_connection import Line, Owner, Reader, as_loop, driving
from tests.unit.providers.http.inside.h2_server import Clock

_HEAD = Head("POST", "https", "api.example", "/v1/chat", {}, absolute=False)
_BODIES = (b"{}", None, bytes(100_000))
_EXCHANGES = 12
_HEAD_SENT_BYTES = 300  # of a request, and of what is said about it


class FuzzedHttp2:
    """A connection with three requests under way: a short body, none, and one that waits for windows."""

    def __init__(self, connect_ms: float | None = None) -> None:
        self.clock = Clock()
        self.owner = Owner()
        self.wire = Line()
        self.connection = Http2Connection(self.owner, as_loop(self.clock), connect_ms)
        self.wire.protocol = self.connection
        self.connection.connection_made(self.wire)
        self.heard_bytes = 0
        self.readers = [self.begin(body) for body in _BODIES]
        self._lost = False

    def begin(self, body: bytes | None) -> Reader:
        return Reader(self.connection.send(HttpRequest(_HEAD, (), body)))

    def hear(self, data: bytes) -> None:
        """Deliver a read as a transport does: none after its end."""
        if self.wire.aborted:
            self.lose(None)
            return
        self.heard_bytes += len(data)
        self.connection.data_received(data)
        receiving = self.connection._receiving
        assert len(receiving._rest) < HEADER_BYTES + MAX_FRAME_BYTES, "more than a frame held"
        assert len(receiving._heads._block) <= HEAD_BYTES + MAX_FRAME_BYTES, "more than a head held"
        for reader in self.readers:
            reader.check(HTTP2_STREAM_BYTES)
        bodies = sum(len(_BODIES[number % 3] or b"") for number in range(len(self.readers)))
        # Frames of bodies are as small as the windows open, and each window costs the server a frame as well.
        most_bytes = 2 * bodies + len(self.readers) * _HEAD_SENT_BYTES + 3 * self.heard_bytes + 200
        assert self.wire.sent_bytes <= most_bytes, f"{self.wire.sent_bytes} bytes written for {self.heard_bytes}"

    def act(self, action: int) -> None:
        """Do what a client, or its transport, may do between two reads."""
        reader = self.readers[action % len(self.readers)]
        match action >> 2:
            case 0 | 1:
                for each in self.readers:
                    each.read()
            case 2:
                reader.read()
            case 3:
                reader.abort()
            case 4 if self.connection.room and self.connection.alive() and len(self.readers) < _EXCHANGES:
                self.readers.append(self.begin(_BODIES[len(self.readers) % 3]))
            case 5 if not self.wire.aborted:
                self.connection.pause_writing()
            case 6 if not self.wire.aborted:
                self.connection.resume_writing()
            case 7 if action == 31:
                self.clock.pass_by(11.0)
            case _:
                pass

    def lose(self, error: Exception | None) -> None:
        """End the connection, once."""
        if not self._lost:
            self._lost = True
            self.wire.aborted = True
            self.connection.connection_lost(error)

    def check_end(self) -> None:
        """See that nothing waits for ever, and that everybody knows."""
        assert self.owner.is_gone
        assert not self.connection.alive()
        assert not self.connection.room
        assert not self.connection.streams
        assert not self.connection._streams
        assert not self.clock.timers, "a timer is left"
        self.connection.data_received(b"\0\0\0\4\0\0\0\0\0")
        for reader in self.readers:
            assert reader.over, "it would wait for ever"
            reader.check(HTTP2_STREAM_BYTES)


drive = driving(FuzzedHttp2)
