"""Reads the usage and the model of answers that are not raced: embeddings, transcriptions, images."""

from typing import Any

import msgspec

from providers.usage import Usage, usage_of


class Reported(msgspec.Struct, frozen=True):
    """What an answer reports; None: not reported."""

    usage: Usage | None = None
    model: str | None = None  # unchecked, from the provider


class _Answer(msgspec.Struct, frozen=True):
    usage: dict[str, Any] | None = None
    model: Any = None


_answers = msgspec.json.Decoder(_Answer)  # it skips vectors and images without decoding them


def reported(answer: bytes) -> Reported:
    """Return what a JSON answer, or one event's data, reports: its usage and its model."""
    try:
        found = _answers.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NOTHING
    return Reported(_usage(found.usage or {}), found.model if isinstance(found.model, str) else None)


def _usage(said: dict[str, Any]) -> Usage | None:
    """Return the token counts. OpenAI's newer APIs have ``input_tokens``; a total alone is that of the input."""
    for name, newer in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")):
        if name not in said and newer in said:
            said[name] = said[newer]
    if "prompt_tokens" not in said and "completion_tokens" not in said and "total_tokens" in said:
        said["prompt_tokens"] = said["total_tokens"]
    usage = usage_of(said)
    return None if usage.prompt_tokens is None and usage.completion_tokens is None else usage


NOTHING = Reported()
