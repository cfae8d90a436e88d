"""Answers as /responses gives them: whole, and as the typed events of a stream."""

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.clients.upstream.answer import Answer, ToolCall
from tests.clients.upstream.asked import Asked
from tests.clients.upstream.chat import CREATED, logprobs_of

Json = dict[str, Any]

_ECHOED = ("instructions", "metadata", "previous_response_id", "max_output_tokens", "temperature", "top_p", "user")


def whole(asked: Asked, given: Answer, server: str) -> Json:
    """Return the JSON of a call that does not stream."""
    return _response(asked, given, server, _items(asked, given), done=True)


def events(asked: Asked, given: Answer, server: str) -> Iterator[Json]:
    """Yield the events of a stream, numbered."""
    for number, event in enumerate(_events(asked, given, server)):
        yield {"type": event.pop("type"), "sequence_number": number, **event}


def counted(given: Answer) -> Json:
    """Return the tokens of an input."""
    return {"object": "response.input_tokens", "input_tokens": given.prompt_tokens}


def compacted(asked: Asked, given: Answer) -> Json:
    """Return a conversation as what its user said and one item that stands for the rest."""
    part = {"type": "input_text", "text": asked.text}
    message = {"type": "message", "id": f"msg_{given.id}", "role": "user", "status": "completed", "content": [part]}
    rest = {"type": "compaction", "id": f"cmp_{given.id}", "encrypted_content": "sealed"}
    made = {"id": f"resp_{given.id}", "object": "response.compaction", "created_at": CREATED}
    return {**made, "output": [message, rest], "usage": _usage(given)}


def _events(asked: Asked, given: Answer, server: str) -> Iterator[Json]:
    begun = _response(asked, given, server, [], done=False)
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    items = _items(asked, given)
    for index, item in enumerate(items):
        place = {"item_id": item["id"], "output_index": index}
        match item["type"]:
            case "reasoning":
                yield from _thinking(item, place, given)
            case "message":
                yield from _saying(item, place, given, asked)
            case _:
                yield from _calling(item, place)
    end = "response.incomplete" if given.finish == "length" else "response.completed"
    yield {"type": end, "response": _response(asked, given, server, items, done=True)}


def _thinking(item: Json, place: Json, given: Answer) -> Iterator[Json]:
    part = {"type": "summary_text", "text": given.reasoning}
    place = {**place, "summary_index": 0}
    yield _added(place, {**item, "summary": []})
    yield {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}}
    for word in itertools.accumulate(given.reasoning.split(), lambda _, word: f" {word}"):
        yield {"type": "response.reasoning_summary_text.delta", **place, "delta": word}
    yield {"type": "response.reasoning_summary_text.done", **place, "text": given.reasoning}
    yield {"type": "response.reasoning_summary_part.done", **place, "part": part}
    yield _done(place, item)


def _saying(item: Json, place: Json, given: Answer, asked: Asked) -> Iterator[Json]:
    (part,) = item["content"]
    inner = {**place, "content_index": 0}
    yield _added(place, {**item, "content": [], "status": "in_progress"})
    yield {"type": "response.content_part.added", **inner, "part": {**part, "text": ""}}
    for piece in given.pieces:
        yield {"type": "response.output_text.delta", **inner, "delta": piece, "logprobs": _logprobs(asked, [piece])}
    yield {"type": "response.output_text.done", **inner, "text": given.text, "logprobs": part["logprobs"]}
    yield {"type": "response.content_part.done", **inner, "part": part}
    yield _done(place, item)


def _calling(item: Json, place: Json) -> Iterator[Json]:
    arguments = item["arguments"]
    yield _added(place, {**item, "arguments": "", "status": "in_progress"})
    for piece in ToolCall("", "", arguments).pieces:
        yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
    yield {"type": "response.function_call_arguments.done", **place, "arguments": arguments}
    yield _done(place, item)


def _added(place: Json, item: Json) -> Json:
    return {"type": "response.output_item.added", "output_index": place["output_index"], "item": item}


def _done(place: Json, item: Json) -> Json:
    return {"type": "response.output_item.done", "output_index": place["output_index"], "item": item}


def _items(asked: Asked, given: Answer) -> list[Json]:
    items: list[Json] = []
    status = "incomplete" if given.finish == "length" else "completed"
    if given.reasoning:
        summary = [{"type": "summary_text", "text": given.reasoning}]
        items.append({"id": f"rs_{given.id}", "type": "reasoning", "summary": summary})
    if given.text:
        part = {
            "type": "output_text",
            "annotations": [],
            "logprobs": _logprobs(asked, given.pieces),
            "text": given.text,
        }
        message = {"id": f"msg_{given.id}", "type": "message", "status": status, "role": "assistant"}
        items.append({**message, "content": [part]})
    items += [
        {
            "id": f"fc_{call.id}",
            "type": "function_call",
            "status": status,
            "arguments": call.arguments,
            "call_id": call.id,
            "name": call.name,
        }
        for call in given.calls
    ]
    return items


def _response(asked: Asked, given: Answer, server: str, items: list[Json], *, done: bool) -> Json:
    body = asked.body
    cut = given.finish == "length"
    return {
        "id": f"resp_{given.id}",
        "object": "response",
        "created_at": CREATED,
        "status": ("incomplete" if cut else "completed") if done else "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut and done else None,
        **{name: body.get(name) for name in _ECHOED},
        "metadata": body.get("metadata") or {},
        "model": asked.model,
        "output": items,
        "parallel_tool_calls": asked.parallel,
        "reasoning": {"effort": None, "summary": None, **(body.get("reasoning") or {})},
        "service_tier": "default",
        "store": body.get("store", True),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "truncation": "disabled",
        "usage": _usage(given) if done else None,
        "x_future": {"served_by": server},
    }


def _logprobs(asked: Asked, pieces: list[str]) -> list[Json]:
    if "message.output_text.logprobs" not in (asked.body.get("include") or ()):
        return []
    entries = logprobs_of(msgspec.structs.replace(asked, logprobs=asked.logprobs or 0), pieces)
    return entries["content"] if entries else []


def _usage(given: Answer) -> Json:
    return {
        "input_tokens": given.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": given.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": given.reasoning_tokens},
        "total_tokens": given.prompt_tokens + given.completion_tokens,
    }
