"""Answers as Google's generateContent gives them: whole, and as the events of a stream."""

import json
from collections.abc import Iterator
from typing import Any

from tests.clients.upstream.answer import Answer
from tests.clients.upstream.asked import Asked

Json = dict[str, Any]

SIGNATURE = "c2lnbmVkIGJ5IHRoZSB1cHN0cmVhbQ=="
_FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP", "stop_sequence": "STOP"}


def whole(asked: Asked, given: Answer, server: str) -> Json:
    """Return the JSON of a call that does not stream."""
    parts = [{"text": given.reasoning, "thought": True}] if given.reasoning else []
    parts += [{"text": given.text}] if given.text else []
    return _said(asked, given, server, [*parts, *_calls(given)], finish=True)


def events(asked: Asked, given: Answer, server: str) -> Iterator[Json]:
    """Yield the events of a stream; the last one has no text."""
    for word in given.reasoning.split():
        yield _said(asked, given, server, [{"text": f"{word} ", "thought": True}])
    for piece in given.pieces:
        yield _said(asked, given, server, [{"text": piece}])
    for call in _calls(given):
        yield _said(asked, given, server, [call])
    yield _said(asked, given, server, [{"text": ""}], finish=True)


def _calls(given: Answer) -> Iterator[Json]:
    """Yield the calls; the first of several is signed."""
    for number, call in enumerate(given.calls):
        part: Json = {"functionCall": {"id": call.id, "name": call.name, "args": _object(call.arguments)}}
        yield part if number else {**part, "thoughtSignature": SIGNATURE}


def _object(arguments: str) -> Json:
    try:
        read: Json = json.loads(arguments)
    except ValueError:
        return {}
    return read


def _said(asked: Asked, given: Answer, server: str, parts: list[Json], *, finish: bool = False) -> Json:
    end = {"finishReason": _FINISH[given.finish]} if finish else {}
    counted = given.completion_tokens - given.reasoning_tokens
    usage = {"promptTokenCount": given.prompt_tokens, "candidatesTokenCount": counted}
    if given.reasoning_tokens:
        usage["thoughtsTokenCount"] = given.reasoning_tokens
    return {
        "candidates": [{"content": {"parts": parts, "role": "model"}, **end, "index": 0}],
        "usageMetadata": {**usage, "totalTokenCount": given.prompt_tokens + given.completion_tokens},
        "modelVersion": asked.model,
        "responseId": given.id,
        "xFuture": {"servedBy": server},
    }
