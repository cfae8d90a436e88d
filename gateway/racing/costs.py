"""The cost of a call's attempts, as far as it can be known: losers are billed to the operator alone.

A winner is priced by the usage its provider reports. A loser is cut before it reports usage, but it was sent the same
prompt, and its vendor may or may not stop billing at a disconnect. Its ``cost_usd`` is its prompt and the received part
of its answer; or, if the vendor is known to bill the whole answer, an answer as long as the winner's. ``cost_low_usd``
and ``cost_high_usd`` are its bounds. An attempt that failed before its first token counts as free, one without a known
price as unknown (None). A sum is unknown only if all its parts are. Tokens read from a prompt cache or written to it,
and reasoning tokens, have their own prices if these are known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.attempt_records import AttemptRecord, Outcome, Role, TokensSource
from gateway.fleet.deployment import Deployment
from gateway.racing.cost_bounds import bounds, generated, is_unsent, per_million
from providers.prices import cache_saved_usd, cost_usd

_CUT = frozenset({Outcome.LOST, Outcome.SUPERSEDED, Outcome.CLIENT_GONE})
_BEATEN = frozenset({Outcome.LOST, Outcome.SUPERSEDED})
_SENT = frozenset({Outcome.WON, Outcome.LOST, Outcome.SUPERSEDED, Outcome.CLIENT_GONE})
_BESIDE = frozenset({Role.RACE, Role.HEDGE, Role.EXPLORE, Role.PROBE})  # a call without racing would not have them


class Sum(msgspec.Struct, frozen=True):
    """The cost of several attempts: best estimate and bounds. US dollars; None if no price is known."""

    usd: float | None
    low_usd: float | None
    high_usd: float | None


class Bill(msgspec.Struct, frozen=True):
    """The attempts with their costs, and the sums."""

    attempts: tuple[AttemptRecord, ...]
    total: Sum
    duplicate: Sum  # added by racing
    abandoned: Sum  # cut because the client disconnected
    cache_saved_usd: float | None  # the winner's


def settle(
    attempts: Sequence[AttemptRecord],
    winner: AttemptRecord | None,
    deployments: Mapping[str, Deployment],
    estimated_prompt_tokens: int,
    max_tokens: int | None = None,
) -> Bill:
    """Return the bill of one call. The estimate is used if not even the winner's provider counted the prompt.

    An estimate of 0 is none: the input is not text. ``max_tokens`` is the request's limit for the answer.
    """
    reported = winner.prompt_tokens if winner is not None else None
    if reported is not None and winner is not None and winner.continues is not None:
        reported = max(0, reported - _given(winner, attempts))
    prompt_tokens = (estimated_prompt_tokens or None) if reported is None else reported
    priced = [
        _priced(one, deployments[one.deployment], _sent(one, prompt_tokens, attempts), winner, max_tokens)
        for one in attempts
    ]
    winner_id = winner.id if winner is not None else None
    return Bill(
        tuple(priced),
        _sum(priced),
        _sum([one for one in priced if one.id != winner_id and _is_added(one, winner)]),
        _sum([one for one in priced if one.outcome is Outcome.CLIENT_GONE]),
        next((one.cache_saved_usd for one in priced if one.id == winner_id), None),
    )


def _sent(record: AttemptRecord, prompt_tokens: int | None, attempts: Sequence[AttemptRecord]) -> int | None:
    """Return what an attempt was sent: the prompt, and what was delivered if it was to go on with it."""
    if prompt_tokens is None or record.continues is None:
        return prompt_tokens
    return prompt_tokens + _given(record, attempts)


def _given(record: AttemptRecord, attempts: Sequence[AttemptRecord]) -> int:
    """Return the tokens of the answer that an attempt was sent besides the prompt, to go on with."""
    parts, tokens = {one.id: one for one in attempts}, 0
    while record.continues is not None and record.continues in parts:
        record = parts[record.continues]
        tokens += record.completion_tokens or 0
    return tokens


def _is_added(loser: AttemptRecord, winner: AttemptRecord | None) -> bool:
    """Whether the call would not have had ``loser`` without racing, or not besides its winner."""
    overtaken = loser.outcome is Outcome.LOST or loser.outcome is Outcome.SUPERSEDED
    return loser.role in _BESIDE or (overtaken and winner is not None and winner.role in _BESIDE)


def _priced(
    record: AttemptRecord,
    deployment: Deployment,
    prompt_tokens: int | None,
    winner: AttemptRecord | None,
    max_tokens: int | None,
) -> AttemptRecord:
    cut = record.outcome in _CUT and not _is_told(record)
    changes: dict[str, Any] = {}
    price = deployment.price
    sent_tokens = 0 if is_unsent(record) else record.prompt_tokens
    if sent_tokens is None and prompt_tokens is not None and (record.outcome in _SENT or record.completion_tokens):
        # The same prompt, counted by another tokenizer, or estimated.
        sent_tokens = prompt_tokens
        changes = {"prompt_tokens": prompt_tokens, "tokens_source": record.tokens_source or TokensSource.ESTIMATED}
    if record.outcome in _BEATEN:
        wasted = generated(record, deployment, winner=winner, max_tokens=max_tokens)
        changes |= {"wasted_low_tokens": wasted.low_tokens, "wasted_high_tokens": wasted.high_tokens}
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
                usd = min(usd, limits.high_usd)  # the winner's answer may be longer than this one's limit
            changes["cost_usd"] = usd
            is_least = usd is not None and usd <= limits.low_usd < limits.high_usd
            changes["cost_is_lower_bound"] = record.outcome is not Outcome.WON and not stops and is_least
            if record.cached_tokens is not None:
                changes["cache_saved_usd"] = cache_saved_usd(price, sent_tokens, record.cached_tokens)
    return msgspec.structs.replace(record, **changes) if changes else record


def _is_told(record: AttemptRecord) -> bool:
    """Whether its provider has told what all of its answer takes, though somebody else's was sent."""
    is_whole = record.finish_reason is not None and bool(record.completion_tokens)
    return is_whole and record.tokens_source is TokensSource.REPORTED


def _sum(records: Sequence[AttemptRecord]) -> Sum:
    """Return the cost of all ``records`` together; 0 for none."""
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
