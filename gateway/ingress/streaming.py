"""The sink of a streamed answer: the winner's server-sent events, forwarded as they come."""

from collections.abc import Mapping

import msgspec
from aiohttp import web

from gateway.calls import Call
from gateway.ingress import headers
from gateway.racing.reading import Block
from gateway.racing.sink import ClientGone, Winner
from providers.errors import UpstreamError

DONE = b"data: [DONE]\n\n"


class _Events(web.StreamResponse):
    """A response whose headers leave with its first events, in one write: they follow at once."""

    _send_headers_immediately = False


class StreamingSink:
    """Writes events to the client's response, which begins with the winner: until then an error can be an error."""

    streams = True

    def __init__(self, request: web.Request, call: Call, told: Mapping[str, str]) -> None:
        self._request = request
        self._call = call
        self._told = told  # headers besides those of the winner, complete when it begins
        self.response: web.StreamResponse | None = None

    async def begin(self, winner: Winner) -> None:
        """Send the response's headers."""
        fields = headers.for_client(self._call, winner)
        fields.update(self._told)
        fields["content-type"] = "text/event-stream; charset=utf-8"
        fields["cache-control"] = "no-cache"
        fields["x-accel-buffering"] = "no"  # nginx in front would hold the stream back
        response = self.response = _Events(headers=fields)
        try:
            await response.prepare(self._request)
        except ConnectionError as error:
            raise ClientGone from error

    async def write(self, block: Block) -> None:
        """Forward ``block`` as it is."""
        await self._send(block.forward)

    async def end(self) -> None:
        """Send [DONE] and the end of the response."""
        await self._finish(DONE)

    async def fail(self, error: UpstreamError) -> None:
        """Send an error event and end without [DONE], so that SDKs raise and take no half for a whole."""
        body = {"message": error.message, "type": "upstream_error", "param": None, "code": error.kind}
        await self._finish(b"data: " + msgspec.json.encode({"error": body}) + b"\n\n")

    def drop(self) -> None:
        """Break the connection of a response that has begun and cannot be ended properly."""
        if self.response is not None and self._request.transport is not None:
            self._request.transport.abort()

    async def _send(self, block: bytes) -> None:
        assert self.response is not None
        try:
            await self.response.write(block)
        except ConnectionError as error:
            raise ClientGone from error

    async def _finish(self, last: bytes) -> None:
        assert self.response is not None
        try:
            await self.response.write_eof(last)
        except ConnectionError as error:
            raise ClientGone from error
