"""Measurements of earlier calls decide who runs the later ones."""

import asyncio
from typing import Any

import pytest

from providers.simulator import Gate, Hang, Status, answer
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, single


async def chat(running: RunningGateway, **fields: Any) -> Any:
    async with running.chat(**fields) as response:
        await response.read()
        return response


async def leaderboard(running: RunningGateway) -> dict[str, dict[str, Any]]:
    async with running.get(f"/leaderboard?model={MODEL}") as response:
        [model] = (await response.json())["models"]
    return {row["deployment"]: row for row in model["deployments"]}


async def test_the_leaderboard_shows_what_calls_have_measured(serve: Serve) -> None:
    async with serve(quick=answer("a"), silent=[Hang()]) as running:
        for _ in range(4):
            await chat(running)
        rows = await leaderboard(running)
    assert list(rows) == ["quick/m", "silent/m"]
    quick, silent = rows["quick/m"], rows["silent/m"]
    assert (quick["n_first_token"], quick["win_share"], quick["error_rate"], quick["state"]) == (4, 1.0, 0.0, "ok")
    assert quick["ttft_p50_ms"] > 0
    assert (silent["n_first_token"], silent["n_censored"], silent["ttft_p50_ms"]) == (0, 4, None)
    assert quick["score"] < silent["score"]
    assert quick["in_flight"] == silent["in_flight"] == 0


async def test_what_is_in_flight_is_shown_while_it_is(serve: Serve) -> None:
    go = asyncio.Event()
    async with serve(alpha=[Gate(go), *answer("a")]) as running:
        call = asyncio.create_task(chat(running))
        await running["alpha"].requested.wait()
        assert (await leaderboard(running))["alpha/m"]["in_flight"] == 1
        go.set()
        await call
        assert (await leaderboard(running))["alpha/m"]["in_flight"] == 0


async def test_an_unknown_model_has_no_leaderboard(serve: Serve) -> None:
    async with serve() as running, running.get("/leaderboard?model=other") as response:
        assert (response.status, (await response.json())["error"]["code"]) == (404, "model_not_found")


async def test_calls_go_to_the_fast_one(serve: Serve) -> None:
    async with serve(fast=None, slow=None, config=single()) as running:
        running.prefer("fast", "slow", first_s=5.0)  # what is fast is slower on a busy machine
        for _ in range(20):
            await chat(running)
        assert (running["fast"].counts.requests, running["slow"].counts.requests) == (20, 0)


async def test_calls_are_steered_away_from_one_that_keeps_failing(serve: Serve) -> None:
    async with serve(good=None, bad=[Status(500)], config=single()) as running:
        running.prefer("bad", "good")
        for _ in range(10):
            assert (await chat(running)).status == 200
        assert running["bad"].counts.requests == 4  # strikes in a row that open the breaker
        assert (await leaderboard(running))["bad/m"]["state"] == "open"


async def test_a_provider_that_refuses_the_key_is_out_after_one_call(serve: Serve) -> None:
    async with serve(good=None, locked=[Status(401)], config=single()) as running:
        running.prefer("locked", "good")
        for _ in range(3):
            assert (await chat(running)).status == 200
        assert running["locked"].counts.requests == 1
        assert (await leaderboard(running))["locked/m"]["state"] == "out"


async def test_a_429_cools_the_deployment_for_what_it_asked(serve: Serve) -> None:
    async with serve(good=None, busy=[Status(429, headers={"retry-after": "30"})], config=single()) as running:
        running.prefer("busy", "good")
        for _ in range(3):
            assert (await chat(running)).status == 200
        assert running["busy"].counts.requests == 1
        state = (await leaderboard(running))["busy/m"]["state"]
    assert 15 <= float(state.removeprefix("cooling ").removesuffix(" s")) <= 30


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_when_all_cool_down_the_answer_is_429_at_once_and_nothing_is_launched(serve: Serve, stream: bool) -> None:
    async with serve(
        alpha=[Status(429, headers={"retry-after": "40"})], beta=[Status(429, headers={"retry-after": "20"})]
    ) as running:
        assert (await chat(running, stream=stream)).status == 429
        response = await chat(running, stream=stream)
        assert response.status == 429
        assert 10 <= int(response.headers["retry-after"]) <= 20  # beta's, less what has passed
        assert 10_000 <= int(response.headers["retry-after-ms"]) <= 20_000
        assert running.requests == 2
        rows = await running.rows("select launched, status_code, error_kind from calls order by started_at")
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/embeddings") as embeddings:
            assert embeddings.status == 429
        assert running.requests == 2
    assert rows[1] == {"launched": 0, "status_code": 429, "error_kind": "rate_limit_exceeded"}


async def test_the_budget_narrows_races_and_fails_no_call(serve: Serve) -> None:
    config = {"models": {MODEL: {"race": {"mode": "race", "width": 2, "budget": 0.0}}}}
    async with serve(alpha=None, beta=None, config=config) as running:
        for _ in range(5):
            assert (await chat(running)).status == 200
        assert running.requests == 5


async def test_metrics_count_calls_and_attempts(serve: Serve) -> None:
    async with serve(alpha=answer("a"), beta=[Hang()]) as running:
        await chat(running)
        await running.gateway.ledger.flush()
        async with running.get("/metrics") as response:
            assert response.content_type == "text/plain"
            lines = (await response.text()).splitlines()
    assert 'holeshot_calls_total{mode="race",model="llama",status="200"} 1.0' in lines
    assert any('outcome="won"' in line and line.endswith(" 1.0") for line in lines)
    assert any('outcome="lost"' in line and line.endswith(" 1.0") for line in lines)
    assert 'holeshot_in_flight_attempts{deployment="beta/m"} 0.0' in lines
    assert "holeshot_ledger_pending 0.0" in lines
