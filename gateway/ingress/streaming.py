"""The sink of a streamed answer: it forwards the winner's server-sent events as they arrive."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from aiohttp import HttpVersion11, web
from multidict import istr

from gateway.calls import Call
from gateway.errors import ApiError
from gateway.ingress import headers
from gateway.racing.reading import Block
from gateway.racing.sink import ClientGone, Forward, Winner
from providers.dialects.continuing import Begun, Continuing
from providers.errors import UpstreamError

if TYPE_CHECKING:
    from gateway.racing.delivered import Delivered

Keep = Callable[[bytes, str], Awaitable[None]]
Forget = Callable[[Call], None]

_CONTENT_TYPE, _CACHE_CONTROL, _BUFFERING = istr("content-type"), istr("cache-control"), istr("x-accel-buffering")


class _Events(web.StreamResponse):
    """A response whose headers are sent with its first events, in one write."""

    _send_headers_immediately = False


class StreamingSink:
    """Writes events to the client's response. Until the winner begins, an error can still have its own status.

    ``keep`` is called before the answer ends, with its beginning and its deployment; ``forget`` is called with the
    call once its prompt will not be sent any more.
    """

    streams = True
    understands = False

    def __init__(
        self,
        request: web.Request,
        call: Call,
        response_headers: Mapping[str, str],
        keep: Keep | None = None,
        forget: Forget = lambda _: None,
    ) -> None:
        self._request = request
        self._call = call
        self._response_headers = response_headers  # besides the winner's; complete when the answer begins
        self._keep = keep
        self._forget = forget
        self.delivered: Delivered | None = None  # of the model that is asked; None: if the answer breaks, it ends there
        self._beginning = b""
        self._latest = b""  # the events that were sent last
        self._deployment = ""
        self._transport = request.transport
        self._keeping_alive: asyncio.Task[None] | None = None
        self.response: web.StreamResponse | None = None

    def keep_alive(self, every_s: float) -> None:
        """Send a comment every ``every_s`` seconds until the answer begins. The first one commits status 200.

        Comments of an earlier time are closed by then.
        """
        self._keeping_alive = asyncio.get_running_loop().create_task(self._comment(every_s))

    async def begin(self, winner: Winner) -> Forward | None:
        """Prepare the response's headers. They are sent with the first events, unless a comment has sent them."""
        if self._keeping_alive is not None:
            self._keeping_alive.cancel()  # ``close`` awaits it: here the first events would wait for it
        if self._keep is not None:
            self._deployment = winner.deployment
        if self.response is None:
            await self._prepare(headers.for_client(winner))
        if winner.is_last and self.delivered is None:
            self._forget(winner.call)
        return self._forward if self._request.version >= HttpVersion11 else None

    async def write(self, block: Block) -> None:
        """Forward ``block`` unchanged."""
        if self._keep is not None and not self._beginning:
            self._beginning = block.forward
        await self._send(block.forward)
        self._latest = block.forward or self._latest
        if self.delivered is not None:
            self.delivered.add(block.forward)

    async def end(self, last: Block) -> None:
        """Send the last events and the end of the response in one write."""
        if self._keep is not None:
            await self._keep(self._beginning or last.forward, self._deployment)
        await self._finish(last.forward)

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Whether somebody else may finish the answer."""
        return self.delivered is not None and self.delivered.may_be_continued(error)

    def begun(self, continuing: Continuing) -> Begun:
        """Return what the client has of the answer."""
        assert self.delivered is not None
        try:
            return continuing.begun(self.delivered.events())
        except (msgspec.DecodeError, UnicodeDecodeError):
            return Begun("", None, "format")

    async def fail(self, error: UpstreamError) -> None:
        """End the response with an error event, so that SDKs raise instead of accepting half an answer."""
        answers = self._call.dialect.answers
        failure = answers.failure(error.kind, error.message)
        await self._finish(failure if answers.numbered is None else answers.numbered(failure, self._latest))

    async def refused(self, error: ApiError) -> bool:
        """Send an error of the gateway as an event if the response has begun; return whether it had."""
        await self.close()
        if self.response is None:
            return False
        with suppress(ClientGone):
            await self._finish(self._call.dialect.answers.failure(error.kind, error.message))
        return True

    async def close(self) -> None:
        """Stop sending comments."""
        task, self._keeping_alive = self._keeping_alive, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def drop(self) -> None:
        """Abort the connection of a response that has begun and cannot be completed."""
        if self.response is not None and self._transport is not None:
            self._transport.abort()

    async def _comment(self, every_s: float) -> None:
        comment = self._call.dialect.answers.keep_alive
        while True:
            await asyncio.sleep(every_s)
            try:
                if self.response is None:
                    await self._prepare({"x-holeshot-call-id": self._call.id})
                await self._send(comment)
            except ClientGone:
                return  # the task that serves the request is cancelled for the same reason

    async def _prepare(self, fields: dict[str, str]) -> None:
        fields.update(self._response_headers)
        fields[_CONTENT_TYPE] = "text/event-stream; charset=utf-8"
        fields[_CACHE_CONTROL] = "no-cache"
        fields[_BUFFERING] = "no"  # else nginx would buffer the stream
        response = self.response = _Events(headers=fields)
        try:
            await response.prepare(self._request)
        except ConnectionError as error:
            raise ClientGone from error
        response.headers.clear()  # already rendered: two kilobytes that would be in memory while the answer streams

    def _forward(self, events: bytes) -> bool:
        """Send events at once as an HTTP/1.1 chunk; return False if the client is slow and the caller has to wait.

        The headers are already sent, so the chunk can go directly to the transport.
        """
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(events), events))
        self._latest = events
        if self.delivered is not None:
            self.delivered.add(events)
        return True

    async def _send(self, block: bytes) -> None:
        assert self.response is not None
        try:
            await self.response.write(block)
            if self._request.protocol.writing_paused:  # aiohttp would wait only before the next write
                await self._request.writer.drain()
        except ConnectionError as error:
            raise ClientGone from error

    async def _finish(self, last: bytes) -> None:
        assert self.response is not None
        try:
            await self.response.write_eof(last)
        except ConnectionError as error:
            raise ClientGone from error
