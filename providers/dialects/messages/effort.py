"""Reasoning effort: chat's levels, and their counterparts in Messages, an effort or a budget of thinking tokens.

Chat has the levels of Messages (low to max), and none and minimal. Newer models decide themselves how long they think,
and take an effort; older models take a budget, here with the figures that LiteLLM uses. A client's budget becomes the
highest level whose figure it reaches, at most ``high``, which every reasoning model in chat accepts.
"""

from collections.abc import Mapping

from providers.dialects.messages.losses import Losses, Object

_EFFORTS: Mapping[str, str] = {  # from chat to Messages, which has nothing below low
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_BUDGETS_TOKENS: Mapping[str, int] = {
    "minimal": 1024,
    "low": 1024,
    "medium": 2048,
    "high": 4096,
    "xhigh": 8192,
    "max": 16384,
}
_LEAST_BUDGET_TOKENS = 1024  # the API's minimum


def effort_of_budget(budget_tokens: int) -> str:
    """Return chat's level for a budget of thinking tokens."""
    if budget_tokens < _BUDGETS_TOKENS["medium"]:
        return "low"
    return "medium" if budget_tokens < _BUDGETS_TOKENS["high"] else "high"


def thinking_of_effort(effort: str | None, said: Object, losses: Losses, *, adaptive: bool, limited: bool) -> Object:
    """Return the fields of a Messages request for an effort; ``said`` are the fields that the request has already.

    The budget counts towards max_tokens. Unless the client has set that limit (``limited``), the budget is added to it.
    """
    if effort is None:
        return {}
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    limit: int = said["max_tokens"]
    if reason := _reason_not_to_think(effort, said, adaptive=adaptive, limit=limit if limited else None):
        losses.add("reasoning_effort", reason)
        return {}
    if not adaptive and _is_between_tools(said["messages"]):
        # A hint: an agent's task must not fail in the middle. The API itself continues without thinking in this case.
        reason = "Messages cannot continue reasoning after a tool without the earlier thinking blocks"
        losses.add("reasoning_effort", reason, hint=True)
        return {}
    if adaptive:  # without ``display``, newer models do not send their thinking
        thinking = {"type": "adaptive", "display": "summarized"}
        return {"thinking": thinking, "output_config": {"effort": _EFFORTS[effort]}}
    budget = _BUDGETS_TOKENS[effort]
    if not limited:
        limit += budget
    return {"thinking": {"type": "enabled", "budget_tokens": min(budget, limit - 1)}, "max_tokens": limit}


def _reason_not_to_think(effort: str, said: Object, *, adaptive: bool, limit: int | None) -> str | None:
    """Return why the API would refuse this effort, None if it accepts it."""
    if effort not in _EFFORTS:
        return f"Messages has no effort {effort!r}"
    if said.get("tool_choice", {}).get("type") in {"any", "tool"}:
        return "Messages has no thinking when a tool call is forced"
    if not adaptive and limit is not None and limit <= _LEAST_BUDGET_TOKENS:
        return f"Messages needs a limit over {_LEAST_BUDGET_TOKENS} tokens to think"
    return None


def _is_between_tools(turns: list[Object]) -> bool:
    """Whether the last turn answers an assistant's tool calls."""
    content = turns[-1]["content"] if turns else None
    return isinstance(content, list) and any(block["type"] == "tool_result" for block in content)
