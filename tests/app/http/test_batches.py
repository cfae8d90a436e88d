"""Answers that rest between reads, from servers that close behind them, on both event loops, with TLS and without."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop
from yarl import URL

from providers.http import Batches, Connecting, HttpClient, HttpRequest, Response, TlsContexts
from providers.http.message import BUFFERED_BYTES
from providers.refusals import UpstreamError
from tests.app.http.conftest import Trust
from tests.app.providers.origin import LAST_CHUNK, Connection, Origin, chunked
from tests.patience import PATIENCE_S, until

CHUNKS, TO_THE_END = (b"transfer-encoding: chunked\r\n", b"")
TOKENS = [b"<%d>" % number for number in range(60)]


@asynccontextmanager
async def asked(
    trust: Trust | None, batches: Batches, framing: bytes = CHUNKS
) -> AsyncIterator[tuple[Connection, Response]]:
    """Yield a connection on which an answer was begun, as the server and as its client has it."""
    async with Origin(None if trust is None else trust.server).serving() as origin:
        tls = None if trust is None else TlsContexts(trust.client)
        client = HttpClient(
            URL(origin.base_url), headers={}, connecting=Connecting(versions="1.1", tls=tls, batches=batches)
        )
        sending = asyncio.create_task(client.send(HttpRequest(client.head("POST", "/", {}), (), b"{}"), PATIENCE_S))
        connection, _ = await origin.request()
        connection.send(b"HTTP/1.1 200 OK\r\n%bconnection: close\r\n\r\n" % framing)
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield connection, await sending
        finally:
            await client.aclose()


@pytest.mark.parametrize("framing", [CHUNKS, TO_THE_END])
@pytest.mark.parametrize("over_tls", [False, True])
async def test_nothing_is_lost_where_the_server_closes_while_an_answer_rests(
    trust: Trust, framing: bytes, *, over_tls: bool
) -> None:
    said, batches = list[bytes](), Batches()
    batches.rest_s = 0.2

    def listener(data: bytes) -> bool:
        said.append(data)
        return True

    async with asked(trust if over_tls else None, batches, framing) as (connection, response):
        response.listener = listener
        reading = asyncio.create_task(response.read())
        await asyncio.sleep(0)  # until it waits
        left = [chunked(token) if framing else token for token in TOKENS]
        while not batches._resting:  # the second token's read, at the latest
            connection.send(left.pop(0))
            await until(lambda: batches._resting or len(said) + len(left) == len(TOKENS))
        connection.send(b"".join(left) + (LAST_CHUNK if framing else b""))
        connection.bid_farewell()
        while data := await reading:
            said.append(data)
            reading = asyncio.create_task(response.read())
    assert b"".join(said) == b"".join(TOKENS)


@pytest.mark.parametrize("over_tls", [False, True])
async def test_an_answer_is_never_cut_in_silence_where_its_reader_is_behind(trust: Trust, *, over_tls: bool) -> None:
    if over_tls and not isinstance(asyncio.get_running_loop(), uvloop.Loop):
        pytest.skip("asyncio's own TLS drops what waits, and then goes on as if that was all: nothing tells")
    whole, size = 4 * BUFFERED_BYTES, 0
    async with asked(trust if over_tls else None, Batches(), TO_THE_END) as (connection, response):
        connection.send(b"x" * whole)
        await until(lambda: response.buffered > BUFFERED_BYTES)
        connection.bid_farewell()
        if over_tls:
            await until(lambda: response.ended)
        try:
            while data := await response.read():
                size += len(data)
        except UpstreamError:
            assert over_tls  # uvloop drops what is not read yet when TLS ends
        else:
            assert size == whole
