"""The response object that events repeat: the request's parameters, and the state of the answer."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.reading import RawObject
from providers.dialects.wording import decoded

_NULL = msgspec.Raw(b"null")
_FUNCTION = msgspec.Raw(b'"function"')
# By field, the value that stands for a missing field; None also if only a server knows the value.
_ECHOED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}


# Longer fields are not repeated: three events would copy them, and readers would read them three times.
LONGEST_ECHO_BYTES = 256 * 1024


class Echo:
    """One response, as its events repeat it."""

    def __init__(self, asked: Mapping[str, msgspec.Raw], *, response_id: str, created_at: int, model: str) -> None:
        self._head = {"id": response_id, "object": "response", "created_at": created_at}
        self._said = {**_ECHOED}
        for name in asked.keys() & _ECHOED.keys():
            self._said[name] = _or(asked[name], _ECHOED[name])
        # A translated response is not stored, and does not run in the background.
        self._said |= {"model": model, "tools": _tools(asked.get("tools")), "store": False, "background": False}

    def note(self, **facts: Any) -> None:
        """Set fields that the provider reports."""
        self._said |= facts

    def state(self, status: str, **facts: Any) -> dict[str, Any]:
        """Return the response in a state; ``facts`` are the fields known so far (output, usage, …)."""
        empty: dict[str, Any] = {"error": None, "incomplete_details": None, "output": [], "usage": None}
        return {**self._head, "status": status, **empty, **self._said, **facts}


def _or(raw: msgspec.Raw, otherwise: Any) -> Any:
    return otherwise if len(memoryview(raw)) > LONGEST_ECHO_BYTES or raw == _NULL else raw


def _tools(raw: msgspec.Raw | None) -> list[dict[str, Any]]:
    """Return the tools with all fields that the API repeats."""
    if raw is None or len(memoryview(raw)) > LONGEST_ECHO_BYTES:
        return []
    tools: list[RawObject] = decoded(raw, list[RawObject], "tools") or []
    return [{"parameters": None, "strict": None, **tool} if tool.get("type") == _FUNCTION else tool for tool in tools]
