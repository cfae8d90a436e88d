"""A server's HTTP/1.1 connection, by hand."""

from collections.abc import Sequence
from http import HTTPStatus

from providers.http.message import Field
from tests.app.http.lines import Exchange, Line
from tests.app.providers.origin import chunked

_EMPTY = {204, 304}


class Http1Line(Line):
    """Reads requests with a content-length or none; answers in chunks unless it is told a length."""

    _current: Exchange | None = None
    _left = 0  # bytes of the current request's body
    _count = 0

    def heard(self, data: bytes) -> None:
        self._buffer += data
        while self._buffer:
            if self._current is None:
                head, blank, rest = self._buffer.partition(b"\r\n\r\n")
                if not blank:
                    return
                self._buffer = rest
                self._current = self._begun(head)
            taken, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
            self._current.body += taken
            self._left -= len(taken)
            if self._left:
                return
            self._current.whole.set()
            self._current = None

    def _begun(self, head: bytes) -> Exchange:
        line, *rest = head.split(b"\r\n")
        method, target, version = line.decode("ascii").split(" ")
        assert version == "HTTP/1.1"
        fields = []
        for each in rest:
            name, colon, value = each.partition(b": ")
            assert colon, f"{each!r} is no field"
            fields.append((name, value))
        self._count += 1
        exchange = Exchange(self, self._count, method, target, fields)
        self._left = int(exchange.field(b"content-length") or 0)
        self.arrived(exchange)
        return exchange

    def begin(self, exchange: Exchange, status: int, fields: Sequence[Field], length: int | None) -> None:
        own = list(fields)
        if status >= 200 and status not in _EMPTY:
            own.append((b"transfer-encoding", b"chunked") if length is None else (b"content-length", b"%d" % length))
        exchange.plain = length is not None
        words = HTTPStatus(status).phrase
        lines = [f"HTTP/1.1 {status} {words}".encode(), *(name + b": " + value for name, value in own)]
        self.send(b"\r\n".join(lines) + b"\r\n\r\n")

    async def say(self, exchange: Exchange, data: bytes) -> None:
        await self.drained()
        self.send(data if exchange.plain else chunked(data))

    def end(self, exchange: Exchange, trailers: Sequence[Field]) -> None:
        if not exchange.plain:
            self.send(b"0\r\n" + b"".join(name + b": " + value + b"\r\n" for name, value in trailers) + b"\r\n")
