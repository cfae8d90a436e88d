"""A conversation of three turns with tools changes its vendor in the middle, for every ordered pair of vendors and API.

The results of the first call go to another vendor, in the second turn a fallback answers after a 503, and the third is
raced. Each vendor gets the history as it takes it at once: the stand-ins count what they refuse, raced losers too. Each
request has preferences that only some vendors take: what was not sent is in the answer's header, and in the call's row.
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
from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.app.vendors.test_signed_loops import ALL_PATHS, FIRST
from tests.support.searched import some

Json = dict[str, Any]

# The stand-in, the preset, and the model there.
VENDORS: Mapping[str, tuple[str, str | None, str]] = {
    "openai": ("openai", "openai", "gpt-5"),
    "azure": ("azure", "azure", "gpt-4.1"),
    "anthropic": ("anthropic", "anthropic", "claude-haiku-4-5"),
    "google": ("google", "google", "gemini-3.5-flash"),
    "interactions": ("google", "google", "gemini-3.6-flash"),
    "gemini": ("gemini", "gemini", "gemini-3.1-pro-preview"),
    "bedrock": ("bedrock", "bedrock_converse", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    "mistral": ("mistral", "mistral", "mistral-medium-latest"),
    "deepseek": ("deepseek", "deepseek", "deepseek-v4-flash"),
    "groq": ("groq", "groq", "openai/gpt-oss-120b"),
    "xai": ("xai", "xai", "grok-4.5"),
    "openrouter": ("openrouter", "openrouter", "anthropic/claude-sonnet-4.5"),
    "moonshot": ("moonshot", "moonshot", "kimi-k2.6"),
    "vllm": ("vllm", "vllm", "Qwen/Qwen3.5-27B"),
    "ollama": ("ollama", "ollama", "qwen3:8b"),
}
# These read each other's thoughts, though their stand-ins do not.
ALIKE = ({"anthropic", "bedrock"}, {"google", "interactions"})
PAIRS = [pair for pair in itertools.permutations(VENDORS, 2) if {*pair} not in ALIKE]
# Pairs that were once refused.
ALWAYS = [
    ("gemini", "openai"),
    ("google", "azure"),
    ("anthropic", "openai"),
    ("openai", "anthropic"),
    ("xai", "google"),
    ("google", "mistral"),
    ("mistral", "bedrock"),
    ("mistral", "openai"),
    ("vllm", "anthropic"),
    ("anthropic", "vllm"),
    ("bedrock", "vllm"),
    ("openai", "xai"),
    ("xai", "openai"),
    ("ollama", "openai"),
    ("openai", "ollama"),
    ("ollama", "xai"),
    ("interactions", "openai"),
    ("anthropic", "interactions"),
    ("gemini", "interactions"),
]
# What is wished for in each API: the field, as it is told, its value, and what of it stands in what is sent.
WISHES: Mapping[str, Mapping[str, tuple[Any, str]]] = {
    "chat": {"top_p": (0.97, ": 0.97"), "verbosity": ("high", '"verbosity": "high"')},
    "responses": {
        "top_p": (0.97, ": 0.97"),
        "text.verbosity": ("high", '"verbosity": "high"'),
        "truncation": ("auto", '"truncation"'),
    },
    "messages": {"top_p": (0.97, ": 0.97"), "metadata": ({"user_id": "u-1"}, "u-1")},
    "gemini": {
        "generationConfig.topK": (39, ": 39"),
        "generationConfig.topP": (0.97, ": 0.97"),
        "generationConfig.mediaResolution": ("MEDIA_RESOLUTION_LOW", "MEDIA_RESOLUTION_LOW"),
    },
    "interactions": {"generation_config.top_p": (0.97, ": 0.97"), "labels": ({"a": "u-1"}, "u-1")},
}
# A client's "include" and "truncation" at Groq are learnt once, and so is that GPT-4.1 takes one verbosity.
NOT_OF_HISTORIES = {"as asked for", "not taken: include", "not taken: truncation", "value not taken by this model"}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[RunningGateway, dict[str, Served]]]:
    """A gateway before all of them: each a model, each pair one that falls back, and one that races."""
    async with AsyncExitStack() as stack:
        vendors = {name: await stack.enter_async_context(running_vendor(each[0])) for name, each in VENDORS.items()}
        providers: Json = {
            name: {"base_url": vendor.base_url, "api_key": vendor.key, "preset": VENDORS[name][1]}
            for name, vendor in vendors.items()
        }
        providers["interactions"]["apis"] = ["interactions"]
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
        self.key = {
            "chat": "messages",
            "messages": "messages",
            "responses": "input",
            "interactions": "input",
            "gemini": "contents",
        }[api]
        self.body[self.key] = []
        self.dropped: dict[str, str | None] = {}  # by call
        for field, (value, _) in WISHES[api].items():
            outer, _, inner = field.partition(".")
            self.body[outer] = {**self.body.get(outer, {}), inner: value} if inner else value

    def say(self, text: str) -> None:
        turns: Mapping[str, Json] = {
            "gemini": {"role": "user", "parts": [{"text": text}]},
            "interactions": {"type": "user_input", "content": [{"type": "text", "text": text}]},
        }
        self.body[self.key].append(turns.get(self.api, {"role": "user", "content": text}))

    async def ask(self, model: str, vendors: Mapping[str, Served]) -> str:
        """Ask, and take the answer and the results of its calls into the conversation; return who answered.

        Each wish was sent to it, or is told as left out.
        """
        path = ALL_PATHS[self.api].format(model=model)
        path = path if self.stream else path.replace(":streamGenerateContent?alt=sse", ":generateContent")
        sent = self.body if self.api == "gemini" else {**self.body, "model": model, "stream": self.stream}
        async with self.running.post(sent, path=path) as response:
            came, headers = await response.read(), response.headers
        assert response.status == 200, (model, came, json.dumps(sent))
        self._take(self._whole(came))
        who = str(headers["x-holeshot-provider"])
        dropped = self.dropped[headers["x-holeshot-call-id"]] = headers.get("x-holeshot-dropped")
        sent_to_it = json.dumps(vendors[who].seen[-1].body)
        for field, (_, sign) in WISHES[self.api].items():
            names = dropped.split(", ") if dropped else []
            is_told = any(field.startswith(name) or name.startswith(f"{field}.") for name in names)
            assert (sign in sent_to_it) is not is_told, (
                who,
                field,
                dropped,
                sent_to_it,
            )
        return who

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
            case "interactions":
                history += answer["steps"]
                history += [
                    {"type": "function_result", "call_id": each["id"], "name": each["name"], "result": "rain"}
                    for each in answer["steps"]
                    if each["type"] == "function_call"
                ]
            case _:
                content = answer["candidates"][0]["content"]
                history.append(content)
                calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
                named = [{name: value for name, value in call.items() if name != "args"} for call in calls]
                results = [{"functionResponse": {**each, "response": {"output": "rain"}}} for each in named]
                history += [{"role": "user", "parts": results}] if results else []


async def talked(
    gateway: tuple[RunningGateway, Mapping[str, Served]], api: str, one: str, other: str, *, stream: bool
) -> None:
    """Talk for three turns, each with a call, at ``one`` and at ``other``."""
    running, vendors = gateway
    talk = Talk(running, api, stream=stream)
    talk.say("weather?")
    assert await talk.ask(one, vendors) == one
    assert await talk.ask(other, vendors) == other
    talk.say(f"weather?\nfail: 503 at {VENDORS[one][2]}")
    for _ in range(2):
        assert await talk.ask(f"{one}-then-{other}", vendors) == other
    talk.say("weather?")
    for _ in range(2):
        assert await talk.ask(f"{one}-or-{other}", vendors) in {one, other}
    rows = await running.rows("select id, dropped from calls")
    told = {row["id"]: ", ".join(json.loads(row["dropped"])) if row["dropped"] else None for row in rows}
    assert {call: told[call] for call in talk.dropped} == talk.dropped


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", ALL_PATHS)
async def test_it_goes_on_without_a_refusal(
    gateway: tuple[RunningGateway, dict[str, Served]], api: str, stream: bool
) -> None:
    _, vendors = gateway
    wrong = []
    for one, other in some(PAIRS, ALWAYS, 8):
        await talked(gateway, api, one, other, stream=stream)
        for name, vendor in vendors.items():
            wrong += [
                f"{one}, {other}: {name} {each.status} {each.rule}: {each.message[:300]}"
                for each in vendor.refusals
                if each.rule not in NOT_OF_HISTORIES
            ]
            vendor.refusals.clear()
    assert not wrong, "\n".join(wrong)
