"""Names, addresses of both families, and clocks: which of them is connected to, and what is said when none can be."""

import asyncio
import socket
import threading
from contextlib import AsyncExitStack
from typing import Any

import pytest

from providers.http import addresses, dialing
from providers.refusals import ErrorKind, UpstreamError
from tests.app.http.callers import Own, read_whole
from tests.app.http.conftest import Trust
from tests.app.http.dialled import answered, calling, refused, resolving, silent_port
from tests.app.http.http1_line import Http1Line
from tests.app.http.lines import Server
from tests.app.providers.origin import soon
from tests.patience import PATIENCE_S, until
from tests.support.servers import free_port


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_origin_may_be_an_address(host: str) -> None:
    async with Server(Http1Line).listening(host) as server:
        authority = f"[{host}]:{server.port}" if ":" in host else f"{host}:{server.port}"
        async with calling(f"http://{authority}") as caller:
            call = asyncio.create_task(caller.send("POST", "/", b"{}"))
            exchange = await server.exchange()
            assert exchange.field(b"host") == authority.encode()
            await exchange.answer(b"ok")
            assert await soon(read_whole(await soon(call))) == b"ok"


async def test_a_refused_port_is_an_error_that_names_it() -> None:
    port = free_port()
    async with calling(f"http://127.0.0.1:{port}") as caller:
        assert f"no connection to 127.0.0.1:{port}" in await refused(caller)


async def test_every_call_hears_of_a_refused_port() -> None:
    async with calling(f"http://127.0.0.1:{free_port()}") as caller:
        said = await soon(asyncio.gather(*(refused(caller) for _ in range(20))))
        assert len(said) == 20


async def test_a_name_that_does_not_resolve_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    async with calling("http://nobody.example") as caller:
        assert await refused(caller) == "the name nobody.example does not resolve"


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..example", ".example"])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_name_that_cannot_be_one_is_an_error(scheme: str, host: str) -> None:
    async with calling(f"{scheme}://{host}") as caller:
        assert host in await refused(caller)


async def test_names_are_looked_up_anew_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server(Http1Line).listening() as server:
        asked = resolving(monkeypatch, [("127.0.0.1", free_port())], [("127.0.0.1", server.port)])
        async with calling("http://moved.example") as caller:
            await refused(caller)
            await answered(server, caller)
    assert asked == ["moved.example"] * 2


async def test_names_are_not_looked_up_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server(Http1Line).listening() as server:
        asked = resolving(monkeypatch, [("127.0.0.1", server.port)])
        async with calling("http://steady.example") as caller:
            for _ in range(3):
                await answered(server, caller)
                server.lines[-1].close()
                await soon(server.lines[-1].lost.wait())
    assert len(server.lines) == 3
    assert asked == ["steady.example"]


async def test_a_dead_address_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server(Http1Line).listening() as server:
        resolving(monkeypatch, [("::1", free_port(), 0, 0), ("127.0.0.1", server.port)])
        async with calling("http://two.example") as caller:
            await answered(server, caller)


async def test_an_address_that_says_nothing_is_passed_over(monkeypatch: pytest.MonkeyPatch, trust: Trust) -> None:
    monkeypatch.setattr(dialing, "NEXT_ADDRESS_S", 0.01)
    trust.server.set_alpn_protocols(["http/1.1"])
    with silent_port() as port:
        async with Server(Http1Line, trust.server).listening() as server:
            resolving(monkeypatch, [("127.0.0.1", port), ("127.0.0.1", server.port)])
            async with calling("https://localhost", trust) as caller:
                await answered(server, caller)


async def test_no_address_that_answers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, [("::1", free_port(), 0, 0), ("127.0.0.1", free_port())])
    async with calling("http://two.example") as caller:
        assert "no connection to two.example" in await refused(caller)


@pytest.mark.parametrize("addresses", [1, 2])
async def test_an_address_that_never_answers_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch, addresses: int
) -> None:
    with silent_port() as port:
        resolving(monkeypatch, [("127.0.0.1", port)] * addresses)
        async with calling("http://silent.example", connect_timeout_s=0.05) as caller:
            assert "connect_timeout_s" in await refused(caller, ErrorKind.CONNECT_TIMEOUT)


async def test_a_name_server_that_never_answers_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    resolving(monkeypatch, answers)
    async with calling("http://slow.example", connect_timeout_s=0.05) as caller:
        await refused(caller, ErrorKind.CONNECT_TIMEOUT)
    answers.set()


async def test_names_that_hang_hold_up_no_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ends, real = threading.Event(), socket.getaddrinfo

    def getaddrinfo(host: str, *options: Any, **named: Any) -> Any:
        if host.startswith("hung-") and not named.get("flags", 0) & socket.AI_NUMERICHOST:
            ends.wait(PATIENCE_S)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real(host if host != "good.example" else "127.0.0.1", *options, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    async with Server(Http1Line).listening() as server, AsyncExitStack() as stack:
        stack.callback(ends.set)
        for number in range(40):
            hung = await stack.enter_async_context(calling(f"http://hung-{number}.example"))
            calls = [asyncio.create_task(hung.send("POST", "/", b"{}")) for _ in range(3)]
            for call in calls:
                stack.push_async_callback(asyncio.wait, [call])
                stack.callback(call.cancel)
        async with calling(f"http://good.example:{server.port}", connect_timeout_s=PATIENCE_S) as caller:
            await answered(server, caller)


async def test_calls_that_wait_for_one_name_share_its_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "SHARED_S", PATIENCE_S)
    answers = threading.Event()
    asked = resolving(monkeypatch, answers)
    async with calling("http://slow.example") as caller:
        for _ in range(2):  # who gave up does not end the lookup
            hasty = Own(caller.client, 0.02)
            await refused(hasty, ErrorKind.CONNECT_TIMEOUT)
        calls = [asyncio.create_task(refused(caller)) for _ in range(20)]
        for _ in range(10):
            await asyncio.sleep(0)
        await until(lambda: asked)  # in a thread
        assert asked == ["slow.example"]
        answers.set()
        assert set(await soon(asyncio.gather(*calls))) == {"the name slow.example does not resolve"}


async def test_another_lookup_is_begun_beside_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "SHARED_S", 0.0)
    asked, begun, ends, real = list[str](), threading.Event(), threading.Event(), socket.getaddrinfo

    def getaddrinfo(host: str, *options: Any, **named: Any) -> Any:
        if host == "lost.example" and not named.get("flags", 0) & socket.AI_NUMERICHOST:
            asked.append(host)
            if len(asked) == 1:
                begun.set()
                ends.wait(PATIENCE_S)
            host = "127.0.0.1"
        return real(host, *options, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    async with (
        Server(Http1Line).listening() as server,
        calling(f"http://lost.example:{server.port}", connect_timeout_s=PATIENCE_S) as caller,
    ):
        calls = [asyncio.create_task(caller.send("POST", "/", b"{}"))]
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        calls.append(asyncio.create_task(caller.send("POST", "/", b"{}")))
        await (await server.exchange()).answer(b"ok")
        answer = await soon(calls[0])  # who waits longest has the first connection
        assert await soon(read_whole(answer)) == b"ok"
        ends.set()
        await (await server.exchange()).answer(b"ok")
        await soon(calls[1])
    assert asked == ["lost.example"] * 2


@pytest.mark.parametrize("addresses", [1, 2])
async def test_a_handshake_that_does_not_go_on_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch, trust: Trust, addresses: int
) -> None:
    async with Server(Http1Line).listening() as server:
        resolving(monkeypatch, [("127.0.0.1", server.port)] * addresses)
        async with calling("https://localhost", trust, connect_timeout_s=0.05) as caller:
            await refused(caller, ErrorKind.CONNECT_TIMEOUT)
        for line in server.lines:  # none, if it was given up before the server had accepted it
            await soon(line.lost.wait())


@pytest.mark.parametrize("addresses", [1, 2])
async def test_closing_the_client_ends_a_handshake(
    monkeypatch: pytest.MonkeyPatch, trust: Trust, addresses: int
) -> None:
    async with Server(Http1Line).listening() as server:
        resolving(monkeypatch, [("127.0.0.1", server.port)] * addresses)
        async with calling("https://localhost", trust) as caller:
            call = asyncio.create_task(caller.send("POST", "/", b"{}"))
            line = await soon(server.line())
            await soon(caller.aclose())
            with pytest.raises(UpstreamError):
                await soon(call)
            await soon(line.lost.wait())


async def test_a_call_waits_no_longer_than_its_own_clock_says() -> None:
    with silent_port() as port:
        async with calling(f"http://127.0.0.1:{port}") as caller:
            patient = asyncio.create_task(caller.send("POST", "/", b"{}"))
            await asyncio.sleep(0)
            hasty = Own(caller.client, 0.02)
            await refused(hasty, ErrorKind.CONNECT_TIMEOUT)
            assert not patient.done()
            patient.cancel()
            await asyncio.wait([patient])
