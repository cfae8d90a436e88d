"""What a call's attempts cost, as far as it can be known: a loser's tokens are on nobody's bill but the operator's.

A winner is priced by the usage its provider reported. A loser was cut before it could report anything, but it was
sent the same prompt, and its vendor may stop the bill when one hangs up or not: ``cost_usd`` is its prompt and what was
seen of its answer, or an answer as long as the winner's where the vendor is known to bill all of it; ``cost_low_usd``
and ``cost_high_usd`` are what it cost at least and at most. An attempt that failed before its first token is taken as
free, one without a known price as unknown (None), and a sum with an unknown part as unknown only when nothing in it is
known. Tokens read from a prompt cache or written to it, and those of reasoning, have prices of their own where these
are known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.attempt_records import AttemptRecord, Outcome, Role, TokensSource
from gateway.fleet.deployment import Deployment
from gateway.racing.cost_bounds import bounds, is_unsent, per_million
from providers.prices import cache_saved_usd, cost_usd

_CUT = frozenset({Outcome.LOST, Outcome.SUPERSEDED, Outcome.CLIENT_GONE})
_SENT = frozenset({Outcome.WON, Outcome.LOST, Outcome.SUPERSEDED, Outcome.CLIENT_GONE})
_BESIDE = frozenset({Role.RACE, Role.HEDGE, Role.EXPLORE, Role.PROBE})  # what a call alone would not have had


class Sum(msgspec.Struct, frozen=True):
    """What several attempts cost: best figure, least and most. US dollars, None where no price of them is known."""

    usd: float | None
    low_usd: float | None
    high_usd: float | None


class Bill(msgspec.Struct, frozen=True):
    """The attempts with their costs, and the sums."""

    attempts: tuple[AttemptRecord, ...]
    total: Sum
    duplicate: Sum  # what racing added
    abandoned: Sum  # what was cut because its client had gone
    cache_saved_usd: float | None  # the winner's


def settle(
    attempts: Sequence[AttemptRecord],
    winner: AttemptRecord | None,
    deployments: Mapping[str, Deployment],
    estimated_prompt_tokens: int,
    max_tokens: int | None = None,
) -> Bill:
    """Return the bill of one call. The estimate stands in where not even the winner's provider counted the prompt.

    An estimate of 0 is none: what was sent is no text. ``max_tokens`` is how long the request lets an answer be.
    """
    reported = winner.prompt_tokens if winner is not None else None
    prompt_tokens = (estimated_prompt_tokens or None) if reported is None else reported
    priced = [_priced(one, deployments[one.deployment], prompt_tokens, winner, max_tokens) for one in attempts]
    winner_id = winner.id if winner is not None else None
    return Bill(
        tuple(priced),
        _sum(priced),
        _sum([one for one in priced if one.id != winner_id and _is_added(one, winner)]),
        _sum([one for one in priced if one.outcome is Outcome.CLIENT_GONE]),
        next((one.cache_saved_usd for one in priced if one.id == winner_id), None),
    )


def _is_added(loser: AttemptRecord, winner: AttemptRecord | None) -> bool:
    """Return whether the call alone would not have had ``loser``, or not beside its winner."""
    overtaken = loser.outcome is Outcome.LOST or loser.outcome is Outcome.SUPERSEDED
    return loser.role in _BESIDE or (overtaken and winner is not None and winner.role in _BESIDE)


def _priced(
    record: AttemptRecord,
    deployment: Deployment,
    prompt_tokens: int | None,
    winner: AttemptRecord | None,
    max_tokens: int | None,
) -> AttemptRecord:
    cut = record.outcome in _CUT
    changes: dict[str, Any] = {}
    price = deployment.price
    sent_tokens = 0 if is_unsent(record) else record.prompt_tokens
    if sent_tokens is None and prompt_tokens is not None and (record.outcome in _SENT or record.completion_tokens):
        # The same prompt, counted by another tokenizer, or guessed.
        sent_tokens = prompt_tokens
        changes = {"prompt_tokens": prompt_tokens, "tokens_source": record.tokens_source or TokensSource.ESTIMATED}
    if price is not None and (sent_tokens or prompt_tokens) is not None:
        tokens = sent_tokens or prompt_tokens or 0
        limits = bounds(record, deployment, tokens, price=price, winner=winner, max_tokens=max_tokens)
        changes |= {"price": per_million(price), "cost_low_usd": limits.low_usd, "cost_high_usd": limits.high_usd}
        if sent_tokens is not None:
            runs_on = cut and deployment.bills_after_disconnect is True
            stops = cut and deployment.bills_after_disconnect is False
            answered = winner if runs_on and winner is not None and winner.completion_tokens else record
            usd = cost_usd(
                price,
                prompt_tokens=sent_tokens,
                completion_tokens=answered.completion_tokens or 0,
                cached_tokens=record.cached_tokens,
                cache_write_tokens=record.cache_write_tokens,
                reasoning_tokens=answered.reasoning_tokens,
            )
            if runs_on and usd is not None:
                usd = min(usd, limits.high_usd)  # the winner's answer may be longer than its own could be
            changes["cost_usd"] = usd
            is_least = usd is not None and usd <= limits.low_usd < limits.high_usd
            changes["cost_is_lower_bound"] = record.outcome is not Outcome.WON and not stops and is_least
            if record.cached_tokens is not None:
                changes["cache_saved_usd"] = cache_saved_usd(price, sent_tokens, record.cached_tokens)
    return msgspec.structs.replace(record, **changes) if changes else record


def _sum(records: Sequence[AttemptRecord]) -> Sum:
    """Return what ``records`` cost together; of no attempt that is nothing."""
    if not records:
        return Sum(0.0, 0.0, 0.0)
    usd = low_usd = high_usd = None
    for one in records:
        if one.cost_usd is not None:
            usd = one.cost_usd + (usd or 0.0)
        if one.cost_low_usd is not None and one.cost_high_usd is not None:
            low_usd = one.cost_low_usd + (low_usd or 0.0)
            high_usd = one.cost_high_usd + (high_usd or 0.0)
    return Sum(usd, low_usd, high_usd)
