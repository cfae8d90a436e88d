"""What attempts cost, from the prices and the bounds that the ledger has. US dollars at list price."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from msgspec import Struct

from gateway.replay.rows import Call


class Cost(Struct, frozen=True):
    """Of one deployment: its price, and what an attempt costs that loses."""

    prompt_usd: float  # of a token
    answer_usd: float
    caches: float  # what answers have cost, over what they would have without a prompt cache
    loser_low_usd: float
    loser_high_usd: float


def costs(calls: Sequence[Call]) -> dict[str, Cost]:
    """Return what is known of each deployment; nothing of those without a price."""
    prices: dict[str, tuple[float, float]] = {}
    answers: dict[str, list[tuple[float, float]]] = {}
    losers: dict[str, list[tuple[float, float]]] = {}
    for call in calls:
        for each in call.tries:
            if each.price is None:
                continue
            prices[each.deployment] = each.price
            if each.won and each.cost_usd is not None and call.prompt_tokens:
                formula = (call.prompt_tokens * each.price[0] + (call.answer_tokens or 0) * each.price[1]) / 1e6
                answers.setdefault(each.deployment, []).append((each.cost_usd, formula))
            elif not each.won and not each.audited and each.cost_low_usd is not None and each.cost_high_usd is not None:
                losers.setdefault(each.deployment, []).append((each.cost_low_usd, each.cost_high_usd))
    everywhere = [pair for pairs in losers.values() for pair in pairs]
    found = {}
    for deployment, (prompt, answer) in prices.items():
        told = answers.get(deployment, [])
        whole = sum(formula for _, formula in told)
        cut = losers.get(deployment) or everywhere
        most = fmean(formula for _, formula in told) if told else 0.0
        found[deployment] = Cost(
            prompt / 1e6,
            answer / 1e6,
            sum(cost for cost, _ in told) / whole if whole else 1.0,
            fmean(low for low, _ in cut) if cut else 0.0,
            fmean(high for _, high in cut) if cut else most,
        )
    return found


def cost_of(
    call: Call, winner: str | None, losers: Sequence[str], known: Mapping[str, Cost]
) -> tuple[float, float] | None:
    """Return the least and the most that a call costs; None without a known price."""
    names = losers if winner is None else (winner, *losers)
    if not all(name in known for name in names):
        return None
    low = sum(known[name].loser_low_usd for name in losers)
    high = sum(known[name].loser_high_usd for name in losers)
    if winner is not None:
        price = known[winner]
        answer = (call.prompt_tokens or 0) * price.prompt_usd + (call.answer_tokens or 0) * price.answer_usd
        low, high = low + answer * price.caches, high + answer * price.caches
    return low, high
