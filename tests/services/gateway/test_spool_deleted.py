"""The spool folder deleted while the gateway runs: it is told, and only what a killed process had there is lost."""

import asyncio
import shutil
import signal
from collections import Counter
from pathlib import Path

import aiohttp
import asyncpg
from sqlalchemy.engine import make_url

from providers.simulator import Delta, Gate, RoleOnly, ScriptedProvider
from tests.app.gateway.process import GatewayProcess, started
from tests.app.gateway.running_gateway import chat_body, configuration
from tests.patience import eventually
from tests.support.relay import Relay

CALLS = 10


def delete(spool: Path, gateway: GatewayProcess, in_its_place: str | None = None) -> None:
    """Delete the spool between two of the gateway's own looks: it makes what is missing again, once a second."""
    gateway.send(signal.SIGSTOP)
    shutil.rmtree(spool)
    if in_its_place is not None:
        spool.write_text(in_its_place)
    gateway.send(signal.SIGCONT)


async def test_calls_answered_after_the_spool_was_deleted_have_their_rows_though_the_process_is_killed(
    tmp_path: Path, postgres_url: str
) -> None:
    server = make_url(postgres_url)
    relay = Relay(str(server.host), int(server.port or 0))
    await relay.listen()
    by_relay = server.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)
    async with ScriptedProvider() as alpha, aiohttp.ClientSession() as http:
        config = configuration(tmp_path, {"alpha": alpha.base_url}, database_url=by_relay)
        async with started(config, tmp_path) as gateway:
            relay.hang()
            alpha.once([RoleOnly(), Delta("a"), Gate(asyncio.Event())])
            response = await http.post(f"{gateway.url}/v1/chat/completions", json=chat_body(stream=True))
            under_way = response.headers["x-holeshot-call-id"]
            delete(tmp_path / "spool", gateway)
            told = await gateway.event("ledger.spool_missing")
            assert (told["lost"], told["cause"]) == (0, None)
            answered = await calls(http, gateway)
            gateway.send(signal.SIGKILL)
            await gateway.ended()
            response.close()
        await relay.cut()
        async with started(config | {"database_url": postgres_url}, tmp_path) as again:
            assert (await again.event("ledger.spool_adopted"))["interrupted"] == 1
            again.send(signal.SIGTERM)
            assert await again.ended() == 0
    assert await stored(postgres_url) == Counter([(id_, None) for id_ in answered] + [(under_way, "interrupted")])
    assert list((tmp_path / "spool").iterdir()) == []


async def test_rows_of_a_deleted_spool_are_shipped_all_the_same(tmp_path: Path, postgres_url: str) -> None:
    server = make_url(postgres_url)
    relay = Relay(str(server.host), int(server.port or 0))
    await relay.listen()
    by_relay = server.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)
    async with ScriptedProvider() as alpha, aiohttp.ClientSession() as http:
        config = configuration(tmp_path, {"alpha": alpha.base_url}, database_url=by_relay)
        async with started(config, tmp_path) as gateway:
            relay.hang()
            answered = await calls(http, gateway)
            delete(tmp_path / "spool", gateway)
            answered += await calls(http, gateway)
            await gateway.event("ledger.spool_missing")
            answered += await calls(http, gateway)
            relay.resume()
            await gateway.event("ledger.spool_recovered")
            async with http.get(f"{gateway.url}/health/ready") as ready:
                assert (ready.status, (await ready.json())["spool"]) == (200, {"problem": None, "lost": 0})
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
    await relay.cut()
    assert await stored(postgres_url) == Counter((id_, None) for id_ in answered)
    assert list((tmp_path / "spool").iterdir()) == []


async def calls(http: aiohttp.ClientSession, gateway: GatewayProcess) -> list[str]:
    """Make calls and return their ids, once all are answered."""

    async def call() -> str:
        async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response:
            assert response.status == 200
            return response.headers["x-holeshot-call-id"]

    return await asyncio.gather(*(call() for _ in range(CALLS)))


async def stored(url: str) -> Counter[tuple[str, str | None]]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("select id, error_kind from calls")
    finally:
        await connection.close()
    return Counter((str(row["id"]), row["error_kind"]) for row in rows)


async def test_a_ledger_that_can_be_kept_nowhere_is_told_and_refuses_calls_where_it_is_required(
    tmp_path: Path, postgres_url: str
) -> None:
    server = make_url(postgres_url)
    relay = Relay(str(server.host), int(server.port or 0))
    await relay.listen()
    by_relay = server.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)
    async with ScriptedProvider() as alpha, aiohttp.ClientSession() as http:
        config = configuration(tmp_path, {"alpha": alpha.base_url}, database_url=by_relay, ledger="required")
        async with started(config, tmp_path) as gateway:
            answered = await calls(http, gateway)
            delete(tmp_path / "spool", gateway, in_its_place="no folder can be made here")
            await gateway.event("ledger.spool_missing")
            answered += await calls(http, gateway)  # the database has them
            relay.hang()
            while (outcome := await one(http, gateway))[0] == 200:
                answered.append(outcome[1])
            assert outcome == (503, "ledger_unavailable")
            async with http.get(f"{gateway.url}/health/ready") as ready:
                assert (ready.status, (await ready.json())["status"]) == (503, "degraded")
            while "ledger_unrecorded" not in {each["kind"] for each in gateway.events("alert.opened")}:
                await gateway.more()
            relay.resume()

            async def taken() -> str | None:
                status, said = await one(http, gateway)
                return said if status == 200 else None

            answered.append(await eventually(taken))
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
    await relay.cut()
    assert await stored(postgres_url) == Counter((id_, None) for id_ in answered)


async def one(http: aiohttp.ClientSession, gateway: GatewayProcess) -> tuple[int, str]:
    """Make a call; return its status, and its id or the code of its error."""
    async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response:
        if response.status == 200:
            return 200, response.headers["x-holeshot-call-id"]
        return response.status, (await response.json())["error"]["code"]
