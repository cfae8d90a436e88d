"""Every plan can be understood: in a response header, on the leaderboard, and on the command line."""

import asyncio
import json
import re
import time
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from gateway.cli.main import application
from gateway.core.prompt_classes import MeasuredApi, answer_class
from gateway.http import headers
from gateway.steering import Explanation, event, event_field
from providers.simulator import Hang, Status, answer
from tests.app.gateway.races.test_objectives import KEY, client, keyed
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, single

PRICED = {"price_per_mtok": {"input": 0.1, "output": 0.3}}


async def test_the_plan_is_told_on_request_in_a_header(serve: Serve) -> None:
    async with serve(fast=answer("Hello"), slow=[Hang()]) as running:
        running.prefer("fast", "slow")
        for stream in (True, False):
            async with running.chat({"x-holeshot-plan": "1"}, stream=stream) as response:
                await response.read()
            plan = json.loads(response.headers["x-holeshot-plan"])
            assert plan["mode"] == "race"
            assert plan["objective"] == ("reading" if stream else "completion")
            assert plan["hold"] is not stream
            first = plan["launches"][0]
            assert (first["deployment"], first["role"], first["delay_s"]) == ("fast/m", "primary", 0)
            assert all(launch["why"] for launch in plan["launches"])
            assert {launch["deployment"] for launch in plan["launches"]} == {"fast/m", "slow/m"}


async def test_the_plan_says_whether_a_first_token_may_be_held(serve: Serve) -> None:
    voice = {"models": {MODEL: {"race": {"profile": "voice"}}}}
    async with serve(fast=answer("Hello"), slow=answer("Hello"), config=voice) as running:

        async def held(headers: dict[str, str] | None = None, **fields: Any) -> bool:
            async with running.chat({"x-holeshot-plan": "1", **(headers or {})}, stream=True, **fields) as response:
                await response.read()
            return bool(json.loads(response.headers["x-holeshot-plan"])["hold"])

        assert not await held()
        assert not await held(race="agent")
        assert await held(race={"objective": "reading"})
        assert await held(race={"profile": "agent", "hold": True})
        assert await held({"x-holeshot-race": '{"hold": true}'})
        assert not await held(race={"objective": "reading", "hold": False})

        for arguments, words in (
            ((), "the first clause wins at once"),
            (("--objective", "completion"), "a first clause may wait for a faster answer"),
            (("--hold",), "a first clause may wait for a faster answer"),
            (("--objective", "completion", "--no-hold"), "the first clause wins at once"),
            (("--profile", "agent", "--no-hold"), "the first token wins at once"),
        ):
            explained = await holeshot(running, "explain", MODEL, *arguments)
            assert words in explained.stdout, explained.output


async def test_a_second_that_is_worth_much_buys_a_further_attempt_and_one_that_is_worth_little_none(
    serve: Serve,
) -> None:
    def valued(usd_per_s: float) -> dict[str, Any]:
        deployments = [{"deployment": f"{name}/m", **PRICED} for name in ("one", "two")]
        race = {"mode": "auto", "width": 2, "budget": 1.0, "value_usd_per_s": usd_per_s}
        return {"models": {MODEL: {"deployments": deployments, "race": race}}}

    async def planned(running: RunningGateway) -> tuple[str, dict[str, Any]]:
        for name in running.providers:  # half of their first tokens come late, so that a second attempt would help
            running.gateway.steering._board.add(MODEL, often_late(f"{name}/m"), time.time())
        async with running.chat({"x-holeshot-plan": "1"}, stream=True) as response:
            assert response.status == 200
            await response.read()
        return response.headers["x-holeshot-launched"], json.loads(response.headers["x-holeshot-plan"])

    async with serve(one=None, two=None, config=valued(1000.0)) as running:
        running.answer_once_all_are_asked()
        launched, plan = await planned(running)
        explained = await holeshot(running, "explain", MODEL)
    assert launched == "2"
    [why] = [each["why"] for each in plan["launches"] if each["role"] == "race"]
    assert re.fullmatch(r"raced: expected [\d.]+ s saved x 1000 = \$[\d.]+ > \$[\d.e-]+", why)
    assert "a second is worth $1000" in explained.stdout, explained.output

    async with serve(one=answer("Hello"), two=answer("Hello"), config=valued(1e-9)) as running:
        launched, plan = await planned(running)
        assert running.requests == 1
        explained = await holeshot(running, "explain", MODEL)
    assert launched == "1"
    assert {each["role"] for each in plan["launches"]} == {"primary", "failover"}
    assert plan["notes"] == ["no extra attempt: none should save time that is worth more than it costs"]
    assert "note: no extra attempt: none should save time that is worth more than it costs" in explained.stdout, (
        explained.output
    )


def often_late(deployment: str) -> dict[str, float]:
    """Return samples of the board: first tokens after 20 ms or, as often, 300 ms."""
    at_s = (0.02, 0.3)
    samples = {event_field(deployment, answer_class(size), seconds): 50.0 for size in range(3) for seconds in at_s}
    samples |= {event(deployment, MeasuredApi.ANSWERS, seconds): 50.0 for seconds in at_s}
    return samples | {f"{deployment}|tok": 1000.0, f"{deployment}|sec": 1.0}


async def test_the_plan_says_which_effort_its_figures_are_of(serve: Serve) -> None:
    async with serve(quick=answer("Hello"), config=single()) as running:
        running.prefer("quick")
        said_of: list[dict[str, Any]] = [{"reasoning_effort": "high"}, {"reasoning_effort": "none"}, {}]
        for fields in said_of:
            async with running.chat(**fields) as response:
                await response.read()
        said, unsaid = (
            await holeshot(running, "explain", MODEL, "--effort", "high"),
            await holeshot(running, "explain", MODEL),
        )
        rows = await running.rows("select prompt_class, size_class from calls order by started_at")
    assert [(row["prompt_class"], row["size_class"]) for row in rows] == [(6, 0), (3, 0), (0, 0)]
    assert "effort high" in said.stdout
    assert "fewer than ten first tokens of calls that ask for this effort" in said.stdout.replace("\n", " ")
    assert "effort" not in unsaid.stdout


async def test_nobody_is_told_a_plan_unasked(serve: Serve) -> None:
    async with serve() as running, running.chat() as response:
        assert "x-holeshot-plan" not in response.headers


async def test_the_plan_of_a_call_that_failed_is_told_too(serve: Serve) -> None:
    async with serve(broken=[Status(503)], config=single()) as running:
        async with running.chat({"x-holeshot-plan": "explain"}) as response:
            await response.read()
        assert response.status == 502
        assert json.loads(response.headers["x-holeshot-plan"])["launches"][0]["deployment"] == "broken/m"


async def test_the_leaderboard_explains_the_next_call_and_counts_nothing(serve: Serve) -> None:
    async with serve(fast=None, slow=None) as running:
        running.prefer("fast", "slow")
        tokens = running.gateway.steering._budgets.of(MODEL).tokens
        async with running.get(f"/leaderboard?explain=1&model={MODEL}&stream=false&prompt_tokens=20000") as response:
            [told] = (await response.json())["models"]
        assert running.gateway.steering._budgets.of(MODEL).tokens == tokens
        assert running.requests == 0
    assert (told["model"], told["profile"]) == (MODEL, None)
    explanation = told["explanation"]
    assert (explanation["objective"], explanation["prompt_tokens"]) == ("completion", 20000)
    assert [each["deployment"] for each in explanation["deployments"]] == ["fast/m", "slow/m"]
    assert explanation["launches"][0]["role"] == "primary"


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "told", "strict": True, "schema": {"type": "object"}}}


def of_model(**settings: Any) -> dict[str, Any]:
    return {"models": {MODEL: settings}}


# A configuration, what a call asks for, and the same as a query of the page.
DEMANDS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a time-out": ({"timeouts": {"ttft_timeout_s": 1}}, {}, ""),
    "a schema that one vendor refuses": (
        {"providers": {"fast": {"preset": "deepseek"}}},
        {"response_format": SCHEMA},
        "json_schema=true",
    ),
    "tools that one does not take, in a race": (
        of_model(
            deployments=[{"deployment": "fast/m", "capabilities": {"tools": False}}, "slow/m"],
            race={"mode": "race", "width": 2},
        ),
        {"tools": TOOLS},
        "tools=true",
    ),
    "an effort that one does not take": (
        of_model(deployments=[{"deployment": "fast/m", "apis": ["messages"]}, "slow/m"]),
        {"reasoning_effort": "high"},
        "effort=high",
    ),
    "a deadline": (
        of_model(deployments=["new/m"], race={"mode": "single", "ttft_ms": 3000}, fallbacks=["other"]),
        {},
        "",
    ),
    "a deadline of its own": (
        of_model(deployments=["new/m"], fallbacks=["other"]),
        {"race": {"ttft_ms": 2000}},
        "ttft_ms=2000",
    ),
    "a fallback after a failure": (of_model(fallbacks=["other"], fallback_after="failure"), {}, ""),
}


@pytest.mark.parametrize("demand", DEMANDS)
async def test_the_leaderboard_tells_the_plan_that_the_next_call_gets(serve: Serve, demand: str) -> None:
    config, fields, query = DEMANDS[demand]
    single = {"race": {"mode": "single"}}
    usual = {MODEL: {"deployments": ["fast/m", "slow/m"], **single}, "other": {"deployments": ["other/m"], **single}}
    models = {name: {**model, **config.get("models", {}).get(name, {})} for name, model in usual.items()}
    async with serve(fast=None, slow=None, new=None, other=None, config={**config, "models": models}) as running:
        if "fast/m" in str(models[MODEL]):  # nothing is known of a new one
            running.prefer("fast", "slow", first_s=0.5)
        running.prefer("other", model="other", first_s=0.5)
        async with running.get(f"/leaderboard?explain=1&model={MODEL}&prompt_tokens=20&{query}") as response:
            [told] = (await response.json())["models"]
        async with running.chat({"x-holeshot-plan": "explain"}, stream=True, **fields) as response:
            await response.read()
            runs = json.loads(response.headers["x-holeshot-plan"])
    as_header = json.loads(headers.written(msgspec.convert(told["explanation"], Explanation)))
    late_s = as_header.pop("late_s", None), runs.pop("late_s", None)
    assert late_s == (None, None) or late_s[0] == pytest.approx(late_s[1], abs=0.5)  # a deadline runs down
    assert as_header == runs


async def test_who_has_no_price_is_left_out_where_dollars_are_limited_as_in_a_call(serve: Serve) -> None:
    deployments = [{"deployment": "fast/m", **PRICED}, "slow/m"]
    config = {
        **client(role="admin", unpriced="refuse"),
        **of_model(deployments=deployments, usd_per_day=5.0, race={"width": 1}),
    }
    async with serve(fast=None, slow=None, key=KEY, config=config) as running:
        async with running.get(f"/leaderboard?explain=1&model={MODEL}", headers=keyed()) as response:
            [told] = (await response.json())["models"]
        async with running.chat({"x-holeshot-plan": "explain", **keyed()}) as response:
            assert response.status == 200, await response.text()
            runs = json.loads(response.headers["x-holeshot-plan"])
    assert [*runs["excluded"]] == ["slow/m"]
    assert told["explanation"]["excluded"] == runs["excluded"]


def able(**capabilities: bool) -> dict[str, Any]:
    deployments = [{"deployment": "fast/m", "capabilities": capabilities}, "slow/m"]
    return {"models": {MODEL: {"deployments": deployments}}}


@pytest.mark.parametrize(
    ("need", "reason", "objective"),
    [
        ("tools", "does not support tools", "completion"),
        ("json_schema", "does not support JSON schemas", "completion"),
        ("vision", "does not support images", "reading"),
    ],
)
async def test_who_could_not_answer_what_is_supposed_is_told_with_the_reason(
    serve: Serve, need: str, reason: str, objective: str
) -> None:
    async with serve(fast=None, slow=None, config=able(**{need: False})) as running:
        told = {}
        for asked in ("false", "true"):
            async with running.get(f"/leaderboard?explain=1&model={MODEL}&{need}={asked}") as response:
                [one] = (await response.json())["models"]
                told[asked] = one["explanation"]
    assert told["false"]["excluded"] == {}
    assert told["true"]["excluded"] == {"fast/m": reason}
    assert [each["deployment"] for each in told["true"]["deployments"]] == ["slow/m"]
    assert (told["false"]["objective"], told["true"]["objective"]) == ("reading", objective)


async def test_what_a_deployment_cannot_be_told_is_supposed_with_it(serve: Serve) -> None:
    deployments = [{"deployment": "fast/m", "apis": ["messages"]}, {"deployment": "slow/m", "apis": ["completions"]}]
    query = f"/leaderboard?explain=1&model={MODEL}&tools=true&json_schema=true&vision=true"
    config = {"models": {MODEL: {"deployments": deployments}}}
    async with serve(fast=None, slow=None, config=config) as running, running.get(query) as response:
        [told] = (await response.json())["models"]
    assert [each["deployment"] for each in told["explanation"]["deployments"]] == ["fast/m"]
    assert "a raw prompt has no faithful translation" in told["explanation"]["excluded"]["slow/m"]


async def test_the_command_line_says_who_could_not_answer(serve: Serve) -> None:
    async with serve(fast=None, slow=None, config=able(tools=False, json_schema=False, vision=False)) as running:
        for option, reason in (
            ("--tools", "does not support tools"),
            ("--json-schema", "does not support JSON schemas"),
            ("--vision", "does not support images"),
        ):
            result = await holeshot(running, "explain", MODEL, option)
            assert f"not asked: fast/m {reason}" in result.stdout
        assert "not asked" not in (await holeshot(running, "explain", MODEL)).stdout


async def test_a_model_that_is_switched_off_keeps_no_other_from_being_explained(serve: Serve) -> None:
    off = {"deployments": [{"deployment": "slow/m", "enabled": False}]}
    models = {MODEL: {"deployments": ["fast/m"]}, "off": off}
    async with serve(fast=None, slow=None, config={"models": models}) as running:
        async with running.get("/leaderboard?explain=1") as response:
            told = {one["model"]: one["explanation"] for one in (await response.json())["models"]}
        shown = await holeshot(running, "explain", "off")
    assert {each["deployment"] for each in told[MODEL]["launches"]} == {"fast/m"}
    assert told["off"]["launches"] == []
    assert "no deployment runs: none can answer" in shown.stdout


async def test_what_cannot_be_explained_says_why(serve: Serve) -> None:
    async with serve() as running:
        for query, status, words in (
            ("model=lama", 404, "lama"),
            (
                f"model={MODEL}&prompt_token=3",
                400,
                "explain takes prompt_tokens, max_tokens, stream, tools, json_schema, vision, effort, profile",
            ),
            (f"model={MODEL}&objective=speed", 400, "speed"),
            (f"model={MODEL}&prompt_tokens=-5", 400, "prompt_tokens"),
            (f"model={MODEL}&prompt_tokens=1{'0' * 400}", 400, "prompt_tokens"),
            (f"model={MODEL}&max_tokens=0", 400, "max_tokens"),
        ):
            async with running.get(f"/leaderboard?explain=1&{query}") as response:
                assert response.status == status
                assert words in (await response.json())["error"]["message"]


async def test_only_an_admin_is_explained_to(serve: Serve) -> None:
    async with (
        serve(config=client(), key=KEY) as running,
        running.get("/leaderboard?explain=1", headers=keyed()) as response,
    ):
        assert response.status == 403


async def test_the_command_line_explains_number_by_number(serve: Serve) -> None:
    priced = {"models": {MODEL: {"deployments": [{"deployment": "fast/m", **PRICED}, {"deployment": "slow/m"}]}}}
    async with serve(fast=None, slow=None, config=priced) as running:
        running.prefer("fast", "slow")
        result = await holeshot(running, "explain", MODEL, "--profile", "voice", "--prompt-tokens", "500")
        as_json = await holeshot(running, "explain", MODEL, "--no-stream", "--json")
        unknown = await holeshot(running, "explain", "lama")
        assert running.requests == 0
    assert result.exit_code == 0, result.output
    assert (
        f"{MODEL}: objective reading, mode race, profile voice; the first clause wins at once; a prompt"
        in result.stdout
    )
    for words in ("Who runs", "primary", "fast/m", "slow/m", "Deployments, best first", "score s", "floor: 100 tok/s"):
        assert words in result.stdout
    assert json.loads(as_json.stdout)["explanation"]["objective"] == "completion"
    assert unknown.exit_code == 1
    assert "the model 'lama' is not configured; known models: llama" in unknown.stderr


async def holeshot(running: RunningGateway, *arguments: str) -> Result:
    """Run a verb against the gateway, beside the loop that serves it."""
    environ = {"HOLESHOT_URL": running.url}
    return await asyncio.to_thread(lambda: CliRunner().invoke(application(arguments[0]), list(arguments), env=environ))
