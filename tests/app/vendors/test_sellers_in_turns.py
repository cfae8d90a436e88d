"""One conversation of Claude over several sellers in turns: no thought is lost untold, and none that its seller reads.

Claude Sonnet 5.5 reads what its own account has thought, behind the same beginning (platform.claude.com/docs/en/
build-with-claude/preserved-thinking, read on 2026-11-29).
"""

import itertools
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from providers import DatasheetTable, load_catalog
from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.app.vendors.test_growing import hashed

Json = dict[str, Any]
MODEL = "claude-sonnet-5-5"
PROFILE = f"us.anthropic.{MODEL}"
TOOL: Json = {"name": "read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
# By provider, the stand-in, and the model's name there.
SELLERS: Mapping[str, tuple[str, str]] = {
    "anthropic": ("anthropic", MODEL),
    "vertex": ("vertex", MODEL),
    "foundry": ("foundry", MODEL),
    "bedrock_invoke": ("invoke", PROFILE),
    "bedrock_converse": ("bedrock", PROFILE),
}
NATIVE = [name for name in SELLERS if name != "bedrock_converse"]
ORDERS = {
    "each twice": [*NATIVE, *NATIVE],
    "there and back": ["anthropic", "vertex", "anthropic", "anthropic", "vertex", "vertex", "anthropic"],
    "with Converse": ["bedrock_converse", "anthropic", "bedrock_converse", "bedrock_invoke", "bedrock_converse"],
}


def thoughts_in(turns: list[Json]) -> set[tuple[int, int]]:
    """Return the places of thoughts in a request's messages."""
    return {
        (number, place)
        for number, turn in enumerate(turns)
        if turn["role"] == "assistant"
        for place, block in enumerate(turn["content"])
        if block.get("type") == "thinking" or "reasoningContent" in block
    }


async def ask(running: RunningGateway, seller: str, turns: list[Json]) -> tuple[Json, Mapping[str, str]]:
    body = {"model": MODEL, "max_tokens": 4000, "tools": [TOOL], "messages": turns, "provider": {"only": [seller]}}
    async with running.post(body, path="/v1/messages") as response:
        assert response.status == 200, await response.text()
        assert response.headers["x-holeshot-deployment"].partition("/")[0] == seller
        return await response.json(), dict(response.headers)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
async def test_each_seller_is_shown_its_own_thoughts_and_the_others_are_named(tmp_path: Path, order: list[str]) -> None:
    async with AsyncExitStack() as stack:
        vendors: dict[str, Served] = {}
        for name in dict.fromkeys(order):
            vendors[name] = await stack.enter_async_context(running_vendor(SELLERS[name][0], account=name))
        providers = {name: {"base_url": each.base_url, "api_key": each.key} for name, each in vendors.items()}
        deployments = [f"{name}/{SELLERS[name][1]}" for name in vendors]
        models = {MODEL: {"deployments": deployments, "race": {"mode": "single"}}}
        running = await stack.enter_async_context(
            serving(tmp_path, {"unused": None}, providers=providers, models=models)
        )
        turns: list[Json] = []
        made_by: dict[tuple[int, int], str] = {}
        for number, seller in enumerate(order):
            turns.append({"role": "user", "content": f'think: idea {number}\ncall: read {{"path": "{number}"}}'})
            for _ in range(2):
                answer, headers = await ask(running, seller, turns)
                named = headers.get("x-holeshot-dropped", "")
                lost = {place for place, maker in made_by.items() if maker != seller}
                assert len(named.split(", ")) == len(lost) if lost else not named, (named, lost)
                assert float(headers["x-holeshot-cost-usd"]) > 0
                turns.append({"role": "assistant", "content": answer["content"]})
                made_by |= dict.fromkeys(thoughts_in(turns) - made_by.keys(), seller)
                calls = [block for block in answer["content"] if block["type"] == "tool_use"]
                results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "fine"} for call in calls]
                if results:
                    turns.append({"role": "user", "content": results})
        for name, vendor in vendors.items():
            assert vendor.refusals == [], vendor.said
            api = "converse" if name == "bedrock_converse" else "messages"
            sent = [list(hashed(api, request.body)) for request in vendor.seen]
            for before, now in itertools.pairwise(sent):
                assert now[: len(before)] == before
        names = "provider, prompt_tokens, completion_tokens, cost_usd, thoughts_dropped"
        rows = await running.rows(f"select {names} from attempts")
        assert [row["thoughts_dropped"] for row in rows] == [None] * len(rows)
        for row in rows:
            input_usd, output_usd = usd_at(row["provider"])
            usd = row["prompt_tokens"] * input_usd + row["completion_tokens"] * output_usd
            assert row["cost_usd"] == pytest.approx(usd), row


def usd_at(seller: str) -> tuple[float, float]:
    """Return what a token of a prompt and of an answer costs at a seller, by its own row of the price table."""
    key = (load_catalog()[seller].litellm_prefix or "", SELLERS[seller][1])
    price = DatasheetTable.shipped().look_up([key])[key].price
    assert price is not None
    return price.input_usd, price.output_usd


def test_a_profile_of_a_region_has_its_surcharge_and_the_other_sellers_one_price() -> None:
    assert {usd_at(seller) for seller in SELLERS} == {(2e-6, 1e-5), (2.2e-6, 1.1e-5)}


def test_a_model_has_one_price_at_all_its_sellers() -> None:
    prefixes = {"anthropic": MODEL, "vertex_ai": MODEL, "azure_ai": MODEL, "bedrock": f"global.anthropic.{MODEL}"}
    sheets = DatasheetTable.shipped().look_up(prefixes.items())
    prices = [each.price for each in sheets.values() if each.price is not None]
    assert len(prices) == len(prefixes)
    assert len({(price.input_usd, price.output_usd, price.cached_input_usd) for price in prices}) == 1
