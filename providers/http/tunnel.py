"""A tunnel through a proxy to a TLS origin: the CONNECT request, and its answer."""

import asyncio
from typing import cast

from providers.redaction import redact

_LONGEST_ANSWER = 16 * 1024
_END = b"\r\n\r\n"


class ProxyRefused(Exception):
    """The proxy refuses the tunnel; the message is its status line."""


class Tunnel(asyncio.Protocol):
    """Asks a proxy for a tunnel. ``opened`` returns when it is established; after that, TLS takes over."""

    def __init__(self, loop: asyncio.AbstractEventLoop, authority: str, authorization: str | None) -> None:
        self._opened: asyncio.Future[None] = loop.create_future()
        self._answer = bytearray()
        request = f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\nuser-agent: holeshot\r\n"
        if authorization is not None:
            request += f"proxy-authorization: {authorization}\r\n"
        self._request = request.encode() + b"\r\n"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the CONNECT request."""
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Process the answer. No data follows it, as in TLS the client sends first."""
        self._answer += data
        if self._opened.done():
            return
        line, _, _ = bytes(self._answer).partition(b"\r\n")
        if _END in self._answer:
            version, _, status = line.partition(b" ")
            if version.startswith(b"HTTP/1.") and status.startswith(b"2"):
                self._opened.set_result(None)
            else:
                self._refuse(status.decode("latin-1") if version.startswith(b"HTTP/") else "with no HTTP")
        elif len(self._answer) > _LONGEST_ANSWER:
            self._refuse("with too long a head")

    def connection_lost(self, exc: Exception | None) -> None:
        """Process the end of the connection."""
        del exc
        if not self._opened.done():
            self._refuse("by closing the connection")

    async def opened(self) -> None:
        """Wait for the tunnel.

        Raises:
            ProxyRefused: the proxy refuses it.

        """
        await self._opened

    def _refuse(self, words: str) -> None:
        self._opened.set_exception(ProxyRefused(redact(words[:200])))
