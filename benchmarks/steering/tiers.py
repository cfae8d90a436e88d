"""Speed for money: a standard tier, hedged by the same vendor's priority tier when it is late.

``python -m benchmarks.steering.tiers``. One model at one vendor in two tiers: all of priority's times are a share of
standard's, at twice the price. A deployment a tier, ``objective: cost`` with ``ttft_ms`` and a ``budget``: the standard
one is asked, and priority when it is late. Beside it either tier alone, and the default objective, which only asks for
the first token. Goal: p99 at most the time of the hedge + priority's q90, at 1.15 times standard's price.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean

from msgspec import Struct

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.report import Grid, bad
from benchmarks.steering.figures import FAILED_S
from benchmarks.steering.simulation import ALWAYS_CHEAPEST, ALWAYS_DEAREST, Contender, be_quiet, setting, simulate, warm
from benchmarks.steering.worlds import Provider, World
from gateway.core.calls import Objective

SHARES = (0.5, 0.7, 0.9)  # of standard's time to first token
TAILS = ("lognormal", "heavy")
BUDGET = 0.1
MOST_PRICE = 1.15
PRIORITY_USD = 2.0  # over standard's


class Figure(Struct, frozen=True):
    """One contender in one world, all seeds. Seconds, and US dollars a call."""

    times_s: tuple[float, ...]  # in order
    usd: float
    hedged: float  # share of the calls
    hedge_s: float | None  # the mean of the times at which hedges started

    def quantile_s(self, q: float) -> float:
        """Return a quantile of the times to first token."""
        return self.times_s[round(q * (len(self.times_s) - 1))]


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
        providers=(tier("standard", 1.0, 1.0), tier("priority", share, PRIORITY_USD)),
        drift_sd=0.0,
        day=0.0,
        prices=True,
        ttft_goal_s=deadline_s,
    )


def figure(where: World, contender: Contender, calls: int, seeds: Sequence[int]) -> Figure:
    """Run one contender with all seeds."""
    settings = [setting(where, calls, seed) for seed in seeds]
    results = [result for each in settings for result in warm(each, simulate(each, contender))]
    times_s = sorted(FAILED_S if each.ttft_s is None else each.ttft_s for each in results)
    hedges = [each.extra_at_s for each in results if each.extra_at_s is not None]
    return Figure(
        times_s=tuple(times_s),
        usd=fmean(each.usd for each in results),
        hedged=len(hedges) / len(results),
        hedge_s=fmean(hedges) if hedges else None,
    )


HEADS = (
    "priority's times",
    "tail",
    "who",
    "p50, s",
    "p99, s",
    "÷ priority's p99",
    "price",
    "hedged",
    "at, s",
    "goal, s",
)


def main() -> None:
    parser = command("steering.tiers", __doc__)
    parser.add_argument("--calls", type=int, default=1500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    carry_out(parser, measured)


def measured(run: Run) -> Told:
    """Run all contenders for each share and tail."""
    be_quiet()
    rows: list[list[str]] = []
    with run.counting(len(TAILS) * len(SHARES), "worlds") as tick:
        for tail in TAILS:
            for share in SHARES:
                rows += _rows(share, tail, run.options.calls, run.options.seeds)
                tick()
    return Told(facts=rows, grids=[Grid("A standard tier, hedged by priority", HEADS, rows, words=3)])


def _rows(share: float, tail: str, calls: int, seeds: Sequence[int]) -> Iterator[list[str]]:
    plain = world(share, tail)
    standard = figure(plain, Contender(ALWAYS_CHEAPEST, Objective.FIRST_TOKEN), calls, seeds)
    priority = figure(plain, Contender(ALWAYS_DEAREST, Objective.FIRST_TOKEN), calls, seeds)
    first = figure(plain, Contender("holeshot", Objective.FIRST_TOKEN, budget=BUDGET), calls, seeds)
    rows = [("standard alone", standard), ("priority alone", priority), ("both, `objective: first_token`", first)]
    for q in (0.95, 0.98, 0.99):
        hedging = Contender("holeshot", Objective.COST, budget=BUDGET)
        found = figure(world(share, tail, standard.quantile_s(q)), hedging, calls, seeds)
        rows.append((f"both, `cost`, `ttft_ms`: standard's p{100 * q:g}", found))
    for name, each in rows:
        p99_s, price = each.quantile_s(0.99), each.usd / standard.usd
        at = goal = ""
        if each.hedge_s is not None and "cost" in name:
            goal_s = each.hedge_s + priority.quantile_s(0.9)
            at, goal = f"{each.hedge_s:.2f}", bad(f"{goal_s:.2f}", p99_s > goal_s or price > MOST_PRICE)
        cells = [f"{share:g}", tail, name, f"{each.quantile_s(0.5):.2f}", f"{p99_s:.2f}"]
        cells += [f"{p99_s / priority.quantile_s(0.99):.2f}", f"{price:.2f}", f"{each.hedged:.1%}", at, goal]
        yield cells


if __name__ == "__main__":
    main()
