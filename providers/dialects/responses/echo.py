"""The response object that events repeat: the parameters of the request, and the state of the answer."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.responses.fields import Object
from providers.dialects.wording import decoded

_NULL = msgspec.Raw(b"null")
# With the values that are echoed for missing fields; None also where only a server knows the value.
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


class Echo:
    """One response, as its events repeat it."""

    def __init__(self, asked: Mapping[str, msgspec.Raw], *, response_id: str, created_at: int, model: str) -> None:
        self._head = {"id": response_id, "object": "response", "created_at": created_at}
        self._said = {name: _or(asked.get(name), value) for name, value in _ECHOED.items()}
        # A translated response is not stored, and does not run in the background.
        self._said |= {"model": model, "tools": _tools(asked.get("tools")), "store": False, "background": False}

    def note(self, **facts: Any) -> None:
        """Set fields that the provider reports."""
        self._said |= facts

    def state(self, status: str, **facts: Any) -> dict[str, Any]:
        """Return the response in a state; ``facts`` are what is known by then (output, usage, incomplete_details)."""
        empty: dict[str, Any] = {"error": None, "incomplete_details": None, "output": [], "usage": None}
        return {**self._head, "status": status, **empty, **self._said, **facts}


def _or(raw: msgspec.Raw | None, otherwise: Any) -> Any:
    return otherwise if raw is None or raw == _NULL else raw


def _tools(raw: msgspec.Raw | None) -> list[dict[str, Any]]:
    """Return the tools with all fields that the API echoes."""
    tools: list[Object] = decoded(raw, list[Object], "tools") or []
    return [{"parameters": None, "strict": None, **tool} if _is_function(tool) else tool for tool in tools]


def _is_function(tool: Object) -> bool:
    return tool.get("type") == msgspec.Raw(b'"function"')
