"""A conversation of three turns with tools changes its vendor in the middle, for every ordered pair of vendors and API.

The results of the first call go to another vendor, in the second turn a fallback answers after a 503, and the third is
raced. Each vendor gets the history as it takes it at once: the stand-ins count what they refuse, raced losers too.
"""

import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from providers import events
from providers.dialects import DIALECTS
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.app.vendors.test_signed_loops import FIRST, PATHS
from tests.support.searched import some
from tests.support.vendors import Served, running_vendor

Json = dict[str, Any]

# The stand-in, the preset, and the model there.
VENDORS: Mapping[str, tuple[str, str | None, str]] = {
    "openai": ("openai", "openai", "gpt-5"),
    "azure": ("azure", "azure", "gpt-4.1"),
    "anthropic": ("anthropic", "anthropic", "claude-haiku-4-5"),
    "google": ("google", "google", "gemini-3.5-flash"),
    "gemini": ("gemini", "gemini", "gemini-3.1-pro-preview"),
    "bedrock": ("bedrock", "bedrock_converse", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    "mistral": ("mistral", "mistral", "mistral-large-latest"),
    "deepseek": ("deepseek", "deepseek", "deepseek-v4-flash"),
    "groq": ("groq", "groq", "openai/gpt-oss-120b"),
    "xai": ("xai", "xai", "grok-4.5"),
    "openrouter": ("openrouter", "openrouter", "anthropic/claude-sonnet-4.5"),
    "moonshot": ("moonshot", "moonshot", "kimi-k2.6"),
    "vllm": ("vllm", "vllm", "Qwen/Qwen3.5-27B"),
    "ollama": ("ollama", "ollama", "qwen3:8b"),
}
# These read each other's thoughts, though their stand-ins do not.
ALIKE = ({"anthropic", "bedrock"},)
PAIRS = [pair for pair in itertools.permutations(VENDORS, 2) if {*pair} not in ALIKE]
# Pairs that were once refused.
ALWAYS = [
    ("gemini", "openai"),
    ("google", "azure"),
    ("anthropic", "openai"),
    ("openai", "anthropic"),
    ("xai", "google"),
    ("google", "mistral"),
    ("vllm", "anthropic"),
    ("anthropic", "vllm"),
    ("bedrock", "vllm"),
    ("openai", "xai"),
    ("xai", "openai"),
    ("ollama", "openai"),
    ("openai", "ollama"),
    ("ollama", "xai"),
]
NOT_OF_HISTORIES = {"as asked for", "not taken: include"}  # "include" at Groq is learnt once


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[RunningGateway, dict[str, Served]]]:
    """A gateway before all of them: each a model, each pair one that falls back, and one that races."""
    async with AsyncExitStack() as stack:
        vendors = {name: await stack.enter_async_context(running_vendor(each[0])) for name, each in VENDORS.items()}
        providers: Json = {
            name: {"base_url": vendor.base_url, "api_key": vendor.key, "preset": VENDORS[name][1]}
            for name, vendor in vendors.items()
        }
        at = {name: f"{name}/{model}" for name, (_, _, model) in VENDORS.items()}
        models: Json = {name: {"deployments": [at[name]]} for name in VENDORS}
        for one, other in PAIRS:
            models[f"{one}-then-{other}"] = {"deployments": [at[one]], "fallbacks": [other]}
            models[f"{one}-or-{other}"] = {
                "deployments": [at[one], at[other]],
                "race": {"mode": "race", "width": 2, "budget": 1.0},
            }
        yield (
            await stack.enter_async_context(serving(tmp_path, {"alpha": None}, providers=providers, models=models)),
            vendors,
        )


class Talk:
    """One conversation."""

    def __init__(self, running: RunningGateway, api: str, *, stream: bool) -> None:
        self.running, self.api, self.stream = running, api, stream
        self.body: Json = json.loads(json.dumps(FIRST[api]))
        self.key = {"chat": "messages", "messages": "messages", "responses": "input", "gemini": "contents"}[api]
        self.body[self.key] = []

    def say(self, text: str) -> None:
        said = (
            {"role": "user", "parts": [{"text": text}]} if self.api == "gemini" else {"role": "user", "content": text}
        )
        self.body[self.key].append(said)

    async def ask(self, model: str) -> str:
        """Ask, and take the answer and the results of its calls into the conversation; return who answered."""
        path = PATHS[self.api].format(model=model)
        path = path if self.stream else path.replace(":streamGenerateContent?alt=sse", ":generateContent")
        sent = self.body if self.api == "gemini" else {**self.body, "model": model, "stream": self.stream}
        async with self.running.post(sent, path=path) as response:
            came, headers = await response.read(), response.headers
        assert response.status == 200, (model, came, json.dumps(sent))
        self._take(self._whole(came))
        return str(headers["x-holeshot-provider"])

    def _whole(self, came: bytes) -> Json:
        if not self.stream:
            return json.loads(came)  # type: ignore[no-any-return] # an object
        answers = DIALECTS[self.api].answers
        gathering = answers.gathering()
        for event in events(came):
            if event.data.strip() not in {b"", b"[DONE]"}:
                gathering.take(answers.read_event(event.data, ()))
        return json.loads(gathering.body())  # type: ignore[no-any-return] # an object

    def _take(self, answer: Json) -> None:
        history = self.body[self.key]
        match self.api:
            case "chat":
                message = answer["choices"][0]["message"]
                history.append(message)
                history += [
                    {"role": "tool", "tool_call_id": each["id"], "content": "rain"}
                    for each in message.get("tool_calls") or ()
                ]
            case "responses":
                history += [{name: value for name, value in each.items() if name != "id"} for each in answer["output"]]
                history += [
                    {"type": "function_call_output", "call_id": each["call_id"], "output": "rain"}
                    for each in answer["output"]
                    if each["type"] == "function_call"
                ]
            case "messages":
                history.append({"role": "assistant", "content": answer["content"]})
                results = [
                    {"type": "tool_result", "tool_use_id": each["id"], "content": "rain"}
                    for each in answer["content"]
                    if each["type"] == "tool_use"
                ]
                history += [{"role": "user", "content": results}] if results else []
            case _:
                content = answer["candidates"][0]["content"]
                history.append(content)
                calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
                named = [{name: value for name, value in call.items() if name != "args"} for call in calls]
                results = [{"functionResponse": {**each, "response": {"output": "rain"}}} for each in named]
                history += [{"role": "user", "parts": results}] if results else []


async def talked(running: RunningGateway, api: str, one: str, other: str, *, stream: bool) -> None:
    """Talk for three turns, each with a call, at ``one`` and at ``other``."""
    talk = Talk(running, api, stream=stream)
    talk.say("weather?")
    assert await talk.ask(one) == one
    assert await talk.ask(other) == other
    talk.say(f"weather?\nfail: 503 at {VENDORS[one][2]}")
    for _ in range(2):
        assert await talk.ask(f"{one}-then-{other}") == other
    talk.say("weather?")
    for _ in range(2):
        assert await talk.ask(f"{one}-or-{other}") in {one, other}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", PATHS)
async def test_it_goes_on_without_a_refusal(
    gateway: tuple[RunningGateway, dict[str, Served]], api: str, stream: bool
) -> None:
    running, vendors = gateway
    wrong = []
    for one, other in some(PAIRS, ALWAYS, 8):
        await talked(running, api, one, other, stream=stream)
        for name, vendor in vendors.items():
            wrong += [
                f"{one}, {other}: {name} {each.status} {each.rule}: {each.message[:300]}"
                for each in vendor.refusals
                if each.rule not in NOT_OF_HISTORIES
            ]
            vendor.refusals.clear()
    assert not wrong, "\n".join(wrong)
