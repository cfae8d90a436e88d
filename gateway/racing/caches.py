"""What a race costs in prompt caches: a conversation whose cache one deployment has is also sent to others.

A file of its own, as bills of calls without such a cache know nothing of it, and it is the bill's last step.
"""

from collections.abc import Mapping

import msgspec

from gateway.core.attempts import AttemptRecord, Role
from gateway.racing.costs import Bill, Sum


def with_caches(bill: Bill, winner: AttemptRecord | None, cached: Mapping[str, int]) -> Bill:
    """Return ``bill`` with what caches are known to have saved its losers, less what the race lost by them.

    ``cached``: by deployment, tokens of the prompt that its cache should have, as it answered the last turn. A loser
    there tells nothing of its usage, so for these its likeliest cost is at the price of cached input.

    Where another attempt overtook the primary, racing cost what the primary's cache would have saved, less what the
    winner's did save. That is part of the overtaken one's likeliest cost, so that the costs of what racing added are
    all that it added: then its own cache counts only as far as the winner's.
    """
    winner_id = None if winner is None else winner.id
    attempts, saved_usd, added_usd = list(bill.attempts), 0.0, 0.0
    beside = winner is not None and winner.role in _BESIDE
    for place, one in enumerate(attempts):
        usd = _saved_usd(one, cached.get(one.deployment, 0))
        is_overtaken = beside and one.outcome.was_cancelled_by_race
        if is_overtaken and one.role not in _BESIDE:
            usd = min(usd, bill.cache_saved_usd or 0.0)
        if one.id == winner_id or one.cached_tokens is not None or one.cost_usd is None or usd <= 0.0:
            continue
        less_usd = min(usd, max(0.0, one.cost_usd - (one.cost_low_usd or 0.0)))
        attempts[place] = msgspec.structs.replace(one, cost_usd=one.cost_usd - less_usd)
        if one.learnt_as is None:
            saved_usd += less_usd
            added_usd += less_usd if one.role in _BESIDE or is_overtaken else 0.0
    if attempts == list(bill.attempts):
        return bill
    return msgspec.structs.replace(
        bill, attempts=tuple(attempts), total=_less(bill.total, saved_usd), duplicate=_less(bill.duplicate, added_usd)
    )


_BESIDE = frozenset({Role.RACE, Role.HEDGE, Role.FALLBACK, Role.EXPLORE, Role.PROBE})


def _saved_usd(record: AttemptRecord, tokens: int) -> float:
    """Return what ``tokens`` of its prompt from the cache save, US dollars; 0 without a price of cached input."""
    price = record.price
    if not tokens or price is None or "cached_input" not in price or record.prompt_tokens is None:
        return 0.0
    return min(tokens, record.prompt_tokens) * (price.get("input", 0.0) - price["cached_input"]) / 1_000_000


def _less(of: Sum, usd: float) -> Sum:
    return of if of.usd is None else msgspec.structs.replace(of, usd=of.usd - usd)
