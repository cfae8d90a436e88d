"""The end of connections: each once nobody needs it any more, and none in the middle of an answer."""

import asyncio
from contextlib import suppress

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from gateway.connections.connection import Connection

QUIET_S = 1.0  # a connection that was made or answered within this may have its next request on the way
CUT_LIMIT_S = 5.0  # cancelled calls write their records in far less
_LOOK_S = 0.02


async def drain(server: web.Server, *, grace_s: float, quiet_s: float) -> None:
    """Wait until no connection is left, at most ``grace_s`` seconds; close those that are idle.

    Nobody can connect any more. A request that comes by a connection which is still there is answered, and its answer
    says that it is the last. A connection is closed when nothing came by it for ``quiet_s`` seconds: HTTP/1.1 has no
    way to announce a close between two answers, so a request may always cross it; the longer it was idle, the less.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + grace_s
    await asyncio.sleep(0)  # what has arrived by now is read before anybody is called idle
    await asyncio.sleep(0)
    while connections := server.connections:
        now = loop.time()
        for connection in connections:
            if _is_idle(connection) and now - _quiet_since(connection) >= quiet_s:
                connection.force_close()
        if now >= end:
            return
        await asyncio.sleep(min(_LOOK_S, end - now))


async def cut(server: web.Server) -> None:
    """Cancel what is still under way, and wait for its end; drop what clients have not read."""
    connections = server.connections
    tasks = [task for connection in connections if (task := connection._task_handler) is not None]  # noqa: SLF001 - aiohttp has no public way
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CUT_LIMIT_S)
    for connection in connections:
        if isinstance(connection.transport, asyncio.WriteTransport):
            with suppress(RuntimeError):  # closed since
                connection.transport.abort()


def _is_idle(connection: RequestHandler) -> bool:
    """Tell whether nothing of a request is there: begun, read, answered, or being flushed to a slow client."""
    return isinstance(connection, Connection) and connection.is_idle and not connection.head_bytes


def _quiet_since(connection: RequestHandler) -> float:
    """Return when it was made, or its last request answered, in the loop's seconds."""
    return connection._next_keepalive_close_time - connection.keepalive_timeout  # noqa: SLF001 - set at either
