"""In a loop of tools each strict vendor gets back what it has signed, in every API; and nobody what another has.

Gemini 3 refuses a turn that goes on without its signature, Claude thinks on only with its own, and each refuses
another's.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from providers import events
from providers.dialects import DIALECTS
from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving

Json = dict[str, Any]


class Place(NamedTuple):
    """A deployment at a stand-in, and a word in what is sent back to it that says that it is its own."""

    vendor: str
    preset: str
    model: str
    apis: tuple[str, ...] = ()
    word: str = "thoughtSignature"


PLACES: Mapping[str, Place] = {
    "gemini": Place("google", "google", "gemini-3.1-pro-preview", ("gemini",)),
    "interactions": Place("google", "google", "gemini-3.1-pro-preview", ("interactions",), '"signature"'),
    "gemini-chat": Place("gemini", "gemini", "gemini-3.1-pro-preview", word="thought_signature"),
    "gemini-openrouter": Place(
        "openrouter", "openrouter", "google/gemini-3.1-pro-preview", ("chat",), "reasoning.encrypted"
    ),
    "claude": Place("anthropic", "anthropic", "claude-haiku-4-5", word='"signature"'),
    "claude-bedrock": Place(
        "bedrock", "bedrock_converse", "us.anthropic.claude-haiku-4-5-20251001-v1:0", (), '"signature"'
    ),
}
UNSIGNED = "skip_thought_signature_validator"
# Anthropic's and Bedrock's stand-ins do not read each other's signatures, though the vendors do.
ALIKE = {("claude", "claude-bedrock"), ("claude-bedrock", "claude")}
# OpenRouter's signature comes behind the call, which is sent: Gemini refuses that once, as that of any other model.
BEHIND = ("gemini", "gemini-openrouter", "gemini")
SAID = "twice"  # a call, another one, and a text
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/{model}:streamGenerateContent?alt=sse",
}
ALL_PATHS = {**PATHS, "interactions": "/v1beta/interactions"}
FIRST: Mapping[str, Json] = {
    "chat": {
        "messages": [{"role": "user", "content": SAID}],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}],
        "reasoning_effort": "low",
    },
    "responses": {
        "input": [{"role": "user", "content": SAID}],
        "tools": [{"type": "function", "name": "look", "parameters": SCHEMA}],
        "reasoning": {"effort": "low"},
        "include": ["reasoning.encrypted_content"],
        "store": False,
    },
    "messages": {
        "messages": [{"role": "user", "content": SAID}],
        "tools": [{"name": "look", "input_schema": SCHEMA}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "max_tokens": 9000,
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": SAID}]}],
        "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": SCHEMA}]}],
        "generationConfig": {"thinkingConfig": {"includeThoughts": True, "thinkingLevel": "LOW"}},
    },
    "interactions": {
        "input": [{"type": "user_input", "content": [{"type": "text", "text": SAID}]}],
        "tools": [{"type": "function", "name": "look", "parameters": SCHEMA}],
        "generation_config": {"thinking_summaries": "auto", "thinking_level": "low"},
        "store": False,
    },
}


def gone_on(api: str, body: Json, answer: Json) -> Json:
    """Return the next request: all of the answer, and the results of its calls."""
    match api:
        case "chat":
            message = answer["choices"][0]["message"]
            results: list[Json] = [
                {"role": "tool", "tool_call_id": each["id"], "content": "rain"} for each in message["tool_calls"]
            ]
            return {**body, "messages": [*body["messages"], message, *results]}
        case "responses":
            items = [{name: value for name, value in each.items() if name != "id"} for each in answer["output"]]
            results = [
                {"type": "function_call_output", "call_id": each["call_id"], "output": "rain"}
                for each in items
                if each["type"] == "function_call"
            ]
            return {**body, "input": [*body["input"], *items, *results]}
        case "messages":
            results = [
                {"type": "tool_result", "tool_use_id": each["id"], "content": "rain"}
                for each in answer["content"]
                if each["type"] == "tool_use"
            ]
            turns = [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": results}]
            return {**body, "messages": [*body["messages"], *turns]}
        case "interactions":
            results = [
                {"type": "function_result", "call_id": each["id"], "name": each["name"], "result": "rain"}
                for each in answer["steps"]
                if each["type"] == "function_call"
            ]
            return {**body, "input": [*body["input"], *answer["steps"], *results]}
    parts = [part for part in answer["candidates"][0]["content"]["parts"] if not part.get("thought")]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    results = [{"functionResponse": {**_named(call), "response": {"output": "rain"}}} for call in calls]
    turns = [{"role": "model", "parts": parts}, {"role": "user", "parts": results}]
    return {**body, "contents": [*body["contents"], *turns]}


def _named(call: Json) -> Json:
    return {name: value for name, value in call.items() if name != "args"}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[RunningGateway, dict[str, Served]]]:
    """A gateway before all of them, each a model of its own."""
    async with AsyncExitStack() as stack:
        vendors = {
            name: await stack.enter_async_context(running_vendor(place.vendor)) for name, place in PLACES.items()
        }
        providers: Json = {
            name: {"base_url": vendors[name].base_url, "api_key": vendors[name].key, "preset": place.preset}
            for name, place in PLACES.items()
        }
        for name, place in PLACES.items():
            providers[name] |= {"apis": [*place.apis]} if place.apis else {}
        settings: Json = {
            "providers": providers,
            "models": {name: {"deployments": [f"{name}/{place.model}"]} for name, place in PLACES.items()},
            "overload": {"loop_delay_ms": 0},  # a hundred calls at once make a busy machine's loop late
        }
        yield await stack.enter_async_context(serving(tmp_path, {"alpha": None}, **settings)), vendors


async def answered(running: RunningGateway, api: str, model: str, body: Json, *, stream: bool) -> Json:
    """Return the whole answer."""
    path = ALL_PATHS[api].format(model=model)
    path = path if stream else path.replace(":streamGenerateContent?alt=sse", ":generateContent")
    sent = body if api == "gemini" else {**body, "model": model, "stream": stream}
    async with running.post(sent, path=path) as response:
        came = await response.read()
    assert response.status == 200, (model, came, body)
    if not stream:
        return json.loads(came)  # type: ignore[no-any-return] # an object
    answers = DIALECTS[api].answers
    gathering = answers.gathering()
    for event in events(came):
        if event.data.strip() not in {b"", b"[DONE]"}:
            gathering.take(answers.read_event(event.data, ()))
    return json.loads(gathering.body())  # type: ignore[no-any-return] # an object


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", ALL_PATHS)
async def test_each_gets_its_own_back_and_no_others(
    gateway: tuple[RunningGateway, dict[str, Served]], api: str, stream: bool
) -> None:
    running, vendors = gateway

    async def walk(first: str, then: str) -> None:
        body = FIRST[api]
        body = gone_on(api, body, await answered(running, api, first, body, stream=stream))
        body = gone_on(api, body, await answered(running, api, first, body, stream=stream))
        await answered(running, api, then, body, stream=stream)

    async with asyncio.TaskGroup() as group:
        for pair in itertools.product(PLACES, PLACES):
            if not (pair in ALIKE or (api, *pair) == BEHIND):
                group.create_task(walk(*pair))
    told = {name: vendor.said for name, vendor in vendors.items() if vendor.refusals}
    assert told == {}
    for name, vendor in vendors.items():
        bodies = [json.dumps(request.body) for request in vendor.seen]
        assert sum(PLACES[name].word in each and UNSIGNED not in each for each in bodies) >= len(PLACES) - 1, name
