"""Clients of Claude at Vertex AI ask the gateway in its place, by Vertex AI's paths, and any deployment answers."""

from pathlib import Path
from typing import Any

import pytest

from strict_vendors import running_vendor
from tests.app.gateway.running_gateway import serving

Json = dict[str, Any]

MODELS = "/v1/projects/p1/locations/global/publishers/anthropic/models"
# As AnthropicVertex of Anthropic's SDK 2.14 sends it: the model is in the address, the version in the body.
ASKED: Json = {
    "anthropic_version": "2026-10-21",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "say: well"}],
}


@pytest.mark.parametrize("seller", ["anthropic", "vertex"])
async def test_a_client_of_vertex_ai_s_claude_is_answered_by_any_seller(tmp_path: Path, seller: str) -> None:
    async with running_vendor(seller) as vendor:
        providers = {seller: {"base_url": vendor.base_url, "api_key": vendor.key}}
        models = {"claude-opus-4-6": {"deployments": [f"{seller}/claude-opus-4-6"]}}
        async with serving(tmp_path, {"unused": None}, providers=providers, models=models) as running:
            for name in ("claude-opus-4-6", "claude-opus-4-6@default", "claude-opus-4-6@20260205"):
                async with running.post(ASKED, path=f"{MODELS}/{name}:rawPredict") as response:
                    assert response.status == 200, await response.text()
                    assert (await response.json())["content"][0]["text"] == "well"
            streamed = {**ASKED, "stream": True}
            async with running.post(streamed, path=f"{MODELS}/claude-opus-4-6:streamRawPredict") as response:
                assert response.status == 200, await response.text()
                assert b"event: message_stop" in await response.read()
            counted = {name: ASKED[name] for name in ("anthropic_version", "messages")} | {"model": "claude-opus-4-6"}
            async with running.post(counted, path=f"{MODELS}/count-tokens:rawPredict") as response:
                assert (await response.json())["input_tokens"] > 0
            async with running.post(ASKED, path=f"{MODELS}/claude-none:rawPredict") as response:
                assert response.status == 404
                assert (await response.json())["type"] == "error"
        assert vendor.refusals == [], vendor.said
