"""Vendors with Messages beside chat are asked natively by clients of Messages: what Claude Code's users race."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from providers import load_catalog
from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving

Json = dict[str, Any]

# By vendor, its models that differ in what they refuse.
MODELS: Mapping[str, tuple[str, ...]] = {
    "deepseek": ("deepseek-v4-pro",),
    "moonshot": ("kimi-k2.6", "kimi-k2.7-code", "kimi-k3"),
    "zai": ("glm-5.3",),
    "minimax": ("MiniMax-M3", "MiniMax-M2.7"),
    "dashscope": ("qwen3.7-plus",),
}
NAMES = [f"{vendor}/{model}" for vendor, models in MODELS.items() for model in models]
# As Claude Code 2.1 sends it where its base URL is a gateway's.
BETAS = "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,effort-2025-11-24"
CLAUDE_CODE: Json = {
    "max_tokens": 32_000,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.332; cc_entrypoint=cli;"},
        {"type": "text", "text": "You write programs.", "cache_control": {"type": "ephemeral"}},
    ],
    "tools": [
        {
            "name": "Read",
            "description": "Reads a file.",
            "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        }
    ],
    "metadata": {"user_id": '{"device_id":"d","account_uuid":"","session_id":"s"}'},
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
}


class Place:
    """The vendors and Anthropic, and a gateway before them, with a model for each of theirs and one for all."""

    def __init__(self, running: RunningGateway, vendors: Mapping[str, Served]) -> None:
        self.running, self.vendors = running, vendors

    async def said(self, model: str, turns: list[Json], **more: Any) -> tuple[Json, str]:
        """Return a whole answer, which was given, and what was left out of the request."""
        headers = {"anthropic-beta": BETAS}
        body = {**CLAUDE_CODE, "model": model, "messages": turns, **more}
        async with self.running.post(body, path="/v1/messages", headers=headers) as response:
            assert response.status == 200, (await response.text(), self.refused)
            return await response.json(), response.headers.get("x-holeshot-dropped", "")

    @property
    def refused(self) -> list[str]:
        """What they have refused."""
        return [vendor.said for vendor in self.vendors.values() if vendor.refusals]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    catalog = load_catalog()
    async with AsyncExitStack() as stack:
        vendors = {name: await stack.enter_async_context(running_vendor(name)) for name in (*MODELS, "anthropic")}
        providers = {
            name: {
                "base_url": vendor.base_url,
                "api_key": vendor.key,
                "apis": list(catalog[name].apis or ("messages",)),
                "paths": dict(catalog[name].paths),
            }
            for name, vendor in vendors.items()
        }
        models: Json = {name: {"deployments": [name]} for name in (*NAMES, CLAUDE)}
        models["all"] = {"deployments": NAMES, "race": {"mode": "race", "width": len(NAMES)}}
        alone: Json = {"mode": "single", "budget": 0}
        models |= {f"{name} or Claude": {"deployments": [name, CLAUDE], "race": alone} for name in NAMES}
        running = await stack.enter_async_context(
            serving(tmp_path, {"unused": None}, providers=providers, models=models)
        )
        yield Place(running, vendors)


CLAUDE = "anthropic/claude-opus-4-6"
CALL = 'call: Read {"path": "a"}'
BILL = "system[0]"  # a header of Claude Code's for Anthropic alone


def user(text: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def gone_on(turns: list[Json], answer: Json) -> list[Json]:
    """Return a conversation with an answer, and what comes next: results of the tools it called, or another call."""
    calls = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call, "content": "fine"} for call in calls]
    said = {"role": "user", "content": results} if results else user(CALL)
    return [*turns, {"role": "assistant", "content": answer["content"]}, said]


async def test_claude_code_races_all_of_them_natively_and_none_refuses(place: Place) -> None:
    turns = [user(CALL)]
    for number in range(4):
        answer, dropped = await place.said("all", turns)
        assert [block["type"] for block in answer["content"]] == ["thinking", "text" if number % 2 else "tool_use"]
        assert dropped == BILL
        turns = gone_on(turns, answer)
    assert place.refused == []
    asked = {(name, each.path) for name, vendor in place.vendors.items() for each in vendor.seen}
    assert asked == {(name, load_catalog()[name].paths["messages"]) for name in MODELS}


@pytest.mark.parametrize("model", NAMES)
async def test_a_conversation_that_claude_has_begun_goes_on_there_and_comes_back(place: Place, model: str) -> None:
    """Claude reads its own thoughts alone; theirs are left out there, and told."""
    turns = [user(CALL)]
    for number, asked in enumerate((CLAUDE, CLAUDE, model, model, CLAUDE, CLAUDE, model)):
        answer, dropped = await place.said(asked, turns)
        assert answer["content"][0]["type"] == "thinking"
        told = ("messages[5]" in dropped, "messages[7]" in dropped)
        assert told == ((True, True) if number in {4, 5} else (False, False)), dropped
        turns = gone_on(turns, answer)
    assert place.refused == []
    shown = [
        (number, block["type"])
        for number, turn in enumerate(place.vendors["anthropic"].seen[-1].body["messages"])
        for block in turn["content"]
        if block["type"] == "thinking"
    ]
    assert shown == [(1, "thinking"), (3, "thinking"), (9, "thinking")]


@pytest.mark.parametrize("model", NAMES)
async def test_calls_of_a_model_that_did_not_think_are_gone_on_with(place: Place, model: str) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a"}}
    turns = gone_on([user("read it")], {"content": [call]})
    answer, _ = await place.said(model, turns)
    assert answer["content"][-1]["text"] == "The tools said: fine"
    await place.said(model, gone_on(turns, answer), thinking={"type": "disabled"})
    assert place.refused == []


@pytest.mark.parametrize("model", [name for name in NAMES if "k2.7-code" not in name])
@pytest.mark.parametrize("choice", [{"type": "tool", "name": "Read"}, {"type": "any"}], ids=["named", "any"])
async def test_a_forced_tool_is_called(place: Place, model: str, choice: Json) -> None:
    """As Claude Code's search of the web forces one; who does not think and call it is asked not to think."""
    for said in ({}, {"thinking": {"type": "disabled"}}):
        answer, _ = await place.said(model, [user("read it")], tool_choice=choice, **said)
        assert answer["content"][-1]["name"] == "Read"
    assert place.refused == []


async def test_one_who_calls_no_forced_tool_is_not_asked_for_it_where_others_are(place: Place) -> None:
    choice = {"type": "tool", "name": "Read"}
    for _ in range(3):
        answer, _ = await place.said("all", [user("read it")], tool_choice=choice)
        assert answer["content"][-1]["name"] == "Read"
    assert place.refused == []
    assert "kimi-k2.7-code" not in {each.body["model"] for each in place.vendors["moonshot"].seen}


PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Well."}}
TOLD = {"role": "system", "content": "The user is in a hurry."}


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize(
    "more",
    [
        {"temperature": 0},
        {"temperature": 1},
        {"output_config": {"effort": "medium"}},
        {"output_config": {"effort": "xhigh"}},
        {"thinking": {"type": "enabled", "budget_tokens": 31_999}},
        {"thinking": {"type": "disabled"}},
        {"max_tokens": 128_000},
    ],
    ids=str,
)
async def test_what_is_only_preferred_is_no_reason_to_refuse(place: Place, model: str, more: Json) -> None:
    answer, _ = await place.said(model, [user("say: well")], **more)
    assert answer["content"][-1]["text"] == "well"
    assert place.refused == []


@pytest.mark.parametrize("model", NAMES)
async def test_what_the_system_says_between_turns_is_never_refused(place: Place, model: str) -> None:
    turns = [user("Hi"), {"role": "assistant", "content": "Hello"}, user("say: well"), TOLD]
    for _ in range(3):
        answer, _ = await place.said(model, turns)
        assert answer["content"][-1]["text"] == "well"
    assert place.refused == []


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize("block", [PICTURE, DOCUMENT], ids=["picture", "document"])
async def test_what_one_of_them_cannot_be_shown_is_shown_to_claude(place: Place, model: str, block: Json) -> None:
    turns = [{"role": "user", "content": [block, {"type": "text", "text": "say: well"}]}]
    for _ in range(2):
        answer, _ = await place.said(f"{model} or Claude", turns)
        assert answer["content"][-1]["text"] == "well"


@pytest.mark.parametrize("model", NAMES)
async def test_a_client_of_chat_is_asked_for_in_chat_at_the_base_url(place: Place, model: str) -> None:
    body = {"model": model, "messages": [{"role": "user", "content": "say: well"}]}
    async with place.running.post(body, path="/v1/chat/completions") as response:
        assert response.status == 200, await response.text()
    vendor = place.vendors[model.partition("/")[0]]
    assert [each.path for each in vendor.seen] == [f"{vendor.vendor.base}/chat/completions"]
    assert place.refused == []


@pytest.mark.parametrize("model", NAMES)
async def test_a_stream_is_passed_on_as_it_is_and_a_failure_is_told_as_messages_tell_it(
    place: Place, model: str
) -> None:
    body = {**CLAUDE_CODE, "model": model, "stream": True}
    async with place.running.post({**body, "messages": [user("say: well")]}, path="/v1/messages") as response:
        streamed = await response.read()
        assert (streamed.count(b"event: message_stop"), b"signature_delta" in streamed) == (1, True)
    async with place.running.post({**body, "messages": [user("fail: 529")]}, path="/v1/messages") as response:
        assert (response.status, (await response.json())["error"]["type"]) == (503, "overloaded_error")


async def test_their_prompts_are_counted_by_an_estimate(place: Place) -> None:
    """None of their pages has the address at which Anthropic counts."""
    body = {"model": "all", "messages": [user("say: well")], "tools": CLAUDE_CODE["tools"]}
    async with place.running.post(body, path="/v1/messages/count_tokens") as response:
        assert (response.status, (await response.json())["input_tokens"] > 0) == (200, True)
        assert response.headers["x-holeshot-estimated"] == "true"
