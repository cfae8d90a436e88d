"""How much of each turn its vendor has in its cache, for clients of each API: five turns, each with a loop of tools.

The stand-ins count what was really the same beginning (``strict_vendors/caches.py``).
"""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from strict_vendors import Served
from tests.app.gateway.running_gateway import RunningGateway
from tests.app.vendors.places import Place, gateway_before, standing_in
from tests.app.vendors.test_growing import SYSTEM, after, begun, has_calls, with_turn
from tests.app.vendors.test_signed_loops import PATHS, answered, gone_on

Json = dict[str, Any]
TURNS = 5
LEAST = 0.8  # of each prompt from the second turn on
PLACES: Mapping[str, Place] = {
    "gpt-6.2": Place("openai", "openai", "gpt-6.2-astra", "responses"),
    "opus-5.5": Place("anthropic", "anthropic", "claude-opus-5-5", "messages"),
    "gemini-3.8": Place("google", "google", "gemini-3.8-flash", "gemini"),
    "deepseek": Place("deepseek", "deepseek", "deepseek-v4-pro", "chat"),
}
# Claude's caches are asked for; a model without a price is known to have none.
PRICE = {"input": 3.0, "output": 15.0, "cached_input": 0.3, "cache_write": 3.75}
LONG = SYSTEM * 3  # as agents' instructions; Google caches no less than 4,096 tokens


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[RunningGateway, dict[str, Served]]]:
    said: Json = {"price_per_mtok": PRICE, "drop_params": True}
    async with (
        standing_in(PLACES) as vendors,
        gateway_before(tmp_path, PLACES, vendors, deployment=said, settings={"cache_marks": "auto"}) as running,
    ):
        yield running, vendors


def instructed(api: str, body: Json) -> Json:
    """Return the request with longer instructions.

    Of Responses in an item, as Codex sends them: GPT-6.2 caches no top-level ``instructions``, and in its own API a
    request passes as it is.
    """
    match api:
        case "gemini":
            return {**body, "systemInstruction": {"parts": [{"text": LONG}]}}
        case "chat":
            return {**body, "messages": [{"role": "system", "content": LONG}]}
        case "messages":
            return {**body, "system": LONG}
        case _:
            rest = {name: value for name, value in body.items() if name != "instructions"}
            return {**rest, "input": [{"role": "developer", "content": LONG}]}


async def shares(running: RunningGateway) -> list[float]:
    """Return which share of each prompt was cached, as the ledger has it."""
    rows = await running.rows("select prompt_tokens, cached_tokens from attempts where outcome = 'won' order by id")
    return [(row["cached_tokens"] or 0) / row["prompt_tokens"] for row in rows]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("model", PLACES)
async def test_most_of_each_turn_is_cached(
    running: tuple[RunningGateway, dict[str, Served]], model: str, api: str, stream: bool
) -> None:
    gateway, vendors = running
    body = instructed(api, begun(api))
    for turn in range(TURNS):
        body = with_turn(api, body, f'Turn {turn}.\ncall: look {{"city": "{turn}"}}\nthen: read {{"city": "{turn}"}}')
        while has_calls(api, answer := await answered(gateway, api, model, body, stream=stream)):
            body = gone_on(api, body, answer)
        body = after(api, body, answer)
    found = await shares(gateway)
    assert vendors[model].said == ""
    assert len(found) == 3 * TURNS
    assert min(found[3:]) > LEAST, found
