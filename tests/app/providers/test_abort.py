"""A loser is aborted, not closed, by the origin's own word: over TCP and TLS, before headers and mid-stream."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from providers import HttpUpstream, Request, Server
from providers.dialects import DIALECTS, Dialect
from providers.http import Connecting, TlsContexts
from tests.app.providers.origin import LAST_CHUNK, STREAM_HEAD, Connection, Origin, chunked, soon, tls_pair

TOKEN = chunked(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
REQUEST = Request(model="m", fields={})

loops = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
schemes = pytest.mark.parametrize("over_tls", [False, True], ids=["http", "https"])
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@asynccontextmanager
async def racing(*, over_tls: bool) -> AsyncIterator[tuple[Origin, HttpUpstream]]:
    server_context, authority = tls_pair() if over_tls else (None, b"")

    def client_context() -> ssl.SSLContext:
        return ssl.create_default_context(cadata=authority.decode())

    async with Origin(server_context).serving() as origin:
        connecting = Connecting(tls=TlsContexts(client_context))
        upstream = HttpUpstream(Server(provider="origin", base_url=origin.base_url), "sk-test", connecting=connecting)
        try:
            yield origin, upstream
        finally:
            await upstream.aclose()


async def cancelled_before_headers(origin: Origin, upstream: HttpUpstream, request: Request) -> Connection:
    attempt = asyncio.create_task(upstream.stream(request))
    connection, _ = await origin.request()
    attempt.cancel()
    await asyncio.wait([attempt])
    return connection


async def aborted_mid_stream(origin: Origin, upstream: HttpUpstream, request: Request) -> Connection:
    attempt = asyncio.create_task(upstream.stream(request))
    connection, _ = await origin.request()
    connection.send(STREAM_HEAD + TOKEN)
    exchange = await soon(attempt)
    assert await soon(exchange.read())
    exchange.abort()
    exchange.abort()
    return connection


async def cancelled_while_reading(origin: Origin, upstream: HttpUpstream, request: Request) -> Connection:
    attempt = asyncio.create_task(upstream.stream(request))
    connection, _ = await origin.request()
    connection.send(STREAM_HEAD + TOKEN)
    exchange = await soon(attempt)
    assert await soon(exchange.read())
    reading = asyncio.create_task(exchange.read())
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    return connection


cuts = pytest.mark.parametrize("cut", [cancelled_before_headers, aborted_mid_stream, cancelled_while_reading])


@loops
@schemes
@cuts
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_the_origin_sees_a_cut_loser_go(
    loop_factory: LoopFactory, over_tls: bool, cut: Callable[..., object], dialect: Dialect
) -> None:
    async def scenario() -> None:
        async with racing(over_tls=over_tls) as (origin, upstream):
            request = Request(model="m", fields={}, dialect=dialect)
            connection = await cut(origin, upstream, request)  # type: ignore[misc]  # one of the coroutine functions above
            await soon(connection.lost.wait())

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


@schemes
async def test_a_stream_read_to_its_end_gives_its_connection_back(over_tls: bool) -> None:
    async with racing(over_tls=over_tls) as (origin, upstream):
        attempt = asyncio.create_task(upstream.stream(REQUEST))
        connection, _ = await origin.request()
        connection.send(STREAM_HEAD + TOKEN + LAST_CHUNK)
        exchange = await soon(attempt)
        assert exchange.connect_ms is not None
        while await soon(exchange.read()):
            pass
        exchange.abort()

        attempt = asyncio.create_task(upstream.stream(REQUEST))
        await soon(connection.requests.get())
        connection.send(STREAM_HEAD + TOKEN + LAST_CHUNK)
        exchange = await soon(attempt)
        assert exchange.connect_ms is None
        assert len(origin.accepted) == 1
        exchange.abort()
