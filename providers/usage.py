"""Reads the token counts of a call, in the different forms of the vendors."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.errors import UNREADABLE


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts as reported; ``None`` if not reported."""

    prompt_tokens: int | None = None  # includes tokens read from the cache and written to it
    completion_tokens: int | None = None  # includes reasoning
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None  # read from the prompt cache
    cache_write_tokens: int | None = None  # written to the prompt cache


def usage_of(reported: Mapping[str, Any]) -> Usage:
    """Read a ``usage`` object.

    OpenAI includes reasoning in ``completion_tokens``. xAI does not, and Gemini's OpenAI API does not even report it.
    There ``total_tokens`` decides: what exceeds prompt and completion is reasoning, if it equals the reported
    reasoning, or if neither reasoning nor cached tokens are reported.
    """
    prompt = _count(reported.get("prompt_tokens"))
    completion = _count(reported.get("completion_tokens"))
    total = _count(reported.get("total_tokens"))
    reasoning = _count(_detail(reported, "completion_tokens_details", "reasoning_tokens"))
    if reasoning is None:
        reasoning = _count(reported.get("reasoning_tokens"))
    cached = written = None
    if isinstance(details := reported.get("prompt_tokens_details"), dict):
        cached = _count(details.get("cached_tokens"))
        written = _count(details.get("cache_write_tokens"))
        if written is None:  # Anthropic's name, which Alibaba uses too
            written = _count(details.get("cache_creation_input_tokens"))
    if cached is None:
        cached = _count(reported.get("prompt_cache_hit_tokens"))  # DeepSeek
    if prompt is not None and completion is not None and total is not None:
        beyond = total - prompt - completion
        if beyond > 0 and (beyond == reasoning or not (reasoning or cached or written)):
            completion += beyond
            reasoning = beyond
    return Usage(prompt, completion, reasoning, cached, written)


def completed(usage: Usage, earlier: Usage) -> Usage:
    """Return ``usage``; if it has no prompt tokens, with those of an earlier report: Messages sends them only once."""
    if usage.prompt_tokens is not None or earlier.prompt_tokens is None:
        return usage
    return msgspec.structs.replace(
        usage,
        prompt_tokens=earlier.prompt_tokens,
        cached_tokens=earlier.cached_tokens,
        cache_write_tokens=earlier.cache_write_tokens,
    )


def _count(value: object) -> int | None:
    if type(value) is int or type(value) is float:  # the types of JSON numbers; a bool is not one
        return int(value) if value >= 0 else None
    return None


def _detail(reported: Mapping[str, Any], group: str, name: str) -> object:
    details = reported.get(group)
    return details.get(name) if isinstance(details, dict) else None


# Reads the usage and the model of answers that are not raced: embeddings, transcriptions, images.


class Reported(msgspec.Struct, frozen=True):
    """What an answer reports; None: not reported."""

    usage: Usage | None = None
    model: str | None = None  # unchecked, from the provider


class _Answer(msgspec.Struct, frozen=True):
    usage: dict[str, Any] | None = None
    model: Any = None


_answers = msgspec.json.Decoder(_Answer)  # skips vectors and images without decoding them


LARGE_BYTES = 2**20  # of an answer: larger ones are long lists of numbers, which take a tenth of a second to read


def outline(answer: bytes) -> bytes:
    """Return a large JSON answer without what is in its list, as of embeddings; a small one, or another, unchanged."""
    if len(answer) <= LARGE_BYTES:
        return answer
    begin, end = answer.find(b"["), answer.rfind(b"]")
    if begin < 0 or begin + len(answer) - end > LARGE_BYTES:
        return answer
    outlined = b"".join((answer[:begin], b"[", answer[end:]))
    try:
        return outlined if _answers.decode(outlined).usage else answer
    except UNREADABLE:
        return answer


def reported(answer: bytes) -> Reported:
    """Return what a JSON answer, or one event's data, reports: its usage and its model."""
    try:
        found = _answers.decode(outline(answer))
    except UNREADABLE:
        return NOTHING
    model = found.model if isinstance(found.model, str) and found.model else None
    return Reported(_usage(found.usage or {}), model)


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
