"""What TLS vouches for and negotiates, and what is said when it does not."""

import asyncio
import ssl

import pytest
import trustme

from providers.http import Versions
from providers.http.message import HTTP2_STREAMS
from providers.refusals import ErrorKind, UpstreamError
from tests.app.http.callers import read_whole
from tests.app.http.conftest import Trust
from tests.app.http.dialled import answered, calling, refused
from tests.app.http.http1_line import Http1Line
from tests.app.http.http2_line import Http2Line
from tests.app.http.lines import Line, Server
from tests.app.providers.origin import soon


@pytest.mark.parametrize(
    ("offered", "versions", "spoken"),
    [
        (["h2", "http/1.1"], "auto", "2"),
        (["h2"], "auto", "2"),
        (["http/1.1"], "auto", "1.1"),
        (["h2", "http/1.1"], "1.1", "1.1"),
        (["h2", "http/1.1"], "2", "2"),
    ],
)
async def test_tls_says_which_protocol_is_spoken(
    trust: Trust, offered: list[str], versions: Versions, spoken: str
) -> None:
    trust.server.set_alpn_protocols(offered)
    kind: type[Line] = Http2Line if spoken == "2" else Http1Line
    async with (
        Server(kind, trust.server).listening() as server,
        calling(server.origin, trust, versions=versions) as caller,
    ):
        first = await answered(server, caller)
        assert first.connect_ms is not None
        assert first.connect_ms > 0
        assert (await answered(server, caller)).connect_ms is None


async def test_plain_http_is_spoken_in_http_1(trust: Trust) -> None:
    async with Server(Http1Line).listening() as server, calling(server.origin) as caller:
        await answered(server, caller)


async def test_http_2_is_not_spoken_to_who_did_not_agree(trust: Trust) -> None:
    trust.server.set_alpn_protocols(["http/1.1"])
    async with (
        Server(Http1Line, trust.server).listening() as server,
        calling(server.origin, trust, versions="2") as caller,
    ):
        assert "HTTP/2" in await refused(caller)
        assert server.arrivals.empty()


class Either(Line):
    """Speaks what its client begins with."""

    inner: Line | None = None

    def heard(self, data: bytes) -> None:
        if self.inner is None:
            kind = Http2Line if data.startswith(b"PRI") else Http1Line
            self.inner = kind(self._server, None)
            self.inner.send = self.send  # type: ignore[method-assign]  # it has no socket of its own
        self.inner.heard(data)

    def begin(self, *_: object) -> None:
        raise NotImplementedError

    async def say(self, *_: object) -> None:
        raise NotImplementedError

    def end(self, *_: object) -> None:
        raise NotImplementedError


async def test_a_large_body_goes_over_http_1_when_http_2_would_hold_it_up(trust: Trust) -> None:
    trust.server.set_alpn_protocols(["h2", "http/1.1"])
    async with Server(Either, trust.server).listening() as server, calling(server.origin, trust) as caller:
        await answered(server, caller)
        call = asyncio.create_task(caller.send("POST", "/", bytes(1_000_000)))
        exchange = await server.exchange()
        assert isinstance(exchange.line, Http1Line)
        await exchange.answer(b"large")
        assert await soon(read_whole(await soon(call))) == b"large"
        call = asyncio.create_task(caller.send("POST", "/", bytes(400_000)))
        exchange = await server.exchange()
        assert isinstance(exchange.line, Http2Line)
        await exchange.answer(b"smaller")
        assert await soon(read_whole(await soon(call))) == b"smaller"


async def test_a_small_body_goes_over_http_2_though_every_connection_is_full(trust: Trust) -> None:
    trust.server.set_alpn_protocols(["h2", "http/1.1"])
    async with Server(Either, trust.server).listening() as server, calling(server.origin, trust) as caller:
        await answered(server, caller)
        calls, exchanges = [], []
        for _ in range(3 * HTTP2_STREAMS):  # one after the other, so that connections are full and others made
            calls.append(asyncio.create_task(caller.send("POST", "/", b"{}")))
            exchanges.append(await server.exchange())
        assert {type(exchange.line) for exchange in exchanges} == {Http2Line}
        for exchange in exchanges:
            await exchange.answer(b"ok")
        for call in calls:
            assert await soon(read_whole(await soon(call))) == b"ok"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_address_may_have_a_certificate(host: str) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(host).configure_cert(context)
    async with Server(Http1Line, context).listening(host) as server:
        origin = f"https://[{host}]:{server.port}" if ":" in host else f"https://{host}:{server.port}"
        async with calling(origin, Trust(context, authority.cert_pem.bytes())) as caller:
            await answered(server, caller)


async def test_a_certificate_nobody_vouches_for_is_refused(trust: Trust) -> None:
    stranger = Trust(trust.server, trustme.CA().cert_pem.bytes())
    async with Server(Http1Line, trust.server).listening() as server, calling(server.origin, stranger) as caller:
        assert "SSL_CERT_FILE" in await refused(caller)
        await soon(server.lines[0].lost.wait())
        assert server.arrivals.empty()


async def test_a_certificate_for_another_name_is_refused(trust: Trust) -> None:
    async with Server(Http1Line, trust.server).listening() as server:
        async with calling(f"https://127.0.0.1:{server.port}", trust) as caller:
            assert "certificate is not trusted" in await refused(caller)
        assert server.arrivals.empty()


async def test_a_server_that_does_not_speak_tls_is_an_error(trust: Trust) -> None:
    plain = Server(Http1Line)
    async with plain.listening(), calling(f"https://localhost:{plain.port}", trust) as caller:
        call = asyncio.create_task(refused(caller))
        line = await soon(plain.line())
        line.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        assert f"no connection to localhost:{plain.port}" in await soon(call)


async def test_a_server_that_wants_a_certificate_of_ours_is_an_error() -> None:
    # In TLS 1.3 the server says so after the client has finished: the connection seems to be made.
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("nobody should get here")

    server = await asyncio.get_running_loop().create_server(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), serve), "127.0.0.1", 0, ssl=context
    )
    port = server.sockets[0].getsockname()[1]
    trust = Trust(context, authority.cert_pem.bytes())
    async with calling(f"https://localhost:{port}", trust) as caller:
        with pytest.raises(UpstreamError) as caught:
            await soon(caller.send("POST", "/", b"{}"))
        assert caught.value.kind in {ErrorKind.CONNECT_ERROR, ErrorKind.DISCONNECTED}
    server.close()
    await soon(server.wait_closed())


@pytest.mark.parametrize("over_tls", [False, True], ids=["http", "https"])
async def test_a_server_that_hangs_up_at_once_is_an_error_at_once(trust: Trust, over_tls: bool) -> None:
    class Slammed(Http1Line):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.close()

    async with Server(Slammed).listening() as server:
        origin = f"{'https' if over_tls else 'http'}://localhost:{server.port}"
        async with calling(origin, trust) as caller:
            with pytest.raises(UpstreamError) as caught:
                await soon(caller.send("POST", "/", b"{}"))
            assert caught.value.kind in {ErrorKind.CONNECT_ERROR, ErrorKind.DISCONNECTED}
        assert len(server.lines) == 1
