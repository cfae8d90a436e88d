"""A program leaves out the beginning of a history, and offers tools without parameters: each vendor takes both at once.

Qwen Code 0.24.4 does both in its default: what it asks beside the conversation begins with a call, and some of its
tools take nothing (seen on 2026-11-29).
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.app.vendors.test_every_pair import VENDORS
from tests.app.vendors.test_signed_loops import PATHS

Json = dict[str, Any]

CALL = "call00001"
CUT: Mapping[str, Json] = {
    "chat": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": CALL, "type": "function", "function": {"name": "look", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": CALL, "content": "rain"},
            {"role": "assistant", "content": "It rains."},
            {"role": "user", "content": "recall: now"},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "description": "Look out."}}],
    },
    "responses": {
        "instructions": "Be brief.",
        "input": [
            {"type": "function_call", "call_id": CALL, "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": CALL, "output": "rain"},
            {"role": "assistant", "content": "It rains."},
            {"role": "user", "content": "recall: now"},
        ],
        "tools": [{"type": "function", "name": "look", "description": "Look out.", "strict": False}],
    },
    "messages": {
        "system": "Be brief.",
        "max_tokens": 700,
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": CALL, "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": CALL, "content": "rain"}]},
            {"role": "assistant", "content": "It rains."},
            {"role": "user", "content": "recall: now"},
        ],
        "tools": [{"name": "look", "description": "Look out.", "input_schema": {"type": "object"}}],
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "rain"}}}]},
            {"role": "model", "parts": [{"text": "It rains."}]},
            {"role": "user", "parts": [{"text": "recall: now"}]},
        ],
        "tools": [{"functionDeclarations": [{"name": "look", "description": "Look out."}]}],
    },
}
THOUGHTS_NEEDED = {"deepseek", "moonshot"}  # they get a placeholder for the thoughts of another's call, and it is told
# In its own API each says itself how a history begins.
OWN = {("messages", "anthropic"), ("gemini", "google"), ("gemini", "interactions")}


def without_instructions(body: Json) -> Json:
    """Return the request without its system prompt."""
    rest = {name: value for name, value in body.items() if name not in {"system", "instructions", "systemInstruction"}}
    if "messages" in rest:
        rest["messages"] = [each for each in rest["messages"] if each["role"] != "system"]
    return rest


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[RunningGateway, dict[str, Served]]]:
    """A gateway before all vendors, each a model."""
    async with AsyncExitStack() as stack:
        vendors = {name: await stack.enter_async_context(running_vendor(each[0])) for name, each in VENDORS.items()}
        providers: Json = {
            name: {"base_url": vendor.base_url, "api_key": vendor.key, "preset": VENDORS[name][1]}
            for name, vendor in vendors.items()
        }
        models: Json = {name: {"deployments": [f"{name}/{model}"]} for name, (_, _, model) in VENDORS.items()}
        yield (
            await stack.enter_async_context(serving(tmp_path, {"unused": None}, providers=providers, models=models)),
            vendors,
        )


@pytest.mark.parametrize("api", PATHS)
async def test_nothing_is_refused_and_nothing_of_the_history_is_lost(
    gateway: tuple[RunningGateway, dict[str, Served]], api: str
) -> None:
    running, vendors = gateway
    wrong = []
    for name, vendor in vendors.items():
        if (api, name) in OWN:
            continue
        path = PATHS[api].format(model=name).replace(":streamGenerateContent?alt=sse", ":generateContent")
        for instructed in (True, False):
            body = CUT[api] if instructed else without_instructions(CUT[api])
            body = body if api == "gemini" else {**body, "model": name}
            async with running.post(body, path=path) as response:
                said, dropped = await response.text(), response.headers.get("x-holeshot-dropped", "")
            is_whole = response.status == 200 and "results 1" in said and not vendor.refusals
            lost = name not in THOUGHTS_NEEDED and re.search(r"messages|input|contents|tools", dropped)
            if not is_whole or lost:
                wrong.append(f"{name}: {response.status}, dropped {dropped!r}, refused {vendor.said!r}: {said[:300]}")
    assert not wrong, "\n".join(wrong)
