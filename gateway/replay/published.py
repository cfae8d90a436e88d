"""A replay as JSON, for the command line and the page alike."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.replay.advice import advice, yaml
from gateway.replay.replay import Replayed

ASSUMPTIONS = (
    "A call would have had the same first attempt, and the same second one if it had one; others are the fastest left.",
    "More attempts would not have made the providers slower.",
    "A loser that was cut would have gone on like audited ones that were overtaken at about the same age.",
    "A third attempt of a call depends on the other two as these on each other, by a Gaussian copula with one factor.",
    "Hedges start at their quantile of the whole window; the gateway takes that of the last minutes.",
    "Rescues of hanging calls are left out; a wait of more than 30 s counts as 30 s.",
    "Answers are as long as they were; whole answers of losers take what their deployments' answers usually take.",
)


def published(model: str, count: int, replayed: Replayed, without: Sequence[str]) -> dict[str, Any]:
    """Return the answer for one model; ``count``: its calls in the ledger."""
    told = advice(replayed)
    return {
        "model": model,
        "calls": count,
        "replayed_calls": replayed.calls,
        "without": list(without),
        "is_enough": replayed.is_enough and replayed.note is None,
        "note": replayed.note,
        "correlation": replayed.correlation,
        "providers": list(replayed.providers),
        "deployments": list(replayed.deployments),
        "seen": {"ttft_ms": replayed.seen_ms, "attempts": replayed.seen_attempts},
        "audits": [msgspec.to_builtins(each) for each in replayed.needs],
        "settings": [msgspec.to_builtins(each) for each in replayed.outcomes],
        "recommended": {
            "setting": told.setting,
            "why": told.why,
            "yaml": yaml(model, told.race) if told.race else None,
        },
        "assumptions": list(ASSUMPTIONS),
    }
