"""A connection that is fuzzed: clock, owner, wire and responses that complain of whatever must not happen.

An input is a script of eight bytes, and then what the server says. The script says how that is cut into reads, and what
the client does between them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol, cast

from providers import UpstreamError
from providers.http import Response
from providers.http.message import HEAD_BYTES, HEAD_FIELDS, Unsent, UpstreamConnection
from tests.unit.providers.http.inside.h2_server import Clock, Wire

Drive = Callable[[bytes], None]  # one input; raises what is wrong

SCRIPT_BYTES = 8
_SHORT = 4096  # bytes below which no limit is reached, so that it is all the same how they are cut
_SIZES = (1, 2, 3, 9, 10, 64, 1000, 1 << 20)  # of reads


class Owner:
    """Hears of a connection what it should, in the order in which it should."""

    def __init__(self) -> None:
        self.freed_count = 0
        self.is_gone = False
        self.is_wearing = False

    def freed(self, connection: UpstreamConnection) -> None:
        assert connection.room, "freed without room"
        assert not self.is_gone, "freed after it was gone"
        self.freed_count += 1

    def wearing(self, connection: UpstreamConnection) -> None:
        assert not self.is_wearing, "wearing twice"
        assert not self.is_gone, "wearing after it was gone"
        self.is_wearing = True

    def gone(self, connection: UpstreamConnection, *, dropped: bool) -> None:
        assert not self.is_gone, "gone twice"
        assert not connection.room, "gone with room"
        self.is_gone = True


class Line(Wire):
    """A wire whose reading can be paused, and which counts what it carries."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_bytes = 0
        self.reading = True
        self.aborts = 0

    def write(self, data: Any) -> None:
        super().write(data)
        self.writes.clear()
        self.sent_bytes += len(data)

    def abort(self) -> None:
        super().abort()
        self.aborts += 1

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed twice"
        self.reading = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert not self.reading, f"{protocol} takes over while it reads"

    def get_write_buffer_size(self) -> int:
        return 0


class Reader:
    """Reads a response as far as it has come, and keeps watch over it."""

    def __init__(self, response: Response) -> None:
        self.response = response
        self.body = bytearray()
        self.aborted = False
        self.final: tuple[Any, ...] | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more may come."""
        return self.aborted or self.response._ended or self.response._error is not None

    def check(self, most_bytes: int) -> None:
        """See that no more is held than may be, and that what is over stays as it is."""
        response = self.response
        assert response.buffered == sum(map(len, response._pieces)), "miscounted"
        assert response.buffered <= most_bytes, f"{response.buffered} bytes held"
        assert len(response._fields) <= HEAD_FIELDS, "too many fields"
        assert sum(len(name) + len(value) for name, value in response._fields) <= HEAD_BYTES, "too large a head"
        assert not (response._ended and response._error), "ended and failed"
        assert not response._ended or response.status, "ended without a head"
        if self.over:
            now = (response.status, response._ended, response._error, len(self.body) + response.buffered)
            assert self.final in {None, now}, "something came after the end"
            self.final = now

    def read(self) -> None:
        """Read what there is to read without waiting."""
        response = self.response
        while response._pieces or response._ended or response._error:
            try:
                piece = _at_once(response.read())
            except (UpstreamError, Unsent):
                return
            if not piece:
                return
            self.body += piece

    def abort(self) -> None:
        self.response.abort()
        self.aborted = True

    def outcome(self) -> tuple[int, bytes, bool, bool]:
        """Return what a reader gets: status, body, whether it ended, whether it failed."""
        self.read()
        return self.response.status, bytes(self.body), self.response._ended, self.response._error is not None


class Script:
    """The first bytes of an input: how what follows is cut, and what is done in between."""

    def __init__(self, data: bytes) -> None:
        self._script = data[:SCRIPT_BYTES].ljust(SCRIPT_BYTES, b"\0")
        self._said = data[SCRIPT_BYTES:]

    def steps(self) -> Iterator[tuple[bytes, int]]:
        """Yield reads, each with what is to be done after it: a number from 0 to 31."""
        at = step = 0
        while at < len(self._said):
            order = self._script[step % SCRIPT_BYTES]
            size = _SIZES[order & 7] if step < 10_000 else len(self._said)
            yield self._said[at : at + size], order >> 3
            at += size
            step += 1

    @property
    def said(self) -> bytes:
        """All that the server says."""
        return self._said


class FuzzedConnection(Protocol):
    """A connection with requests under way, and what can happen to it."""

    readers: list[Reader]

    def hear(self, data: bytes) -> None:
        """Deliver a read."""

    def act(self, action: int) -> None:
        """Do what a client may do between two reads."""

    def lose(self, error: Exception | None) -> None:
        """End the connection."""

    def check_end(self) -> None:
        """See that nothing waits for ever, and that everybody knows."""


def driving(make: Callable[[], FuzzedConnection]) -> Drive:
    """Return what lets a server say its input to a fuzzed connection, and fails if the client does what it must not."""

    def drive(data: bytes) -> None:
        script = Script(data)
        fuzzed = make()
        for piece, action in script.steps():
            fuzzed.hear(piece)
            fuzzed.act(action)
        fuzzed.lose(None if len(data) & 1 else ConnectionResetError())
        fuzzed.check_end()
        if len(script.said) <= _SHORT:
            _check_cutting(make, script.said)

    return drive


def as_loop(clock: Clock) -> asyncio.AbstractEventLoop:
    """Return ``clock`` as what connections ask for; they need no more of it."""
    return cast("asyncio.AbstractEventLoop", clock)


def _check_cutting(make: Callable[[], FuzzedConnection], said: bytes) -> None:
    """See that it means the same in one piece and byte by byte."""
    outcomes = []
    for size in (1, _SHORT):
        fuzzed = make()
        for at in range(0, len(said), size):
            fuzzed.hear(said[at : at + size])
        fuzzed.lose(None)
        fuzzed.check_end()
        outcomes.append([reader.outcome() for reader in fuzzed.readers])
        if any("window that is too large" in str(reader.response._error) for reader in fuzzed.readers):
            return  # a window that is too large is not, once some of a body was sent; that may be before or after it
    assert outcomes[0] == outcomes[1], f"byte by byte {outcomes[0]}, at once {outcomes[1]}"


def _at_once(coroutine: Coroutine[Any, Any, bytes]) -> bytes:
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: bytes = end.value
        return value
    raise AssertionError("it waits although something is there")
