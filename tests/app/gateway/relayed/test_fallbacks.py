"""Relayed calls of several models and deployments: who is asked next, and what is learnt of them."""

import asyncio
import copy
from typing import Any

from gateway.core.prompt_classes import decoded_class
from providers.simulator import Gate, Status
from tests.app.gateway.relayed.samples import MESSAGE, PICTURES, Open, says
from tests.app.gateway.running_gateway import MODEL, read


async def test_another_model_takes_the_place_of_one_that_fails(opened: Open) -> None:
    models = {
        MODEL: {"deployments": ["alpha/m"], "fallbacks": ["other"], "race": {"mode": "single"}},
        "other": {"deployments": ["beta/n"]},
    }
    async with opened(
        alpha=[says({}, status=500)], beta=[says(b"sound", kind="audio/mpeg")], config={"models": models}
    ) as (
        running,
        upstreams,
    ):
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/audio/speech") as response:
            assert (response.status, await response.read()) == (200, b"sound")
        assert response.headers["x-holeshot-fallback"] == "other"
        assert upstreams["beta"].received[0].body["model"] == "n"
        call = await running.call()
        assert (call["model"], call["answered_model"], call["launched"]) == (MODEL, "other", 2)
        assert await running.outcomes() == {"alpha": "failed", "beta": "won"}


async def test_a_fallback_is_of_the_configuration_that_its_call_began_with(opened: Open) -> None:
    models = {
        MODEL: {"deployments": ["alpha/m"], "fallbacks": ["other"]},
        "other": {"deployments": ["beta/n"]},
    }
    go = asyncio.Event()
    async with opened(
        alpha=[[Gate(go), Status(500, {})]],
        beta=[says(b"old", kind="audio/mpeg")],
        gamma=[says(b"new")],
        config={"models": models},
    ) as (running, upstreams):
        speech = running.post({"model": MODEL, "input": "x"}, path="/v1/audio/speech")
        call = asyncio.create_task(answer_of(speech))
        await upstreams["alpha"].requested.wait()
        config = copy.deepcopy(running.config)
        config["models"]["other"]["deployments"] = ["gamma/n"]
        running.gateway.reload(read(config, running.folder))
        go.set()
        assert await call == b"old"


async def test_what_only_a_client_of_some_policy_may_see_stays_there(opened: Open) -> None:
    models = {MODEL: {"deployments": ["alpha/m", {"deployment": "beta/m", "zdr": True}]}}
    async with opened(alpha=[], beta=[], config={"models": models}) as (running, upstreams):
        for _ in range(5):
            body = {"model": MODEL, "input": "x", "provider": {"zdr": True}}
            async with running.post(body, path="/v1/embeddings") as response:
                assert response.headers["x-holeshot-provider"] == "beta"
        assert upstreams["alpha"].received == []
        assert "provider" not in upstreams["beta"].received[0].body


async def test_how_soon_a_picture_comes_says_nothing_of_how_soon_an_answer_does(opened: Open) -> None:
    async with opened(alpha=[says(PICTURES)]) as (running, _):
        for _ in range(3):
            await running.sdk.images.generate(model=MODEL, prompt="a cat")
        [row] = await running.rows("select distinct prompt_class from calls")
        standings = [
            running.gateway.steering._snapshots.fresh(MODEL, each).of("alpha/m").events
            for each in map(decoded_class, (0, 1, 2, row["prompt_class"]))
        ]
    assert standings[:3] == [0, 0, 0]
    assert standings[3] > 0


async def test_whoever_counts_tokens_fast_is_not_taken_to_answer_fast(opened: Open) -> None:
    config = {"providers": {"alpha": {"apis": ["messages"]}}}
    async with opened(alpha=[says({"input_tokens": 42})], config=config) as (running, _):
        for _ in range(3):
            async with running.post(MESSAGE, path="/v1/messages/count_tokens") as response:
                assert await response.json() == {"input_tokens": 42}
        [row] = running.gateway.steering.leaderboard(MODEL).deployments
        assert (row.n, row.events, row.win_share) == (0, 0, None)


async def answer_of(request: Any) -> bytes:
    async with request as response:
        body: bytes = await response.read()
        return body
