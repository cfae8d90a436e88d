"""What runs with a key ends with it: its requests at providers are cancelled, its client is cut off."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from providers.simulator import Delta, Gate, Hang, RoleOnly, answer
from tests.app.gateway.key_desk import Desk, bearer, in_database, sha256
from tests.app.gateway.relayed.samples import plays
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body, read
from tests.patience import until

ENDLESS = [RoleOnly(), Delta("a"), Hang()]


@asynccontextmanager
async def streaming(running: RunningGateway, key: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """Yield an answer whose first token has arrived."""
    async with running.chat(bearer(key), stream=True) as response:
        assert response.status == 200
        await response.content.readuntil(b"\n\n")
        await response.content.readuntil(b'"a"')
        yield response


async def is_cut_off(response: aiohttp.ClientResponse) -> None:
    with pytest.raises(aiohttp.ClientPayloadError):
        await response.read()


async def ended_as(running: RunningGateway, client: str) -> list[tuple[int, str | None]]:
    """Return how the calls of ``client`` ended, in their order."""
    rows = await running.rows(
        f"select status_code, error_kind from calls where client = '{client}' order by started_at"  # a test's own name
    )
    return [(row["status_code"], row["error_kind"]) for row in rows]


async def revoke(desk: Desk, _: str) -> None:
    assert (await desk.ask("DELETE", "/app")).status == 200


async def rotate(desk: Desk, _: str) -> None:
    await desk.rotate("app")


async def let_expire(desk: Desk, _: str) -> None:
    assert (await desk.ask("PATCH", "/app", {"expires": "2026-01-01"})).status == 200


async def expire_soon(desk: Desk, _: str) -> None:
    """Nobody ends it: its time comes."""
    soon = datetime.now(UTC) + timedelta(seconds=0.2)  # if it has come already, it is ended all the same
    assert (await desk.ask("PATCH", "/app", {"expires": soon.isoformat()})).status == 200


async def let_grace_end(desk: Desk, _: str) -> None:
    await desk.rotate("app", grace_s=0.2)


async def shadow(desk: Desk, _: str) -> None:
    """A reload brings a client of the same name, which wins."""
    clients = {**desk.running.config["clients"], "app": {"key_sha256": sha256("hs-another")}}
    desk.running.gateway.reload(read({**desk.running.config, "clients": clients}, desk.running.folder))


ENDS = pytest.mark.parametrize(
    ("end", "kind"),
    [
        (revoke, "key_revoked"),
        (rotate, "key_revoked"),
        (shadow, "key_revoked"),
        (let_expire, "key_expired"),
        (expire_soon, "key_expired"),
        (let_grace_end, "key_expired"),
    ],
)
End = Callable[[Desk, str], Awaitable[None]]


@ENDS
async def test_a_stream_ends_with_its_key_and_no_other_stream(serve: Serve, end: End, kind: str) -> None:
    async with serve(alpha=[*ENDLESS], config=in_database()) as running:
        desk = Desk(running)
        key, other = await desk.create("app"), await desk.create("other")
        async with streaming(running, other) as still, streaming(running, key) as cut:
            await end(desk, key)
            await is_cut_off(cut)
            await running["alpha"].reach(disconnects_mid_stream=1)
            assert await ended_as(running, "app") == [(499, kind)]
            assert running["alpha"].counts.disconnects == 1
            assert not still.content.is_eof()
        [attempt] = await running.rows("select outcome, cost_is_lower_bound from attempts where client = 'app'")
        assert attempt["outcome"] == "client_gone"


async def test_the_key_that_stays_in_a_rotation_keeps_what_it_runs(serve: Serve) -> None:
    async with serve(alpha=[*ENDLESS], config=in_database()) as running:
        desk = Desk(running)
        old = await desk.create("app")
        new = await desk.rotate("app", grace_s=3600)
        async with streaming(running, new) as still, streaming(running, old) as cut:
            await desk.ask("DELETE", f"/app?key={old[-4:]}")
            await is_cut_off(cut)
            await running["alpha"].reach(disconnects_mid_stream=1)
            assert running["alpha"].counts.disconnects == 1
            assert not still.content.is_eof()


async def test_a_client_that_is_removed_from_the_file_is_cut_at_the_reload(serve: Serve) -> None:
    clients = {name: {"key_sha256": sha256(f"hs-{name}")} for name in ("kept", "removed")}
    clients["two"] = {"key_sha256": [sha256("hs-two"), sha256("hs-too")]}  # type: ignore[dict-item] # several keys
    async with serve(alpha=[*ENDLESS], config={"clients": clients}) as running:
        async with (
            streaming(running, "hs-kept") as kept,
            streaming(running, "hs-two") as two,
            streaming(running, "hs-too") as too,
            streaming(running, "hs-removed") as removed,
        ):
            config = copy.deepcopy(running.config)
            del config["clients"]["removed"]
            config["clients"]["two"]["key_sha256"] = sha256("hs-two")
            running.gateway.reload(read(config, running.folder))
            await is_cut_off(removed)
            await is_cut_off(too)
            await running["alpha"].reach(disconnects_mid_stream=2)
            assert await ended_as(running, "removed") == [(499, "key_revoked")]
            assert await ended_as(running, "two") == [(499, "key_revoked")]
            assert not kept.content.is_eof()
            assert not two.content.is_eof()
        await running["alpha"].reach(disconnects_mid_stream=4)


async def test_a_race_without_a_token_is_cut_at_every_provider(serve: Serve) -> None:
    async with serve(alpha=[Hang()], beta=[RoleOnly(), Hang()], config=in_database()) as running:
        desk = Desk(running)
        key = await desk.create("app")
        call = asyncio.create_task(status(running.chat(bearer(key), stream=True)))
        for provider in running.providers.values():
            await provider.requested.wait()
        await revoke(desk, key)
        assert await call is None
        for provider in running.providers.values():
            await provider.reach(disconnects=1)
        assert await ended_as(running, "app") == [(499, "key_revoked")]


async def test_an_answer_that_is_gathered_is_cut(serve: Serve) -> None:
    async with serve(alpha=[*ENDLESS], config=in_database()) as running:
        desk = Desk(running)
        key = await desk.create("app")
        call = asyncio.create_task(status(running.chat(bearer(key))))
        await running["alpha"].requested.wait()
        await revoke(desk, key)
        assert await call is None
        await running["alpha"].reach(disconnects=1)
        assert await ended_as(running, "app") == [(499, "key_revoked")]


async def test_a_relayed_answer_is_cut(serve: Serve) -> None:
    async with serve(alpha=plays(b"sound", then=Hang()), config=in_database()) as running:
        desk = Desk(running)
        key = await desk.create("app")
        body = {"model": MODEL, "input": "x"}
        async with running.post(body, path="/v1/audio/speech", headers=bearer(key)) as response:
            assert await response.content.readany() == b"sound"
            await revoke(desk, key)
            await is_cut_off(response)
        await running["alpha"].reach(disconnects=1)
        assert await ended_as(running, "app") == [(499, "key_revoked")]


async def test_a_call_that_waits_for_a_seat_is_cut_and_gives_its_place_up(serve: Serve) -> None:
    go = asyncio.Event()
    deployments = [{"deployment": "alpha/m", "max_in_flight": 1}]
    config = {
        **in_database(),
        "queue_timeout_s": 600,
        "models": {MODEL: {"deployments": deployments, "race": {"mode": "single"}}},
    }
    async with serve(alpha=[Gate(go), *answer("Hello")], config=config) as running:
        desk, seats = Desk(running), running.gateway.context.services.seats
        key, other = await desk.create("app"), await desk.create("other")
        first = asyncio.create_task(status(running.chat(bearer(other))))
        await running["alpha"].requested.wait()
        waiting = asyncio.create_task(status(running.chat(bearer(key))))
        await until(lambda: seats.waiting)
        await revoke(desk, key)
        assert await waiting is None
        assert seats.waiting == 0
        go.set()
        assert await first == 200
        assert running["alpha"].counts.requests == 1


async def test_a_body_that_is_still_on_its_way_is_cut_and_is_no_call(serve: Serve) -> None:
    async with serve(config=in_database()) as running:
        desk = Desk(running)
        key = await desk.create("app")
        host, _, port = running.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        writer.write(f'{head}content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{"model":'.encode())
        [connection] = [each for each in running.connections._all if each.transport is not None and each.is_stranger]
        await until(lambda: connection.digest is not None)
        await revoke(desk, key)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert await running.rows("select * from calls") == []
        assert running.requests == 0


async def test_an_idle_connection_is_not_cut_but_refused_with_the_next_request(serve: Serve) -> None:
    async with serve(config=in_database()) as running:
        desk = Desk(running)
        key = await desk.create("app")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
            url, body = f"{running.url}/v1/chat/completions", chat_body()
            async with session.post(url, json=body, headers=bearer(key)) as response:
                await response.read()
            await revoke(desk, key)
            async with session.post(url, json=body, headers=bearer(key)) as response:
                assert response.status == 401
            async with session.get(f"{running.url}/health/live") as response:
                assert response.status == 200
        page = (await running.gateway.metrics.render())[0]
        assert b'_connections_cut_total{reason="key"}' not in page


async def test_connections_cut_with_their_keys_are_counted(serve: Serve) -> None:
    async with serve(alpha=[*ENDLESS], config=in_database()) as running:
        desk = Desk(running)
        key = await desk.create("app")
        async with streaming(running, key) as one, streaming(running, key) as two:
            await revoke(desk, key)
            await is_cut_off(one)
            await is_cut_off(two)
        assert b'_connections_cut_total{reason="key"} 2' in (await running.gateway.metrics.render())[0]
        await running["alpha"].reach(disconnects=2)


async def test_nothing_is_left_of_calls_that_were_cut(serve: Serve) -> None:
    async with serve(alpha=[*ENDLESS], beta=[Hang()], config=in_database()) as running:
        desk = Desk(running)
        for number in range(5):
            key = await desk.create(f"app-{number}")
            async with streaming(running, key) as response:
                await desk.ask("DELETE", f"/app-{number}")
                await is_cut_off(response)
        await until(lambda: not any(provider.counts.in_flight for provider in running.providers.values()))
        services = running.gateway.context.services
        assert services.tasks.in_flight("alpha/m") == services.tasks.in_flight("beta/m") == 0


async def status(request: Any) -> int | None:
    """Return the status of an answer, None if the connection was cut before one came."""
    try:
        async with request as response:
            await response.read()
            return int(response.status)
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
        return None
