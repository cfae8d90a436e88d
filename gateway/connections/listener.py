"""The listening socket, and the one aiohttp runner behind it."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from gateway.app import Gateway

BACKLOG = 4096  # a crowd that calls at once is not made to knock again; the kernel may cap it (somaxconn)
KEEPALIVE_S = 75.0  # longer than load balancers keep idle connections, so that they close first


@asynccontextmanager
async def listening(gateway: Gateway, sock: socket.socket, grace_s: float) -> AsyncIterator[None]:
    """Serve ``gateway`` on ``sock``; on leaving, let calls end within ``grace_s`` seconds.

    The one place where the runner is built: with ``handler_cancellation``, without which nobody would notice a client
    that hangs up, and its race would run on.
    """
    runner = web.AppRunner(
        gateway.application,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=KEEPALIVE_S,
        shutdown_timeout=grace_s / 2,  # aiohttp waits for it twice before it cancels
        handle_signals=False,
    )
    await runner.setup()
    try:
        await web.SockSite(runner, sock, backlog=BACKLOG).start()
        yield
    finally:
        gateway.context.draining = True
        await runner.cleanup()


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address: who connects from now on waits until it is served.

    It listens at once because two sockets may be bound to one address, and only the second one to listen is refused;
    uvloop would close that one without a word.

    Raises:
        OSError: the address is taken or not of this machine.

    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)  # noqa: FBT003 - its only argument
    return sock
