"""An agent whose tools show pictures, at every strict vendor that sees them, in every API: all of them arrive.

Its tools have strict schemas, and of three it may call two; one of two results tells a failure.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.app.vendors.test_any_conversation import BLIND, VENDORS, preset
from tests.app.vendors.test_signed_loops import PATHS, answered
from tests.unit.providers.dialects.pairs import among

Json = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
URL = f"data:image/png;base64,{PNG}"
SAID = 'Look.\ncall: look {"city": "Oslo"}\ncall: find {"city": "Rome"}'
LAST = "What was it?"
CALLS, FEWEST = 2, 2
SEES = [name for name in VENDORS if name not in BLIND]


def tools(api: str) -> Json:
    """Return strict tools, of which two may be called."""
    if api == "messages":
        chat = among("auto", "look", "find")["chat"]["tools"]
        return {
            "tools": [
                {"name": each["function"]["name"], "input_schema": each["function"]["parameters"], "strict": True}
                for each in chat
            ]
        }
    asked: Json = json.loads(json.dumps(among("auto", "look", "find")[api]))
    for each in asked["tools"] if api != "gemini" else ():
        each.get("function", each)["strict"] = True
    return asked


FIRST: Mapping[str, Json] = {
    "chat": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": SAID}, {"type": "image_url", "image_url": {"url": URL}}],
            },
        ],
    },
    "responses": {
        "instructions": "Be brief.",
        "input": [
            {
                "role": "user",
                "content": [{"type": "input_text", "text": SAID}, {"type": "input_image", "image_url": URL}],
            }
        ],
        "store": False,
    },
    "messages": {
        "system": "Be brief.",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": SAID},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                ],
            }
        ],
        "max_tokens": 4000,
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": SAID}, {"inlineData": {"mimeType": "image/png", "data": PNG}}]}
        ],
    },
}


def with_results(api: str, body: Json, answer: Json) -> tuple[Json, int]:
    """Return the next request with the results of the calls, the first with a picture, others failed; and how many."""
    match api:
        case "chat":
            message = answer["choices"][0]["message"]
            calls = message.get("tool_calls") or []
            told: list[Json] = [
                {"role": "tool", "tool_call_id": each["id"], "content": "Error: none" if number else "See below."}
                for number, each in enumerate(calls)
            ]
            shown = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]}]
            return {**body, "messages": [*body["messages"], message, *told, *(shown if calls else [])]}, len(calls)
        case "responses":
            items = [{name: value for name, value in each.items() if name != "id"} for each in answer["output"]]
            called = [each for each in items if each["type"] == "function_call"]
            seen = [{"type": "input_text", "text": "Seen:"}, {"type": "input_image", "image_url": URL}]
            told = [
                {
                    "type": "function_call_output",
                    "call_id": each["call_id"],
                    "output": "Error: none" if number else seen,
                }
                for number, each in enumerate(called)
            ]
            return {**body, "input": [*body["input"], *items, *told]}, len(called)
        case "messages":
            used = [each for each in answer["content"] if each["type"] == "tool_use"]
            image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
            told = [
                {"type": "tool_result", "tool_use_id": each["id"]}
                | ({"content": "none", "is_error": True} if number else {"content": [image]})
                for number, each in enumerate(used)
            ]
            turns = [{"role": "assistant", "content": answer["content"]}]
            turns += [{"role": "user", "content": told}] if told else []
            return {**body, "messages": [*body["messages"], *turns]}, len(used)
    parts = [part for part in answer["candidates"][0]["content"]["parts"] if not part.get("thought")]
    named = [
        {name: value for name, value in part["functionCall"].items() if name != "args"}
        for part in parts
        if "functionCall" in part
    ]
    picture = {"response": {"output": "Seen:"}, "parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}]}
    told = [
        {"functionResponse": {**each, **({"response": {"error": "none"}} if number else picture)}}
        for number, each in enumerate(named)
    ]
    turns = [{"role": "model", "parts": parts}, *([{"role": "user", "parts": told}] if told else [])]
    return {**body, "contents": [*body["contents"], *turns]}, len(named)


def asking(api: str, body: Json, text: str) -> Json:
    """Return the request with another turn of the user's, in words."""
    match api:
        case "gemini":
            return {**body, "contents": [*body["contents"], {"role": "user", "parts": [{"text": text}]}]}
        case "responses":
            return {**body, "input": [*body["input"], {"role": "user", "content": text}]}
    return {**body, "messages": [*body["messages"], {"role": "user", "content": text}]}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[RunningGateway, dict[str, Served]]]:
    """A gateway before them, each a model of its own."""
    async with AsyncExitStack() as stack:
        vendors = {name: await stack.enter_async_context(running_vendor(VENDORS[name][0])) for name in SEES}
        providers: Json = {
            name: {"base_url": vendor.base_url, "api_key": vendor.key, **preset(name)}
            for name, vendor in vendors.items()
        }
        models = {name: {"deployments": [f"{name}/{VENDORS[name][2]}"]} for name in vendors}
        yield (
            await stack.enter_async_context(serving(tmp_path, {"alpha": None}, providers=providers, models=models)),
            vendors,
        )


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", PATHS)
async def test_all_pictures_arrive_and_nothing_is_refused(
    gateway: tuple[RunningGateway, dict[str, Served]], api: str, stream: bool
) -> None:
    running, vendors = gateway
    wrong: dict[str, str] = {}

    async def walk(name: str) -> None:
        body = {**FIRST[api], **tools(api)}
        try:
            body, calls = with_results(api, body, await answered(running, api, name, body, stream=stream))
            body, _ = with_results(api, body, await answered(running, api, name, body, stream=stream))
            await answered(running, api, name, asking(api, body, LAST), stream=stream)
        except AssertionError as error:
            wrong[name] = f"{str(error)[:300]} {vendors[name].said}"
            return
        sent, came = (json.dumps(each).count(PNG) for each in (body, vendors[name].seen[-1].body))
        if calls != CALLS or not FEWEST <= sent == came or vendors[name].refusals:
            wrong[name] = f"{calls} calls, {came} pictures of {sent}: {vendors[name].said}"

    async with asyncio.TaskGroup() as group:
        for name in vendors:
            group.create_task(walk(name))
    assert not wrong, "\n".join(f"{name}: {said}" for name, said in wrong.items())
