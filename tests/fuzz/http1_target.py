"""Http1Connection under arbitrary answers, in arbitrary pieces."""

from providers.http import Head, HttpRequest
from providers.http.http1 import Http1Connection
from providers.http.message import BUFFERED_BYTES
from tests.fuzz.fuzzed_connection import Line, Owner, Reader, as_loop, driving
from tests.unit.providers.http.inside.h2_server import Clock

_POST = HttpRequest(Head("POST", "http", "api.example", "/v1/chat", {}, absolute=False), (), b"{}")
_EXCHANGES = 4  # one after the other, at most


class FuzzedHttp1:
    """A connection with a request under way."""

    def __init__(self, connect_ms: float | None = None) -> None:
        self.owner = Owner()
        self.wire = Line()
        self.connection = Http1Connection(self.owner, as_loop(Clock()), connect_ms)
        self.wire.protocol = self.connection
        self.connection.connection_made(self.wire)
        self.readers = [self.begin()]
        self._lost = False

    def begin(self) -> Reader:
        return Reader(self.connection.send(_POST))

    def hear(self, data: bytes) -> None:
        """Deliver a read as a transport does: none while it is paused, none after its end."""
        while not self.wire.reading and not self.wire.aborted:
            self.readers[-1].read()
        if self.wire.aborted:
            self.lose(None)
            return
        self.connection.data_received(data)
        for reader in self.readers:
            reader.check(BUFFERED_BYTES + len(data))

    def act(self, action: int) -> None:
        """Do what a client may do between two reads."""
        if action & 1:
            self.readers[-1].read()
        if action & 2 and self.connection.room and self.connection.alive() and len(self.readers) < _EXCHANGES:
            self.readers.append(self.begin())
        if action == 28:
            self.readers[-1].abort()

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
        assert self.owner.freed_count <= len(self.readers)
        assert self.wire.sent_bytes <= len(self.readers) * 200
        for reader in self.readers:
            assert reader.over, "it would wait for ever"
            reader.check(2 * BUFFERED_BYTES + (1 << 20))


drive = driving(FuzzedHttp1)
