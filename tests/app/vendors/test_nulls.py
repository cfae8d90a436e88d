"""What is null in a request says nothing, and is not sent: vendors refuse it."""

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.app.vendors.places import Json, Place, gateway_before, standing_in

PLACES = {
    "openai": Place("openai", "openai", "gpt-5", "chat"),
    "azure": Place("azure", "azure", "gpt-4.1", "chat"),
    "groq": Place("groq", "groq", "openai/gpt-oss-120b", "chat"),
    "mistral": Place("mistral", "mistral", "mistral-large-latest", "chat"),
    "gemini": Place("gemini", "gemini", "gemini-3.1-pro-preview", "chat"),
    "anthropic": Place("anthropic", "anthropic", "claude-haiku-4-5", "messages"),
    "xai": Place("xai", "xai", "grok-4.5", "responses"),
}
HI = [{"role": "user", "content": "Hi"}]
OF_CHAT = (
    *("audio", "extra_body", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_tokens"),
    *("metadata", "min_p", "modalities", "n", "parallel_tool_calls", "prediction", "reasoning_effort", "top_k"),
    *("response_format", "seed", "service_tier", "stop", "store", "stream", "stream_options", "temperature"),
    *("tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options"),
)
OF_RESPONSES = (
    *("background", "context_management", "conversation", "include", "instructions", "max_output_tokens", "metadata"),
    *("previous_response_id", "prompt", "reasoning", "service_tier", "stream", "temperature", "text", "tool_choice"),
    *("tools", "top_p", "truncation", "user"),
)
OF_MESSAGES = (
    *("container", "context_management", "inference_geo", "mcp_servers", "metadata", "output_config", "service_tier"),
    *("stop_sequences", "system", "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p"),
)
OF_ANSWERS = ("annotations", "audio", "function_call", "images", "name", "prefix", "reasoning_content", "refusal")
FUNCTION = {"name": "f", "description": None, "parameters": None, "strict": None}
CALL = {"id": "abcdefghi", "type": "function", "index": None, "function": {"name": "f", "arguments": "{}"}}
# As the SDKs of OpenAI write an answer down, and what is sent again.
CONVERSATION: list[Json] = [
    {"role": "user", "content": 'Is "name": null right?', "name": None},
    {"role": "assistant", "content": "Yes.", "tool_calls": None, **dict.fromkeys(OF_ANSWERS)},
    {"role": "user", "content": "Sure?", "tool_calls": None, "function_call": None, "tool_call_id": None},
    {"role": "assistant", "content": None, "tool_calls": [CALL], **dict.fromkeys(OF_ANSWERS)},
    {"role": "tool", "content": "ok", "tool_call_id": "abcdefghi", "name": None},
]
ASKED: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", {"messages": HI, **dict.fromkeys(OF_CHAT)}),
    "history": (
        "/v1/chat/completions",
        {"messages": CONVERSATION, "tools": [{"type": "function", "function": FUNCTION}]},
    ),
    "responses": ("/v1/responses", {"input": HI, **dict.fromkeys(OF_RESPONSES)}),
    "messages": ("/v1/messages", {"messages": HI, "max_tokens": 99, **dict.fromkeys(OF_MESSAGES)}),
}


@pytest.fixture
async def stand_ins(tmp_path: Path) -> Any:
    """Return the gateway before all of them, and these."""
    async with standing_in(PLACES) as vendors, gateway_before(tmp_path, PLACES, vendors) as running:
        yield running, vendors


async def test_nulls_are_refused_by_nobody(stand_ins: Any) -> None:
    running, vendors = stand_ins
    for asked, (path, body) in ASKED.items():
        for name in PLACES:
            async with running.post({**body, "model": name}, path=path) as response:
                assert response.status == 200, (asked, name, await response.text())
                told = response.headers.get("x-holeshot-dropped")
            assert told in {None, "store", "include"}, (asked, name, told)
            learnt_once = {"include"} if name == "groq" else set()  # of what the gateway adds
            assert {each.param for each in vendors[name].refusals} <= learnt_once, (asked, name)
    sent = vendors["openai"].seen[1].body["messages"]
    assert [message["role"] for message in sent] == [message["role"] for message in CONVERSATION]
    assert sent[0]["content"] == CONVERSATION[0]["content"]
    assert sent[3]["content"] is None


# As OpenAI's Agents SDK for JavaScript (0.20.0) sends an answer back in chat completions: its message in each part.
REPEATED: Json = {"role": "assistant", "refusal": None, "annotations": [], "reasoning_content": "Hm."}


async def test_what_an_sdk_repeats_of_an_answer_in_its_parts_is_refused_by_nobody(stand_ins: Any) -> None:
    running, vendors = stand_ins
    answer = {"role": "assistant", "content": [{"type": "text", "text": "Yes.", **REPEATED}]}
    body = {"messages": [*HI, answer, *HI]}
    for name in sorted(PLACES.keys() - {"openai", "azure"}):  # these refuse it as they do directly
        async with running.post({**body, "model": name}, path="/v1/chat/completions") as response:
            assert response.status == 200, (name, await response.text())
        assert vendors[name].refusals == [], name


PNG = f"data:image/png;base64,{base64.b64encode(bytes.fromhex('89504e470d0a1a0a') + bytes(24)).decode()}"
# As Mistral's SDK for Python (3.7.0) sends an answer back, and a picture.
OF_MISTRAL: list[Json] = [
    {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": PNG}]},
    {"role": "assistant", "content": "", "tool_calls": [{**CALL, "index": 0}], "prefix": False},
    {"role": "tool", "content": "ok", "tool_call_id": "abcdefghi"},
]


async def test_what_mistrals_sdk_writes_is_refused_by_nobody(stand_ins: Any) -> None:
    running, vendors = stand_ins
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    for name in sorted(PLACES):
        said = OF_MISTRAL if name != "groq" else [*HI, *OF_MISTRAL[1:]]  # this model sees nothing
        async with running.post({"model": name, "messages": said, "tools": tools}) as response:
            assert response.status == 200, (name, await response.text())
            assert "prefix" not in response.headers.get("x-holeshot-dropped", ""), name
        assert vendors[name].refusals == [], name
    assert vendors["mistral"].seen[0].body["messages"][0]["content"][1]["image_url"] == {"url": PNG}


async def test_what_is_said_twice_of_a_picture_is_refused_by_nobody(stand_ins: Any) -> None:
    running, vendors = stand_ins
    shown = {"url": PNG, "detail": "auto", "format": "image/png"}  # as Strands' model for OpenAI (1.62.0)
    said = [{"role": "user", "content": [{"type": "image_url", "image_url": shown}]}]
    for name in sorted(PLACES.keys() - {"groq"}):  # this model sees nothing
        async with running.post({"model": name, "messages": said}) as response:
            assert response.status == 200, (name, await response.text())
        assert vendors[name].refusals == [], name
    assert vendors["openai"].seen[0].body["messages"][0]["content"][0]["image_url"] == {"url": PNG, "detail": "auto"}


async def test_the_beginning_of_an_answer_is_not_left_out(stand_ins: Any) -> None:
    running, vendors = stand_ins
    said = [*HI, {"role": "assistant", "content": "It is", "prefix": True}]
    for name in ("openai", "azure", "groq", "gemini"):
        async with running.post({"model": name, "messages": said}) as response:
            assert (response.status, "prefix" in await response.text()) == (400, True), name
        assert vendors[name].seen == []


async def test_a_null_that_says_something_is_sent(stand_ins: Any) -> None:
    running, vendors = stand_ins
    async with running.post({"model": "mistral", "messages": HI, "prompt_mode": None}) as response:
        assert response.status in {200, 400, 422}
    assert vendors["mistral"].seen[0].body.get("prompt_mode", "absent") is None


@pytest.mark.parametrize("missing", ["messages", "model"])
async def test_what_is_needed_and_null_is_missing(stand_ins: Any, missing: str) -> None:
    running, _ = stand_ins
    async with running.post({"model": "openai", "messages": HI, missing: None}) as response:
        assert (response.status, (await response.json())["error"]["param"]) == (400, missing)
