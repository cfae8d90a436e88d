"""Proxies that the environment names: told the whole URL for http://, asked for a tunnel for https://."""

import asyncio
import base64
import socket
from contextlib import suppress

import pytest

from providers.http import Versions
from providers.refusals import ErrorKind, UpstreamError
from tests.app.http.callers import Own, read_whole
from tests.app.http.conftest import Trust
from tests.app.http.dialled import answered, calling, refused, resolving
from tests.app.http.http1_line import Http1Line
from tests.app.http.http2_line import Http2Line
from tests.app.http.lines import Exchange, Line, Server
from tests.app.http.tunnels import TunnelProxy
from tests.app.providers.origin import soon, tls_pair
from tests.patience import until
from tests.support.servers import free_port

CREDENTIALS = b"Basic " + base64.b64encode(b"user:p@ss:word")
VERSIONS: tuple[Versions, ...] = ("1.1", "2")

proxies = pytest.mark.parametrize("proxy_tls", [False, True], ids=["http-proxy", "https-proxy"])
protocols = pytest.mark.parametrize("versions", VERSIONS)


@pytest.fixture(scope="module")
def proxy_trust() -> Trust:
    """What a proxy that speaks TLS shows, which is not what the origin shows."""
    return Trust(*tls_pair())


def credentialed(url: str) -> str:
    return url.replace("://", "://user:p%40ss%3Aword@")


def spoken(trust: Trust, versions: Versions) -> type[Line]:
    """Have an origin speak ``versions``."""
    trust.server.set_alpn_protocols(["h2" if versions == "2" else "http/1.1"])
    return Http2Line if versions == "2" else Http1Line


async def sent(caller: Own, server: Server) -> tuple[asyncio.Task[bytes], Exchange]:
    async def call() -> bytes:
        return await read_whole(await caller.send("POST", "/v1/chat?a=b", b"{}"))

    task = asyncio.create_task(call())
    return task, await server.exchange()


@proxies
async def test_a_proxy_for_http_is_told_the_whole_url(
    monkeypatch: pytest.MonkeyPatch, trust: Trust, proxy_tls: bool
) -> None:
    spoken(trust, "1.1")
    async with Server(Http1Line, trust.server if proxy_tls else None).listening() as proxy:
        monkeypatch.setenv("HTTP_PROXY", credentialed(proxy.origin))
        async with calling("http://origin.example:8080", trust) as caller:
            for _ in range(2):
                call, exchange = await sent(caller, proxy)
                assert exchange.target == "http://origin.example:8080/v1/chat?a=b"
                assert exchange.field(b"host") == b"origin.example:8080"
                assert exchange.field(b"proxy-authorization") == CREDENTIALS
                await exchange.answer(b"ok")
                assert await soon(call) == b"ok"
        assert len(proxy.lines) == 1


@proxies
@protocols
async def test_a_proxy_for_https_is_asked_for_a_tunnel(
    monkeypatch: pytest.MonkeyPatch, trust: Trust, proxy_trust: Trust, proxy_tls: bool, versions: Versions
) -> None:
    both = Trust(trust.server, trust.authority + proxy_trust.authority)
    async with (
        Server(spoken(trust, versions), trust.server).listening() as server,
        TunnelProxy(server.port, tls=proxy_trust.server if proxy_tls else None).serving() as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", credentialed(proxy.url))
        async with calling(server.origin, both, versions=versions) as caller:
            assert (await answered(server, caller)).connect_ms is not None
            assert (await answered(server, caller)).connect_ms is None
            call, exchange = await sent(caller, server)
            assert exchange.target == "/v1/chat?a=b"
            assert exchange.field(b"proxy-authorization") is None
            await exchange.answer(bytes(1_000_000))
            assert await soon(call) == bytes(1_000_000)
    (head,) = proxy.heads
    target = f"localhost:{server.port}".encode()
    assert head.startswith(b"CONNECT " + target + b" HTTP/1.1\r\n")
    assert b"\r\nhost: " + target + b"\r\n" in head
    assert b"\r\nproxy-authorization: " + CREDENTIALS + b"\r\n" in head


@proxies
@protocols
async def test_a_loser_is_cut_through_a_tunnel(
    monkeypatch: pytest.MonkeyPatch, trust: Trust, proxy_trust: Trust, proxy_tls: bool, versions: Versions
) -> None:
    both = Trust(trust.server, trust.authority + proxy_trust.authority)
    async with (
        Server(spoken(trust, versions), trust.server).listening() as server,
        TunnelProxy(server.port, tls=proxy_trust.server if proxy_tls else None).serving() as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with calling(server.origin, both, versions=versions) as caller:
            call, exchange = await sent(caller, server)
            call.cancel()
            with suppress(asyncio.CancelledError):
                await soon(call)
            await soon(exchange.cut.wait())
            await caller.ready()
            assert (await answered(server, caller)).connect_ms is None
            expected = 1 if versions == "2" else 3  # the lost one, what replaced it, and a spare
            await until(lambda: len(proxy.heads) >= expected)
    assert len(proxy.heads) == expected


@pytest.mark.parametrize("listed", ["localhost", "example.com,localhost", "*"])
async def test_no_proxy_is_obeyed(monkeypatch: pytest.MonkeyPatch, listed: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("NO_PROXY", listed)
    async with Server(Http1Line).listening() as server, calling(server.origin) as caller:
        call, exchange = await sent(caller, server)
        assert exchange.target == "/v1/chat?a=b"
        await exchange.answer(b"ok")
        assert await soon(call) == b"ok"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\n\r\n",
            "407 Proxy Authentication",
        ),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\noops", "502 Bad Gateway"),
        (b"HTTP/1.1 302 Found\r\nlocation: http://elsewhere/\r\n\r\n", "302 Found"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 403 " + b"x" * 20_000, "too long"),
        (b"", "closing"),
        (b"HTTP/1.1 20", "closing"),
    ],
    ids=["407", "502", "302", "no-http", "too-long", "nothing", "half"],
)
async def test_a_proxy_that_refuses_is_an_error_in_its_words(
    monkeypatch: pytest.MonkeyPatch, trust: Trust, answer: bytes, words: str
) -> None:
    async with TunnelProxy(1, answer=answer, closing=True).serving() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", credentialed(proxy.url))
        async with calling("https://origin.example", trust) as caller:
            message = await refused(caller)
    assert "the proxy answered" in message
    assert words in message
    assert "p@ss" not in message
    assert "p%40ss" not in message


async def test_a_proxy_that_says_nothing_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch, trust: Trust) -> None:
    async with TunnelProxy(1, answer=b"").serving() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with calling("https://origin.example", trust, connect_timeout_s=0.05) as caller:
            await refused(caller, ErrorKind.CONNECT_TIMEOUT)


async def test_closing_the_client_ends_a_tunnel_in_the_making(monkeypatch: pytest.MonkeyPatch, trust: Trust) -> None:
    async with TunnelProxy(1, answer=b"").serving() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with calling("https://origin.example", trust) as caller:
            call = asyncio.create_task(caller.send("GET", "/"))
            await soon(proxy.asked.wait())
            await soon(caller.aclose())
            with pytest.raises(UpstreamError):
                await soon(call)


async def test_a_tunnel_whose_far_end_is_not_tls_is_an_error(monkeypatch: pytest.MonkeyPatch, trust: Trust) -> None:
    async with Server(Http1Line).listening() as server, TunnelProxy(server.port).serving() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with calling("https://localhost", trust) as caller:
            call = asyncio.create_task(refused(caller))
            (await soon(server.line())).send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            assert "through the proxy" in await soon(call)


async def test_the_certificate_behind_a_tunnel_is_checked(
    monkeypatch: pytest.MonkeyPatch, trust: Trust, proxy_trust: Trust
) -> None:
    async with Server(Http1Line, trust.server).listening() as server, TunnelProxy(server.port).serving() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with calling(server.origin, proxy_trust) as caller:
            assert "certificate is not trusted" in await refused(caller)
        assert server.arrivals.empty()


async def test_the_name_behind_a_tunnel_is_the_origins(monkeypatch: pytest.MonkeyPatch, trust: Trust) -> None:
    async with Server(Http1Line, trust.server).listening() as server, TunnelProxy(server.port).serving() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)  # which is called localhost, as the certificate is
        async with calling("https://origin.example", trust) as caller:
            assert "certificate is not trusted" in await refused(caller)
    assert proxy.heads[0].startswith(b"CONNECT origin.example:443 ")


async def test_the_certificate_of_a_proxy_is_checked(
    monkeypatch: pytest.MonkeyPatch, trust: Trust, proxy_trust: Trust
) -> None:
    async with TunnelProxy(1, tls=proxy_trust.server).serving() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with calling("https://localhost", trust) as caller:
            assert "certificate is not trusted" in await refused(caller)
    assert not proxy.heads


async def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("HTTP_PROXY", f"http://user:secret@127.0.0.1:{port}")
    async with calling("http://origin.example") as caller:
        message = await refused(caller)
    assert f"through the proxy 127.0.0.1:{port}" in message
    assert "secret" not in message


async def test_a_proxy_whose_name_does_not_resolve_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    async with calling("http://origin.example") as caller:
        assert await refused(caller) == "the name proxy.example does not resolve"
