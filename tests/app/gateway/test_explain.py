"""Every plan can be understood: in a response header, on the leaderboard, and on the command line."""

import asyncio
import json

from typer.testing import CliRunner, Result

from gateway.cli.main import application
from providers.simulator.script import Hang, Status, answer
from tests.app.gateway.stage import MODEL, Serve, Stage, single
from tests.app.gateway.test_objectives import KEY, client, keyed

PRICED = {"price_per_mtok": {"input": 0.1, "output": 0.3}}


async def test_the_plan_is_told_on_request_in_a_header(serve: Serve) -> None:
    async with serve(fast=answer("Hello"), slow=[Hang()]) as stage:
        stage.prefer("fast", "slow")
        for stream in (True, False):
            async with stage.chat({"x-holeshot-plan": "1"}, stream=stream) as response:
                await response.read()
            plan = json.loads(response.headers["x-holeshot-plan"])
            assert plan["mode"] == "race"
            assert plan["objective"] == ("first_token" if stream else "completion")
            first = plan["launches"][0]
            assert (first["deployment"], first["role"], first["delay_s"]) == ("fast/m", "primary", 0)
            assert all(launch["why"] for launch in plan["launches"])
            assert {launch["deployment"] for launch in plan["launches"]} == {"fast/m", "slow/m"}


async def test_nobody_is_told_a_plan_unasked(serve: Serve) -> None:
    async with serve() as stage, stage.chat() as response:
        assert "x-holeshot-plan" not in response.headers


async def test_the_plan_of_a_call_that_failed_is_told_too(serve: Serve) -> None:
    async with serve(broken=[Status(503)], config=single()) as stage:
        async with stage.chat({"x-holeshot-plan": "explain"}) as response:
            await response.read()
        assert response.status == 502
        assert json.loads(response.headers["x-holeshot-plan"])["launches"][0]["deployment"] == "broken/m"


async def test_the_leaderboard_explains_the_next_call_and_counts_nothing(serve: Serve) -> None:
    async with serve(fast=None, slow=None) as stage:
        stage.prefer("fast", "slow")
        tokens = stage.gateway.steering._budget(MODEL).tokens
        async with stage.get(f"/leaderboard?explain=1&model={MODEL}&stream=false&prompt_tokens=20000") as response:
            [told] = (await response.json())["models"]
        assert stage.gateway.steering._budget(MODEL).tokens == tokens
        assert stage.requests == 0
    assert (told["model"], told["profile"]) == (MODEL, None)
    explanation = told["explanation"]
    assert (explanation["objective"], explanation["prompt_tokens"]) == ("completion", 20000)
    assert [each["deployment"] for each in explanation["deployments"]] == ["fast/m", "slow/m"]
    assert explanation["launches"][0]["role"] == "primary"


async def test_what_cannot_be_explained_says_why(serve: Serve) -> None:
    async with serve() as stage:
        for query, status, words in (
            ("model=lama", 404, "lama"),
            (f"model={MODEL}&prompt_token=3", 400, "explain takes prompt_tokens, max_tokens, stream, profile"),
            (f"model={MODEL}&objective=speed", 400, "speed"),
        ):
            async with stage.get(f"/leaderboard?explain=1&{query}") as response:
                assert response.status == status
                assert words in (await response.json())["error"]["message"]


async def test_only_an_admin_is_explained_to(serve: Serve) -> None:
    async with (
        serve(config=client(), key=KEY) as stage,
        stage.get("/leaderboard?explain=1", headers=keyed()) as response,
    ):
        assert response.status == 403


async def test_the_command_line_explains_number_by_number(serve: Serve) -> None:
    priced = {"models": {MODEL: {"deployments": [{"deployment": "fast/m", **PRICED}, {"deployment": "slow/m"}]}}}
    async with serve(fast=None, slow=None, config=priced) as stage:
        stage.prefer("fast", "slow")
        result = await holeshot(stage, "explain", MODEL, "--profile", "voice", "--prompt-tokens", "500")
        as_json = await holeshot(stage, "explain", MODEL, "--no-stream", "--json")
        unknown = await holeshot(stage, "explain", "lama")
        assert stage.requests == 0
    assert result.exit_code == 0, result.output
    assert f"{MODEL}: objective first_token, mode race, profile voice; a prompt of 500 tokens" in result.stdout
    for words in ("Who runs", "primary", "fast/m", "slow/m", "Deployments, best first", "score s", "floor: 100 tok/s"):
        assert words in result.stdout
    assert json.loads(as_json.stdout)["explanation"]["objective"] == "completion"
    assert unknown.exit_code == 1
    assert "the model 'lama' is not configured; known models: llama" in unknown.stderr


async def holeshot(stage: Stage, *arguments: str) -> Result:
    """Run a verb against the gateway, beside the loop that serves it."""
    environ = {"HOLESHOT_URL": stage.url}
    return await asyncio.to_thread(lambda: CliRunner().invoke(application(), list(arguments), env=environ))
