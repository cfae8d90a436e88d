"""Chat completions in another API's shape, as Cursor asks for them: understood, and answered as chat."""

import json
from typing import Any

import pytest

from providers.simulator import Raw, answer
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, speaking
from tests.app.gateway.running_gateway import MODEL, Serve

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = {"name": "read_file", "description": "Reads a file."}
NESTED = {"type": "function", "function": {**READ, "parameters": SCHEMA}}
PATCH = {"type": "custom", "name": "ApplyPatch", "description": "Patches.", "format": {"type": "text"}}
CHATS_PATCH = {
    "type": "custom",
    "custom": {"name": "ApplyPatch", "description": "Patches.", "format": {"type": "text"}},
}
TURN = {"role": "user", "content": "Hi"}
AGENT: dict[str, Any] = {
    "model": MODEL,
    "user": "ann",
    "stream": True,
    "stream_options": {"include_usage": True},
    "input": [
        {"role": "system", "content": "You edit files."},
        {"role": "user", "content": [{"type": "input_text", "text": "Read a.py"}]},
        {"type": "function_call", "call_id": "c1", "name": "read_file", "arguments": '{"path":"a.py"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "print()"},
    ],
    "tools": [{"type": "function", **READ, "parameters": SCHEMA, "strict": False}, PATCH],
    "tool_choice": "auto",
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "medium", "summary": "auto"},
    "text": {"verbosity": "low"},
    "store": False,
}
CALLED = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a.py"}'}}


TAKES_TEXTS = {"providers": {"fast": {"preset": "openai"}}}  # free-form tools, too: others get functions


async def test_a_body_of_responses_is_answered_as_chat(serve: Serve) -> None:
    async with serve(fast=answer("Hello"), config=TAKES_TEXTS) as running, running.post(AGENT) as response:
        assert response.status == 200, await response.read()
        said = (await response.read()).decode()
        assert '"object":"chat.completion.chunk"' in said.replace(" ", "")
        assert said.rstrip().endswith("data: [DONE]")
        assert response.headers["x-holeshot-ignored"] == "reasoning.summary, include[0]"
        [sent] = running["fast"].received
        assert "input" not in sent.body
        assert sent.body["messages"] == [
            {"role": "system", "content": "You edit files."},
            {"role": "user", "content": "Read a.py"},
            {"role": "assistant", "content": None, "tool_calls": [CALLED]},
            {"role": "tool", "tool_call_id": "c1", "content": "print()"},
        ]
        assert sent.body["tools"] == [NESTED, CHATS_PATCH]
        assert (sent.body["reasoning_effort"], sent.body["verbosity"]) == ("medium", "low")
        assert sent.body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": "Hi", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "Hi", "tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        (
            {
                "messages": [{"role": "user", "content": [{"type": "tool_result"}]}],
                "tools": [{**READ, "input_schema": {}}],
            },
            "messages[0].content[0].tool_use_id",
        ),
    ],
    ids=str,
)
async def test_what_no_answer_of_chat_can_have_is_refused_by_name(
    serve: Serve, fields: dict[str, Any], param: str
) -> None:
    async with serve(fast=answer("Hello")) as running:
        async with running.post({"model": MODEL, **fields}) as response:
            error = (await response.json())["error"]
            assert response.status == 400
            assert error["param"] == param
        assert running.requests == 0


async def test_tools_of_responses_among_those_of_chat_become_chats(serve: Serve) -> None:
    body = {
        "model": MODEL,
        "messages": [TURN],
        "tools": [NESTED, PATCH],
        "tool_choice": {"type": "custom", "name": "ApplyPatch"},
    }
    async with serve(fast=answer("Hello"), config=TAKES_TEXTS) as running, running.post(body) as response:
        assert response.status == 200, await response.read()
        [sent] = running["fast"].received
        assert sent.body["tools"] == [NESTED, CHATS_PATCH]
        assert sent.body["tool_choice"] == {"type": "custom", "custom": {"name": "ApplyPatch"}}


MIXED: dict[str, Any] = {
    "model": MODEL,
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "You edit.", "cache_control": {"type": "ephemeral"}}]},
        TURN,
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "a.py"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "print()"}]},
                {"type": "text", "text": "Go on."},
            ],
        },
    ],
    "tools": [{**READ, "input_schema": SCHEMA}],
    "tool_choice": {"type": "any"},
}


async def test_calls_and_results_of_messages_within_chat_become_chats(serve: Serve) -> None:
    async with serve(fast=answer("Hello")) as running, running.post(MIXED) as response:
        assert response.status == 200, await response.read()
        [sent] = running["fast"].received
        assert [message["role"] for message in sent.body["messages"]] == ["system", "user", "assistant", "tool", "user"]
        asked = sent.body["messages"][2]
        assert asked["content"] == "I look."
        assert asked["tool_calls"][0]["id"] == "c1"
        function = asked["tool_calls"][0]["function"]
        assert (function["name"], json.loads(function["arguments"])) == ("read_file", {"path": "a.py"})
        assert sent.body["messages"][3:] == [
            {"role": "tool", "tool_call_id": "c1", "content": "print()"},
            {"role": "user", "content": "Go on."},
        ]
        assert sent.body["tools"] == [NESTED]
        assert sent.body["tool_choice"] == "required"


async def test_they_reach_messages_again_as_its_own(serve: Serve) -> None:
    config = {"providers": {"alpha": speaking("messages")}}
    async with (
        serve(alpha=[Raw(MESSAGE_BYTES, token=True)], config=config) as running,
        running.post(MIXED) as response,
    ):
        assert response.status == 200, await response.read()
        sent = running["alpha"].received[0].body
        assert sent["tools"][0]["input_schema"] == SCHEMA
        assert sent["tool_choice"]["type"] == "any"
        blocks = [
            block["type"] for turn in sent["messages"] if isinstance(turn["content"], list) for block in turn["content"]
        ]
        assert "tool_use" in blocks
        assert "tool_result" in blocks


async def test_chats_own_tools_are_sent_as_they_are(serve: Serve) -> None:
    tool = {**NESTED, "name": "read_file"}  # some clients say it twice
    body = {"model": MODEL, "messages": [TURN], "tools": [tool, NESTED]}
    async with serve(fast=answer("Hello")) as running, running.post(body) as response:
        assert response.status == 200, await response.read()
        assert running["fast"].received[0].body["tools"] == [tool, NESTED]
        assert "x-holeshot-ignored" not in response.headers
