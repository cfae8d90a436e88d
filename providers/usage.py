"""The tokens a provider says a call took, under the names and habits different vendors have for them."""

from collections.abc import Mapping
from typing import Any

import msgspec


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts as reported; ``None`` where the provider does not say."""

    prompt_tokens: int | None = None  # cached and written ones included
    completion_tokens: int | None = None  # reasoning included
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None  # read from the prompt cache
    cache_write_tokens: int | None = None  # written to it


def usage_of(reported: Mapping[str, Any]) -> Usage:
    """Read a ``usage`` object.

    OpenAI counts reasoning within ``completion_tokens``. xAI leaves it out, Gemini's OpenAI surface even of the
    details; there ``total_tokens`` tells: what it has beyond prompt and completion is reasoning, when it is the
    reasoning reported, or when neither reasoning nor tokens of a cache are.
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
        if written is None:  # Anthropic's word, as Alibaba passes it on
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
    """Return ``usage``, and what it does not say of the prompt as an earlier report had it: Messages says it once."""
    if usage.prompt_tokens is not None or earlier.prompt_tokens is None:
        return usage
    return msgspec.structs.replace(
        usage,
        prompt_tokens=earlier.prompt_tokens,
        cached_tokens=earlier.cached_tokens,
        cache_write_tokens=earlier.cache_write_tokens,
    )


def _count(value: object) -> int | None:
    if type(value) is int or type(value) is float:  # what JSON has for numbers; a bool is none
        return int(value) if value >= 0 else None
    return None


def _detail(reported: Mapping[str, Any], group: str, name: str) -> object:
    details = reported.get(group)
    return details.get(name) if isinstance(details, dict) else None
