"""What a call is to be good at, as the ledger has it, and what a request may say of its own race."""

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest

from providers.simulator import Hang, answer
from tests.app.gateway.running_gateway import MODEL, Serve

KEY = "hs-test"
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {}}}


def client(**settings: Any) -> dict[str, Any]:
    """Return the configuration of one client with ``settings``."""
    return {"clients": {"team": {"key_sha256": hashlib.sha256(KEY.encode()).hexdigest(), **settings}}}


def keyed() -> Mapping[str, str]:
    """Return the headers of that client."""
    return {"authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("fields", "objective"),
    [
        ({"stream": True}, "reading"),
        ({"stream": False}, "completion"),
        ({"stream": True, "tools": [TOOL]}, "completion"),
        ({"stream": True, "response_format": {"type": "json_object"}}, "completion"),
        ({"stream": False, "race": {"objective": "first_token"}}, "first_token"),
        ({"stream": True, "race": {"objective": "first_token"}}, "first_token"),
        ({"stream": True, "race": "voice"}, "reading"),
        ({"stream": True, "race": "agent"}, "completion"),
        ({"stream": True, "race": {"objective": "cost", "ttft_ms": 500}}, "cost"),
    ],
)
async def test_the_ledger_says_what_a_call_was_to_be_good_at(
    serve: Serve, fields: dict[str, Any], objective: str
) -> None:
    async with serve(fast=answer("Hello")) as running:
        async with running.chat(**fields) as response:
            await response.read()
        assert response.status == 200
        assert (await running.call())["objective"] == objective


async def test_an_answer_is_expected_to_be_as_long_as_those_to_such_requests_were(serve: Serve) -> None:
    """From the request through the record of its call to the plan of the next one like it."""
    async with serve(fast=answer("Hello")) as running:

        async def expected(query: str) -> float:
            async with running.get(f"/leaderboard?explain=1&model={MODEL}&{query}") as response:
                [told] = (await response.json())["models"]
            return float(told["explanation"]["answer_tokens"])

        for _ in range(20):
            async with running.chat(max_tokens=64) as response:
                await response.read()
        assert await expected("max_tokens=64") < 30
        assert await expected("max_tokens=64&tools=true") == 64
        assert await expected("max_tokens=4000") > 200


async def test_what_a_request_says_of_its_race_is_refused_with_the_reason(serve: Serve) -> None:
    async with serve(alpha=None, beta=None) as running:
        for race, words in (
            ({"width": 0}, "race"),
            ({"objective": "speed"}, "a profile (chat, voice, agent, batch)"),
            ({"budget": 5}, "budget"),
            ({"objective": "cost"}, "fast enough: set ttft_ms"),
        ):
            async with running.chat(race=race) as response:
                assert response.status == 400
                assert words in (await response.json())["error"]["message"]
        assert running.requests == 0


async def test_a_key_may_be_kept_from_saying_how_its_calls_are_raced(serve: Serve) -> None:
    async with serve(alpha=None, config=client(override=False), key=KEY) as running:
        async with running.chat(keyed(), race="single") as refused:
            assert refused.status == 403
        async with running.chat({**keyed(), "x-holeshot-race": "single"}) as refused_too:
            assert refused_too.status == 403
        async with running.chat(keyed()) as answered:
            assert answered.status == 200


async def test_a_race_that_the_budget_made_narrower_says_so(serve: Serve) -> None:
    race = {"models": {MODEL: {"race": {"mode": "race", "width": 2, "budget": 0.1}}}}
    async with serve(fast=answer("Hello"), slow=[Hang()], config=race) as running:
        running.prefer("fast", "slow")
        async with running.chat(stream=True) as wide:
            await wide.read()
        running.gateway.steering._budgets.of(MODEL).tokens = 0.0
        for stream in (True, False):
            async with running.chat(stream=stream) as narrow:
                await narrow.read()
            assert narrow.status == 200
            assert narrow.headers["x-holeshot-narrowed"] == "budget"
            assert narrow.headers["x-holeshot-launched"] == "1"
        async with running.get("/metrics") as metrics:
            counted = await metrics.text()
        assert 'holeshot_refused_launches_total{limit="budget",model="llama"} 2.0' in counted
        assert wide.headers["x-holeshot-launched"] == "2"
        assert "x-holeshot-narrowed" not in wide.headers


@pytest.mark.parametrize("limit", ["usd_per_day", "extra_usd_per_call"])
async def test_a_race_that_would_cost_more_dollars_than_there_are_says_so(serve: Serve, limit: str) -> None:
    deployments = [
        {"deployment": f"{name}/m", "price_per_mtok": {"input": 1.0, "output": 1.0}} for name in ("fast", "slow")
    ]
    model = {"deployments": deployments, "race": {"mode": "race", "width": 2, limit: 1e-9}}
    async with serve(fast=answer("Hello"), slow=answer("Hello"), config={"models": {MODEL: model}}) as running:
        async with running.chat(stream=True) as response:
            await response.read()
        assert response.headers["x-holeshot-narrowed"] == limit
        assert response.headers["x-holeshot-launched"] == "1"
