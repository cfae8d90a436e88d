"""How often the detector is wrong, and how soon it is right."""

import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from math import ceil
from typing import Any

import msgspec

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.report import Grid, bad, known_quantile
from gateway.alerts import DAY_S, Metric
from tests.support.slowed import Noise, Trial, World

RATES = {"1/s": 1.0, "1/min": 1 / 60}
NOISES = (0.05, 0.1, 0.2)
FACTORS = (1.3, 1.6, 2.0)
MONTHS, QUICK_MONTHS = 200, 6
DAYS = 30.0
MOST_S = DAY_S  # after which a change counts as not noticed
GOALS_MIN = {("1/s", 0.05, 1.3): 25, ("1/s", 0.1, 2.0): 25, ("1/min", 0.05, 1.3): 240, ("1/min", 0.1, 2.0): 240}
# Beside those of the table: what it was not made for. All at one call in five seconds.
STRANGE = {
    "persistent": World(0.2, Noise(0.1, 0.9)),
    "very persistent": World(0.2, Noise(0.1, 0.99)),
    "wild windows": World(0.2, Noise(0.1, 0.5, 0.05)),
    "large shared shocks": World(0.2, Noise(0.05), shared=0.3, shared_persistence=0.98),
    "no peers": World(0.2, Noise(0.1, 0.5), deployments=1),
    "drift of 2x a month": World(0.2, Noise(0.1), drift_month=0.7),
    "quiet nights": World(0.05, Noise(0.05), rhythm=0.5, nights=0.03),
    "many errors": World(0.2, Noise(0.1), error_rate=0.03),
}


class Job(msgspec.Struct, frozen=True):
    """One model for a month."""

    name: tuple[str, float] | str
    world: World
    seed: int
    delays: bool


class Outcome(msgspec.Struct, frozen=True):
    """What became of it: provider-months, false alarms by metric, and delays in minutes by factor."""

    name: tuple[str, float] | str
    months: int
    alarms: dict[str, int]
    delays: dict[float, list[float]]


def measured(asked: Run) -> Told:
    """Watch all models."""
    options = asked.options
    jobs = list(_jobs(options))
    outcomes: list[Outcome] = []
    with asked.counting(len(jobs), "models") as tick, ProcessPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(run, jobs):
            outcomes.append(outcome)
            tick()
    figures = summed(outcomes)
    heads = ("world", "provider-months", "false alarms", "a month", *(f"{factor:g} x" for factor in FACTORS))
    title = "False alarms, and the delay of first tokens that take longer (minutes, p50 / p90)"
    return Told(facts=figures, grids=[Grid(title, heads, list(map(_cells, figures)))])


def run(job: Job) -> Outcome:
    """Watch one model for a month; every two days something gets worse, once by each factor."""
    dice = random.Random(job.seed)
    trial = Trial(job.world, job.seed)
    delays: dict[float, list[float]] = {factor: [] for factor in FACTORS}
    left = DAYS
    while left > 0:
        days = min(2.0, left) - (dice.random() / 4 if job.delays else 0.0)
        trial.run(days)
        left -= 2.0
        if job.delays:
            for factor in FACTORS:
                name = dice.choice(trial.model.names)
                found = trial.delay_s(Metric.TTFT, factor, trial.now_s + dice.random() * 300, name, MOST_S)
                if found is not None:
                    delays[factor].append(found / 60)
    alarms: dict[str, int] = {}
    for _, _, metric, _ in trial.alarms:
        alarms[str(metric)] = alarms.get(str(metric), 0) + 1
    return Outcome(job.name, job.world.deployments, alarms, delays)


def summed(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """Return the figures of each kind of world."""
    found: list[dict[str, Any]] = []
    for name in dict.fromkeys(outcome.name for outcome in outcomes):
        some = [outcome for outcome in outcomes if outcome.name == name]
        months = sum(outcome.months for outcome in some)
        alarms = {str(metric): sum(outcome.alarms.get(str(metric), 0) for outcome in some) for metric in Metric}
        delays: dict[str, object] = {}
        for factor in FACTORS:
            values = sorted(value for outcome in some for value in outcome.delays[factor])
            if values:
                delays[f"{factor:g}"] = {
                    "n": len(values),
                    "p50_min": known_quantile(values, 0.5),
                    "p90_min": known_quantile(values, 0.9),
                    "unnoticed": sum(value >= MOST_S / 60 for value in values),
                }
        found.append(
            {
                "world": name if isinstance(name, str) else {"rate": name[0], "residual_sd": name[1]},
                "provider_months": months,
                "false_alarms": alarms,
                "per_month": sum(alarms.values()) / months,
                "delays": delays,
            }
        )
    return found


def _cells(row: dict[str, Any]) -> list[str]:
    world, delays, alarms = row["world"], row["delays"], row["false_alarms"]
    key = (world["rate"], world["residual_sd"]) if isinstance(world, dict) else None
    cells = []
    for factor in FACTORS:
        one, goal = delays.get(f"{factor:g}"), None if key is None else GOALS_MIN.get((*key, factor))
        text = "" if one is None else f"{one['p50_min']:.0f} / {one['p90_min']:.0f}"
        if one is not None and goal is not None:
            text = bad(f"{text} (goal {goal})", one["p90_min"] > goal)
        cells.append(text)
    kinds = ", ".join(f"{name} {n}" for name, n in alarms.items() if n)
    named = str(world) if key is None else f"{key[0]}, residual sd {key[1]:g}"
    told = (str(row["provider_months"]), f"{sum(alarms.values())} {kinds}", f"{row['per_month']:.3f}")
    return [named, *told, *cells]


def _jobs(options: Any) -> Iterator[Job]:
    months = options.months or (QUICK_MONTHS if options.quick else MONTHS)
    for (rate, calls_s), noise in product(RATES.items(), NOISES):
        world = World(calls_s, Noise(noise), nights=1.0)
        for number in range(ceil(months / world.deployments)):
            yield Job((rate, noise), world, options.seed + number, delays=True)
    for name, world in STRANGE.items() if options.strange else ():
        for number in range(ceil(months / world.deployments)):
            yield Job(name, world, options.seed + 10_000 + number, delays=False)


def main() -> None:
    parser = command("detector", __doc__, quick=f"{QUICK_MONTHS} of each")
    parser.add_argument("--months", type=int, help=f"provider-months of each kind (default: {MONTHS})")
    parser.add_argument("--strange", action="store_true", help="also worlds of other kinds, for false alarms")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    carry_out(parser, measured)


if __name__ == "__main__":
    main()
