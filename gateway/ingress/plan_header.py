"""The response header ``x-holeshot-plan``, sent on request: the planned deployments, their delays, and why."""

import json
from collections.abc import Mapping
from typing import Any

from gateway.steering.explanation import Explanation

PLAN_HEADER = "x-holeshot-plan"
LIMIT_BYTES = 4096  # proxies refuse responses whose headers are much larger

_YES = frozenset({"1", "true", "yes", "explain"})


def is_wanted(headers: Mapping[str, str]) -> bool:
    """Whether the request asks for its plan."""
    asked = headers.get(PLAN_HEADER)
    return asked is not None and asked.lower() in _YES


def written(explanation: Explanation) -> str:
    """Return a plan as one line of ASCII JSON, with as many launches as fit into the limit.

    ``{"objective", "mode", "hold", "notes", "launches": [{"deployment", "delay_s", "role", "why", "score_s"}],
    "left_out", "excluded": {deployment: why}}``; if the excluded ones do not fit, only their number is given.
    """
    scores = {each.deployment: round(each.score_s, 4) for each in explanation.deployments}
    launches = [
        {
            "deployment": each.deployment,
            "delay_s": round(each.delay_s, 3),
            "role": each.role,
            "why": each.why,
            "score_s": scores.get(each.deployment),
        }
        for each in explanation.launches
    ]
    head: dict[str, Any] = {"objective": explanation.objective, "mode": explanation.mode, "hold": explanation.hold}
    whole = {**head, "notes": explanation.notes, "launches": launches}
    if excluded := explanation.excluded:
        whole["excluded"] = excluded
        head["excluded_left_out"] = len(excluded)
    if len(text := _line(whole)) <= LIMIT_BYTES:
        return text
    for count in range(len(launches), 0, -1):
        left_out = {"left_out": len(launches) - count} if count < len(launches) else {}
        text = _line({**head, "launches": launches[:count], **left_out})
        if len(text) <= LIMIT_BYTES:
            return text
    return _line({**head, "left_out": len(launches)})


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))  # unlike msgspec, it writes ASCII only
