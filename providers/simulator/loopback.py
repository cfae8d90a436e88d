"""A real HTTP server on loopback for a simulated provider, which notices at once when a client hangs up."""

import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from providers.simulator.counts import Tally

HOST = "127.0.0.1"
_MAX_BODY_BYTES = 256 * 1024 * 1024  # clients may send long prompts and images


@asynccontextmanager
async def serve(
    routes: Iterable[web.RouteDef], tally: Tally, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serve ``routes`` on loopback and yield the base URL for clients, ``http://127.0.0.1:PORT/v1``.

    ``port`` 0 takes a free one. ``GET /_stats`` shows the tally's counts. Running answers are cancelled when the block
    ends.

    Raises:
        OSError: the port is taken.

    """

    async def stats(_: web.Request) -> web.Response:
        return json_response(tally.counts)

    app = web.Application(client_max_size=_MAX_BODY_BYTES)
    app.add_routes([*routes, web.get("/_stats", stats)])
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port, ssl_context=tls)
        await site.start()
        address = runner.addresses[0]
        yield f"{'https' if tls else 'http'}://{HOST}:{address[1]}/v1"
    finally:
        await tally.close()
        await runner.cleanup()


def json_response(
    body: Mapping[str, Any] | list[Any] | msgspec.Struct | bytes,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return ``body`` as JSON; bytes are sent unchanged. ``headers`` may set another content type."""
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return web.Response(body=raw, status=status, headers={"content-type": "application/json", **(headers or {})})
