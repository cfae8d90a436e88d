"""A conversation that a model of another vendor has begun is compacted at OpenAI, which refuses that vendor's items."""

from pathlib import Path

import pytest

from tests.app.vendors.places import Json, Place, gateway_before, standing_in
from tests.app.vendors.test_signed_loops import FIRST, answered, gone_on

PLACES = {
    "openai": Place("openai", "openai", "gpt-5", "responses"),
    "anthropic": Place("anthropic", "anthropic", "claude-haiku-4-5", "messages"),
    "google": Place("google", "google", "gemini-3.5-flash", "gemini", says_api=True),
    "vllm": Place("vllm", "vllm", "Qwen/Qwen3.5-27B", "chat"),
}


@pytest.mark.parametrize("began", PLACES)
async def test_it_is_compacted_without_a_refusal(tmp_path: Path, began: str) -> None:
    async with standing_in(PLACES) as vendors, gateway_before(tmp_path, PLACES, vendors) as running:
        body: Json = FIRST["responses"]
        body = gone_on("responses", body, await answered(running, "responses", began, body, stream=True))
        asked = {"model": "openai", "input": body["input"], "tools": body["tools"]}
        async with running.post(asked, path="/v1/responses/compact") as response:
            told = await response.json()
            assert (response.status, told["object"]) == (200, "response.compaction"), told
        assert [item["type"] for item in told["output"]][-1] == "compaction"
        assert vendors["openai"].refusals == []
        async with running.post(
            {"model": "openai", "input": [*told["output"], *FIRST["responses"]["input"]]}, path="/v1/responses"
        ) as response:
            assert response.status == 200, await response.text()
