"""What a caller is told of a call's plan is what runs: each API, by what the request and the settings demand."""

from itertools import product
from typing import Any

import msgspec
import pytest

from tests.app.gateway.relayed.samples import EMBEDDINGS, MESSAGE, PICTURES, Open, says
from tests.app.gateway.running_gateway import MODEL

CHAT = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
# By API: its path, a body, and an answer.
APIS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "chat": ("/v1/chat/completions", {"messages": MESSAGE["messages"]}, CHAT),
    "messages": ("/v1/messages", {"messages": MESSAGE["messages"], "max_tokens": 5}, CHAT),
    "responses": ("/v1/responses", {"input": "How many?"}, CHAT),
    "embeddings": ("/v1/embeddings", {"input": ["a"]}, EMBEDDINGS),
    "rerank": ("/v1/rerank", {"query": "q", "documents": ["a"]}, {"id": "r", "results": [{"index": 0}]}),
    "moderations": ("/v1/moderations", {"input": "a"}, {"id": "modr", "model": "m", "results": [{"flagged": True}]}),
    "pictures": ("/v1/images/generations", {"prompt": "a"}, PICTURES),
}
DEMANDS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "an order": {"provider": {"order": ["beta", "alpha"]}},
    "one alone": {"provider": {"only": ["alpha"]}},
    "no fallbacks": {"provider": {"allow_fallbacks": False}},
    "an order, and no fallbacks": {"provider": {"order": ["beta"], "allow_fallbacks": False}},
}
RACES: dict[str, dict[str, Any]] = {
    "race": {"mode": "race", "width": 2},
    "auto": {"mode": "auto", "budget": 1.0, "worth_ms": 0},
    "no budget": {"budget": 0},
    "no dollars": {"mode": "race", "width": 2, "usd_per_day": 0.0},
}
MODELS = {"of one model": ("m", "m"), "of two models": ("one", "two")}


@pytest.mark.parametrize(("api", "demand"), [*product(APIS, DEMANDS)])
async def test_what_is_told_is_what_runs_and_whoever_gets_fewer_is_told_why(
    opened: Open, api: str, demand: str
) -> None:
    path, body, answer = APIS[api]
    # Vectors of two models are never mixed, whatever is demanded.
    models_of = {of: models for of, models in MODELS.items() if api != "embeddings" or models[0] == models[1]}
    ways = {f"{race}, {of}": (RACES[race], models_of[of]) for race, of in product(RACES, models_of)}
    config = {
        "models": {
            f"{MODEL}{number}": {"deployments": [f"alpha/{models[0]}", f"beta/{models[1]}"], "race": race}
            for number, (race, models) in enumerate(ways.values())
        }
    }
    answers: dict[str, Any] = {name: [says(answer)] * 4 * len(ways) for name in ("alpha", "beta")}
    async with opened(**answers, config=config) as (running, _):
        for number, way in enumerate(ways):
            sent = {"model": f"{MODEL}{number}", **body, **DEMANDS[demand]}
            async with running.post(sent, path=path, headers={"x-holeshot-plan": "explain"}) as response:
                assert response.status == 200, (way, await response.text())
                told = msgspec.json.decode(response.headers["x-holeshot-plan"])
                launched = int(response.headers["x-holeshot-launched"])
                narrowed = response.headers.get("x-holeshot-narrowed")
            starts = [each["deployment"] for each in told["launches"] if not each["delay_s"]]
            assert len(starts) == launched, way
            if demand.startswith("an order"):
                assert starts[0].startswith("beta/"), way
            [row] = await running.rows(
                f"select launched, width_asked, narrowed from calls where model = '{MODEL}{number}'"
            )
            assert row["narrowed"] == narrowed == told.get("narrowed"), way
            assert row["launched"] == launched >= (row["width_asked"] or 1) or narrowed is not None, way


async def test_deployments_of_one_model_run_as_told_and_of_another_the_reason_is_told(opened: Open) -> None:
    path, body, answer = APIS["rerank"]
    told = {}
    for of, models in MODELS.items():
        config = {
            "models": {MODEL: {"deployments": [f"alpha/{models[0]}", f"beta/{models[1]}"], "race": RACES["race"]}}
        }
        async with (
            opened(alpha=[says(answer)] * 2, beta=[says(answer)] * 2, config=config) as (running, _),
            running.post({"model": MODEL, **body}, path=path) as response,
        ):
            told[of] = response.headers["x-holeshot-launched"], response.headers.get("x-holeshot-narrowed")
    assert told == {"of one model": ("2", None), "of two models": ("1", "differs")}
