"""Answers as /completions gives them: whole, and as the events of a stream."""

from collections.abc import Iterator
from typing import Any

from tests.clients.upstream.answer import Answer
from tests.clients.upstream.asked import Asked
from tests.clients.upstream.chat import CREATED, usage

Json = dict[str, Any]


def whole(asked: Asked, given: Answer, server: str) -> Json:
    """Return the JSON of a call that does not stream."""
    choices = [_choice(asked, index, given.pieces, _finish(given)) for index in range(asked.n)]
    return {**_head(asked, given, server), "choices": choices, "usage": usage(asked, given)}


def events(asked: Asked, given: Answer, server: str) -> Iterator[Json]:
    """Yield the chunks of a stream."""
    head = _head(asked, given, server)
    tail: Json = {"usage": None} if asked.include_usage else {}
    for index in range(asked.n):
        for piece in given.pieces:
            yield {**head, "choices": [_choice(asked, index, [piece], None)], **tail}
        yield {**head, "choices": [_choice(asked, index, [], _finish(given))], **tail}
    if asked.include_usage:
        yield {**head, "choices": [], "usage": usage(asked, given)}


def _head(asked: Asked, given: Answer, server: str) -> Json:
    return {
        "id": f"cmpl-{given.id}",
        "object": "text_completion",
        "created": CREATED,
        "model": asked.model,
        "system_fingerprint": f"fp_{server}",
    }


def _finish(given: Answer) -> str:
    return "length" if given.finish == "length" else "stop"


def _choice(asked: Asked, index: int, pieces: list[str], finish: str | None) -> Json:
    logprobs = None
    if asked.logprobs is not None:
        offsets = [sum(map(len, pieces[:number])) for number in range(len(pieces))]
        logprobs = {
            "tokens": pieces,
            "token_logprobs": [-0.25] * len(pieces),
            "top_logprobs": [{piece: -0.25} for piece in pieces],
            "text_offset": offsets,
        }
    return {"text": "".join(pieces), "index": index, "logprobs": logprobs, "finish_reason": finish}
