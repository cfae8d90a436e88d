"""A standing as JSON: what the page and ``holeshot slo --json`` show."""

from typing import Any

import msgspec

from gateway.targets.standing import Standing, condition, subject, verdict


def as_object(standing: Standing) -> dict[str, Any]:
    """Return all that is known of a target and where it stands."""
    target = standing.target
    return {
        "name": target.name,
        **msgspec.structs.asdict(target.definition),
        "objective": target.objective,
        "days": target.days,
        "subject": subject(target),
        "condition": condition(target),
        **msgspec.structs.asdict(standing.counts),
        "good_share": standing.good_share,
        "budget_left": standing.budget_left,
        "burns": [
            {name: getattr(burn, name) for name in ("window_s", "calls", "bad", "burn_rate", "sql")}
            for burn in standing.burns
        ],
        "verdict": verdict(standing),
        "sql": standing.sql,
        "misses_sql": standing.misses_sql,
    }
