"""Two replicas with one Postgres and one Redis probe within one cap, also when one is killed in the middle."""

import asyncio
import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import pytest

from gateway.alerts.stated_models import OPENS_BELOW
from gateway.core.records import NotProbed
from gateway.detecting import writing
from gateway.detecting.writing import A_WEEK, WEEK, WRITTEN_PROMPTS
from gateway.ledger import SharedClock
from gateway.probing.prober import TURN_S
from providers.simulator.script import Hang, ScriptedProvider, answer
from tests.app.gateway.process import started
from tests.app.gateway.running_gateway import RunningGateway, configuration, serving
from tests.patience import PATIENCE_S

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
    while NotProbed.MONEY not in running.gateway.probes.not_probed.values():  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.05)


async def test_two_replicas_spend_one_budget(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    config = probing(6.5 * USD, database_url=postgres_url, redis_url=redis_url)
    scripts = dict.fromkeys(NAMES)
    async with (
        serving(tmp_path / "one", scripts, **config) as one,
        serving(tmp_path / "two", scripts, **config, replica="there") as two,
        asyncio.timeout(PATIENCE_S),
    ):
        await asyncio.gather(out_of_money(one), out_of_money(two))
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


async def test_a_deployment_that_writes_otherwise_opens_an_alert_and_one_that_does_not_opens_none(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two weeks of a few prompts' turns; "beta" has another writer in the second week."""
    monkeypatch.setattr(writing, "LEAST_PROMPTS", PROMPTS)
    monkeypatch.setattr(SharedClock, "note", lambda *_: None)  # two weeks pass here, and none at the database
    now = midnight = datetime(2026, 10, 5, tzinfo=UTC)
    words = Random(3)
    settings: dict[str, Any] = {"same_model": True, "usd_if_unknown": 1e-6, "max_per_day": 1000}
    config: dict[str, Any] = {"database_url": postgres_url, "probes": settings}
    scripts = dict.fromkeys(("alpha", "beta"))
    async with serving(tmp_path / "one", scripts, utc_now=lambda: now, **config) as running:
        prober, alerts = running.gateway.probes, running.gateway.operations.alerts
        for turn in range(2 * len(WRITTEN_PROMPTS) * A_WEEK):
            now = midnight + timedelta(seconds=TURN_S * turn + 1)
            if turn % len(WRITTEN_PROMPTS) >= PROMPTS or turn // len(WRITTEN_PROMPTS) % 2:
                continue
            for name in scripts:
                likely = 0.95 if name == "beta" and now >= midnight + WEEK else 0.4
                running[name].script = answer(
                    *("sea " if words.random() < likely else words.choice(WORDS) for _ in range(15))
                )
            prober.look()
            await asyncio.gather(*prober._running.values())
        now = midnight + 2 * WEEK
        for _ in scripts:  # one is compared with each look
            await alerts.look()
        [alert] = await rows(postgres_url, "select key, severity, figures, resolved_at from alerts")
        kept = await rows(postgres_url, "select count(*) as n from probes where answer is not null")
    assert (alert["key"], alert["severity"], alert["resolved_at"]) == ("writes_otherwise:beta/m", "ticket", None)
    assert json.loads(alert["figures"])["p"] < OPENS_BELOW
    assert kept[0]["n"] == 2 * 2 * PROMPTS * A_WEEK / 2
