"""All private parts of aiohttp that the gateway uses, where the public API has no way, or a slow one for each call.

No other file names a private part of aiohttp. ``tests/app/gateway/connections/test_aiohttp_adapter.py`` tries each part
with the installed aiohttp, and says which parts a new version has changed.
"""

# ruff: noqa: SLF001 - this is the file for it

import asyncio
import gc
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.hdrs import EXPECT, METH_POST
from aiohttp.http_parser import RawRequestMessage
from aiohttp.typedefs import Handler
from multidict import istr

from gateway.http import headers

if TYPE_CHECKING:
    from collections import deque

    from aiohttp.web_urldispatcher import UrlMappingMatchInfo

    _Response = web.StreamResponse  # returned by handlers
else:
    _Response = object

_DATE, _LENGTH, _ENCODING = istr("date"), istr("content-length"), istr("transfer-encoding")


def _slot(name: str) -> Any:
    return getattr(web.RequestHandler, name)


class ServerConnection(web.RequestHandler):
    """aiohttp's connection, with names for its private parts.

    Each name is aiohttp's own slot, so that a look at it costs nothing more. A property would cost a Python call, and a
    client's call takes a dozen of these looks.
    """

    __slots__ = ()

    waiter: "asyncio.Future[None] | None" = _slot("_waiter")  # pending while aiohttp's task waits for a request
    messages: "deque[tuple[Any, Any]]" = _slot("_messages")  # parsed and not handled yet: requests, and errors
    current_request: web.BaseRequest | None = _slot("_current_request")
    socket_reader: Any = _slot("_payload_parser")  # a WebSocket's, once there is one
    idle_until: float = _slot("_next_keepalive_close_time")  # by the loop's clock; set with each answer
    serving: "asyncio.Task[None] | None" = _slot("_task_handler")  # handles the connection's requests
    loop: asyncio.AbstractEventLoop = _slot("_loop")
    reading_paused: bool = _slot("_reading_paused")  # for a body that nobody reads,
    buffer_paused: bool = _slot("_buffer_paused")  # or for requests that wait
    pause_wire = web.RequestHandler._pause_transport_reading  # receive nothing more for now, whatever is parsed
    resume_wire = web.RequestHandler._resume_transport_reading  # receive more; aiohttp calls this, also while it parses

    def __init_subclass__(cls) -> None:
        """Have aiohttp call the ``resume_wire`` of a subclass, by aiohttp's own name."""
        cls._resume_transport_reading = cls.resume_wire  # type: ignore[method-assign]

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Read on if reading was paused. aiohttp calls this at each read of a body, and would parse in vain."""
        if self.reading_paused or self.buffer_paused:
            super().resume_reading(resume_parser)

    def parse_unseen(self, data: bytes, waiter: "asyncio.Future[None]") -> None:
        """Parse data without waking aiohttp's task, which waits for a request with ``waiter``."""
        self._waiter = None
        super().data_received(data)
        self._waiter = waiter

    def take_first(self) -> None:
        """Drop the one waiting request, as it is answered here."""
        self._messages.clear()
        if self._parser is not None:
            self._parser.message_consumed()
        self._next_keepalive_close_time = self._loop.time() + self.keepalive_timeout

    def restore_requests(self) -> None:
        """Queue complete requests that came in one read with malformed data, before the data's error, which is queued.

        aiohttp's parser, which is in C, keeps these requests when it raises.
        """
        error = self._messages.pop()
        for referent in gc.get_referents(self._parser):
            if (
                isinstance(referent, list)
                and referent
                and isinstance(referent[0], tuple)
                and isinstance(referent[0][0], RawRequestMessage)
            ):
                self._messages.extend(each for each in referent if each[1].is_eof())
                referent.clear()
        self._messages.append(error)


def message_of(request: web.BaseRequest) -> RawRequestMessage:
    """Return the parsed head of a request."""
    return request._message


def has_answer(request: web.BaseRequest) -> bool:
    """Whether the end of the answer was written; the client may send the next request before the call has ended."""
    return bool(request.writer._eof)  # type: ignore[attr-defined] # aiohttp's own writer


def serving_task(connection: web.RequestHandler) -> "asyncio.Task[None] | None":
    """Return the task that handles the requests of a connection."""
    return connection._task_handler


def reading_is_paused(connection: web.RequestHandler) -> bool:
    """Whether ``pause_reading`` was called, and ``resume_reading`` not since."""
    return connection._reading_paused


def forget_itself(transport: asyncio.BaseTransport) -> None:
    """Break the cycle of a closed transport of asyncio with its own method, or it would stay until a collection."""
    with suppress(AttributeError):  # uvloop's transports have no such method
        del transport._read_ready_cb  # type: ignore[attr-defined]


class EventsResponse(web.StreamResponse):
    """A response whose headers are sent with its first events, in one write."""

    _send_headers_immediately = False


class DirectResponse(_Response):
    """A response that writes itself: all that aiohttp's server needs, without the state of ``StreamResponse``.

    There are no headers, cookies or status to change: the response is complete when a handler returns it. A subclass
    has ``prepare``, which writes the head (or has the body's write do so), and ``write_eof``; both may be called again.
    """

    keep_alive = True  # whether another request may follow on the connection

    def force_close(self) -> None:
        """Close the connection after this response."""
        self.keep_alive = False


class PlainResponse(DirectResponse):
    """A response 200 over HTTP/1.1 whose head is written from a dict, at a fifth of the cost of aiohttp's."""

    _writer: AbstractStreamWriter | None = None
    _is_over = False

    def __init__(self, fields: dict[str, str], body: bytes | None) -> None:
        """``fields``: headers, besides those of every answer. ``body``: the whole body; None for a stream."""
        self._fields, self._whole = fields, body

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Render the head, which is sent with the first bytes of the body."""
        if self._writer is not None:
            return self._writer
        writer, fields = request.writer, self._fields
        self._writer = writer
        fields[headers.SERVER_FIELD] = headers.SERVER
        fields[_DATE] = headers.date()
        if self._whole is None:
            writer.enable_chunking()
            fields[_ENCODING] = "chunked"
        else:
            fields[_LENGTH] = str(len(self._whole))
        await writer.write_headers("HTTP/1.1 200 OK", fields)  # type: ignore[arg-type] # any mapping will do
        self._fields = {}
        return writer

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send a part of a stream."""
        assert self._writer is not None
        await self._writer.write(data)

    async def write_eof(self, data: bytes = b"") -> None:
        """Send the body, or the last part of a stream."""
        if self._is_over:
            return
        assert self._writer is not None
        await self._writer.write_eof(data if self._whole is None else self._whole)
        self._is_over = True


def past_the_router(
    aiohttps: Handler, answers: Mapping[str, Handler], around: Callable[[web.Request, Handler], Awaitable[Any]]
) -> Handler:
    """Return a handler that calls the handlers in ``answers``, by path, without aiohttp's router and middlewares.

    ``around`` is called in their place. Requests with a query or ``expect``, and to other paths, go to ``aiohttps``. So
    does the first request to each path, as later requests find their application by the route of the first.
    """
    matches: dict[str, UrlMappingMatchInfo] = {}

    async def handle(request: web.Request) -> web.StreamResponse:
        path = request.raw_path
        answer = answers.get(path) if request.method == METH_POST else None
        if answer is None or EXPECT in request.headers:
            return await aiohttps(request)
        if path not in matches:
            response = await aiohttps(request)
            matches[path] = request.match_info
            return response
        request._match_info = matches[path]
        return await around(request, answer)  # type: ignore[no-any-return]

    return handle
