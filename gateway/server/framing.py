"""Bounds on the framing of chunked bodies: chunk sizes, their extensions, and trailers. Connections and tests use it.

A chunk of one byte takes six bytes on the wire, and as much CPU as one of 64 KB. So chunked bodies are parsed in
slices, framing may be at most a multiple of the body, and all connections together parse a limited number of bytes of
it in a second.
"""

from collections.abc import Callable
from typing import Protocol

from gateway.core.errors import TooMuchFraming

SLICE_BYTES = 4 * 1024  # parsed without a pause: at most 800 chunks, which take about a millisecond
LARGEST_SLICE_BYTES = 64 * 1024  # while there is little framing
LITTLE = 1 / 16  # of a slice
FRAMING_PER_BYTE = 16  # of body
FREE_BYTES = 8 * 1024  # of framing, besides; and the limit for trailers, or the extensions of one chunk
BYTES_PER_S = 512 * 1024  # of framing on all connections: 100,000 chunks of one byte, a sixth of a core
BURST_S = 0.02  # within which no connection waits


class Payload(Protocol):
    """The body of a request, as far as it was parsed."""

    total_bytes: int

    def is_eof(self) -> bool:
        """Whether the body is complete."""

    def set_exception(self, exc: BaseException) -> None:
        """Raise ``exc`` in reads of the body, from now on."""


class Framing:
    """Counts the framing of one chunked body while it is parsed; ``slice_bytes`` may be parsed next."""

    __slots__ = ("_bare", "_framing", "_seen", "payload", "slice_bytes", "unseen")

    def __init__(self, payload: Payload) -> None:
        self.slice_bytes = SLICE_BYTES
        self.unseen = 0  # bytes that were received, and not counted yet
        self.payload = payload
        self._seen = payload.total_bytes  # bytes of the body at the last count
        self._framing = 0
        self._bare = 0  # bytes of framing since the last byte of the body

    def count(self) -> int:
        """Count the bytes that were parsed since the last time; return how many of them were framing.

        Raises:
            TooMuchFraming: they are too many for this body, or too many trailers.

        """
        number, self.unseen = self.unseen, 0
        body = self.payload.total_bytes
        grown, self._seen = body - self._seen, body
        framing = max(0, number - grown)
        self._framing += framing
        self._bare = 0 if grown else self._bare + framing
        if self._bare > FREE_BYTES:
            raise TooMuchFraming(f"the body's trailers, or a chunk's extensions, are longer than {FREE_BYTES} bytes")
        if self._framing > FREE_BYTES + FRAMING_PER_BYTE * body:
            raise TooMuchFraming(
                f"the body has more than {FRAMING_PER_BYTE} bytes of chunk sizes, extensions and trailers for each of"
                " its own: send it in larger chunks, or with a content-length"
            )
        is_little = framing <= number * LITTLE
        self.slice_bytes = min(2 * self.slice_bytes, LARGEST_SLICE_BYTES) if is_little else SLICE_BYTES
        return framing


class FramingPace:
    """Delays connections with much framing, so that all connections together parse ``BYTES_PER_S``."""

    __slots__ = ("_clock", "_until_s")

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` returns monotonic seconds."""
        self._clock = clock
        self._until_s = 0.0

    def add(self, framing: int) -> None:
        """Count bytes of framing that were parsed."""
        self._until_s = max(self._until_s, self._clock()) + framing / BYTES_PER_S

    def delay_s(self) -> float:
        """Return the seconds until a connection may parse more framing."""
        delay_s = self._until_s - self._clock()
        return delay_s if delay_s > BURST_S else 0.0
