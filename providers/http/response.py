"""A response while it arrives: filled by a connection, read by one task. It is the same for both protocols."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from providers.errors import UpstreamError
from providers.http.limits import PIECES, READ_BYTES, WHOLE_READ_BYTES

Field = tuple[bytes, bytes]  # name, value


class Unsent(Exception):
    """The server did not begin to process the request, so it may be sent again over another connection.

    A kept connection turned out to be closed, or the server sent HTTP/2's GOAWAY or REFUSED_STREAM.
    """


class Source(Protocol):
    """The connection of a response."""

    def taken(self, response: "Response", size: int) -> None:
        """Be notified that ``size`` bytes were read: let the server send more. Not called after the response's end."""

    def widen(self, response: "Response") -> None:
        """Be notified that the reader reads the whole body without pauses: let the server send more in advance."""

    def drop(self, response: "Response") -> None:
        """Drop the exchange now, so that the server notices at once."""


class Response:
    """One response. ``status`` and ``headers`` are set once ``begun`` has returned.

    A connection calls ``begin``, ``feed``, then ``end`` or ``fail``; the reader calls ``begun``, ``read``, ``abort``.
    """

    __slots__ = (
        "_ended",
        "_error",
        "_fields",
        "_headers",
        "_loop",
        "_most",
        "_pieces",
        "_source",
        "_waiter",
        "buffered",
        "connect_ms",
        "listener",
        "status",
    )

    def __init__(self, source: Source, loop: asyncio.AbstractEventLoop, connect_ms: float | None) -> None:
        self.status = 0  # until the headers have arrived
        self.connect_ms = connect_ms  # the time to connect; None: a kept connection was used
        self.buffered = 0  # unread bytes
        # Gets data that arrives while the reader waits; if it returns False, the reader is woken instead.
        self.listener: Callable[[bytes], bool] | None = None
        self._source: Source | None = source  # None after the end
        self._loop = loop
        self._fields: Sequence[Field] = ()
        self._headers: Mapping[str, str] | None = None
        self._pieces: list[bytes] = []
        self._most = READ_BYTES  # of one read
        self._ended = False
        self._error: UpstreamError | Unsent | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields by lower-case names, decoded as Latin-1; repeated fields are joined with a comma."""
        if self._headers is None:
            headers: dict[str, str] = {}
            for raw_name, raw_value in self._fields:
                name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
            self._headers = headers
            self._fields = ()
        return self._headers

    @property
    def ended(self) -> bool:
        """Whether it has ended: all data has arrived, though perhaps not been read, or the connection broke."""
        return self._source is None

    async def begun(self) -> None:
        """Wait for the headers of the response; interim ones (1xx) do not count.

        Raises:
            Unsent: the server did not begin to process the request.
            UpstreamError: disconnected, or invalid_response (not HTTP).

        """
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._more()

    async def read(self) -> bytes:
        """Return the next bytes of the body, a limited number at once; wait if there are none; ``b""`` at the end.

        Raises:
            UpstreamError: the connection broke before the end; raised after everything that arrived was read.

        """
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            await self._more()
        if self.buffered > self._most:
            data = self._first()
        else:
            data = self._joined()
            self._pieces.clear()
        self._taken(len(data))
        return data

    def expect_all(self) -> None:
        """Declare that the reader will read all of the body without pauses."""
        self._most = WHOLE_READ_BYTES
        if self._source is not None:
            self._source.widen(self)

    def abort(self) -> None:
        """Drop the exchange at once, so that the server notices; without effect after the end."""
        source, self._source = self._source, None
        self.listener = None
        if source is not None:
            source.drop(self)

    def begin(self, status: int, fields: Sequence[Field]) -> None:
        """Set the status and the header fields."""
        self.status = status
        self._fields = fields
        self._wake()

    def feed(self, data: bytes) -> None:
        """Add a piece of the body."""
        self._pieces.append(data)
        self.buffered += len(data)
        if self.listener is None:
            self._wake()
        elif len(self._pieces) == 1:
            self._loop.call_soon(self._offer)  # once for all data that arrives together, as for a reader
        if len(self._pieces) > PIECES:
            self._pieces[:] = [b"".join(self._pieces)]

    def end(self) -> None:
        """Mark the end of the body."""
        self._ended = True
        self._source = self.listener = None
        self._wake()

    def fail(self, error: UpstreamError | Unsent) -> None:
        """Mark the response as broken: nothing more will arrive."""
        self._error = error
        self._source = self.listener = None
        self._wake()

    def _offer(self) -> None:
        waiter = self._waiter
        # A reader that is not waiting will read the data later; after the end it was woken already.
        if waiter is None or waiter.done() or self._source is None or not self._pieces or self.listener is None:
            return
        if self.buffered > self._most:
            waiter.set_result(None)
            return
        data = self._joined()
        try:
            wanted = self.listener(data)
        except Exception as defect:  # noqa: BLE001 - raised to the reader, as the caller here is the event loop
            waiter.set_exception(defect)
            return
        if wanted:
            self._pieces.clear()
            self._taken(len(data))
        else:
            waiter.set_result(None)

    def _joined(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def _first(self) -> bytes:
        """Take the data for one read, when more than that has arrived."""
        number = size = 0
        while size < self._most:
            size += len(self._pieces[number])
            number += 1
        taken = self._pieces[:number]
        del self._pieces[:number]
        if size > self._most:
            last = taken.pop()
            cut = len(last) - (size - self._most)
            taken.append(last[:cut])
            self._pieces.insert(0, last[cut:])
        return b"".join(taken)

    def _taken(self, size: int) -> None:
        self.buffered -= size
        if self._source is not None:
            self._source.taken(self, size)

    async def _more(self) -> None:
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
