"""Writes a relayed answer to the client as it arrives: audio, images, texts and events that are not raced."""

from aiohttp import web

from gateway.ingress import headers
from gateway.ingress.admission import JSON
from gateway.racing.outlet import Relayed
from gateway.racing.sink import ClientGone

_PASSED = ("content-type", "content-disposition", "content-language")
_IDENTITY = ("", "identity")


def relayed_headers(relayed: Relayed, response_headers: dict[str, str]) -> dict[str, str]:
    """Return the response headers of an answer; ``response_headers`` are the gateway's reports about the request."""
    answer = relayed.answer
    fields = headers.of_answer(relayed.call, relayed.provider, relayed.deployment, relayed.launched, answer.headers)
    fields["x-holeshot-ttft-ms"] = f"{relayed.ttft_ms:.1f}"
    fields.update(response_headers)
    fields.update({name: value for name in _PASSED if (value := answer.headers.get(name))})
    if "content-type" not in fields:
        is_json = answer.rest is None and answer.body.lstrip()[:1] in {b"{", b"["}
        fields["content-type"] = JSON if is_json else "application/octet-stream"
    return fields


class ResponseOutlet:
    """Writes to the client's response. Until the answer begins, an error can still have its own status."""

    def __init__(self, request: web.Request, response_headers: dict[str, str]) -> None:
        self.response: web.StreamResponse | None = None
        self._request = request
        self._response_headers = response_headers
        self._transport = request.transport

    async def begin(self, relayed: Relayed) -> None:
        """Prepare the response, with the provider's content length if it is known."""
        upstream = relayed.answer.headers
        fields = relayed_headers(relayed, self._response_headers)
        if fields["content-type"].startswith("text/event-stream"):
            fields["cache-control"] = "no-cache"
            fields["x-accel-buffering"] = "no"  # else nginx would buffer the stream
        response = self.response = web.StreamResponse(status=relayed.answer.status, headers=fields)
        length = upstream.get("content-length", "")
        if length.isascii() and length.isdigit() and upstream.get("content-encoding", "") in _IDENTITY:
            response.content_length = int(length)
        try:
            await response.prepare(self._request)
        except ConnectionError as error:
            raise ClientGone from error

    async def write(self, data: bytes) -> None:
        """Send some bytes; wait while the client is slow."""
        assert self.response is not None
        try:
            await self.response.write(data)
            if self._request.protocol.writing_paused:  # aiohttp would wait only before the next write
                await self._request.writer.drain()
        except ConnectionError as error:
            raise ClientGone from error

    async def end(self, last: bytes) -> None:
        """Send the last bytes and the end of the response in one write."""
        assert self.response is not None
        try:
            await self.response.write_eof(last)
        except ConnectionError as error:
            raise ClientGone from error

    def drop(self) -> None:
        """Abort the connection, so that the client does not accept half an answer."""
        if self._transport is not None:
            self._transport.abort()
