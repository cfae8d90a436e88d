"""Closes connections at shutdown: each when it is no longer needed, none during an answer."""

import asyncio
from contextlib import suppress

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from gateway.connections.connection import Connection

QUIET_S = 1.0  # a connection that was opened or answered more recently may have its next request on the way
CUT_LIMIT_S = 5.0  # cancelled calls need much less to write their records
_LOOK_S = 0.02


async def drain(server: web.Server, *, grace_s: float, quiet_s: float) -> None:
    """Wait until all connections are closed, at most ``grace_s`` seconds; close idle ones.

    New connections are not accepted any more. A request on an open connection is still answered, with ``connection:
    close``. A connection is closed after ``quiet_s`` seconds without data: HTTP/1.1 cannot announce a close between two
    answers, so a request may arrive just then; the longer it was idle, the less likely.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + grace_s
    await asyncio.sleep(0)  # data that has arrived is read before a connection counts as idle
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
    """Cancel running requests and await their end; drop data that clients have not read."""
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
    """Whether no part of a request is left: received, handled, answered, or being sent to a slow client."""
    return isinstance(connection, Connection) and connection.is_idle and not connection.head_bytes


def _quiet_since(connection: RequestHandler) -> float:
    """Return when it was opened, or its last request answered, in seconds of the loop's clock."""
    return connection._next_keepalive_close_time - connection.keepalive_timeout  # noqa: SLF001 - set at either time
