"""Speed for money: a standard tier, hedged by the same vendor's priority tier when it is late.

``python -m benchmarks.steering.tiers``. One model at one vendor in two tiers: all of priority's times are a share of
standard's, at twice the price. A deployment a tier, ``objective: cost`` with ``ttft_ms`` and a ``budget``: the standard
one is asked, and priority when it is late. Beside it either tier alone, and the default objective, which only asks for
the first token. Goal: p99 at most the time of the hedge + priority's q90, at 1.15 times standard's price.
"""

import argparse
from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

from benchmarks.steering.figures import FAILED_S
from benchmarks.steering.quiet import be_quiet
from benchmarks.steering.race import Result
from benchmarks.steering.simulation import ALWAYS_CHEAPEST, ALWAYS_DEAREST, Contender, setting, simulate, warm
from benchmarks.steering.worlds import Provider, World
from gateway.core.calls import Objective

CALLS, SEEDS = 4000, (1, 2, 3)
SHARES = (0.5, 0.7, 0.9)  # of standard's time to first token
TAILS = ("lognormal", "heavy")
DEADLINES = (0.9, 0.95)  # quantiles of standard's own times
BUDGETS = (0.05, 0.075, 0.1)
MOST_PRICE = 1.15
USD = 2.0  # priority's price, over standard's


class Figure(Struct, frozen=True):
    """One contender in one world, all seeds. Seconds; the price over that of standard alone."""

    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    price: float
    hedged: float  # share of the calls
    hedge_s: float | None  # mean time at which the hedge started


def world(share: float, tail: str, deadline_s: float = 1.0) -> World:
    """Return the world; ``heavy``: a Pareto's tail, whose p99 is seven medians (a lognormal's here: three)."""

    def tier(name: str, times: float, usd: float) -> Provider:
        return Provider(
            name=name,
            median_s=0.6 * times,
            sigma=0.45,
            tail_share=0.0,
            prefill_s=0.0,
            tok_s=80,
            error_share=0.0,
            usd_per_mtok=usd,
            pareto=2.0 if tail == "heavy" else None,
        )

    return World(
        name=f"tiers {share:g} {tail}",
        providers=(tier("standard", 1.0, 1.0), tier("priority", share, USD)),
        drift_sd=0.0,
        day=0.0,
        prices=True,
        ttft_goal_s=deadline_s,
    )


def figure(where: World, contender: Contender, calls: int, seeds: Sequence[int], base_usd: float | None) -> Figure:
    """Run one contender with all seeds."""
    results: list[Result] = []
    for seed in seeds:
        each = setting(where, calls, seed)
        results += warm(each, simulate(each, contender))
    times = sorted(FAILED_S if each.ttft_s is None else each.ttft_s for each in results)
    p50, p90, p95, p99 = (times[round(q * (len(times) - 1))] for q in (0.5, 0.9, 0.95, 0.99))
    hedges = [each.extra_at_s for each in results if each.extra_at_s is not None]
    usd = fmean(each.usd for each in results)
    return Figure(
        p50, p90, p95, p99, usd / (base_usd or usd), len(hedges) / len(results), fmean(hedges) if hedges else None
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.steering.tiers", description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options = parser.parse_args()
    be_quiet()
    print("| priority's times | tail | who | p50, s | p99, s | ÷ priority's p99 | price | hedged | at, s | goal, s | |")
    print("|--:|---|---|--:|--:|--:|--:|--:|--:|--:|---|")
    for tail in TAILS:
        for share in SHARES:
            _show(share, tail, options.calls, options.seeds)


def _show(share: float, tail: str, calls: int, seeds: Sequence[int]) -> None:
    plain = world(share, tail)
    cheapest = Contender(ALWAYS_CHEAPEST, Objective.FIRST_TOKEN)
    base_usd = 0.0
    for seed in seeds:
        where = setting(plain, calls, seed)
        base_usd += fmean(each.usd for each in warm(where, simulate(where, cheapest))) / len(seeds)
    standard = figure(plain, cheapest, calls, seeds, base_usd)
    priority = figure(plain, Contender(ALWAYS_DEAREST, Objective.FIRST_TOKEN), calls, seeds, base_usd)
    default = figure(plain, Contender("holeshot", Objective.FIRST_TOKEN, budget=0.1), calls, seeds, base_usd)
    rows = [("standard alone", standard), ("priority alone", priority), ("first token, budget 0.1", default)]
    for quantile in DEADLINES:
        deadline_s = standard.p90_s if quantile == DEADLINES[0] else standard.p95_s
        for budget in BUDGETS:
            hedging = Contender("holeshot", Objective.COST, budget=budget)
            found = figure(world(share, tail, deadline_s), hedging, calls, seeds, base_usd)
            rows.append((f"cost, standard's p{100 * quantile:g}, budget {budget:g}", found))
    for name, each in rows:
        goal_s = None if each.hedge_s is None or not name.startswith("cost") else each.hedge_s + priority.p90_s
        is_met = goal_s is not None and each.p99_s <= goal_s and each.price <= MOST_PRICE
        told = (
            ("", "", "") if goal_s is None else (f"{each.hedge_s:.2f}", f"{goal_s:.2f}", "met" if is_met else "missed")
        )
        print(
            f"| {share:g} | {tail} | {name} | {each.p50_s:.2f} | {each.p99_s:.2f} | {each.p99_s / priority.p99_s:.2f} | "
            f"{each.price:.2f} | {each.hedged:.1%} | {told[0]} | {told[1]} | {told[2]} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
