"""Messages over a WebSocket that are refused: they count in limits, and delay the next one of their connection."""

from typing import Any

import aiohttp
import pytest

from gateway.http import ServerConnection
from gateway.http.aiohttp_adapter import reading_is_paused
from gateway.overload import sockets
from providers.simulator import Delta, Hang, RoleOnly
from tests.app.gateway.key_desk import bearer
from tests.app.gateway.responses.test_responses_socket import PATH, Socket, connected, keyed
from tests.app.gateway.running_gateway import RunningGateway, Serve
from tests.patience import until

APP = bearer("hs-app")
UNKNOWN = {"type": "response.unknown"}


def connection_of(running: RunningGateway) -> ServerConnection:
    """Return the gateway's end of the only WebSocket."""
    [found] = [each for each in running.connections._all if each.socket_reader is not None]
    return found


async def refuse(socket: Socket, times: int, message: Any = UNKNOWN) -> None:
    for _ in range(times):
        await socket.wire.send_json(message)
        assert (await socket.error())["status"] == 400


@pytest.mark.parametrize(
    "message",
    [
        UNKNOWN,
        {"type": "response.create", "model": "nobody's"},
        {"type": "response.create", "generate": 7},
        {"type": "response.cancel"},
        {"stream_id": ""},
    ],
    ids=str,
)
async def test_a_message_that_is_refused_counts_as_a_request(serve: Serve, message: Any) -> None:
    async with (
        serve(alpha=None, config=keyed(rpm=2), in_one_minute=True) as running,
        connected(running, headers=APP) as socket,
    ):
        for _ in range(2):
            await socket.wire.send_json(message)
            assert (await socket.error())["status"] in {400, 404}
        await socket.create()
        assert (await socket.error())["status"] == 429


async def test_warm_ups_count_as_requests(serve: Serve) -> None:
    async with (
        serve(alpha=None, config=keyed(rpm=2), in_one_minute=True) as running,
        connected(running, headers=APP) as socket,
    ):
        for _ in range(2):
            await socket.turn(generate=False)
        await socket.create(generate=False)
        assert (await socket.error())["status"] == 429


async def test_a_message_beyond_a_limit_is_not_read(serve: Serve) -> None:
    async with (
        serve(alpha=None, config=keyed(rpm=1), in_one_minute=True) as running,
        connected(running, headers=APP) as socket,
    ):
        await socket.turn()
        await socket.wire.send_str("[" * 100_000)
        assert (await socket.error())["status"] == 429


async def test_a_turn_can_be_cancelled_by_a_client_whose_limit_leaves_nothing(serve: Serve) -> None:
    async with (
        serve(alpha=[RoleOnly(), Delta("a"), Hang()], config=keyed(rpm=1), in_one_minute=True) as running,
        connected(running, headers=APP) as socket,
    ):
        await socket.create()
        await socket.until("response.output_text.delta")
        await socket.wire.send_json({"type": "response.cancel"})
        assert (await socket.error())["error"]["code"] == "response_cancelled"


async def test_a_turn_that_waits_for_another_holds_no_parallel_call(serve: Serve) -> None:
    async with (
        serve(alpha=None, config=keyed(max_parallel=1, rpm=10)) as running,
        connected(running, headers=APP) as socket,
    ):
        for _ in range(3):
            await socket.create()
        for _ in range(3):
            await socket.until("response.completed")


async def test_many_refusals_delay_their_connection_alone_and_its_end_does_not_wait(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "FIRST_S", 1e6)
    monkeypatch.setattr(sockets, "LONGEST_S", 1e6)
    async with serve(alpha=None, config=keyed()) as running, connected(running, headers=APP) as socket:
        await refuse(socket, int(sockets.FREE) + 1)
        sent = 0
        connection = connection_of(running)
        while not reading_is_paused(connection):
            await socket.wire.send_str("x" * 10_000)
            sent += 1
            await until(lambda: running.gateway.context.bodies.size)
        assert running.gateway.context.bodies.size == 10_000  # one message waits, whatever comes behind it
        async with connected(running, headers=APP) as other:
            await other.turn()
        await socket.wire.send_json(UNKNOWN)
        socket.wire._writer.transport.abort()  # its client leaves without a word
        running.gateway.context.drains.set()
    assert sent >= 1


async def test_turns_that_are_answered_are_never_delayed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "FIRST_S", 1e6)
    monkeypatch.setattr(sockets, "LONGEST_S", 1e6)
    async with serve(alpha=None, config=keyed()) as running, connected(running, headers=APP) as socket:
        await refuse(socket, int(sockets.FREE))
        before: dict[str, Any] = {}
        for _ in range(40):
            response = await socket.turn(store=False, **before)
            before = {"previous_response_id": response["id"]}


async def test_a_client_may_have_so_many_connections_and_another_one_its_own(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "MOST_OPEN", 2)
    monkeypatch.setattr(sockets, "HELD_S", 0.0)
    config = keyed()
    config["clients"]["other"] = {"key_sha256": config["clients"]["app"]["key_sha256"].replace("0", "1")}
    async with serve(alpha=None, config=config) as running:
        async with connected(running, headers=APP) as one, connected(running, headers=APP):
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await running.http.ws_connect(running.url + PATH, headers=APP)
            assert caught.value.status == 429
            await one.turn()
        await until(lambda: not running.gateway.context.sockets._clients["app"].open)
        async with connected(running, headers=APP) as again:
            await again.turn()


async def test_a_message_of_too_many_values_is_refused_before_they_are_built(serve: Serve) -> None:
    async with serve(alpha=None) as running, connected(running) as socket:
        await socket.wire.send_str('{"type":"response.create","model":"llama","tools":[%s0]}' % ("0," * 600_000))
        told = await socket.error()
    assert (told["status"], told["error"]["code"]) == (400, "too_many_values")
