"""The receivers of answers that write to the client's response: events, an array of them, or bytes unchanged."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from aiohttp import HttpVersion11, web
from multidict import istr

from gateway.api.bodies import LARGE_BYTES
from gateway.api.context import CONTEXT, Context, GatewayPhase
from gateway.api.keep_alive import COMMENT, TAIL_BYTES, KeepAlive, is_between
from gateway.api.provider_state import ReturnedNames
from gateway.api.request import ParsedRequest, StreamFormat
from gateway.api.told import broken, failure
from gateway.core.calls import Call, Maker
from gateway.core.errors import ApiError, ClientDisconnected
from gateway.core.race_failures import RaceFailed
from gateway.http import EventsResponse, PlainResponse, headers
from gateway.memory import Remembering
from gateway.racing import Block, ClientGone, ClientSink, Forward, RelayedExchange, Winner
from providers import UpstreamError, events

Keep = Callable[[bytes, Maker], Awaitable[None]]
Forget = Callable[[Call], None]

CONTENT_TYPE = istr("content-type")
_CACHE_CONTROL, _BUFFERING = istr("cache-control"), istr("x-accel-buffering")


def is_plain(request: web.Request, context: Context) -> bool:
    """Whether the connection stays open after the response, and no web page may read it."""
    return (
        request.version == HttpVersion11
        and request.keep_alive
        and context.phase is GatewayPhase.SERVING
        and not context.settings.cors
    )


class HttpSink:
    """Writes a streamed answer to the client's response over HTTP."""

    def __init__(self, request: web.Request, response_headers: Mapping[str, str]) -> None:
        """``response_headers``: besides the winner's; complete when the answer begins."""
        self._request = request
        self._response_headers = response_headers
        self._transport = request.transport
        self._keeping: KeepAlive | None = None  # None: no comments during silences
        self.response: web.StreamResponse | None = None

    async def stop(self) -> None:
        """Send no more comments during silences, as the answer is over."""
        keeping, self._keeping = self._keeping, None  # the two refer to each other
        if keeping is not None:
            await keeping.stop()

    def drop(self) -> None:
        """Abort the connection of a response that has begun and cannot be completed."""
        if self.response is not None and self._transport is not None:
            self._transport.abort()

    async def _send(self, block: bytes) -> None:
        assert self.response is not None
        try:
            await self.response.write(block)
            if self._request.protocol.writing_paused:  # aiohttp would wait only before the next write
                await self._request.writer.drain()
        except ConnectionError as error:
            raise ClientGone from error
        if self._keeping is not None:
            self._keeping.sent()

    @property
    def _is_blocked(self) -> bool:
        """Whether a comment is of no use, as earlier bytes still wait for the client, or the client has gone."""
        transport = self._transport
        return transport is None or transport.is_closing() or bool(transport.get_write_buffer_size())

    async def _finish(self, last: bytes) -> None:
        assert self.response is not None
        if self._keeping is not None:
            self._keeping.end()
        try:
            await self.response.write_eof(last)
        except ConnectionError as error:
            raise ClientGone from error


class StreamingSink(HttpSink, ClientSink):
    """Writes events to the client's response. Until the winner begins, an error can still have its own status.

    ``keep``: called before the answer ends, with the answer's beginning and maker. ``forget``: called with the call
    when its prompt will not be sent again.
    """

    streams = True
    understands = False
    given: ReturnedNames | None = None  # gathers the names in the answer
    remembering: Remembering | None = None  # hears the parts of the answer that later requests may name
    _remember: Callable[[Maker], None]  # keeps those parts at the end, unless the maker stores the answer
    beginning = b""  # the first events, if they are kept
    keepalive_s: float | None = None  # after so much silence in the answer a comment is sent; None: never
    content_type = "text/event-stream; charset=utf-8"

    def __init__(
        self,
        request: web.Request,
        call: Call,
        response_headers: Mapping[str, str],
        keep: Keep | None = None,
        forget: Forget = lambda _: None,
    ) -> None:
        super().__init__(request, response_headers)
        self._call = call
        self._keep = keep
        self._forget = forget
        self._latest = b""  # the last events that were sent
        self._maker = Maker("")

    def keep_alive(self, every_s: float) -> None:
        """Send a comment after each ``every_s`` seconds of silence, until the answer begins, or until ``close``.

        The first comment commits status 200. Within the answer ``keepalive_s`` is the interval.
        """
        if self._keeping is None:
            self._keeping = KeepAlive(self._comment)
        self._keeping.every(every_s)

    async def begin(self, winner: Winner) -> Forward | None:
        """Prepare the response's headers; they are sent with the first events, or were sent with a comment."""
        if self._keeping is not None:
            self._keeping.every(self.keepalive_s)
        if self._keep is not None:
            self._maker = Maker(winner.deployment, winner.key_name)
        if self.response is None:
            await self._prepare(headers.for_client(winner))
        if winner.is_last and self.delivered is None:
            self._forget(winner.call)
        return self._forward if self._request.version >= HttpVersion11 and self.given is None else None

    async def write(self, block: Block) -> None:
        """Forward ``block`` unchanged."""
        if self._keep is not None:
            self._gather(block.forward)
            if self._call.request.runs_on and not self.beginning:  # the client may leave, and look at the answer later
                await self._keep(block.forward, self._maker)
            self.beginning = self.beginning or block.forward
        await self._send(block.forward)
        if self.remembering is not None:
            self._hear(block.forward)
        self._latest = block.forward or self._latest
        if self.delivered is not None:
            self.delivered.add(block.forward)

    async def end(self, last: Block) -> None:
        """Send the last events and the end of the response in one write."""
        if self._keep is not None:
            self._gather(last.forward)
            await self._keep(self.beginning or last.forward, self._maker)
        if self.remembering is not None:
            self._hear(last.forward)
            self._remember(self._maker)
        await self._finish(last.forward)

    async def fail(self, error: UpstreamError) -> None:
        """End the response with an error event, so that SDKs raise an error instead of accepting half an answer."""
        event = broken(error, self._call.request.dialect, self._request_id)
        await self._finish(self._numbered(event, RaceFailed.status))

    async def refused(self, error: ApiError) -> bool:
        """If the response has begun, send an error of the gateway as an event; return whether it has begun."""
        await self.stop()
        if self.response is None:
            return False
        with suppress(ClientGone):
            event = failure(error, self._call.request.dialect, self._request_id)
            await self._finish(self._numbered(event, error.status_code))
        return True

    async def refused_by(self, answer: bytes) -> None:
        """Send the answer with which a vendor refuses, and the end of the response."""
        await self.stop()
        with suppress(ClientGone):
            if self.response is None:
                await self._prepare({"x-holeshot-call-id": self._call.caller.id})
            await self._finish(answer)

    @property
    def _request_id(self) -> str:
        return self._call.caller.envelope.request_id or self._call.caller.id

    def _numbered(self, failure: bytes, status: int) -> bytes:
        """Return an error's event with its number, without ``status``: over HTTP the response has another status."""
        del status
        numbers = self._call.request.dialect.answers.numbers
        return failure if numbers is None else numbers.numbered(failure, self._latest)

    async def close(self) -> None:
        """Send comments by ``keepalive_s`` from now on, as the answer goes on."""
        if self._keeping is not None:
            self._keeping.every(self.keepalive_s)

    def _gather(self, block: bytes) -> None:
        if self.given is not None:
            for event in events(block):
                self.given.add(event.data)

    def remember(self, remembering: Remembering, keep: Callable[[Maker], None]) -> None:
        """Have ``remembering`` read the answer; ``keep`` stores the read parts at the answer's end."""
        self.remembering, self._remember = remembering, keep

    def _hear(self, block: bytes) -> None:
        if self.remembering is not None:
            self.remembering.heard.take(block)

    async def _comment(self) -> None:
        if self._is_blocked:
            return
        with suppress(ClientGone):  # the task that serves the request is cancelled for the same reason
            if self.response is None:
                await self._prepare({"x-holeshot-call-id": self._call.caller.id})
            await self._send(self._call.request.dialect.answers.keep_alive)

    async def _prepare(self, fields: dict[str, str]) -> None:
        fields.update(self._response_headers)
        fields[CONTENT_TYPE] = self.content_type
        fields[_CACHE_CONTROL] = "no-cache"
        fields[_BUFFERING] = "no"  # otherwise nginx would buffer the stream
        request = self._request
        plain = is_plain(request, request.app[CONTEXT])
        response = self.response = PlainResponse(fields, None) if plain else EventsResponse(headers=fields)
        try:
            await response.prepare(request)
        except ConnectionError as error:
            raise ClientGone from error
        if not plain:
            response.headers.clear()  # already rendered; saves two kilobytes while the answer streams

    def _forward(self, events: bytes) -> bool:
        """Send events at once as an HTTP/1.1 chunk; return False if the client is slow, and the caller has to wait.

        The headers are already sent, so the chunk can go directly to the transport.
        """
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(events), events))
        if self._keeping is not None:
            self._keeping.sent()
        if self.remembering is not None:
            self._hear(events)
        self._latest = events
        if self.delivered is not None:
            self.delivered.add(events)
        return True


class ArraySink(StreamingSink):
    """Writes the data of events as the elements of one JSON array, for clients that do not read events."""

    content_type = "application/json; charset=utf-8"
    _is_open = False  # whether the array has begun

    async def begin(self, winner: Winner) -> None:
        """Prepare the response's headers; events are never forwarded unchanged."""
        await super().begin(winner)

    async def _send(self, block: bytes) -> None:
        # A comment becomes a line break, which is allowed between elements.
        await super()._send(self._elements(block) or b"\n")

    async def _finish(self, last: bytes) -> None:
        elements = self._elements(last)
        await super()._finish(elements + (b"]" if self._is_open else b"[]"))

    def _elements(self, block: bytes) -> bytes:
        elements = bytearray()
        for event in events(block):
            if event.data:
                elements += (b"\n,\r\n" if self._is_open else b"[") + event.data
                self._is_open = True
        return bytes(elements)


class FramedSink(StreamingSink):
    """Writes the data of events in frames of AWS, as Bedrock does, and an error as an exception."""

    content_type = "application/vnd.amazon.eventstream"

    async def begin(self, winner: Winner) -> None:
        """Prepare the response's headers; events are never forwarded unchanged."""
        await super().begin(winner)

    async def _send(self, block: bytes) -> None:
        if frames := self._frames(block):
            await super()._send(frames)

    async def _finish(self, last: bytes) -> None:
        await super()._finish(self._frames(last))

    def _frames(self, block: bytes) -> bytes:
        request = self._call.request
        assert isinstance(request, ParsedRequest)
        assert request.framed is not None
        return b"".join(request.framed(event.data) for event in events(block) if event.data)


SINKS: Mapping[StreamFormat, type[StreamingSink]] = {StreamFormat.ARRAY: ArraySink, StreamFormat.FRAMES: FramedSink}

# Answers that pass unread: written as they arrive, or whole, after headers with the cost.

_IDENTITY = ("", "identity")


class UnreadSink(HttpSink):
    """Writes bytes as they come, unread; between events also comments."""

    _tail = b""  # the last bytes that were sent, if there may be comments

    def keep_alive(self, every_s: float | None) -> None:
        """Send a comment after each ``every_s`` seconds of silence between the events of a stream; None: never.

        Called after the response has begun, or just before.
        """
        if every_s is not None:
            self._keeping = KeepAlive(self._comment)
            self._keeping.every(every_s)

    async def _send(self, block: bytes) -> None:
        if self._keeping is not None:
            self._tail = (self._tail + block[-TAIL_BYTES:])[-TAIL_BYTES:]
        await super()._send(block)

    async def _comment(self) -> None:
        if not self._is_blocked and is_between(self._tail):
            with suppress(ClientGone):
                await self._send(COMMENT)


class PassingSink(UnreadSink):
    """Receives an answer that passes unread; a streamed answer is written to the client's response as it arrives."""

    understands = False

    def __init__(
        self, request: web.Request, response_headers: Mapping[str, str], keepalive_s: float | None = None
    ) -> None:
        """``keepalive_s``: after so much silence between events a comment is sent; None: never."""
        super().__init__(request, response_headers)
        self._keepalive_s = keepalive_s
        self.streams = False  # whether the answer goes on after its beginning
        self.winner: Winner | None = None
        self.body = b""  # of a whole answer

    async def begin(self, winner: Winner) -> None:
        """Start the answer. Before this, an error can have its own status, and another deployment may answer."""
        self.winner = winner
        exchange = winner.exchange
        assert isinstance(exchange, RelayedExchange)
        if exchange.is_whole:
            return
        self.streams = True
        fields = headers.of_relayed(winner, self._response_headers)
        is_stream = fields["content-type"].lower().startswith("text/event-stream")
        if is_stream:
            fields["cache-control"] = "no-cache"
            fields["x-accel-buffering"] = "no"  # otherwise nginx would buffer the stream
        response = self.response = web.StreamResponse(status=exchange.status, headers=fields)
        length = exchange.headers.get("content-length", "")
        is_plain = exchange.headers.get("content-encoding", "") in _IDENTITY
        is_known = length.isascii() and length.isdigit() and is_plain
        if is_known and not is_stream:  # events may be masked or completed, so the length may change
            response.content_length = int(length)
        try:
            await response.prepare(self._request)
        except ConnectionError as error:
            raise ClientGone from error
        if is_stream and is_plain:
            self.keep_alive(self._keepalive_s)

    async def write(self, block: Block) -> None:
        """Send some bytes, and wait while the client is slow; or keep a whole answer."""
        if self.response is None:
            self.body = block.forward
        else:
            await self._send(block.forward)

    async def end(self, last: Block) -> None:
        """Send the last bytes and the end of the response in one write."""
        if self.response is not None:
            await self._finish(last.forward)

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Return False: it is unknown where another answer would have to continue an unread one."""
        del error
        return False

    async def fail(self, error: UpstreamError) -> None:
        """End the response if the answer itself has reported the error to the client; else abort the connection."""
        exchange = None if self.winner is None else self.winner.exchange
        if self.response is not None and isinstance(exchange, RelayedExchange) and exchange.error is error:
            await self._finish(b"")
        else:
            self.drop()

    async def answer(
        self, response_headers: Mapping[str, str], told_as: Callable[[bytes], bytes] | None = None
    ) -> web.StreamResponse:
        """Return the response; unless the answer is whole, it is sent already. ``told_as``: converts a whole answer.

        Raises:
            ClientDisconnected: the answer never began.

        """
        if self.response is not None:
            return self.response
        if self.winner is None:
            raise ClientDisconnected("the client disconnected")
        if told_as is not None:
            self.body = told_as(self.body)
        fields, status = headers.of_relayed(self.winner, response_headers, self.body), self.winner.exchange.status
        if len(self.body) > LARGE_BYTES:
            return await _in_pieces(self._request, self.body, status, fields)
        return web.Response(body=self.body, status=status, headers=fields)


PIECE_BYTES = 256 * 1024  # of a large answer; one piece would be copied in one turn of the loop


async def _in_pieces(request: web.Request, body: bytes, status: int, fields: dict[str, str]) -> web.StreamResponse:
    response = web.StreamResponse(status=status, headers=fields)
    response.content_length = len(body)
    view = memoryview(body)
    try:
        await response.prepare(request)
        for at in range(0, len(body), PIECE_BYTES):
            await response.write(bytes(view[at : at + PIECE_BYTES]))
            await asyncio.sleep(0)  # with a fast client ``write`` never waits
        await response.write_eof()
    except ConnectionError:
        raise ClientDisconnected("the client disconnected") from None
    return response
