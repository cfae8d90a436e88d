"""Answers as Anthropic's /messages gives them: whole, and as the typed events of a stream."""

import json
from collections.abc import Iterator
from typing import Any

from tests.clients.upstream.answer import Answer, ToolCall
from tests.clients.upstream.asked import Asked

Json = dict[str, Any]

_STOP = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "stop_sequence": "stop_sequence"}
_SIGNATURE = "c2lnbmVkIGJ5IHRoZSB1cHN0cmVhbQ=="


def whole(asked: Asked, given: Answer, server: str) -> Json:
    """Return the JSON of a call that does not stream."""
    return {
        **_head(asked, given, server),
        "content": [{**block, **rest} for block, rest, _ in _blocks(given)],
        "stop_reason": _STOP[given.finish],
        "stop_sequence": given.stopped_by,
        "usage": _usage(given, given.completion_tokens),
    }


def events(asked: Asked, given: Answer, server: str) -> Iterator[Json]:
    """Yield the events of a stream, a ping among them."""
    begun: Json = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(given, 1)}
    yield {"type": "message_start", "message": {**_head(asked, given, server), **begun}}
    for index, (block, _, deltas) in enumerate(_blocks(given)):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        if index == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": _STOP[given.finish], "stop_sequence": given.stopped_by}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": given.completion_tokens}}
    yield {"type": "message_stop"}


def _blocks(given: Answer) -> Iterator[tuple[Json, Json, list[Json]]]:
    """Yield each block as it begins, what it has besides at its end, and the deltas between."""
    if given.reasoning:
        deltas = [{"type": "thinking_delta", "thinking": f"{word} "} for word in given.reasoning.split()]
        signed = {"signature": _SIGNATURE}
        yield (
            {"type": "thinking", "thinking": "", "signature": ""},
            {"thinking": given.reasoning, **signed},
            [*deltas, {"type": "signature_delta", **signed}],
        )
    if given.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in given.pieces]
        yield {"type": "text", "text": ""}, {"text": given.text}, deltas
    for call in given.calls:
        name = call.id.replace("call_", "toolu_")
        yield (
            {"type": "tool_use", "id": name, "name": call.name, "input": {}},
            {"input": _input(call.arguments)},
            [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(call))],
        )


def _pieces(call: ToolCall) -> list[str]:
    return call.pieces if call.arguments != "{}" else []


def _head(asked: Asked, given: Answer, server: str) -> Json:
    return {
        "id": f"msg_{given.id}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "x_future": {"served_by": server},
    }


def _usage(given: Answer, output_tokens: int) -> Json:
    return {
        "input_tokens": given.prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def _input(arguments: str) -> Json:
    """Return the arguments as an object, which a whole answer has; none of those that were cut off."""
    try:
        read: Json = json.loads(arguments)
    except ValueError:
        return {}
    return read
