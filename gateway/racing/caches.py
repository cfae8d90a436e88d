"""What a race costs in prompt caches: a conversation whose cache one deployment has is also sent to others.

A file of its own, as bills of calls without such a cache know nothing of it, and it is the bill's last step.
"""

from collections.abc import Mapping

import msgspec

from gateway.core.attempts import AttemptRecord, Role
from gateway.racing.costs import Bill, Sum


def with_caches(bill: Bill, winner: AttemptRecord | None, cached: Mapping[str, int]) -> Bill:
    """Return ``bill`` with what caches are known to have saved its losers, and what the race lost by them.

    ``cached``: by deployment, tokens of the prompt that its cache should have, as it answered the last turn. A loser
    there tells nothing of its usage, so its likeliest cost is taken for theirs at the price of cached input. Where
    another attempt won beside the primary, racing cost what the primary's cache would have saved, less what the
    winner's did; that is in what racing added, but in no attempt's cost: the winner paid it.
    """
    winner_id = None if winner is None else winner.id
    attempts, saved_usd, added_usd = list(bill.attempts), 0.0, 0.0
    beside = winner is not None and winner.role in _BESIDE
    for place, one in enumerate(attempts):
        usd = _saved_usd(one, cached.get(one.deployment, 0))
        if one.id == winner_id or one.cached_tokens is not None or one.cost_usd is None or usd <= 0.0:
            continue
        less_usd = min(usd, max(0.0, one.cost_usd - (one.cost_low_usd or 0.0)))
        attempts[place] = msgspec.structs.replace(one, cost_usd=one.cost_usd - less_usd)
        if one.learnt_as is None:
            saved_usd += less_usd
            if one.role in _BESIDE or (beside and one.outcome.was_cancelled_by_race):
                added_usd -= less_usd
    lost_usd = _lost_usd(bill, winner_id, cached) if beside else 0.0
    if not saved_usd and not lost_usd:
        return bill
    return msgspec.structs.replace(
        bill,
        attempts=tuple(attempts),
        total=_changed(bill.total, -saved_usd),
        duplicate=_changed(bill.duplicate, added_usd + lost_usd, at_most_usd=lost_usd),
    )


_BESIDE = frozenset({Role.RACE, Role.HEDGE, Role.FALLBACK, Role.EXPLORE, Role.PROBE})


def _lost_usd(bill: Bill, winner_id: str | None, cached: Mapping[str, int]) -> float:
    """Return what the primary's cache would have saved beyond what the winner's did; at most what the winner cost."""
    winner = next(one for one in bill.attempts if one.id == winner_id)
    for one in bill.attempts:
        if one.role is Role.PRIMARY and one.outcome.was_cancelled_by_race and one.learnt_as is winner.learnt_as is None:
            more_usd = _saved_usd(one, cached.get(one.deployment, 0)) - (winner.cache_saved_usd or 0.0)
            return max(0.0, min(more_usd, winner.cost_usd or 0.0))
    return 0.0


def _saved_usd(record: AttemptRecord, tokens: int) -> float:
    """Return what ``tokens`` of its prompt from the cache save, US dollars; 0 without a price of cached input."""
    price = record.price
    if not tokens or price is None or "cached_input" not in price or record.prompt_tokens is None:
        return 0.0
    return min(tokens, record.prompt_tokens) * (price["input"] - price["cached_input"]) / 1_000_000


def _changed(of: Sum, by_usd: float, *, at_most_usd: float = 0.0) -> Sum:
    """Return the sum with its likeliest value changed, and its upper bound raised."""
    return Sum(
        None if of.usd is None else max(of.usd + by_usd, of.low_usd or 0.0),
        of.low_usd,
        None if of.high_usd is None else of.high_usd + at_most_usd,
    )
