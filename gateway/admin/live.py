"""GET /api/live: races as they happen, as server-sent events."""

import asyncio
from contextlib import suppress
from functools import partial

from aiohttp import HttpVersion11, web
from aiohttp.hdrs import METH_HEAD

from gateway.admin.operations import OPERATIONS
from gateway.admin.queries import parse_query
from gateway.admin.visitors import admit_visitor
from gateway.core.errors import ApiError
from gateway.live import Viewer, Wanted

HEARTBEAT_S = 15.0  # between two comments, so that proxies keep an idle stream open
LAST_WORDS_S = 1.0  # for the end of a stream to go out
_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # else nginx would buffer the stream
}
_COMMENT = b":\n\n"


async def live(request: web.Request) -> web.StreamResponse:
    """Stream the events of the calls that the query selects, beginning with running ones."""
    client = admit_visitor(request)
    wanted = parse_query(request, Wanted)
    response = web.StreamResponse(headers=_HEADERS)
    if request.method == METH_HEAD:  # a body would be read as the next answer
        return response
    with request.app[OPERATIONS].live.watch(wanted, client.name) as viewer:
        viewer.on_end(lambda: _hang_up(request, only_if_blocked=True))
        with suppress(ConnectionError):  # the client has disconnected
            await response.prepare(request)
            await _stream(request, response, viewer)
    return response


async def _stream(request: web.Request, response: web.StreamResponse, viewer: Viewer) -> None:
    if request.version >= HttpVersion11:
        viewer.push_to(partial(_push, request))
    while (events := await viewer.take(HEARTBEAT_S)) is not None:
        try:
            admit_visitor(request)  # the viewer's key or session may have ended, or lost its role
        except ApiError:
            break
        await response.write(events or _COMMENT)
        if request.protocol.writing_paused:  # aiohttp would wait only before the next write
            await request.writer.drain()
    viewer.push_to(_keep)  # nothing may follow the end
    try:
        async with asyncio.timeout(LAST_WORDS_S):
            await response.write_eof()
    except TimeoutError:
        _hang_up(request)


def _push(request: web.Request, events: bytes) -> bool:
    """Send events at once, as a chunk of HTTP/1.1, unless the client is slow."""
    transport = request.transport
    if transport is None or transport.is_closing() or transport.get_write_buffer_size():
        return False
    transport.write(b"%x\r\n%b\r\n" % (len(events), events))
    return True


def _keep(_: bytes) -> bool:
    """Send nothing."""
    return False


def _hang_up(request: web.Request, *, only_if_blocked: bool = False) -> None:
    """Abort the connection of a client that does not read, so that no task waits for that client."""
    if request.transport is not None and (request.protocol.writing_paused or not only_if_blocked):
        request.transport.abort()
