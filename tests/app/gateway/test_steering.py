"""Measurements of earlier calls decide who runs the later ones."""

import asyncio
from typing import Any

import pytest

from providers.simulator.script import Gate, Hang, Status, answer
from tests.app.gateway.stage import MODEL, Serve, Stage, single


async def chat(stage: Stage, **fields: Any) -> Any:
    async with stage.chat(**fields) as response:
        await response.read()
        return response


async def leaderboard(stage: Stage) -> dict[str, dict[str, Any]]:
    async with stage.get(f"/leaderboard?model={MODEL}") as response:
        [model] = (await response.json())["models"]
    return {row["deployment"]: row for row in model["deployments"]}


async def test_the_leaderboard_shows_what_calls_have_measured(serve: Serve) -> None:
    async with serve(quick=answer("a"), silent=[Hang()]) as stage:
        for _ in range(4):
            await chat(stage)
        rows = await leaderboard(stage)
    assert list(rows) == ["quick/m", "silent/m"]
    quick, silent = rows["quick/m"], rows["silent/m"]
    assert (quick["events"], quick["win_share"], quick["error_rate"], quick["state"]) == (4, 1.0, 0.0, "ok")
    assert quick["ttft_p50_ms"] > 0
    assert (silent["events"], silent["censored"], silent["ttft_p50_ms"]) == (0, 4, None)
    assert quick["score"] < silent["score"]
    assert quick["in_flight"] == silent["in_flight"] == 0


async def test_what_is_in_flight_is_shown_while_it_is(serve: Serve) -> None:
    go = asyncio.Event()
    async with serve(alpha=[Gate(go), *answer("a")]) as stage:
        call = asyncio.create_task(chat(stage))
        await stage["alpha"].requested.wait()
        assert (await leaderboard(stage))["alpha/m"]["in_flight"] == 1
        go.set()
        await call
        assert (await leaderboard(stage))["alpha/m"]["in_flight"] == 0


async def test_an_unknown_model_has_no_leaderboard(serve: Serve) -> None:
    async with serve() as stage, stage.get("/leaderboard?model=other") as response:
        assert (response.status, (await response.json())["error"]["code"]) == (404, "model_not_found")


async def test_calls_go_to_the_fast_one(serve: Serve) -> None:
    async with serve(fast=None, slow=None, config=single()) as stage:
        stage.prefer("fast", "slow")
        for _ in range(20):
            await chat(stage)
        assert (stage["fast"].counts.requests, stage["slow"].counts.requests) == (20, 0)


async def test_calls_are_steered_away_from_one_that_keeps_failing(serve: Serve) -> None:
    async with serve(good=None, bad=[Status(500)], config=single()) as stage:
        stage.prefer("bad", "good")
        for _ in range(10):
            assert (await chat(stage)).status == 200
        assert stage["bad"].counts.requests == 4  # strikes in a row that open the breaker
        assert (await leaderboard(stage))["bad/m"]["state"] == "open"


async def test_a_provider_that_refuses_the_key_is_out_after_one_call(serve: Serve) -> None:
    async with serve(good=None, locked=[Status(401)], config=single()) as stage:
        stage.prefer("locked", "good")
        for _ in range(3):
            assert (await chat(stage)).status == 200
        assert stage["locked"].counts.requests == 1
        assert (await leaderboard(stage))["locked/m"]["state"] == "out"


async def test_a_429_cools_the_deployment_for_what_it_asked(serve: Serve) -> None:
    async with serve(good=None, busy=[Status(429, headers={"retry-after": "30"})], config=single()) as stage:
        stage.prefer("busy", "good")
        for _ in range(3):
            assert (await chat(stage)).status == 200
        assert stage["busy"].counts.requests == 1
        state = (await leaderboard(stage))["busy/m"]["state"]
    assert 29 <= float(state.removeprefix("cooling ").removesuffix(" s")) <= 30


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_when_all_cool_down_the_answer_is_429_at_once_and_nothing_is_launched(serve: Serve, stream: bool) -> None:
    async with serve(
        alpha=[Status(429, headers={"retry-after": "40"})], beta=[Status(429, headers={"retry-after": "20"})]
    ) as stage:
        assert (await chat(stage, stream=stream)).status == 429
        response = await chat(stage, stream=stream)
        assert response.status == 429
        assert response.headers["retry-after"] == "20"
        assert 19_000 <= int(response.headers["retry-after-ms"]) <= 20_000
        assert stage.requests == 2
        rows = await stage.rows("select launched, status_code, error_kind from calls order by started_at")
        async with stage.post({"model": MODEL, "input": "x"}, path="/v1/embeddings") as embeddings:
            assert embeddings.status == 429
        assert stage.requests == 2
    assert rows[1] == {"launched": 0, "status_code": 429, "error_kind": "rate_limit_exceeded"}


async def test_the_budget_narrows_races_and_fails_no_call(serve: Serve) -> None:
    config = {"models": {MODEL: {"race": {"mode": "race", "width": 2, "budget": 0.0}}}}
    async with serve(alpha=None, beta=None, config=config) as stage:
        for _ in range(5):
            assert (await chat(stage)).status == 200
        assert stage.requests == 5


async def test_metrics_count_calls_and_attempts(serve: Serve) -> None:
    async with serve(alpha=answer("a"), beta=[Hang()]) as stage:
        await chat(stage)
        await stage.gateway.ledger.flush()
        async with stage.get("/metrics") as response:
            assert response.content_type == "text/plain"
            lines = (await response.text()).splitlines()
    assert 'holeshot_calls_total{mode="race",model="llama",status="200"} 1.0' in lines
    assert any('outcome="won"' in line and line.endswith(" 1.0") for line in lines)
    assert any('outcome="lost"' in line and line.endswith(" 1.0") for line in lines)
    assert 'holeshot_in_flight_attempts{deployment="beta/m"} 0.0' in lines
    assert "holeshot_ledger_pending 0.0" in lines
