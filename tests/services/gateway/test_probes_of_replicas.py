"""Two replicas with one Postgres and one Redis probe within one cap, also when one is killed in the middle."""

import asyncio
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg

from gateway.core.records import NotProbed
from providers.simulator import Hang, ScriptedProvider
from tests.app.gateway.process import started
from tests.app.gateway.running_gateway import RunningGateway, configuration, serving
from tests.patience import PATIENCE_S, until

NAMES = ("alpha", "beta", "gamma", "delta")
USD = 0.01  # assumed for each probe: no price is known
PROMPTS = 4  # of the fixed ones
WORDS = ("sea ", "wind ", "stone ", "bread ")


def probing(usd_per_day: float, **stores: str) -> dict[str, Any]:
    probes = {"enabled": True, "quiet_s": 1, "usd_per_day": usd_per_day, "usd_if_unknown": USD}
    return {**stores, "probes": probes}


async def rows(url: str, query: str) -> list[dict[str, Any]]:
    connection = await asyncpg.connect(url)
    try:
        return [dict(record) for record in await connection.fetch(query)]
    finally:
        await connection.close()


async def out_of_money(running: RunningGateway) -> None:
    await until(lambda: NotProbed.MONEY in running.gateway.probes.not_probed.values())


async def test_two_replicas_spend_one_budget(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    config = probing(6.5 * USD, database_url=postgres_url, redis_url=redis_url)
    scripts = dict.fromkeys(NAMES)
    async with (
        serving(tmp_path / "one", scripts, **config) as one,
        serving(tmp_path / "two", scripts, **config, replica="there") as two,
        asyncio.timeout(PATIENCE_S),
    ):
        await asyncio.gather(out_of_money(one), out_of_money(two))
        await until(lambda: one.requests + two.requests >= 6)  # booked before it is sent
        booked = await rows(postgres_url, "select replica, coalesce(cost_usd, reserved_usd) as usd from probes")
        sent = one.requests + two.requests
    assert len(booked) == 6
    assert sent == 6
    assert sum(row["usd"] for row in booked) <= 6.5 * USD


async def test_a_killed_replica_s_probe_keeps_counting(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    stores = {"database_url": postgres_url, "redis_url": redis_url}
    async with ScriptedProvider([Hang()]) as hanging, asyncio.timeout(3 * PATIENCE_S):
        config = configuration(tmp_path / "killed", {"alpha": hanging.base_url}, **probing(USD, **stores))
        async with started(config, tmp_path / "killed") as replica:
            await hanging.reach(requests=1)
            replica.send(signal.SIGKILL)
            await replica.ended()
        [booked] = await rows(postgres_url, "select * from probes")
        assert booked["ended_at"] is None
        assert booked["started_at"] <= datetime.now(UTC) + timedelta(seconds=1)
        async with serving(tmp_path / "next", {"beta": None}, **probing(USD, **stores)) as running:
            await out_of_money(running)
            assert not running.requests
    assert len(await rows(postgres_url, "select * from probes")) == 1
