"""The client's end of an answer that is passed on as it comes: sound, pictures, texts and events that are not raced."""

from aiohttp import web

from gateway.ingress import headers
from gateway.ingress.admission import JSON
from gateway.racing.outlet import Relayed
from gateway.racing.sink import ClientGone

_PASSED = ("content-type", "content-disposition", "content-language")
_IDENTITY = ("", "identity")


def relayed_headers(relayed: Relayed, told: dict[str, str]) -> dict[str, str]:
    """Return the response headers of an answer; ``told`` are those that say what the gateway made of the request."""
    answer = relayed.answer
    fields = headers.of_answer(relayed.call, relayed.provider, relayed.deployment, relayed.launched, answer.headers)
    fields["x-holeshot-ttft-ms"] = f"{relayed.ttft_ms:.1f}"
    fields.update(told)
    fields.update({name: value for name in _PASSED if (value := answer.headers.get(name))})
    if "content-type" not in fields:
        is_json = answer.rest is None and answer.body.lstrip()[:1] in {b"{", b"["}
        fields["content-type"] = JSON if is_json else "application/octet-stream"
    return fields


class ResponseOutlet:
    """Writes to the client's response, which begins with the answer: until then an error can be an error."""

    def __init__(self, request: web.Request, told: dict[str, str]) -> None:
        self.response: web.StreamResponse | None = None
        self._request = request
        self._told = told
        self._transport = request.transport

    async def begin(self, relayed: Relayed) -> None:
        """Prepare the response, as long as the provider says its answer is."""
        upstream = relayed.answer.headers
        fields = relayed_headers(relayed, self._told)
        if fields["content-type"].startswith("text/event-stream"):
            fields["cache-control"] = "no-cache"
            fields["x-accel-buffering"] = "no"  # nginx in front would hold the stream back
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
            if self._request.protocol.writing_paused:  # aiohttp would wait only once there is more
                await self._request.writer.drain()
        except ConnectionError as error:
            raise ClientGone from error

    async def end(self, last: bytes) -> None:
        """Send the last bytes and the end, in one write."""
        assert self.response is not None
        try:
            await self.response.write_eof(last)
        except ConnectionError as error:
            raise ClientGone from error

    def drop(self) -> None:
        """Break the connection, so that nobody takes a part for the whole."""
        if self._transport is not None:
            self._transport.abort()
