"""A gateway that starts again goes by what the one before has measured: its ledger tells, also without Redis."""

from typing import Any

import pytest
from structlog.typing import EventDict

from gateway.ledger import prepare_schema
from tests.app.gateway.key_desk import bearer
from tests.app.gateway.limits.test_payers import configured, told
from tests.app.gateway.races.test_objectives import KEY
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, single
from tests.identity import AUDIENCE, Identity

CALLS = 6


async def figures(running: RunningGateway) -> dict[str, tuple[int, int, float | None]]:
    async with running.get("/leaderboard") as response:
        [model] = (await response.json())["models"]
    return {row["deployment"]: (row["n"], row["n_first_token"], row["win_share"]) for row in model["deployments"]}


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


DOLLAR: dict[str, Any] = {
    "models": {MODEL: {"deployments": [{"deployment": "alpha/m", "price_per_mtok": {"input": 0, "output": 1e6}}]}}
}


@pytest.mark.parametrize("team", [None, "research"])
@pytest.mark.parametrize("limit", ["usd_per_day", "usd_per_month"])
async def test_what_an_end_user_has_spent_still_counts_after_a_start(
    serve: Serve, team: str | None, limit: str
) -> None:
    config = configured(team, end_users={limit: 1.0}, **DOLLAR)
    async with serve(alpha=None, config=config, key=KEY) as running:
        assert await told(running, user="ann", max_tokens=1) == ""
        [row] = await running.rows("select cost_usd from calls")
        assert row["cost_usd"] >= 1.0
        assert (await told(running, user="ann", max_tokens=1)).startswith("429: this end user has ")
    async with serve(alpha=None, config=config, key=KEY) as running:
        assert (await told(running, user="ann", max_tokens=1)).startswith("429: this end user has ")
        assert await told(running, user="bob", max_tokens=1) == ""


async def test_what_a_team_has_spent_by_a_key_that_was_removed_still_counts_after_a_start(serve: Serve) -> None:
    async with serve(alpha=None, config=configured(teams={"research": {"usd_per_day": 1.0}}, **DOLLAR), key=KEY) as one:
        assert await told(one, max_tokens=1) == ""
    config = configured(teams={"research": {"usd_per_day": 1.0}}, **DOLLAR)
    config["clients"] = {"another": config["clients"]["team"]}
    async with serve(alpha=None, config=config, key=KEY) as running:
        assert (await told(running, max_tokens=1)).startswith("429: the team 'research' has ")


async def test_what_a_token_s_people_have_spent_counts_in_their_own_team_after_a_start(serve: Serve) -> None:
    config = configured(teams={"research": {"usd_per_day": 1.0}, "platform": {"usd_per_day": 1.0}}, **DOLLAR)
    async with Identity() as issuer:
        people = {"client": "team", "teams": {"groups": {"eng": "platform"}}}
        config["issuers"] = {"company": {"issuer": issuer.url, "audience": AUDIENCE, **people}}
        ann = bearer(issuer.token(groups=["eng"]))
        async with serve(alpha=None, config=config, key=KEY) as running:
            assert await told(running, ann, max_tokens=1) == ""
        async with serve(alpha=None, config=config, key=KEY) as running:
            assert (await told(running, ann, max_tokens=1)).startswith("429: the team 'platform' has ")
            assert await told(running, max_tokens=1) == ""  # of its client's own team, which had spent nothing
        async with serve(alpha=None, config=config, key=KEY) as running:
            assert (await told(running, max_tokens=1)).startswith("429: the team 'research' has ")


async def test_a_start_says_whether_the_database_answered(serve: Serve, tmp_path: Any) -> None:
    assert await prepare_schema(f"sqlite:///{tmp_path / 'holeshot.db'}")
    assert not await prepare_schema("postgresql://holeshot@127.0.0.1:1/holeshot")
