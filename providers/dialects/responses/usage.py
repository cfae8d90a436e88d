"""The tokens of a response, in the fields of Responses and of chat completions."""

from collections.abc import Mapping
from typing import Any

from providers.usage import Usage, usage_of

_IN_CHAT = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens_details": "completion_tokens_details",
}
_IN_RESPONSES = {chat: responses for responses, chat in _IN_CHAT.items()}


def usage_of_response(reported: Mapping[str, Any]) -> Usage:
    """Read the ``usage`` of a response; the names of chat completions are accepted too."""
    return usage_of(chat_usage(reported))


def chat_usage(reported: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``usage`` of a response in the fields of a chat completion."""
    return {_IN_CHAT.get(name, name): value for name, value in reported.items()}


def responses_usage(reported: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``usage`` of a chat completion in the fields of a response; missing counts are 0."""
    counts = usage_of(reported)
    total = (counts.prompt_tokens or 0) + (counts.completion_tokens or 0)
    said = {_IN_RESPONSES.get(name, name): value for name, value in reported.items()}
    ins, outs = (_details(said.get(name)) for name in ("input_tokens_details", "output_tokens_details"))
    ins |= {"cached_tokens": counts.cached_tokens or 0, "cache_write_tokens": counts.cache_write_tokens or 0}
    outs |= {"reasoning_tokens": counts.reasoning_tokens or 0}
    return said | {
        "input_tokens": counts.prompt_tokens or 0,
        "input_tokens_details": ins,
        "output_tokens": counts.completion_tokens or 0,
        "output_tokens_details": outs,
        "total_tokens": total,
    }


def _details(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
