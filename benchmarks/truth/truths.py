"""What is true of a call and of its attempts alike, by what its client and its providers saw."""

from collections.abc import Sequence

from benchmarks.truth.course import LEFT
from benchmarks.truth.facts import Attempt
from benchmarks.truth.fleet import PROMPT_TOKENS, Seen
from benchmarks.truth.rules import One, Truth

OK = 200


def left(one: One) -> bool:
    """Return whether the client gave up, before its first token or after."""
    return bool(one.made.status == LEFT)


def kind(one: One) -> str:
    """Return what the call was to be answered with."""
    return str(one.made.job.scenario.kind)


def usage(count: str) -> Truth:
    """Return what a request's provider stated as usage."""

    def of(one: Attempt) -> int | None:
        persona, seen = one.persona, one.seen
        assert seen is not None
        stated = {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": 0 if kind(one) == "empty" else round(seen.draw.tokens * persona.overstates),
            "reasoning_tokens": persona.thinks or None,
            "cached_tokens": None if persona.cached_usd is None else seen.draw.cached,
            "cache_write_tokens": None if persona.write_usd is None else seen.draw.written,
        }
        return stated[count]

    return of


def api(one: One) -> str:
    """Return the API that the client spoke."""
    return "messages" if one.made.job.scenario.path == "messages" else "chat.completions"


def win_on(one: One) -> str:
    """Return which token wins the call."""
    return "answer" if one.made.job.scenario.model == "thoughtful" else "any"


def tool_calls(kind: str, seen: Seen) -> int | None:
    """Return how many tool calls a request was answered with; None where its answer is not whole."""
    return None if not seen.is_told else int(kind in {"tool", "broken"} and seen.finish_reason == "tool_calls")


def valid(kind: str, seen: Seen) -> bool | None:
    """Return whether the arguments of its tool calls parse; None without any."""
    return (kind == "tool") if tool_calls(kind, seen) else None


def flaw(kind: str, seen: Seen) -> str | None:
    """Return what is wrong with an answer that has an end."""
    if kind == "broken" and tool_calls(kind, seen):
        return "bad_tool_call"
    return "empty" if kind == "empty" else None


def bill(attempts: Sequence[Attempt]) -> float:
    """Return what providers have on their bills for some attempts."""
    return sum(seen.cost_usd(one.persona) for one in attempts for seen in one.requests)


def saved(one: Attempt) -> float:
    """Return what reading the prompt cache saved, US dollars."""
    assert one.seen is not None
    return one.seen.draw.cached * (one.persona.input_usd - (one.persona.cached_usd or 0.0))


def mode_of(call: One) -> str:
    """Return how the call is to be run."""
    return {"race": "race", "thoughtful": "race", "hedged": "hedge"}.get(call.made.job.scenario.model, "single")
