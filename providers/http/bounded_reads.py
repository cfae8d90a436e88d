"""Reading from a connection by pieces of a bounded size; a loop would hand over a quarter of a megabyte at once."""

import asyncio
from typing import Protocol

from providers.http.limits import READ_BYTES


class Reader(Protocol):
    """The protocol proper of a connection."""

    def data_received(self, data: bytes) -> None:
        """Take what was read."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end of the connection."""

    def pause_writing(self) -> None:
        """Write no more for now."""

    def resume_writing(self) -> None:
        """Write on."""


class BoundedReads(asyncio.BufferedProtocol):
    """Stands before ``reader`` from when it has once fallen behind: every read costs a little more this way."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._buffer = memoryview(bytearray(READ_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return where to read into."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what was read."""
        self._reader.data_received(bytes(self._buffer[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self._reader.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._reader.resume_writing()
