"""How a call becomes its records: the start, and the end with its attempts and their bill."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.calls import AttemptRecord, AttemptStart, Call, CallRecord, CallStart
from gateway.fleet import Deployment
from gateway.racing.costs import settle

_FACTS = tuple(name for name in CallStart.__struct_fields__ if name != "attempts")  # what a call and its records share


def call_start(call: Call, attempts: tuple[AttemptStart, ...]) -> CallStart:
    """Return the start record of ``call``, which launches ``attempts`` at once."""
    return CallStart(attempts=attempts, **_facts(call))


def call_record(
    call: Call,
    attempts: Sequence[AttemptRecord],
    winner: AttemptRecord | None,
    deployments: Mapping[str, Deployment],
    *,
    launched: int,
    status_code: int,
    error_kind: str | None,
    ttft_ms: float | None,
    total_ms: float,
    overhead_ms: float | None,
) -> CallRecord:
    """Return the record of ``call`` as it ended, its attempts priced.

    ``launched`` may be more than ``attempts``: audited ones may still be under way.
    """
    bill = settle(attempts, winner, deployments, call.prompt_tokens)
    return CallRecord(
        **_facts(call),
        launched=launched,
        winner_attempt_id=winner.id if winner is not None else None,
        status_code=status_code,
        error_kind=error_kind,
        ttft_ms=ttft_ms,
        total_ms=total_ms,
        overhead_ms=overhead_ms,
        prompt_tokens=winner.prompt_tokens if winner is not None else None,
        completion_tokens=winner.completion_tokens if winner is not None else None,
        reasoning_tokens=winner.reasoning_tokens if winner is not None else None,
        cached_tokens=winner.cached_tokens if winner is not None else None,
        cost_usd=bill.total_usd,
        duplicate_cost_usd=bill.duplicate_usd,
        attempts=bill.attempts,
    )


def _facts(call: Call) -> dict[str, Any]:
    return {name: getattr(call, name) for name in _FACTS}
