"""Compare the policy with that of another checkout, in the same worlds, with the same calls and draws.

In the other checkout, or with a patch:     python -m benchmarks.steering.compare --save var/before.json
In this one:                                python -m benchmarks.steering.compare --with var/before.json

All is about the time to first token; a failed call counts as 120 s. Ratios are geometric means over the seeds, after
them the 95 % interval over the seeds, which are paired. *EWMA* is ``single`` against LiteLLM's latency-based routing.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from math import exp, inf, log, sqrt
from pathlib import Path
from statistics import fmean, stdev

import msgspec
from scipy import special

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.report import Grid, quantile
from benchmarks.steering import contest
from benchmarks.steering.figures import FAILED_S
from benchmarks.steering.race import Result
from benchmarks.steering.simulation import Contender, be_quiet, setting, simulate, warm
from benchmarks.steering.worlds import WORLDS
from gateway.core.calls import Objective

EWMA = Contender("lowest EWMA", Objective.FIRST_TOKEN)
OURS = {"1.0": contest.RACES, "0.1": contest.ECONOMY, "single": contest.SINGLE}
RUN = {**OURS, "EWMA": EWMA, "oracle": contest.ORACLE}
MEAN, P99, EXTRA = {"1.0": 0.97, "0.1": 0.95, "single": 0.93}, {"1.0": 0.94, "0.1": 0.93, "single": 0.87}, 0.01
WORST_MEAN, WORST_P99, WORST_EWMA, FAILED = 1.02, 1.10, 1.05, 0.001


class Figure(msgspec.Struct, frozen=True):
    """One run of one contender."""

    mean_s: float
    p99_s: float
    extra: float  # attempts per call that started while another one ran
    failed: float  # share of calls


Figures = dict[str, dict[str, list[Figure]]]  # by world and contender, in the order of the seeds


def run(worlds: Iterable[str], names: Iterable[str], calls: int, seeds: Iterable[int], jobs: int) -> Figures:
    """Run the contenders called ``names``."""
    heats = [(world, tuple(names), calls, seed) for world in worlds for seed in seeds]
    found: Figures = {}
    with ProcessPoolExecutor(jobs, initializer=be_quiet) as pool:
        for (world, *_), heat in zip(heats, pool.map(_heat, heats), strict=True):
            for name, figure in heat.items():
                found.setdefault(world, {}).setdefault(name, []).append(figure)
    return found


def _heat(heat: tuple[str, tuple[str, ...], int, int]) -> dict[str, Figure]:
    world, names, calls, seed = heat
    where = setting(WORLDS[world], calls, seed)
    return {name: _figure(warm(where, simulate(where, RUN[name]))) for name in names}


def _figure(results: list[Result]) -> Figure:
    seconds = [FAILED_S if each.ttft_s is None else each.ttft_s for each in results]
    return Figure(
        mean_s=fmean(seconds),
        p99_s=quantile(seconds, 0.99),
        extra=fmean(each.extra for each in results),
        failed=fmean(each.ttft_s is None for each in results),
    )


class Paired(msgspec.Struct, frozen=True):
    """A mean of paired values and its 95 % interval."""

    mean: float
    low: float
    high: float


def paired(values: list[float]) -> Paired:
    """Return the mean of ``values`` with its interval."""
    mean = fmean(values)
    number = len(values)
    half = float(special.stdtrit(number - 1, 0.975)) * stdev(values) / sqrt(number) if number > 1 else inf
    return Paired(mean, mean - half, mean + half)


def ratio(now: list[float], before: list[float]) -> Paired:
    """Return the geometric mean of the ratios, seed by seed."""
    logs = paired([log(mine / its) for mine, its in zip(now, before, strict=True)])
    return Paired(exp(logs.mean), exp(logs.low) if logs.low > -inf else 0.0, exp(logs.high) if logs.high < inf else inf)


def compared(now: Figures, before: Figures) -> tuple[Grid, list[str], list[str]]:
    """Return a row for each world and contender, the geometric means over all worlds, and what misses a goal."""
    names = [name for name in OURS if all(name in found for found in now.values())]
    means: dict[str, list[tuple[float, float, float]]] = {}
    rows: list[list[str]] = []
    missed: list[str] = []
    for world, found in now.items():
        for name in names:
            mine, its = found[name], before[world][name]
            mean = ratio(_means(mine), _means(its))
            p99 = ratio([each.p99_s for each in mine], [each.p99_s for each in its])
            more = paired([a.extra - b.extra for a, b in zip(mine, its, strict=True)])
            failed = (f"{fmean(each.failed for each in some):.2%}" for some in (mine, its))
            rows.append([world, name, _told(mean), _told(p99), f"{more.mean:+.3f}", *failed])
            means.setdefault(name, []).append((mean.mean, p99.mean, more.mean))
            if mean.low > WORST_MEAN or p99.low > WORST_P99:
                missed.append(f"{world} at {name}: mean {_told(mean)}, p99 {_told(p99)}")
            if more.low > EXTRA:
                missed.append(f"{world} at {name}: {more.mean:+.3f} extra attempts")
        missed += _against_others(world, found)
    columns = ("world", "budget", "TTFT mean", "p99", "extra attempts", "failed", "before")
    grid = Grid("Ratios to the version before", columns, rows, words=2)
    return grid, [line for name in names for line in _overall(name, means[name], now)], missed


def _overall(name: str, means: list[tuple[float, float, float]], now: Figures) -> Iterator[str]:
    ours, p99s = (exp(fmean(map(log, column))) for column in list(zip(*means, strict=True))[:2])
    extra = fmean(each[2] for each in means)
    yield f"{name}: mean {ours:.3f} x (goal {MEAN[name]}), p99 {p99s:.3f} x (goal {P99[name]}), extras {extra:+.4f}"
    if "oracle" in next(iter(now.values())):
        best = [ratio(_means(found[name]), _means(found["oracle"])).mean for found in now.values()]
        yield f"{name}: {exp(fmean(map(log, best))):.3f} x oracle in the mean"


def _against_others(world: str, found: Mapping[str, list[Figure]]) -> Iterable[str]:
    if {"single", "EWMA"} <= found.keys():
        other = ratio(_means(found["single"]), _means(found["EWMA"]))
        if other.low > WORST_EWMA:
            yield f"{world}: single {_told(other)} x EWMA"
    if {"single", "1.0"} <= found.keys():
        more = fmean(a.failed - b.failed for a, b in zip(found["1.0"], found["single"], strict=True))
        if more > FAILED:
            yield f"{world}: 1.0 fails {more:+.2%} of the calls against single"


def _means(figures: list[Figure]) -> list[float]:
    return [each.mean_s for each in figures]


def _told(figure: Paired) -> str:
    return f"{figure.mean:5.3f} ({figure.low:4.2f}-{min(9.99, figure.high):4.2f})"


def main() -> None:
    parser = command("steering.compare", __doc__)
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help="(default: all)")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", choices=RUN, default=list(RUN))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--with", type=Path, dest="before")
    carry_out(parser, measured)


def measured(asked: Run) -> Told:
    """Run what is asked for; save it, or compare it with what was saved."""
    options = asked.options
    found = run(options.worlds or WORLDS, options.only, options.calls, options.seeds, options.jobs)
    if options.save is not None:
        options.save.write_bytes(msgspec.json.encode(found))
    if options.before is None:
        return Told(facts=found)
    before = msgspec.json.decode(options.before.read_bytes(), type=Figures)
    grid, lines, missed = compared({world: each for world, each in found.items() if world in before}, before)
    return Told(facts=found, grids=[grid], lines=lines, missed=missed)


if __name__ == "__main__":
    main()
