"""Reads the token counts of a call, in the different forms of the vendors."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from providers.errors import UNREADABLE
from providers.prices import tier_of


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts as reported; ``None`` if not reported."""

    prompt_tokens: int | None = None  # includes tokens read from the cache and written to it
    completion_tokens: int | None = None  # includes reasoning
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None  # read from the prompt cache
    cache_write_tokens: int | None = None  # written to the prompt cache
    tier: str | None = None  # that served the call, by the answer; "": standard service
    units: Mapping[str, int] | None = None  # more of what is billed, by the names of `providers.prices`, none of them 0


# Of the details of prompts and answers, the tokens that may have a price of their own.
_OF_PROMPT = (("audio_tokens", "audio_input"), ("image_tokens", "image_input"), ("video_tokens", "video_input"))
_OF_ANSWER = (("audio_tokens", "audio_output"), ("image_tokens", "image_output"), ("video_tokens", "video_output"))
_OF_LIFE = (("ephemeral_1h_input_tokens", "cache_write_1h"), ("ephemeral_12h_input_tokens", "cache_write_12h"))


def usage_of(reported: Mapping[str, Any], tier: object = None) -> Usage:
    """Read a ``usage`` object; ``tier`` is the answer's ``service_tier``.

    OpenAI includes reasoning in ``completion_tokens``. xAI does not, and Gemini's OpenAI API does not even report it.
    There ``total_tokens`` decides: what exceeds prompt and completion is reasoning, if it equals the reported
    reasoning, or if neither reasoning nor cached tokens are reported.
    """
    prompt = _count(reported.get("prompt_tokens"))
    completion = _count(reported.get("completion_tokens"))
    total = _count(reported.get("total_tokens"))
    reasoning = cached = written = units = None
    if isinstance(details := reported.get("completion_tokens_details"), dict):
        reasoning = _count(details.get("reasoning_tokens"))
        units = _apart(details, _OF_ANSWER)
    if reasoning is None:
        reasoning = _count(reported.get("reasoning_tokens"))
    if isinstance(details := reported.get("prompt_tokens_details"), dict):
        cached = _count(details.get("cached_tokens"))
        written = _count(details.get("cache_write_tokens"))
        if written is None:  # Anthropic's name, which Alibaba uses too
            written = _count(details.get("cache_creation_input_tokens"))
        units = _together(units, _apart(details, _OF_PROMPT))
        if isinstance(lives := details.get("cache_creation"), dict):
            units = _together(units, _apart(lives, _OF_LIFE))
    if cached is None:
        cached = _count(reported.get("prompt_cache_hit_tokens"))  # DeepSeek
    if prompt is not None and completion is not None and total is not None:
        beyond = total - prompt - completion
        if beyond > 0 and (beyond == reasoning or not (reasoning or cached or written)):
            completion += beyond
            reasoning = beyond
    if "server_tool_use" in reported:
        units = _together(units, _searches(reported["server_tool_use"]))
    return Usage(prompt, completion, reasoning, cached, written, None if tier is None else tier_of(tier), units)


def _apart(details: Mapping[str, Any], names: Sequence[tuple[str, str]]) -> dict[str, int] | None:
    """Return the counts of ``details`` by the names of units; None if there are none."""
    if details.keys().isdisjoint(_APART):
        return None
    return {unit: count for name, unit in names if (count := _count(details.get(name)))} or None


_APART = frozenset(name for names in (_OF_PROMPT, _OF_LIFE) for name, _ in names)


def _together(units: dict[str, int] | None, more: dict[str, int] | None) -> dict[str, int] | None:
    return more if units is None else units if more is None else units | more


def _searches(said: object) -> dict[str, int] | None:
    """Return the searches that a vendor's own tool made."""
    count = _count(said.get("web_search_requests")) if isinstance(said, dict) else None
    return {"web_search": count} if count else None


def completed(usage: Usage, earlier: Usage) -> Usage:
    """Return ``usage`` with what only an earlier report has: Messages sends the prompt's tokens and the tier once."""
    if usage.prompt_tokens is None and earlier.prompt_tokens is not None:
        usage = msgspec.structs.replace(
            usage,
            prompt_tokens=earlier.prompt_tokens,
            cached_tokens=earlier.cached_tokens,
            cache_write_tokens=earlier.cache_write_tokens,
        )
    if usage.tier is None and earlier.tier is not None:
        usage = msgspec.structs.replace(usage, tier=earlier.tier)
    if earlier.units is not None:
        usage = msgspec.structs.replace(usage, units={**earlier.units, **(usage.units or {})})
    return usage


def _count(value: object) -> int | None:
    if type(value) is int or type(value) is float:  # the types of JSON numbers; a bool is not one
        return int(value) if value >= 0 else None
    return None


# Reads the usage and the model of answers that are not raced: embeddings, transcriptions, images.


class Reported(msgspec.Struct, frozen=True):
    """What an answer reports; None: not reported."""

    usage: Usage | None = None
    model: str | None = None  # unchecked, from the provider


class _Answer(msgspec.Struct, frozen=True):
    usage: dict[str, Any] | None = None
    model: Any = None
    service_tier: Any = None


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
    return Reported(_usage(found.usage or {}, found.service_tier), model)


_NEWER = (
    ("prompt_tokens", "input_tokens"),
    ("completion_tokens", "output_tokens"),
    ("prompt_tokens_details", "input_tokens_details"),
    ("prompt_tokens_details", "input_token_details"),  # of transcriptions
    ("completion_tokens_details", "output_tokens_details"),
)


def _usage(said: dict[str, Any], tier: object) -> Usage | None:
    """Return the token counts. OpenAI's newer APIs have ``input_tokens``; a total alone is that of the input."""
    for name, newer in _NEWER:
        if name not in said and newer in said:
            said[name] = said[newer]
    if "prompt_tokens" not in said and "completion_tokens" not in said and "total_tokens" in said:
        said["prompt_tokens"] = said["total_tokens"]
    usage = usage_of(said, tier)
    return None if usage.prompt_tokens is None and usage.completion_tokens is None else usage


NOTHING = Reported()
