"""Two workers of one gateway, as real processes on a real Postgres and a real Redis."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg

from providers.simulator.script import Hang
from providers.simulator.scripted import ScriptedProvider
from tests.app.gateway.log_pipe import CALLS as UNREAD_CALLS
from tests.app.gateway.log_pipe import answered, unread
from tests.app.gateway.process import GatewayProcess, started
from tests.app.gateway.stage import MODEL, chat_body, configuration

CALLS = 24


async def chat(gateway: GatewayProcess) -> str:
    """Make one call on a connection of its own, so that either worker may get it; return the call's id."""
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{gateway.url}/v1/chat/completions", json=chat_body(stream=True)) as response,
    ):
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
        return response.headers["x-holeshot-call-id"]


async def leaderboard(gateway: GatewayProcess) -> dict[str, Any]:
    async with aiohttp.ClientSession() as http, http.get(f"{gateway.url}/leaderboard?model={MODEL}") as response:
        [model] = (await response.json())["models"]
    return {row["deployment"]: row for row in model["deployments"]}


async def ids(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        return [str(row["id"]) for row in await connection.fetch("select id from calls")]
    finally:
        await connection.close()


async def test_two_workers_share_port_ledger_and_leaderboard(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    stores = {"database_url": postgres_url, "redis_url": redis_url, "workers": 2}
    async with ScriptedProvider() as fast, ScriptedProvider([Hang()]) as slow:
        config = configuration(tmp_path, {"fast": fast.base_url, "slow": slow.base_url}, **stores)
        async with started(config, tmp_path) as gateway:
            workers = {(await gateway.event("gateway.started", 2))["pid"], gateway.events("gateway.started")[0]["pid"]}
            assert len(workers) == 2
            made = await asyncio.gather(*(chat(gateway) for _ in range(CALLS)))
            known = 0
            while known < CALLS:  # each worker tells and reads once a second
                known = (await leaderboard(gateway))["fast/m"]["events"]
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
    assert sorted(await ids(postgres_url)) == sorted(made)
    assert gateway.events("garbled") == []
    assert {entry["status"] for entry in gateway.events("call.finished")} == {200}


async def test_a_worker_that_dies_is_replaced_and_its_rows_are_not_lost(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    stores = {"database_url": postgres_url, "redis_url": redis_url, "workers": 2}
    async with ScriptedProvider() as provider:
        config = configuration(tmp_path, {"alpha": provider.base_url}, **stores)
        async with started(config, tmp_path) as gateway:
            victim = (await gateway.event("gateway.started", 2))["pid"]
            made = await asyncio.gather(*(chat(gateway) for _ in range(CALLS)))
            os.kill(victim, signal.SIGKILL)
            assert (await gateway.event("worker.died"))["pid"] == victim
            await gateway.event("gateway.started", 3)
            made.append(await chat(gateway))
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
        async with started(config | {"workers": 1}, tmp_path) as last:
            last.send(signal.SIGTERM)
            await last.ended()
    assert sorted(await ids(postgres_url)) == sorted(made)


async def test_workers_and_their_parent_end_though_nobody_reads_their_log(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    stores = {"database_url": postgres_url, "redis_url": redis_url, "workers": 2}
    async with unread(tmp_path, **stores) as (gateway, http):
        assert await answered(http, gateway) == UNREAD_CALLS
        gateway.process.send_signal(signal.SIGTERM)
        assert await gateway.process.wait() == 0
