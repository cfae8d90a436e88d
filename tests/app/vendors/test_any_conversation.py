"""A conversation that is valid in one API goes on at every vendor, through a gateway and over sockets.

Those of ``test_any_conversation.py`` of the dialects, at the strict stand-ins: with what the gateway puts in beside the
translation, and with what a refusal teaches it. What a vendor refuses when it is asked directly may be refused.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from strict_vendors import Served, made, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.support.searched import some
from tests.unit.providers.dialects.inside.test_any_conversation import APIS, CONVERSATIONS

EXAMPLES = 12
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/{model}:generateContent",
}
# The stand-in, the preset and the model there; and the API in which a client would ask it directly.
VENDORS: Mapping[str, tuple[str, str | None, str, frozenset[str]]] = {
    "gpt-4o": ("openai", "openai", "gpt-4o", frozenset({"chat", "responses"})),
    "gpt-5": ("openai", "openai", "gpt-5", frozenset({"chat", "responses"})),
    "azure": ("azure", "azure", "gpt-4o", frozenset({"chat"})),
    "claude": ("anthropic", "anthropic", "claude-haiku-4-5", frozenset({"messages"})),
    "gemini-2": ("google", "google", "gemini-2.5-flash", frozenset({"gemini"})),
    "gemini-3": ("google", "google", "gemini-3.5-flash", frozenset({"gemini"})),
    "gemini-chat": ("gemini", "gemini", "gemini-3.5-flash", frozenset({"chat"})),
    "bedrock": ("bedrock", "bedrock_converse", "us.anthropic.claude-haiku-4-5-20251001-v1:0", frozenset()),
    "mistral": ("mistral", "mistral", "mistral-large-latest", frozenset({"chat"})),
    "deepseek": ("deepseek", "deepseek", "deepseek-v4-flash", frozenset({"chat"})),
    "groq": ("groq", "groq", "openai/gpt-oss-120b", frozenset({"chat", "responses"})),
    "xai": ("xai", "xai", "grok-4.5", frozenset({"chat", "responses"})),
    "openrouter": ("openrouter", "openrouter", "anthropic/claude-sonnet-4.5", frozenset({"chat", "responses"})),
    "openrouter-gemini": (
        "openrouter",
        "openrouter",
        "google/gemini-3.1-pro-preview",
        frozenset({"chat", "responses"}),
    ),
    "vllm-gemma": ("vllm", "vllm", "google/gemma-3-27b-it", frozenset({"chat", "responses", "messages"})),
    "ollama-old": ("ollama_old", "ollama", "qwen3:8b", frozenset({"chat"})),
    "llama.cpp-preset": ("llama_cpp", "llama_cpp", "qwen3.5-27b.gguf", frozenset({"chat", "messages"})),
    "vllm": ("vllm", None, "Qwen/Qwen3.5-27B", frozenset({"chat", "responses", "messages"})),
    "llama.cpp": ("llama_cpp", None, "qwen3.5-27b.gguf", frozenset({"chat", "responses", "messages"})),
    "ollama": ("ollama", None, "qwen3:8b", frozenset({"chat", "responses", "messages"})),
}
# Their models, or most of them, take no pictures.
BLIND = {"deepseek", "groq", "xai", "vllm", "vllm-gemma", "llama.cpp", "llama.cpp-preset", "ollama", "ollama-old"}


def conversations() -> list[dict[str, Any]]:
    """Return some of the grammar's conversations: a few that are the same each time, and more that are the day's."""
    found: list[dict[str, Any]] = []

    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=[*HealthCheck]
    )
    @given(said=CONVERSATIONS)
    def collect(said: dict[str, Any]) -> None:
        found.append(said)

    collect()
    return some(found, EXAMPLES // 10, EXAMPLES // 10)


def without_pictures(said: dict[str, Any]) -> dict[str, Any]:
    """Return the same conversation in words alone."""
    return json.loads(json.dumps(said).replace('["picture", ""]', '["text", "Hi"]').replace('"picture"', '"rain"'))  # type: ignore[no-any-return] # as it was


def asked(api: str, model: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of a request."""
    return PATHS[api].format(model=model), body if api == "gemini" else {**body, "model": model}


def is_refused_directly(name: str, api: str, body: dict[str, Any]) -> bool:
    """Say whether the vendor refuses the same in its own API."""
    vendor, _, model, apis = VENDORS[name]
    if api not in apis:
        return False
    stand_in = made(vendor)
    path, body = asked(api, model, body)
    path = stand_in.base + path.removeprefix("/v1") if stand_in.base and api != "gemini" else path
    if vendor == "azure":
        path = f"/openai/deployments/{model}/chat/completions?api-version=2025-04-01-preview"
    keys = {"api-key": stand_in.key, "x-api-key": stand_in.key, "x-goog-api-key": stand_in.key}
    keys |= {"anthropic-version": "2023-06-01"}
    keys |= {} if api in {"gemini", "messages"} else {"authorization": f"Bearer {stand_in.key}"}
    return stand_in.answer("POST", path, keys, json.dumps(body).encode()).status != 200


def preset(name: str) -> dict[str, str]:
    """Return the preset of a provider; own servers have none."""
    named = VENDORS[name][1]
    return {"preset": named} if named is not None else {}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[RunningGateway, dict[str, Served]]]:
    """A gateway before all of them, each a model of its own."""
    async with AsyncExitStack() as stack:
        vendors = {
            name: await stack.enter_async_context(running_vendor(vendor)) for name, (vendor, *_) in VENDORS.items()
        }
        providers = {
            name: {"base_url": vendor.base_url, "api_key": vendor.key, **preset(name)}
            for name, vendor in vendors.items()
        }
        models = {name: {"deployments": [f"{name}/{VENDORS[name][2]}"]} for name in vendors}
        yield (
            await stack.enter_async_context(serving(tmp_path, {"alpha": None}, providers=providers, models=models)),
            vendors,
        )


@pytest.mark.parametrize("api", APIS)
async def test_it_goes_on_at_every_vendor(gateway: tuple[RunningGateway, dict[str, Served]], api: str) -> None:
    running, vendors = gateway
    wrong: list[str] = []

    async def go_on(name: str) -> None:
        for said in conversations():
            body = APIS[api](without_pictures(said) if name in BLIND else said)
            path, sent = asked(api, name, body)
            async with running.post(sent, path=path) as response:
                text = await response.text()
            if response.status != 200 and not is_refused_directly(name, api, body):
                wrong.append(f"{name}: {response.status} {text[:300]}\n{vendors[name].said[-300:]}")

    async with asyncio.TaskGroup() as group:
        for name in VENDORS:
            group.create_task(go_on(name))
    assert wrong == []
