"""What a race costs in prompt caches: one deployment has the conversation in its cache, and others are asked too.

This is the last step of a bill. It has a file of its own, as only calls with a cached conversation need this step.
"""

from collections.abc import Mapping

import msgspec

from gateway.core.attempts import AttemptRecord
from gateway.racing.costs import BESIDE, Bill, Sum


def with_caches(bill: Bill, winner: AttemptRecord | None, cached: Mapping[str, int] | None) -> Bill:
    """Return ``bill`` with what prompt caches probably saved its losers, and what the race lost in caches.

    ``cached``: deployment → tokens of the prompt that should be in its cache, since it answered the last turn. A loser
    there reports no usage, so these tokens are most likely billed at the price of cached input.

    If another attempt overtook the primary, racing cost what the primary's cache would have saved, less what the
    winner's cache did save. The difference is a part of the winner's bill, so the total has it already, unless the
    client paid with a key of its own. ``winner``: the record with costs, if the bill does not have the winner. The
    ledger adds up the same way (``gateway/ledger/sums.py: LOST_CACHE``).

    For example, the primary would have read 10,000 cached tokens for 0.003 dollars instead of 0.03, and the winner had
    no cache: the race lost 0.027 dollars in caches.
    """
    if not cached:  # no cache was expected; did a provider report one?
        for one in bill.attempts:
            if one.cache_saved_usd:
                break
        else:
            return bill
    attempts, total, added = list(bill.attempts), bill.total, bill.duplicate
    winner = next((one for one in attempts if winner is not None and one.id == winner.id), winner)
    overtook = winner is not None and (winner.counts_as or winner.role) in BESIDE
    for place, one in enumerate(attempts):
        if winner is not None and one.id == winner.id:
            continue
        is_overtaken = overtook and one.outcome.was_cancelled_by_race
        is_own = (one.counts_as or one.role) in BESIDE
        is_added = one.learnt_as is None and (is_own or is_overtaken)
        usd = _saved_usd(one, cached.get(one.deployment, 0) if cached else 0)
        if one.cached_tokens is None and one.cost_usd is not None and usd > 0.0:
            usd = min(usd, max(0.0, one.cost_usd - (one.cost_low_usd or 0.0)))
            attempts[place] = msgspec.structs.replace(one, cost_usd=one.cost_usd - usd, cache_saved_usd=usd)
            total = _with(total, -usd) if one.learnt_as is None else total
            added = _with(added, -usd) if is_added else added
        if is_added and not is_own and winner is not None and winner.learnt_as is None:
            lost_usd = (attempts[place].cache_saved_usd or 0.0) - (winner.cache_saved_usd or 0.0)
            lost_usd = lost_usd if winner.cost_usd is None else min(lost_usd, winner.cost_usd)
            if lost_usd > 0.0:  # without a count, the bounds already span both prices of the prompt
                added = _with(added, lost_usd, bounds_usd=0.0 if one.cached_tokens is None else lost_usd)
    if attempts == list(bill.attempts) and added is bill.duplicate:
        return bill
    return msgspec.structs.replace(bill, attempts=tuple(attempts), total=total, duplicate=added)


def _saved_usd(record: AttemptRecord, tokens: int) -> float:
    """Return what ``tokens`` of the prompt save if they are cached, US dollars; 0 without a price of cached input."""
    price = record.price
    if not tokens or price is None or "cached_input" not in price or record.prompt_tokens is None:
        return 0.0
    return min(tokens, record.prompt_tokens) * (price.get("input", 0.0) - price["cached_input"]) / 1_000_000


def _with(of: Sum, usd: float, bounds_usd: float = 0.0) -> Sum:
    low_usd, high_usd = of.low_usd, of.high_usd
    return Sum(
        None if of.usd is None else of.usd + usd,
        None if low_usd is None else low_usd + bounds_usd,
        None if high_usd is None else high_usd + bounds_usd,
    )
