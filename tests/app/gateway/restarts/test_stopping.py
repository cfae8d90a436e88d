"""A gateway that stops: it says so, answers what comes meanwhile, and ends each connection where no call is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gateway.api import GatewayPhase
from gateway.app import Gateway
from gateway.server.listener import bind, listening
from providers.simulator import Delta, Gate, Hang, RoleOnly, ScriptedProvider, answer
from tests.app.gateway.restarts.test_process import rows
from tests.app.gateway.running_gateway import Serve, chat_body, configuration, read
from tests.patience import PATIENCE_S

LIVE = b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


class Listening:
    """A gateway whose end a test begins: ``stop`` leaves the listener, ``left`` is set once it is done."""

    def __init__(self, gateway: Gateway, port: int) -> None:
        self.gateway = gateway
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.stop = asyncio.Event()
        self.left = asyncio.Event()

    async def in_phase(self, phase: GatewayPhase) -> None:
        while self.gateway.context.phase is not phase:  # noqa: ASYNC110 - nobody but this test waits for it
            await asyncio.sleep(0)


@asynccontextmanager
async def listening_gateway(
    folder: Path, provider: ScriptedProvider, *, grace_s: float = PATIENCE_S
) -> AsyncIterator[Listening]:
    gateway = Gateway(read(configuration(folder, {"alpha": provider.base_url}), folder))
    await gateway.start()
    sock = bind("127.0.0.1", 0)
    served = Listening(gateway, sock.getsockname()[1])
    started = asyncio.Event()

    async def serve() -> None:
        async with listening(gateway, sock, grace_s):
            started.set()
            await served.stop.wait()
        served.left.set()

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(serve())
        await started.wait()
        try:
            yield served
        finally:
            served.stop.set()
            await served.left.wait()
            await gateway.close()


async def head(reader: asyncio.StreamReader) -> bytes:
    return (await reader.readuntil(b"\r\n\r\n")).lower()


async def test_a_lame_duck_is_not_ready_lives_and_answers(serve: Serve) -> None:
    async with serve() as running:
        running.gateway.context.phase = GatewayPhase.LAME_DUCK
        async with running.get("/health/ready") as ready:
            assert (ready.status, (await ready.json())["status"]) == (503, "stopping")
        async with running.get("/health/live") as live:
            assert live.status == 200
        async with running.chat() as response:
            assert response.status == 200


@pytest.mark.parametrize("phase", [GatewayPhase.LAME_DUCK, GatewayPhase.DRAINING])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_every_answer_of_a_stopping_gateway_is_its_connections_last(
    serve: Serve, phase: GatewayPhase, stream: bool
) -> None:
    async with serve() as running:
        running.gateway.context.phase = phase
        for asked in (
            running.chat(stream=stream),
            running.post({"model": "llama", "input": "a"}, path="/v1/embeddings"),
            running.chat(model="unknown"),
            running.get("/nowhere"),
            running.get("/v1/models"),
        ):
            async with asked as response:
                await response.read()
                assert response.headers.getall("connection") == ["close"]


async def test_a_connection_stays_after_each_answer_while_the_gateway_serves(serve: Serve) -> None:
    async with serve() as running, running.chat() as response:
        assert "connection" not in response.headers


async def test_an_http_1_0_client_that_would_keep_its_connection_is_not_told_that_it_may(serve: Serve) -> None:
    async with serve() as running:
        running.gateway.context.phase = GatewayPhase.LAME_DUCK
        reader, writer = await asyncio.open_connection(*running.url.removeprefix("http://").split(":"))
        writer.write(LIVE.replace(b"1.1", b"1.0").replace(b"\r\n\r\n", b"\r\nconnection: keep-alive\r\n\r\n"))
        assert b"keep-alive" not in await reader.read()
        writer.close()


async def test_a_gateway_whose_grace_is_over_begins_nothing(serve: Serve) -> None:
    async with serve() as running:
        running.gateway.context.phase = GatewayPhase.CUTTING
        async with running.chat() as refused:
            assert (refused.status, (await refused.json())["error"]["code"]) == (503, "shutting_down")
        async with running.post({"model": "llama", "input": "a"}, path="/v1/embeddings") as refused:
            assert (refused.status, (await refused.json())["error"]["code"]) == (503, "shutting_down")


async def test_a_stream_under_way_ends_while_nobody_can_connect_any_more(folder: Path) -> None:
    go = asyncio.Event()
    script = [RoleOnly(), Delta("a"), Gate(go), *answer("b")[1:]]
    async with (
        ScriptedProvider(script) as provider,
        listening_gateway(folder, provider) as served,
        aiohttp.ClientSession(served.url) as http,
        http.post("/v1/chat/completions", json=chat_body(stream=True)) as response,
    ):
        await response.content.readuntil(b'"a"')
        served.stop.set()
        await served.in_phase(GatewayPhase.DRAINING)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", served.port)
        assert not served.left.is_set()
        go.set()
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
        await served.left.wait()


async def test_a_body_that_is_still_being_sent_arrives_and_is_answered(folder: Path) -> None:
    arriving, go = asyncio.Event(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b'{"model": "llama", "messages": [{"role": "user", "content": "a'
        arriving.set()
        await go.wait()
        yield b'"}]}'

    async with (
        ScriptedProvider() as provider,
        listening_gateway(folder, provider) as served,
        aiohttp.ClientSession(served.url) as http,
        asyncio.TaskGroup() as group,
    ):
        options = {"data": body(), "headers": {"content-type": "application/json"}}
        call = group.create_task(http.post("/v1/chat/completions", **options)._coro)  # type: ignore[arg-type]
        await arriving.wait()
        async with http.get("/health/live") as response:  # by then the handler of the other has begun
            await response.read()
        served.stop.set()
        await served.in_phase(GatewayPhase.DRAINING)
        go.set()
        response = await call
        assert (response.status, response.headers["connection"]) == (200, "close")
        await response.read()
        await served.left.wait()


async def test_an_idle_connection_is_closed(folder: Path) -> None:
    async with ScriptedProvider() as provider, listening_gateway(folder, provider) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(LIVE)
        await head(reader)
        served.stop.set()
        assert (await reader.read()).endswith(b"}")  # the rest of the answer, then the end
        await served.left.wait()
        writer.close()


async def test_a_connection_made_in_the_last_moment_of_a_lame_duck_gets_its_answer(folder: Path) -> None:
    async with ScriptedProvider() as provider, listening_gateway(folder, provider) as served:
        served.gateway.context.phase = GatewayPhase.LAME_DUCK
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        async with aiohttp.ClientSession(served.url) as http, http.get("/health/live"):
            pass  # whoever came before has been accepted, too
        served.stop.set()
        await served.in_phase(GatewayPhase.DRAINING)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(LIVE)
        answered = await head(reader)
        assert answered.startswith(b"http/1.1 200")
        assert b"connection: close" in answered
        writer.close()
        await served.left.wait()


async def test_a_request_whose_head_is_half_there_is_answered(folder: Path) -> None:
    async with ScriptedProvider() as provider, listening_gateway(folder, provider) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(LIVE[:20])
        async with aiohttp.ClientSession(served.url) as http, http.get("/health/live"):
            pass  # what came before has been read, too
        served.stop.set()
        await served.in_phase(GatewayPhase.DRAINING)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(LIVE[20:])
        assert (await head(reader)).startswith(b"http/1.1 200")
        writer.close()
        await served.left.wait()


async def test_what_arrived_before_the_port_closed_is_answered(folder: Path) -> None:
    async with ScriptedProvider() as provider, listening_gateway(folder, provider) as served:
        pairs = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(8)]
        for reader, writer in pairs:  # kept connections, idle
            writer.write(LIVE)
            await head(reader)
            await reader.readuntil(b"}")
        for _, writer in pairs:
            writer.write(LIVE)  # into the kernel; the gateway's loop has not turned since
        served.stop.set()
        for reader, writer in pairs:
            assert (await head(reader)).startswith(b"http/1.1 200")
            writer.close()
        await served.left.wait()


async def test_a_client_that_hangs_up_while_the_gateway_drains_is_the_one_who_ended_the_call(folder: Path) -> None:
    async with ScriptedProvider([RoleOnly(), Delta("a"), Hang()]) as provider:
        async with listening_gateway(folder, provider) as served, aiohttp.ClientSession(served.url) as http:
            async with http.post("/v1/chat/completions", json=chat_body(stream=True)) as response:
                await response.content.readuntil(b'"a"')
                served.stop.set()
                await served.in_phase(GatewayPhase.DRAINING)
                response.close()
            await served.left.wait()
            assert served.gateway.context.cancelled_as().__name__ == "ShuttingDown"
            assert provider.counts.disconnects_mid_stream == 1
        assert rows(folder, "select error_kind from calls") == [("client_disconnected",)]


async def test_what_is_under_way_when_the_grace_is_over_is_cut_and_recorded_as_such(folder: Path) -> None:
    async with ScriptedProvider([RoleOnly(), Delta("a"), Hang()]) as provider:
        async with (
            listening_gateway(folder, provider, grace_s=0.05) as served,
            aiohttp.ClientSession(served.url) as http,
        ):
            async with http.post("/v1/chat/completions", json=chat_body(stream=True)) as response:
                await response.content.readuntil(b'"a"')
                served.stop.set()
                *_, last = (await response.read()).strip().split(b"\n\n")
            assert b'"code":"shutting_down"' in last
            await served.left.wait()
        assert rows(folder, "select error_kind from calls") == [("shutting_down",)]


async def test_what_recorders_were_not_told_yet_is_told_when_it_stops(tmp_path: Path) -> None:
    gateway = Gateway(read(configuration(tmp_path, {"alpha": "http://127.0.0.1:9/v1"}), tmp_path))
    told = asyncio.Event()
    await gateway.start()
    gateway.context.services.outbox.add(told.set)
    await gateway.close()
    assert told.is_set()
