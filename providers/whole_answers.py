"""What an answer that is not raced reports of itself: embeddings, transcripts and pictures say it alike."""

from typing import Any

import msgspec

from providers.usage import Usage, usage_of


class Reported(msgspec.Struct, frozen=True):
    """None: it does not say."""

    usage: Usage | None = None
    model: str | None = None  # as the provider says it: it may be anything


class _Answer(msgspec.Struct, frozen=True):
    usage: dict[str, Any] | None = None
    model: Any = None


_answers = msgspec.json.Decoder(_Answer)  # which passes over vectors and pictures without making anything of them


def reported(answer: bytes) -> Reported:
    """Return what a JSON answer, or one event's data, reports: its tokens, and what has answered."""
    try:
        found = _answers.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NOTHING
    return Reported(_usage(found.usage or {}), found.model if isinstance(found.model, str) else None)


def _usage(said: dict[str, Any]) -> Usage | None:
    """Return the tokens. OpenAI's newer APIs say ``input_tokens``; embedders that have only a total count the input."""
    for name, newer in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")):
        if name not in said and newer in said:
            said[name] = said[newer]
    if "prompt_tokens" not in said and "completion_tokens" not in said and "total_tokens" in said:
        said["prompt_tokens"] = said["total_tokens"]
    usage = usage_of(said)
    return None if usage.prompt_tokens is None and usage.completion_tokens is None else usage


NOTHING = Reported()
