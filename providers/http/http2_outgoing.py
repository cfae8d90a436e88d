"""Outgoing frames of an HTTP/2 connection: sent at once, or while reading, all in one write at the end of the read."""

import asyncio


class Outgoing:
    """Writes to the connection's transport."""

    __slots__ = ("_frames", "_held", "_transport")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._held = False
        self._frames: list[bytes] = []  # those held

    def connect(self, transport: asyncio.Transport) -> None:
        """Write to ``transport`` from now on."""
        self._transport = transport

    def disconnect(self) -> None:
        """Forget the transport, which is closed."""
        self._transport = None

    def is_open(self) -> bool:
        """Whether frames can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send ``data``, or hold it."""
        if self._held:
            self._frames.append(data)
        elif self._transport is not None and not self._transport.is_closing():  # uvloop raises when it is closed
            self._transport.write(data)

    def hold(self) -> None:
        """Hold frames from now on."""
        self._held = True

    def release(self) -> bytes:
        """Hold no more, and return what was held."""
        self._held = False
        held = b"".join(self._frames)
        self._frames.clear()
        return held

    def abort(self) -> None:
        """Abort the transport, with all that is held or buffered."""
        self._frames.clear()
        if self._transport is not None:
            self._transport.abort()
