"""Serves a gateway on a socket: the acceptor, the one aiohttp runner, and their shutdown."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from gateway.app import Gateway
from gateway.connections.acceptor import Acceptor
from gateway.connections.connections import Connections
from gateway.connections.descriptors import descriptor_budget
from gateway.connections.draining import QUIET_S, cut, drain
from gateway.ingress.phase import Phase

_NOTHING_LEFT_S = 0.1  # for aiohttp to wait for connections; there are none left
KEEPALIVE_S = 75.0  # longer than load balancers keep idle connections, so that they close first


@asynccontextmanager
async def listening(
    gateway: Gateway, sock: socket.socket, grace_s: float, ssl_context: ssl.SSLContext | None = None
) -> AsyncIterator[Connections]:
    """Serve ``gateway`` on the listening ``sock``, with TLS if there is a context; yield its connections.

    On exit, close the socket, and let calls end within ``grace_s`` seconds.
    """
    async with serving(gateway, grace_s) as connections:
        connections.ssl_context = ssl_context
        acceptor = Acceptor(sock, connections.take, on_exhausted=connections.exhausted)
        acceptor.start()
        try:
            yield connections
        finally:
            acceptor.stop()


@asynccontextmanager
async def serving(gateway: Gateway, grace_s: float) -> AsyncIterator[Connections]:
    """Yield the connections of ``gateway``, which serve the sockets passed to ``take``.

    On exit (when no more sockets are passed), let calls end within ``grace_s`` seconds.

    The only place that builds the runner: with ``handler_cancellation``, as otherwise the race of a client that
    disconnects would go on. It has no site, as we accept connections ourselves.
    """
    runner = web.AppRunner(
        gateway.application, handler_cancellation=True, shutdown_timeout=_NOTHING_LEFT_S, handle_signals=False
    )
    await runner.setup()
    assert runner.server is not None
    most = descriptor_budget()
    gateway.context.intake.cap_default(most)
    connections = Connections(
        gateway,
        runner.server,
        most=most,
        access_log=None,
        auto_decompress=False,  # it would inflate bodies on the event loop before admission; we inflate after it
        lingering_time=0,  # the rest of a body is drained with our own limits
        keepalive_timeout=KEEPALIVE_S,
    )
    try:
        yield connections
    finally:
        # Clients that could not yet see that this gateway is stopping may have a request on the way.
        quiet_s = QUIET_S if gateway.context.phase is Phase.LAME_DUCK else 0.0
        gateway.context.phase = Phase.DRAINING
        gateway.context.wrong_keys.release()
        gateway.context.live.end()
        await connections.opened()
        await drain(runner.server, grace_s=grace_s, quiet_s=quiet_s)
        gateway.context.phase = Phase.CUTTING
        await cut(runner.server)
        connections.close()
        await runner.cleanup()
