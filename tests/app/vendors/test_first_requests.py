"""The first request of an agent at a model that takes it in one API of its vendor: none is refused there."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving

SCHEMA = {"type": "object", "properties": {}}
MODELS = ("gpt-5.4", "gpt-5.5", "gpt-5.6-terra", "gpt-6-astra")
AGENTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "claude-code": (
        "/v1/messages",
        {
            "max_tokens": 32_000,
            "messages": [{"role": "user", "content": "Hi"}],
            "tools": [{"name": "f", "input_schema": SCHEMA}],
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "high"},
        },
    ),
    "gemini-cli": (
        "/v1beta/models/{}:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
            "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}],
            "generationConfig": {
                "temperature": 1,
                "topP": 0.95,
                "topK": 64,
                "thinkingConfig": {"thinkingBudget": 8192},
            },
        },
    ),
}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[RunningGateway, Served]]:
    async with running_vendor("openai") as vendor:
        providers = {"openai": {"base_url": vendor.base_url, "api_key": vendor.key, "preset": "openai"}}
        models = {name: {"deployments": [f"openai/{name}"]} for name in MODELS}
        async with serving(tmp_path, {"alpha": None}, providers=providers, models=models) as running:
            yield running, vendor


@pytest.mark.parametrize("agent", AGENTS)
async def test_no_first_request_is_refused(gateway: tuple[RunningGateway, Served], agent: str) -> None:
    running, vendor = gateway
    path, body = AGENTS[agent]
    for model in MODELS:
        sent = {**body, "model": model} if agent == "claude-code" else body
        async with running.post(sent, path=path.format(model)) as response:
            assert response.status == 200, await response.text()
    assert vendor.said == ""
