"""Serving on a socket: who accepts on it, the one aiohttp runner behind, and its end."""

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

_NOTHING_LEFT_S = 0.1  # for aiohttp to wait for connections, of which it finds none
KEEPALIVE_S = 75.0  # longer than load balancers keep idle connections, so that they close first


@asynccontextmanager
async def listening(
    gateway: Gateway, sock: socket.socket, grace_s: float, ssl_context: ssl.SSLContext | None = None
) -> AsyncIterator[Connections]:
    """Serve ``gateway`` on ``sock``, which listens, and yield its connections; over TLS where there is a context.

    On leaving, listen no more, and let calls end within ``grace_s`` seconds.
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
    """Yield the connections of ``gateway``, which serve whatever they are given to ``take``.

    On leaving, which is to be when nothing more is given, let calls end within ``grace_s`` seconds.

    The one place where the runner is built: with ``handler_cancellation``, without which nobody would notice a client
    that hangs up, and its race would run on. It has no site: what is accepted, and how, is ours to say.
    """
    runner = web.AppRunner(
        gateway.application, handler_cancellation=True, shutdown_timeout=_NOTHING_LEFT_S, handle_signals=False
    )
    await runner.setup()
    assert runner.server is not None
    connections = Connections(
        gateway,
        runner.server,
        most=descriptor_budget(),
        access_log=None,
        auto_decompress=False,  # it would inflate whatever anybody sends, on the loop: ours does, after admission
        lingering_time=0,  # likewise: what is left of a body is drained within bounds of ours
        keepalive_timeout=KEEPALIVE_S,
    )
    try:
        yield connections
    finally:
        # Those who had no time to see that this gateway is about to stop may have a request on the way.
        quiet_s = QUIET_S if gateway.context.phase is Phase.LAME_DUCK else 0.0
        gateway.context.phase = Phase.DRAINING
        await connections.opened()
        await drain(runner.server, grace_s=grace_s, quiet_s=quiet_s)
        gateway.context.phase = Phase.CUTTING
        await cut(runner.server)
        connections.close()
        await runner.cleanup()
