"""The sink of a streamed answer: the winner's server-sent events, forwarded as they come."""

from collections.abc import Mapping

import msgspec
from aiohttp import HttpVersion11, web

from gateway.calls import Call
from gateway.ingress import headers
from gateway.racing.reading import Block
from gateway.racing.sink import ClientGone, Forward, Winner
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
        self._transport = request.transport
        self.response: web.StreamResponse | None = None

    async def begin(self, winner: Winner) -> Forward | None:
        """Prepare the response's headers, which leave with the first events."""
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
        return self._forward if self._request.version >= HttpVersion11 else None

    async def write(self, block: Block) -> None:
        """Forward ``block`` as it is."""
        await self._send(block.forward)

    async def end(self, last: Block | None) -> None:
        """Send the last events, [DONE] and the end of the response, in one write."""
        await self._finish(DONE if last is None else last.forward + DONE)

    async def fail(self, error: UpstreamError) -> None:
        """Send an error event and end without [DONE], so that SDKs raise and take no half for a whole."""
        body = {"message": error.message, "type": "upstream_error", "param": None, "code": error.kind}
        await self._finish(b"data: " + msgspec.json.encode({"error": body}) + b"\n\n")

    def drop(self) -> None:
        """Break the connection of a response that has begun and cannot be ended properly."""
        if self.response is not None and self._transport is not None:
            self._transport.abort()

    def _forward(self, events: bytes) -> bool:
        """Send events at once as a chunk of HTTP/1.1, unless the client is slow: then somebody has to wait for it.

        The headers have left, so nothing of the response is between this and the transport.
        """
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(events), events))
        return True

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
