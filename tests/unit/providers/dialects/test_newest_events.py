"""Blocks and events that only the newest SDKs know: kept in their own API, left out for clients of others.

Those of anthropic 2.14 and openai 3.57, read on 2026-11-29.
"""

from typing import Any

import msgspec
import pytest

from providers.dialects import DIALECTS, raw_json

Json = dict[str, Any]


def wire(events: list[Json]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (each["type"].encode(), msgspec.json.encode(each)) for each in events)


def block(index: int, begun: Json, *deltas: Json) -> list[Json]:
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def claudes(*blocks: tuple[Json, ...], reason: str) -> list[Json]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    return [
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": 3}, "input_transformations": []}},
        *(event for index, each in enumerate(blocks) for event in block(index, *each)),
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


SUMMARY = {"type": "compaction", "content": None}, {"type": "compaction_delta", "content": "They like Oslo."}
OWN: list[tuple[Json, ...]] = [
    SUMMARY,
    ({"type": "server_tool_use", "id": "a", "name": "advisor", "input": {}},),
    ({"type": "advisor_tool_result", "tool_use_id": "a", "content": {"type": "advisor_result", "text": "x"}},),
    ({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},),
    ({"type": "mcp_tool_listing", "mcp_server_name": "s", "tools": []},),
]
HELLO = {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello"}
MESSAGE: Json = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
SAID: Json = {**MESSAGE, "content": [{"type": "output_text", "text": "Hello", "annotations": []}]}
SHELL: Json = {
    "type": "shell_call",
    "id": "sh_1",
    "call_id": "c",
    "status": "completed",
    "action": {"commands": ["ls"]},
}
SEALED: Json = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
RESPONSE: Json = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": []}
_IN_SHELL: Json = {"output_index": 1, "command_index": 0}
RESPONSES: list[Json] = [
    {"type": "response.created", "response": {**RESPONSE, "status": "in_progress"}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**SEALED, "encrypted_content": ""}},
    {"type": "response.compaction.compacting", "item_id": "cmp_1", "output_index": 0},
    {"type": "response.output_item.done", "output_index": 0, "item": SEALED},
    {"type": "response.output_item.added", "output_index": 1, "item": {**SHELL, "status": "in_progress"}},
    {"type": "response.shell_call_command.added", "command": "", **_IN_SHELL},
    {"type": "response.shell_call_command.delta", "delta": "ls", **_IN_SHELL},
    {"type": "response.shell_call_command.done", "command": "ls", **_IN_SHELL},
    {"type": "response.shell_call_output_content.delta", "item_id": "o", "delta": {"stdout": "a"}, **_IN_SHELL},
    {"type": "response.output_item.done", "output_index": 1, "item": SHELL},
    {"type": "response.output_item.added", "output_index": 2, "item": {**MESSAGE, "content": []}},
    {"type": "response.output_text.delta", "output_index": 2, "content_index": 0, "item_id": "msg_1", "delta": "Hello"},
    {"type": "response.output_item.done", "output_index": 2, "item": SAID},
    {
        "type": "response.completed",
        "response": {**RESPONSE, "status": "completed", "output": [SEALED, SHELL, SAID], "usage": {"output_tokens": 4}},
    },
]
STREAMS: list[tuple[str, list[Json], str]] = [
    ("messages", claudes(*OWN, HELLO, reason="end_turn"), "Hello"),
    ("messages", claudes(SUMMARY, reason="compaction"), ""),
    ("responses", RESPONSES, "Hello"),
]


@pytest.mark.parametrize(("source", "events", "text"), STREAMS)
@pytest.mark.parametrize("target", ["chat", "messages", "responses", "gemini"])
def test_clients_of_other_apis_get_the_words_alone(source: str, events: list[Json], text: str, target: str) -> None:
    to_chat, from_chat = DIALECTS[source].pivoting, DIALECTS[target].pivoting
    assert to_chat is not None
    translating = to_chat.stream_to_chat((), 1)
    said = translating.feed(wire(events)) + translating.end()
    if from_chat is not None:
        onwards = from_chat.stream_from_chat({"model": raw_json("m")}, ())
        said = onwards.feed(said) + onwards.end()
    assert text.encode() in said
    for word in (b"They like Oslo", b"advisor", b"fallback", b"compact", b"shell", b"encrypted"):
        assert word not in said.replace(b"reasoning.encrypted_content", b"")
    assert any(end in said for end in (b"[DONE]", b"message_stop", b"response.completed", b'"finishReason":"STOP"'))


@pytest.mark.parametrize(("source", "events", "text"), STREAMS)
def test_in_its_own_api_all_of_it_is_kept(source: str, events: list[Json], text: str) -> None:
    answers = DIALECTS[source].answers
    gathering = answers.gathering()
    for each in events:
        gathering.take(answers.read_event(msgspec.json.encode(each), ()))
    whole = msgspec.json.decode(gathering.body())
    kinds = [each["type"] for each in whole["content" if source == "messages" else "output"]]
    assert "compaction" in kinds
    assert len(kinds) == (3 if source == "responses" else len(OWN) + 1 if text else 1)
    if not text:
        assert (whole["stop_reason"], whole["content"][0]["content"]) == ("compaction", "They like Oslo.")
