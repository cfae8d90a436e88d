"""A gateway that starts again goes by what the one before has measured: its ledger tells, also without Redis."""

from typing import Any

import pytest
from structlog.typing import EventDict

from gateway.ledger import prepare_schema
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, single

CALLS = 6


async def figures(running: RunningGateway) -> dict[str, tuple[int, int, float | None]]:
    async with running.get("/leaderboard") as response:
        [model] = (await response.json())["models"]
    return {row["deployment"]: (row["n"], row["events"], row["win_share"]) for row in model["deployments"]}


async def history(running: RunningGateway) -> dict[str, Any]:
    async with running.get("/health/ready") as response:
        told: dict[str, Any] = (await response.json())["history"]
        return told


@pytest.mark.usefixtures("views")
async def test_the_first_call_after_a_start_goes_by_the_calls_of_the_minutes_before(
    serve: Serve, logged: list[EventDict]
) -> None:
    async with serve(fast=None, slow=None, config=single()) as running:
        assert await history(running) == {"loaded": True, "attempts": 0}
        running.prefer("slow", "fast")  # so that its own calls are what speaks for it
        for _ in range(CALLS):
            async with running.chat() as response:
                await response.read()
        before = await figures(running)
        asked = await running.rows("select deployment from attempts")
    assert {each["deployment"] for each in asked} == {"slow/m"}
    logged.clear()
    async with serve(fast=None, slow=None, config=single()) as running:
        assert await history(running) == {"loaded": True, "attempts": CALLS}
        assert (await figures(running))["slow/m"][:2] == (CALLS, CALLS)
        async with running.get(f"/leaderboard?explain=1&model={MODEL}") as response:
            assert "cold start" not in await response.text()
    [told] = [each for each in logged if each["event"] == "steering.recollected"]
    assert (told["attempts"], told["models"]) == (CALLS, 1)
    assert before["slow/m"][2] == 1.0


async def test_a_start_says_whether_the_database_answered(serve: Serve, tmp_path: Any) -> None:
    assert await prepare_schema(f"sqlite:///{tmp_path / 'holeshot.db'}")
    assert not await prepare_schema("postgresql://holeshot@127.0.0.1:1/holeshot")
