"""Which TLS sessions are resumed, as the server sees it."""

import asyncio
import ssl

import trustme
from yarl import URL

from providers.http import Connecting, HttpClient, TlsContexts
from tests.app.http.callers import Own
from tests.app.http.conftest import Trust
from tests.app.http.dialled import answered, calling
from tests.app.http.http1_line import Http1Line
from tests.app.http.lines import Server
from tests.app.providers.origin import soon


def resumed(server: Server) -> list[bool]:
    """Say of each connection, in the order in which they were made, whether it has resumed a session."""
    sessions = [line._tls for line in server.lines]
    return [tls is not None and bool(tls.session_reused) for tls in sessions]


def trusted(*names: str) -> Trust:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names).configure_cert(context)
    return Trust(context, authority.cert_pem.bytes())


async def lost(server: Server, caller: Own) -> None:
    """Lose a race: its connection is dropped."""
    call = asyncio.create_task(caller.send("POST", "/", b"{}"))
    exchange = await server.exchange()
    call.cancel()
    await soon(asyncio.wait([call]))
    await soon(exchange.cut.wait())


async def test_what_replaces_a_lost_connection_resumes_its_session() -> None:
    trust = trusted("localhost")
    async with Server(Http1Line, trust.server).listening() as server, calling(server.origin, trust) as caller:
        await answered(server, caller)
        for _ in range(3):
            await lost(server, caller)
            await caller.ready()
        await answered(server, caller)
        assert len(server.lines) > 3
        assert resumed(server) == [False, *[True] * (len(server.lines) - 1)]


async def test_a_server_that_knows_no_sessions_gets_whole_handshakes() -> None:
    trust = trusted("localhost")
    trust.server.num_tickets = 0
    async with Server(Http1Line, trust.server).listening() as server, calling(server.origin, trust) as caller:
        await answered(server, caller)
        await lost(server, caller)
        await answered(server, caller)
        assert not any(resumed(server))


async def test_a_server_that_has_forgotten_a_session_gets_a_whole_handshake_and_the_next_one_is_resumed() -> None:
    authority = trustme.CA()
    before, after = (ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) for _ in range(2))
    for context in (before, after):
        authority.issue_cert("localhost").configure_cert(context)
    tls = TlsContexts(Trust(before, authority.cert_pem.bytes()).client)
    seen = []
    for context in (before, after, after):
        async with Server(Http1Line, context).listening() as server:
            caller = Own(HttpClient(URL(server.origin), headers={}, connecting=Connecting(tls=tls)))
            await answered(server, caller)
            seen += resumed(server)
            await soon(caller.aclose())
    assert seen == [False, False, True]


async def test_no_session_is_resumed_under_another_name() -> None:
    trust = trusted("localhost", "127.0.0.1")
    tls = TlsContexts(trust.client)
    async with Server(Http1Line, trust.server).listening() as server:
        for host in ("localhost", "127.0.0.1", "localhost"):
            caller = Own(HttpClient(URL(f"https://{host}:{server.port}"), headers={}, connecting=Connecting(tls=tls)))
            await answered(server, caller)
            await soon(caller.aclose())
        assert resumed(server) == [False, False, True]
