"""Reads of limited size from a connection; an event loop would deliver up to a quarter of a megabyte at once."""

import asyncio
from typing import Protocol

from providers.http.limits import READ_BYTES


class Reader(Protocol):
    """The protocol of a connection."""

    def data_received(self, data: bytes) -> None:
        """Process data that was read."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Process the end of the connection."""

    def pause_writing(self) -> None:
        """Stop writing for now."""

    def resume_writing(self) -> None:
        """Continue writing."""


class BoundedReads(asyncio.BufferedProtocol):
    """Wraps ``reader`` once that has fallen behind for the first time, as each read costs a little more this way."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._buffer = memoryview(bytearray(READ_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Return the buffer to read into."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the data on."""
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
