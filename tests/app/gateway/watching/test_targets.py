"""Targets of a running gateway: /api/slo, and what a reload changes."""

from typing import Any

import msgspec

from providers.simulator import Status
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

SLO = {"up": {"model": MODEL, "objective": 0.9}, "fast": {"ttft_ms": 60_000, "tok_s": 1}}


async def shown(running: RunningGateway) -> dict[str, Any]:
    await running.gateway.ledger.flush()
    async with running.get("/api/slo") as response:
        assert response.status == 200
        return {each["name"]: each for each in msgspec.json.decode(await response.read())["targets"]}


async def test_targets_have_the_calls_that_were_made(serve: Serve) -> None:
    async with serve(alpha=None, config={"slo": SLO}) as running:
        for _ in range(3):
            async with running.chat() as response:
                await response.read()
        found = await shown(running)
    assert found.keys() == SLO.keys()
    assert [(each["calls"], each["bad"], each["budget_left"]) for each in found.values()] == [(3, 0, 1.0)] * 2
    assert found["up"]["subject"] == f"model {MODEL}"
    assert found["up"]["verdict"].startswith("Kept: 100.0 % of 3 calls were good, 90 % are wanted over 28 days")


async def test_calls_that_failed_are_bad_and_listed(serve: Serve) -> None:
    async with serve(alpha=[Status(500)], config={"slo": SLO}) as running:
        for _ in range(2):
            async with running.chat() as response:
                await response.read()
        up = (await shown(running))["up"]
        assert (up["calls"], up["bad"], up["failed"]) == (2, 2, 2)
        assert up["verdict"].startswith("Missed: 0.0 % of 2 calls were good")
        [row] = await running.rows(up["sql"])
        assert (row["calls"], row["bad"]) == (2, 2)
        assert [miss["status_code"] >= 500 for miss in await running.rows(up["misses_sql"])] == [True, True]


async def test_without_targets_there_are_none(serve: Serve) -> None:
    async with serve() as running:
        assert await shown(running) == {}
