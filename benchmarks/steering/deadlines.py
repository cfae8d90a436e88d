"""What keeping a deadline costs: the calls in time, and the extra attempts and dollars, against another checkout.

In the other checkout, or with a patch:     python -m benchmarks.steering.deadlines --save var/before.json
In this one:                                python -m benchmarks.steering.deadlines --with var/before.json

The same calls and draws for both; differences are paired by seed, with their 95 % interval.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from statistics import fmean

import msgspec
from msgspec.structs import replace

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.report import Grid
from benchmarks.steering.compare import paired, ratio
from benchmarks.steering.figures import FAILED_S
from benchmarks.steering.simulation import Contender, be_quiet, setting, simulate, warm
from benchmarks.steering.worlds import WORLDS
from gateway.core.calls import Objective

ASKED = {
    "cost 0.1": Contender("holeshot", Objective.COST, budget=0.1),
    "cost 1.0": Contender("holeshot", Objective.COST, budget=1.0),
    "first 0.1": Contender("holeshot", Objective.FIRST_TOKEN, budget=0.1, deadline=True),
    "first 1.0": Contender("holeshot", Objective.FIRST_TOKEN, budget=1.0, deadline=True),
}
# Those with a deadline of their own, and others with one of a second.
OF_DEADLINES = ("prices", "tight", "deadlines", "calm", "correlated", "drift", "outage", "herd", "bimodal", "kinds")


class Kept(msgspec.Struct, frozen=True):
    """One run of one contender."""

    met: float  # share of calls
    extra: float  # attempts per call that started while another one ran
    usd_per_1000: float
    mean_s: float  # time to first token; a failed call counts as 120 s


Figures = dict[str, list[Kept]]  # by world and contender, in the order of the seeds


def _heat(heat: tuple[str, str, int, int, float | None]) -> Kept:
    name, asked, calls, seed, goal_s = heat
    be_quiet()
    world = WORLDS[name] if goal_s is None else replace(WORLDS[name], ttft_goal_s=goal_s)
    where = setting(world, calls, seed)
    results = warm(where, simulate(where, ASKED[asked]))
    seconds = [FAILED_S if each.ttft_s is None else each.ttft_s for each in results]
    return Kept(
        met=fmean(each <= world.ttft_goal_s for each in seconds),
        extra=fmean(each.extra for each in results),
        usd_per_1000=1000 * fmean(each.usd for each in results),
        mean_s=fmean(seconds),
    )


def compared(now: Figures, before: Figures) -> Grid:
    """Return a row for each world and contender."""
    rows = []
    for key in [key for key in now if key in before]:
        mine, its = now[key], before[key]
        met = paired([a.met - b.met for a, b in zip(mine, its, strict=True)])
        more = paired([a.extra - b.extra for a, b in zip(mine, its, strict=True)])
        usd = ratio([each.usd_per_1000 for each in mine], [each.usd_per_1000 for each in its])
        mean = ratio([each.mean_s for each in mine], [each.mean_s for each in its])
        rows.append(
            [
                key,
                *(f"{fmean(each.met for each in some):.2%}" for some in (its, mine)),
                f"{100 * met.mean:+.2f} ({100 * met.low:+.2f}, {100 * met.high:+.2f})",
                *(f"{fmean(each.extra for each in some):.3f}" for some in (its, mine)),
                f"{more.mean:+.3f} ({more.low:+.3f}, {more.high:+.3f})",
                f"{fmean(each.usd_per_1000 for each in its):.2f}",
                f"{usd.mean:.3f} ({usd.low:.3f}-{usd.high:.3f})",
                f"{mean.mean:.3f}",
            ]
        )
    columns = ("world", "in time: before", "now", "points", "extra: before", "now", "", "$/1,000", "x", "TTFT x")
    return Grid("Deadlines, against the version before", columns, rows)


def run(worlds: Sequence[str], names: Sequence[str], options: tuple[int, Sequence[int], float | None, int]) -> Figures:
    """Run the contenders called ``names``."""
    calls, seeds, goal_s, jobs = options
    heats = [(world, name, calls, seed, goal_s) for world, name, seed in product(worlds, names, seeds)]
    found: Figures = {}
    with ProcessPoolExecutor(jobs) as pool:
        for (world, name, *_), kept in zip(heats, pool.map(_heat, heats), strict=True):
            found.setdefault(f"{world}, {name}", []).append(kept)
    return found


def main() -> None:
    parser = command("steering.deadlines", __doc__)
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help="(default: those with deadlines)")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", choices=ASKED, default=list(ASKED))
    parser.add_argument("--goal", type=float, help="the deadline in seconds (default: the world's)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--with", type=Path, dest="before")
    carry_out(parser, measured)


def measured(asked: Run) -> Told:
    """Run what is asked for; save it, or compare it with what was saved."""
    options = asked.options
    found = run(
        options.worlds or OF_DEADLINES, options.only, (options.calls, options.seeds, options.goal, options.jobs)
    )
    if options.save is not None:
        options.save.write_bytes(msgspec.json.encode(found))
    if options.before is None:
        return Told(facts={"kept": found})
    before = msgspec.json.decode(options.before.read_bytes(), type=Figures)
    return Told(facts={"kept": found}, grids=[compared(found, before)])


if __name__ == "__main__":
    main()
