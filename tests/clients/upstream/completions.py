"""OpenAI's /completions, which no strict vendor has: read, and answered whole and as the events of a stream."""

from collections.abc import Iterator
from typing import Any

from strict_vendors import Asked, Given, Said

Json = dict[str, Any]


def read(body: Json) -> Asked:
    """Read a request."""
    prompt, stop = body["prompt"], body.get("stop")
    texts = prompt if isinstance(prompt, list) else [prompt]
    return Asked(
        model=body["model"],
        body=body,
        turns=[Said("user", "\n".join(map(str, texts)))],
        stream=bool(body.get("stream")),
        stop=[stop] if isinstance(stop, str) else stop or (),
        most=body.get("max_tokens"),
    )


def whole(head: Json, asked: Asked, given: Given) -> Json:
    """Return the JSON of a call that does not stream; ``head`` is the answer's id and the like."""
    choices = [_choice(asked, index, given.pieces, _finish(given)) for index in range(asked.body.get("n") or 1)]
    return {**head, "choices": choices, "usage": _usage(asked, given)}


def events(head: Json, asked: Asked, given: Given) -> Iterator[Json]:
    """Yield the chunks of a stream."""
    with_usage = bool((asked.body.get("stream_options") or {}).get("include_usage"))
    tail: Json = {"usage": None} if with_usage else {}
    for index in range(asked.body.get("n") or 1):
        for piece in given.pieces:
            yield {**head, "choices": [_choice(asked, index, [piece], None)], **tail}
        yield {**head, "choices": [_choice(asked, index, [], _finish(given))], **tail}
    if with_usage:
        yield {**head, "choices": [], "usage": _usage(asked, given)}


def _usage(asked: Asked, given: Given) -> Json:
    completion = given.tokens_out * (asked.body.get("n") or 1)
    total = given.tokens_in + completion
    return {"prompt_tokens": given.tokens_in, "completion_tokens": completion, "total_tokens": total}


def _finish(given: Given) -> str:
    return "length" if given.finish == "length" else "stop"


def _choice(asked: Asked, index: int, pieces: list[str], finish: str | None) -> Json:
    logprobs = None
    if asked.body.get("logprobs") is not None:
        offsets = [sum(map(len, pieces[:number])) for number in range(len(pieces))]
        logprobs = {
            "tokens": pieces,
            "token_logprobs": [-0.25] * len(pieces),
            "top_logprobs": [{piece: -0.25} for piece in pieces],
            "text_offset": offsets,
        }
    return {"text": "".join(pieces), "index": index, "logprobs": logprobs, "finish_reason": finish}
