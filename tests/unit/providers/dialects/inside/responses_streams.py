"""Streams of Responses and of chat completions, and their translations, for the tests of both directions."""

from typing import Any, get_args

import msgspec
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel

from providers.bodies import events
from providers.dialects.responses.stream_from_chat import FromChat
from providers.dialects.responses.stream_to_chat import ToChat

EVENT_TYPES: dict[str, type[BaseModel]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(get_args(ResponseStreamEvent)[0])
}
TOOLS = [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}]
USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 5,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def raw(fields: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def sse(*data: Any) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(item) + b"\n\n" for item in data)


def chunk(finish_reason: str | None = None, logprobs: Any = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
    top = {"id": "chatcmpl-abc", "object": "chat.completion.chunk", "created": 5, "model": "m"}
    return {**top, "choices": [choice]}


def call(index: int, arguments: str, **named: str) -> dict[str, Any]:
    first = {"id": named["id"], "type": "function"} if named else {}
    name = {"name": named["name"]} if named else {}
    return chunk(tool_calls=[{"index": index, **first, "function": {**name, "arguments": arguments}}])


def used(usage: Any = USAGE) -> dict[str, Any]:
    return {**chunk(), "choices": [], "usage": usage}


def from_chat(*chunks: Any, asked: dict[str, Any] | None = None, done: bool = True) -> list[dict[str, Any]]:
    """Return the typed events of a chat stream, each seen to be what the SDK's types demand."""
    translation = FromChat(raw(asked or {"model": "m", "input": "hi"}), new_id=lambda: "own")
    said = translation.feed(sse(*chunks) + (b"data: [DONE]\n\n" if done else b"")) + translation.end()
    told = [msgspec.json.decode(event.data) for event in events(said)]
    for number, (event, one) in enumerate(zip(events(said), told, strict=True)):
        assert event.raw.startswith(b"event: " + one["type"].encode() + b"\n")
        assert one["sequence_number"] == number
        EVENT_TYPES[one["type"]].model_validate(one)
    return told


def to_chat(*told: Any) -> list[Any]:
    translation = ToChat()
    said = translation.feed(sse(*told)) + translation.end()
    return [event.data if event.data == b"[DONE]" else msgspec.json.decode(event.data) for event in events(said)]


def deltas(chunks: list[Any]) -> list[dict[str, Any]]:
    return [one["choices"][0]["delta"] for one in chunks if one != b"[DONE]" and one["choices"]]


def types(told: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in told]


TEXT = (chunk(role="assistant", content=""), chunk(content="He"), chunk(content="llo"), chunk("stop"), used())
CALLS = (
    chunk(content="Looking."),
    call(0, "", id="call_a", name="weather"),
    call(0, '{"city":'),
    call(1, "{}", id="call_b", name="weather"),
    call(0, '"Bern"}'),
    chunk("tool_calls"),
    used(),
)


def whole(asked: dict[str, Any], *chunks: Any) -> bytes:
    translation = FromChat(raw(asked))
    return translation.feed(sse(*chunks) + b"data: [DONE]\n\n") + translation.end()
