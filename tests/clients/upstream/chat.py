"""Answers as /chat/completions gives them: whole, and as the events of a stream."""

from collections.abc import Iterator
from typing import Any

from tests.clients.upstream.answer import Answer
from tests.clients.upstream.asked import Asked

Json = dict[str, Any]

CREATED = 1_700_000_000
_FINISH = {"stop_sequence": "stop"}


def whole(asked: Asked, given: Answer, server: str) -> Json:
    """Return the JSON of a call that does not stream."""
    message: Json = {"role": "assistant", "content": given.text or None, "refusal": None, "annotations": []}
    if given.reasoning:
        message["reasoning_content"] = given.reasoning
    if given.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in given.calls
        ]
    choices = [
        {
            "index": index,
            "message": message,
            "logprobs": logprobs_of(asked, given.pieces),
            "finish_reason": _finish(given),
        }
        for index in range(asked.n)
    ]
    return {**_head(asked, given, server, "chat.completion"), "choices": choices, "usage": usage(asked, given)}


def events(asked: Asked, given: Answer, server: str) -> Iterator[Json]:
    """Yield the chunks of a stream; each has a null ``usage`` when it is asked for, as OpenAI's have."""
    head = _head(asked, given, server, "chat.completion.chunk")
    tail: Json = {"usage": None} if asked.include_usage else {}

    def chunk(index: int, delta: Json, logprobs: Json | None = None, finish: str | None = None) -> Json:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return {**head, "choices": [choice], **tail}

    for index in range(asked.n):
        yield chunk(index, {"role": "assistant", "content": "", "refusal": None})
        if given.reasoning:
            for word in given.reasoning.split():
                yield chunk(index, {"reasoning_content": f"{word} "})
        for piece in given.pieces:
            yield chunk(index, {"content": piece}, logprobs_of(asked, [piece]))
        for number, call in enumerate(given.calls):
            begin = {"index": number, "id": call.id, "type": "function"}
            yield chunk(index, {"tool_calls": [{**begin, "function": {"name": call.name, "arguments": ""}}]})
            for piece in call.pieces:
                yield chunk(index, {"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
        yield chunk(index, {}, finish=_finish(given))
    if asked.include_usage:
        yield {**head, "choices": [], "usage": usage(asked, given)}


def usage(asked: Asked, given: Answer) -> Json:
    """Return what the call counts for, in OpenAI's words."""
    completion = given.completion_tokens * asked.n
    return {
        "prompt_tokens": given.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": given.prompt_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": given.reasoning_tokens * asked.n, "audio_tokens": 0},
    }


def _head(asked: Asked, given: Answer, server: str, kind: str) -> Json:
    return {
        "id": f"chatcmpl-{given.id}",
        "object": kind,
        "created": CREATED,
        "model": asked.model,
        "service_tier": "default",
        "system_fingerprint": f"fp_{server}",
        "x_future": {"a_field": ["nobody", "knows"]},
    }


def _finish(given: Answer) -> str:
    return _FINISH.get(given.finish, given.finish)


def logprobs_of(asked: Asked, pieces: list[str]) -> Json | None:
    """Return the log probabilities of ``pieces``, if they are asked for."""
    if asked.logprobs is None:
        return None

    def entry(token: str, logprob: float) -> Json:
        return {"token": token, "logprob": logprob, "bytes": list(token.encode())}

    others = [entry(f"other{rank}", -2.5 - rank) for rank in range(1, asked.logprobs)]
    return {
        "content": [
            {**entry(piece, -0.25), "top_logprobs": [entry(piece, -0.25), *others][: asked.logprobs]}
            for piece in pieces
        ],
        "refusal": None,
    }
