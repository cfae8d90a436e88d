"""Log probabilities of tokens: Gemini's of a candidate, and chat's of a choice."""

from collections.abc import Mapping, Sequence
from typing import Any


def to_chat(result: Any) -> dict[str, Any]:
    """Return a candidate's ``logprobsResult`` as the ``logprobs`` of a choice; {} if the candidate has none."""
    chosen, top = (_objects(result.get(name)) if isinstance(result, dict) else () for name in (_CHOSEN, _TOP))
    if not chosen:
        return {}
    others = [_objects(each.get("candidates")) for each in top]
    others += [()] * (len(chosen) - len(others))
    content = [
        {**_token(each), "top_logprobs": [_token(other) for other in beside]}
        for each, beside in zip(chosen, others, strict=False)
    ]
    return {"logprobs": {"content": content, "refusal": None}}


def from_chat(logprobs: Any) -> dict[str, Any]:
    """Return a choice's ``logprobs`` as a candidate's ``logprobsResult``; {} if the choice has none."""
    content = _objects(logprobs.get("content")) if isinstance(logprobs, dict) else ()
    if not content:
        return {}
    top = [{"candidates": [_candidate(other) for other in _objects(each.get("top_logprobs"))]} for each in content]
    found: dict[str, Any] = {_CHOSEN: [_candidate(each) for each in content]}
    if any(each["candidates"] for each in top):
        found[_TOP] = top
    return {"logprobsResult": found}


_CHOSEN, _TOP = "chosenCandidates", "topCandidates"


def _objects(value: Any) -> Sequence[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else ()


def _token(candidate: Mapping[str, Any]) -> dict[str, Any]:
    token = str(candidate.get("token") or "")
    return {"token": token, "logprob": candidate.get("logProbability", 0.0), "bytes": [*token.encode()]}


def _candidate(token: Mapping[str, Any]) -> dict[str, Any]:
    return {"token": token.get("token") or "", "logProbability": token.get("logprob", 0.0)}
