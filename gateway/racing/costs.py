"""What a call's attempts cost, as far as it can be known: a loser's tokens are on nobody's bill but the operator's.

A winner is priced by the usage its provider reported. A loser was cut before it could report anything, but it was
sent the same prompt: that much it cost at least, so its figure is a lower bound, unless the vendor is known to stop
the bill when one hangs up; one known not to is taken to bill an answer as long as the winner's. An attempt that failed
before its first token is taken as free, one without a known price as unknown (None), and a sum with an unknown part
as unknown only when nothing in it is known. Tokens read from a prompt cache or written to it, and those of reasoning,
have prices of their own where these are known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.calls import AttemptRecord, Outcome, TokensSource
from gateway.fleet import Deployment
from providers.prices import cache_saved_usd, cost_usd

_CUT = frozenset({Outcome.LOST, Outcome.SUPERSEDED, Outcome.CLIENT_GONE})
_SENT = frozenset({Outcome.WON, Outcome.LOST, Outcome.SUPERSEDED, Outcome.CLIENT_GONE})


class Bill(msgspec.Struct, frozen=True):
    """The attempts with their costs, and the sums. US dollars."""

    attempts: tuple[AttemptRecord, ...]
    total_usd: float | None
    duplicate_usd: float | None
    cache_saved_usd: float | None  # the winner's


def settle(
    attempts: Sequence[AttemptRecord],
    winner: AttemptRecord | None,
    deployments: Mapping[str, Deployment],
    estimated_prompt_tokens: int,
) -> Bill:
    """Return the bill of one call. The estimate stands in where not even the winner's provider counted the prompt.

    An estimate of 0 is none: what was sent is no text.
    """
    reported = winner.prompt_tokens if winner is not None else None
    prompt_tokens = (estimated_prompt_tokens or None) if reported is None else reported
    priced = [_priced(record, deployments[record.deployment], prompt_tokens, winner) for record in attempts]
    winner_id = winner.id if winner is not None else None
    saved_usd = None
    duplicates = []
    for record in priced:
        if record.id == winner_id:
            saved_usd = record.cache_saved_usd
        else:
            duplicates.append(record.cost_usd)
    return Bill(tuple(priced), _sum([record.cost_usd for record in priced]), _sum(duplicates), saved_usd)


def _priced(
    record: AttemptRecord, deployment: Deployment, prompt_tokens: int | None, winner: AttemptRecord | None
) -> AttemptRecord:
    cut = record.outcome in _CUT
    changes: dict[str, Any] = {}
    sent_tokens = record.prompt_tokens
    if sent_tokens is None and prompt_tokens is not None and (record.outcome in _SENT or record.completion_tokens):
        # The same prompt, counted by another tokenizer, or guessed.
        sent_tokens = prompt_tokens
        changes = {"prompt_tokens": prompt_tokens, "tokens_source": record.tokens_source or TokensSource.ESTIMATED}
    if deployment.price is not None and sent_tokens is not None:
        billed_on = cut and deployment.bills_after_disconnect is True
        stops = cut and deployment.bills_after_disconnect is False
        answered = winner if billed_on and winner is not None and winner.completion_tokens else record
        changes["cost_usd"] = cost_usd(
            deployment.price,
            prompt_tokens=sent_tokens,
            completion_tokens=answered.completion_tokens or 0,
            cached_tokens=record.cached_tokens,
            cache_write_tokens=record.cache_write_tokens,
            reasoning_tokens=answered.reasoning_tokens,
        )
        if record.cached_tokens is not None:
            changes["cache_saved_usd"] = cache_saved_usd(deployment.price, sent_tokens, record.cached_tokens)
        changes["cost_is_lower_bound"] = record.outcome is not Outcome.WON and not stops
    return msgspec.structs.replace(record, **changes) if changes else record


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None
