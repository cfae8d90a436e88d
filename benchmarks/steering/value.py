"""What a second is worth, against fixed budgets that spend as much: ``python -m benchmarks.steering.value``.

In each world the ``value_usd_per_s`` is searched that adds as much to the bill as a fixed ``budget``, within 2 % over
all seeds; then the times to first token are compared. What is added is the bill of all attempts, what losers cost until
they were cut included, less what the primary's whole answer alone would have cost. Ratios are geometric means over the
seeds with their 95 % intervals; a failed call counts as 120 s. Results: docs/policy.md.
"""

import argparse
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle
from math import exp, log
from pathlib import Path
from statistics import fmean

import msgspec
from msgspec.structs import replace

from benchmarks.steering.compare import Paired, ratio
from benchmarks.steering.figures import FAILED_S
from benchmarks.steering.quiet import be_quiet
from benchmarks.steering.simulation import Contender, Setting, setting, simulate, warm
from benchmarks.steering.worlds import WORLDS, World
from gateway.core.calls import Objective

BUDGETS = (0.1, 0.3)
CALLS, SEEDS = 1000, (1, 2, 3)
USD_PER_MTOK = (0.9, 0.6, 0.85, 1.0, 0.3, 0.5)  # of hosts of one open model, in worlds where all cost the same
ALIKE = 0.02  # spends differ by so much at most
SEARCHES = 14
NARROW = 0.05  # of ln(value)
FIRST_USD_PER_S, LEAST_USD_PER_S, MOST_USD_PER_S = 5e-3, 1e-6, 10.0
MEAN, P95, WORST, SHARE = 0.97, 1.00, 1.02, 2 / 3  # the goals: the first two in a share of the worlds


class Figure(msgspec.Struct, frozen=True):
    """One run: seconds, and US dollars a call."""

    mean_s: float
    p95_s: float
    extra_usd: float


class Compared(msgspec.Struct, frozen=True):
    """One world and budget: the value that spends as much, and what it gives, over that of the budget."""

    world: str
    budget: float
    value_usd_per_s: float
    spent: float  # over that of the budget
    extra_usd: float
    mean: Paired
    p95: Paired


def priced(world: World) -> World:
    """Return ``world`` with prices that differ."""
    if len({each.usd_per_mtok for each in world.providers}) > 1:
        return world
    providers = zip(world.providers, cycle(USD_PER_MTOK))
    return replace(world, providers=tuple(replace(each, usd_per_mtok=usd) for each, usd in providers))


def compared(name: str, budget: float, calls: int, seeds: Sequence[int], objective: Objective) -> Compared | None:
    """Return how the rule does in a world; None if no value spends what the budget does."""
    be_quiet()
    where = [setting(priced(WORLDS[name]), calls, seed) for seed in seeds]
    holds = objective is Objective.COMPLETION
    fixed = Contender("holeshot", objective, budget=budget, holds=holds, alike=True)
    before = [_figure(each, fixed) for each in where]
    spends_usd = fmean(each.extra_usd for each in before)
    if spends_usd <= 0:
        return None
    search = _search(spends_usd)
    value = next(search)
    best: tuple[float, float, list[Figure]] | None = None
    for _ in range(SEARCHES):
        valued = replace(fixed, budget=1.0, value_usd_per_s=value)
        now = [_figure(each, valued) for each in where]
        spent = fmean(each.extra_usd for each in now) / spends_usd
        if best is None or abs(spent - 1) < abs(best[1] - 1):
            best = value, spent, now
        if abs(spent - 1) <= ALIKE:
            break
        value = search.send(spent * spends_usd)
    assert best is not None
    value, spent, now = best
    return Compared(
        name,
        budget,
        value,
        spent,
        spends_usd,
        ratio([each.mean_s for each in now], [each.mean_s for each in before]),
        ratio([each.p95_s for each in now], [each.p95_s for each in before]),
    )


def _search(wanted_usd: float) -> Generator[float, float, None]:
    """Yield values to try; what each has spent is sent back. The scale of both is logarithmic.

    A secant through the last two, and a bisection where that leaves what is left.
    """
    low, high = log(LEAST_USD_PER_S), log(MOST_USD_PER_S)
    at, slope = log(FIRST_USD_PER_S), 1.0
    before: tuple[float, float] | None = None
    while True:
        spent_usd = yield exp(at)
        low, high = (at, high) if spent_usd < wanted_usd else (low, at)
        if high - low < NARROW:  # the least change of the value changes all that follows: what is spent has noise
            low, high = low - NARROW, high + NARROW
        if spent_usd <= 0:
            at = (low + high) / 2
            continue
        missing = log(wanted_usd / spent_usd)
        if before is not None and abs(before[0] - at) > NARROW:
            slope = min(4.0, max(0.25, (log(spent_usd) - before[1]) / (at - before[0])))
        before = at, log(spent_usd)
        guess = at + missing / slope
        at = guess if low < guess < high else (low + high) / 2


def _figure(where: Setting, contender: Contender) -> Figure:
    results = warm(where, simulate(where, contender))
    asked = {each.index: each for each in where.requests}
    usd_per_mtok = {each.name: each.usd_per_mtok for each in where.world.providers}
    extra_usd = 0.0
    for result in results:
        if result.primary is not None:
            request = asked[result.index]
            alone = request.prompt_tokens + 3 * request.answer_tokens
            extra_usd += result.usd - alone * usd_per_mtok[result.primary] / 1e6
    whole = contender.objective is Objective.COMPLETION
    took = (result.total_s if whole else result.ttft_s for result in results)
    seconds = sorted(FAILED_S if each is None else each for each in took)
    return Figure(fmean(seconds), seconds[round(0.95 * (len(seconds) - 1))], extra_usd / len(results))


def show(found: Sequence[Compared]) -> None:
    """Print, for each budget, the geometric means over the worlds, and which worlds miss a goal."""
    for budget in sorted({each.budget for each in found}):
        rows = [each for each in found if each.budget == budget and abs(each.spent - 1) <= ALIKE]
        if not rows:
            continue
        good = [each for each in rows if each.mean.mean <= MEAN and each.p95.mean <= P95]
        worse = [f"{each.world} {each.mean.mean:.3f}" for each in rows if each.mean.mean > WORST]
        print(
            f"budget {budget:g}: mean {_overall([each.mean.mean for each in rows]):.3f} x,"
            f" p95 {_overall([each.p95.mean for each in rows]):.3f} x; mean <= {MEAN} and p95 <= {P95}"
            f" in {len(good)} of {len(rows)} worlds (goal {SHARE:.0%}); mean > {WORST} in {', '.join(worse) or 'none'}"
        )


def _overall(ratios: Sequence[float]) -> float:
    return exp(fmean(map(log, ratios)))


def main() -> None:
    """Compare in the worlds that are asked for."""
    parser = argparse.ArgumentParser(prog="benchmarks.steering.value", description=__doc__)
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help="default: all")
    parser.add_argument("--budgets", type=float, nargs="+", default=BUDGETS)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--whole", action="store_true", help="whole answers: the time to their end")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    objective = Objective.COMPLETION if options.whole else Objective.FIRST_TOKEN
    found = []
    with ProcessPoolExecutor(options.jobs) as pool:
        heats = [
            (world, budget, pool.submit(compared, world, budget, options.calls, options.seeds, objective))
            for world in options.worlds or WORLDS
            for budget in options.budgets
        ]
        print("world         budget  value, $/s  spent x   $/1000 calls   mean                 p95")
        for world, budget, heat in heats:
            row = heat.result()
            if row is None:
                print(f"{world:13} {budget:6g}  the budget adds nothing to the bill", flush=True)
                continue
            found.append(row)
            print(
                f"{world:13} {budget:6g} {row.value_usd_per_s:10.5f} {row.spent:8.3f} {1000 * row.extra_usd:12.3f}"
                f"   {_told(row.mean)}  {_told(row.p95)}",
                flush=True,
            )
    show(found)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode(found))


def _told(figure: Paired) -> str:
    return f"{figure.mean:5.3f} ({figure.low:4.2f}-{min(9.99, figure.high):4.2f})"


if __name__ == "__main__":
    main()
