"""How hard to think: chat's word for it, and what Messages says instead, an effort or a budget of tokens.

Chat's words are those of Messages (low to max), and none and minimal. Models of today decide themselves how long they
think, and take an effort; older ones take a budget, here the figures that LiteLLM uses too. A client's budget becomes
the word whose figure it reaches, and no higher one than ``high``, which every chat model that thinks knows.
"""

from collections.abc import Mapping

from providers.dialects.messages.losses import Losses, Object

_EFFORTS: Mapping[str, str] = {  # chat's word to that of Messages, which has none below low
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
_LEAST_BUDGET_TOKENS = 1024  # the API takes none smaller


def effort_of_budget(budget_tokens: int) -> str:
    """Return chat's word for a budget of thinking tokens."""
    if budget_tokens < _BUDGETS_TOKENS["medium"]:
        return "low"
    return "medium" if budget_tokens < _BUDGETS_TOKENS["high"] else "high"


def thinking_of_effort(effort: str | None, said: Object, losses: Losses, *, adaptive: bool, limited: bool) -> Object:
    """Return the fields of a Messages request that tell how hard to think; ``said`` is what the request has already.

    A budget is part of the limit of the answer: one that the client did not set (``limited``) grows by it.
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
        # A hint, since an agent's task must not be refused in the middle; the API too goes on without thinking then.
        reason = "Messages cannot continue reasoning after a tool without the earlier thinking blocks"
        losses.add("reasoning_effort", reason, hint=True)
        return {}
    if adaptive:  # without display, newer models keep their thoughts to themselves
        thinking = {"type": "adaptive", "display": "summarized"}
        return {"thinking": thinking, "output_config": {"effort": _EFFORTS[effort]}}
    budget = _BUDGETS_TOKENS[effort]
    if not limited:
        limit += budget
    return {"thinking": {"type": "enabled", "budget_tokens": min(budget, limit - 1)}, "max_tokens": limit}


def _reason_not_to_think(effort: str, said: Object, *, adaptive: bool, limit: int | None) -> str | None:
    """Return why the API would refuse a request to think, None if it does not."""
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
