"""Clients that do not read their answers: cut after a while, and what is made for them at the providers with them."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gateway.server.connection import UNREAD_BYTES
from providers.http import READ_BYTES
from providers.simulator import Delta, Hang, RoleOnly, answer
from tests.app.gateway.relayed.samples import plays
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body

CLOCKS: dict[str, Any] = {"client_timeouts": {"write_timeout_s": 0.2}}
TEXT = "x" * 8_192
ENDLESS = [RoleOnly(), *[Delta(TEXT)] * 2400]  # 20 MB, more than the kernel takes on both ends


@asynccontextmanager
async def silent_socket(
    running: RunningGateway, body: Any, path: str = "/v1/chat/completions"
) -> AsyncIterator[socket.socket]:
    """Post ``body`` over a socket with a small buffer, from which nobody reads unless the test does."""
    host, _, port = running.url.removeprefix("http://").partition(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)  # noqa: FBT003 - its only argument
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, (host, int(port)))
    raw = msgspec.json.encode(body)
    head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}\r\n"
    await loop.sock_sendall(sock, head.encode() + b"\r\n" + raw)
    try:
        yield sock
    finally:
        sock.close()


async def cut(sock: socket.socket) -> None:
    """Read until the connection is reset, as it must be: a whole answer would end in peace."""
    loop = asyncio.get_running_loop()
    try:
        while await loop.sock_recv(sock, 2**20):
            pass
    except ConnectionResetError:
        return
    pytest.fail("it was closed, not cut")


async def _is_recorded_as_stalled(running: RunningGateway) -> None:
    call = await running.call()
    assert (call["status_code"], call["error_kind"]) == (499, "client_stalled")
    assert await running.outcomes() == {"alpha": "client_gone"}


async def test_who_takes_nothing_of_a_stream_is_cut_and_its_provider_with_it(serve: Serve) -> None:
    async with serve(alpha=[*ENDLESS, Hang()], config=CLOCKS) as running:
        async with silent_socket(running, chat_body(stream=True)) as sock:
            await running["alpha"].reach(disconnects_mid_stream=1)
            await cut(sock)
        await _is_recorded_as_stalled(running)


async def test_who_takes_nothing_of_a_relayed_answer_is_cut_and_its_provider_with_it(serve: Serve) -> None:
    async with serve(alpha=plays(*[bytes(65_536)] * 300, then=Hang()), config=CLOCKS) as running:
        body = {"model": MODEL, "input": "x"}
        async with silent_socket(running, body, "/v1/audio/speech") as sock:
            await running["alpha"].reach(disconnects=1)
            await cut(sock)
        await _is_recorded_as_stalled(running)


async def test_who_takes_nothing_of_a_whole_answer_is_cut(serve: Serve) -> None:
    whole = [RoleOnly(), *[Delta(TEXT)] * 2400, *answer("!")[1:]]
    async with serve(alpha=whole, config=CLOCKS) as running, silent_socket(running, chat_body()) as sock:
        await running["alpha"].reach(completions=1)
        loop = asyncio.get_running_loop()
        while b'_connections_cut_total{reason="stalled"} 1' not in (await running.gateway.metrics.render())[0]:
            await loop.run_in_executor(None, lambda: None)  # a turn, and somebody else's
        await cut(sock)


async def test_who_reads_slowly_but_reads_is_not_cut(serve: Serve) -> None:
    """Between two reads nearly all the time passes in which it may take nothing: of a clock that the test has."""
    body, loop, limit_s = chat_body(stream=True), asyncio.get_running_loop(), 10.0
    async with serve(alpha=[*ENDLESS[:480], *answer("!")[1:]]) as running:
        async with silent_socket(running, body) as sock:
            looks, now_s, received = running.connections._stalled, 0.0, b""
            while not received.endswith(b"[DONE]\n\n\r\n0\r\n\r\n"):
                data = await loop.sock_recv(sock, 65_536)
                assert data
                received = (received + data)[-100:]
                now_s += 0.9 * limit_s
                assert looks.look(running.connections._all, now_s, limit_s) == []
        assert now_s > 100 * limit_s
        assert (await running.call())["status_code"] == 200


async def test_what_waits_for_a_slow_client_is_bounded(serve: Serve) -> None:
    """Written and not taken: what makes its writer wait, and the write that did."""
    async with serve(alpha=[*ENDLESS, Hang()]) as running, silent_socket(running, chat_body(stream=True)):
        [connection] = running.connections._all
        await running["alpha"].requested.wait()
        loop = asyncio.get_running_loop()
        while not connection.writing_paused:
            await loop.run_in_executor(None, lambda: None)  # a turn, and the other side's
        assert connection._wire is not None
        assert connection._wire.get_write_buffer_size() <= UNREAD_BYTES + READ_BYTES + 1024
