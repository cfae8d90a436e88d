"""A vendor with two APIs at two addresses is one provider: each client is asked in its own API, where there is one."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving

Json = dict[str, Any]

TOOL: Json = {"name": "read", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
PATHS: Json = {"apis": ["chat", "messages"], "paths": {"messages": "/anthropic/v1/messages"}}


class Place:
    """DeepSeek and Anthropic, and a gateway before them with a model for each, and one for both."""

    def __init__(self, running: RunningGateway, deepseek: Served, anthropic: Served) -> None:
        self.running, self.deepseek, self.anthropic = running, deepseek, anthropic

    async def said(self, body: Json, path: str = "/v1/messages", **headers: str) -> Json:
        """Return an answer, which was given."""
        async with self.running.post(body, path=path, headers=headers) as response:
            assert response.status == 200, (await response.text(), self.deepseek.said, self.anthropic.said)
            told: Json = await response.json()
            told["dropped"] = response.headers.get("x-holeshot-dropped", "")
            return told


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        deepseek = await stack.enter_async_context(running_vendor("deepseek"))
        anthropic = await stack.enter_async_context(running_vendor("anthropic"))
        providers = {
            "deepseek": {"base_url": deepseek.base_url, "api_key": deepseek.key, **PATHS},
            "anthropic": {"base_url": anthropic.base_url, "api_key": anthropic.key},
        }
        models = {
            "v4": {"deployments": ["deepseek/deepseek-v4-pro"]},
            "claude": {"deployments": ["anthropic/claude-opus-4-6"]},
        }
        running = await stack.enter_async_context(
            serving(tmp_path, {"unused": None}, providers=providers, models=models)
        )
        yield Place(running, deepseek, anthropic)


def asked(model: str, *turns: Json, **more: Any) -> Json:
    return {"model": model, "max_tokens": 4000, "messages": list(turns), "tools": [TOOL], **more}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


async def test_clients_of_messages_are_asked_for_in_messages_and_those_of_chat_in_chat(place: Place) -> None:
    whole = await place.said(asked("v4", user("say: well")))
    assert [block["type"] for block in whole["content"]] == ["thinking", "text"]
    chat = {"model": "v4", "messages": [user("say: well")]}
    await place.said(chat, "/v1/chat/completions")
    await place.said({"model": "v4", "input": "say: well", "store": False}, "/v1/responses")
    assert [each.path for each in place.deepseek.seen] == [
        "/anthropic/v1/messages",
        "/v1/chat/completions",
        "/v1/chat/completions",
    ]
    assert place.deepseek.refusals == [], place.deepseek.said


async def test_thoughts_are_their_maker_s_and_no_turn_is_refused_when_a_conversation_moves(place: Place) -> None:
    """DeepSeek thinks and calls, Claude goes on, calls again without thinking, and DeepSeek takes over."""
    turns = [user("call: read {}")]
    for model, more in (
        ("v4", {}),
        ("claude", {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
        ("claude", {}),
        ("v4", {}),
        ("v4", {}),
    ):
        answer = await place.said(asked(model, *turns, **more))
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "done"} for call in calls]
        turns += [
            {"role": "assistant", "content": answer["content"]},
            {"role": "user", "content": [*results, {"type": "text", "text": "call: read {}"}]},
        ]
    assert place.deepseek.refusals == [], place.deepseek.said
    assert place.anthropic.refusals == [], place.anthropic.said


@pytest.mark.parametrize("block", [{"type": "redacted_thinking", "data": "EoABCD"}, None], ids=["sealed", "none"])
async def test_a_call_without_thoughts_in_words_is_sent_with_a_blank_one(place: Place, block: Json | None) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
    content = [call] if block is None else [block, call]
    turns = [
        user("read it"),
        {"role": "assistant", "content": content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]},
    ]
    answer = await place.said(asked("v4", *turns))
    assert "messages[1].content" in answer["dropped"]
    sent = place.deepseek.seen[-1].body["messages"][1]["content"]
    assert [each["type"] for each in sent] == ["thinking", "tool_use"]
    await place.said(asked("v4", *turns, thinking={"type": "disabled"}))
    assert [each["type"] for each in place.deepseek.seen[-1].body["messages"][1]["content"]] == ["tool_use"]
    assert place.deepseek.refusals == [], place.deepseek.said


@pytest.mark.parametrize("signature", ["", "google-text:"], ids=["of this vendor", "of a translated answer"])
async def test_thoughts_that_nobody_has_signed_go_back_in_words(place: Place, signature: str) -> None:
    thought = {"type": "thinking", "thinking": "Hm", "signature": signature}
    call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
    turns = [
        user("read it"),
        {"role": "assistant", "content": [thought, call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]},
    ]
    answer = await place.said(asked("v4", *turns))
    assert answer["dropped"] == ""
    assert place.deepseek.seen[-1].body["messages"][1]["content"][0] == thought


WORDS: Json = {
    "type": "document",
    "title": "a.txt",
    "source": {"type": "text", "media_type": "text/plain", "data": "rain"},
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_document_of_words_is_a_text_where_there_are_no_documents(place: Place, stream: bool) -> None:
    turns = [
        {"role": "user", "content": [WORDS, {"type": "text", "text": "read it"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [WORDS]}]},
    ]
    async with place.running.post(asked("v4", *turns, stream=stream), path="/v1/messages") as response:
        assert response.status == 200, await response.text()
    told = response.headers["x-holeshot-dropped"]
    assert "messages[0].content[0].type" in told
    assert "messages[2].content[0].content[0].type" in told
    sent = place.deepseek.seen[-1].body["messages"]
    text = {"type": "text", "text": "a.txt\n\nrain"}
    assert sent[0]["content"] == [text, {"type": "text", "text": "read it"}]
    assert sent[2]["content"][0]["content"] == [text]
    assert place.deepseek.refusals == [], place.deepseek.said


async def test_a_text_that_was_found_is_a_text_there_too(place: Place) -> None:
    found = {
        "type": "search_result",
        "source": "a.example",
        "title": "A",
        "content": [{"type": "text", "text": "rain"}],
    }
    answer = await place.said(asked("v4", {"role": "user", "content": [found, {"type": "text", "text": "say: a"}]}))
    assert answer["dropped"] == "messages[0].content[0].type"
    [text, _] = place.deepseek.seen[-1].body["messages"][0]["content"]
    assert text == {"type": "text", "text": "A\n\na.example\n\nrain"}
    assert place.deepseek.refusals == [], place.deepseek.said


async def test_another_document_is_asked_of_who_has_documents(place: Place) -> None:
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"}}
    turn = {"role": "user", "content": [pdf, {"type": "text", "text": "say: well"}]}
    async with place.running.post(asked("v4,claude", turn), path="/v1/messages") as response:
        assert response.status == 200, await response.text()
    assert "x-holeshot-dropped" not in response.headers
    assert place.anthropic.seen[-1].body["messages"][0]["content"][0] == pdf
    assert (place.deepseek.seen, place.deepseek.refusals) == ([], [])


async def test_instructions_in_a_conversation_are_the_users_there_and_stay_where_they_are_taken(place: Place) -> None:
    turns = [user("Hi"), {"role": "assistant", "content": "Yo"}, {"role": "system", "content": "Be."}, user("say: a")]
    answer = await place.said(asked("v4", *turns))
    assert answer["dropped"] == "messages[2].role"
    assert place.deepseek.seen[-1].body["messages"][2]["role"] == "user"
    assert place.deepseek.refusals == [], place.deepseek.said
