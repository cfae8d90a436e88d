"""How often the detector is wrong, and how soon it is right: ``python -m benchmarks.detector --help``."""

import argparse
import random
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from math import ceil
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.detector.worlds import Noise, Trial, World
from benchmarks.harness.report import grid, known_quantile
from gateway.detecting.slowdowns import DAY_S, Metric

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


def main() -> None:
    """Run what is asked for, print the tables, write JSON."""
    options = _options()
    console = Console(width=None if Console().is_terminal else 140)
    jobs = list(_jobs(options))
    began_s = time.monotonic()
    outcomes: list[Outcome] = []
    columns = (TextColumn("{task.description:24}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with (
        Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress,
        ProcessPoolExecutor(options.jobs) as pool,
    ):
        task = progress.add_task("", total=len(jobs))
        for outcome in pool.map(run, jobs):
            outcomes.append(outcome)
            progress.update(task, advance=1, description=str(outcome.name))
    figures = summed(outcomes)
    _show(console, figures)
    console.print(f"seed {options.seed}, {DAYS:g} days each, {time.monotonic() - began_s:.0f} s")
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2))


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


def summed(outcomes: list[Outcome]) -> list[dict[str, object]]:
    """Return the figures of each kind of world."""
    found: list[dict[str, object]] = []
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


def _show(console: Console, figures: list[dict[str, object]]) -> None:
    heads = ("world", "provider-months", "false alarms", "a month", *(f"{factor:g} x" for factor in FACTORS))
    table = grid("False alarms, and the delay of first tokens that take longer (minutes, p50 / p90)", heads, ())
    for row in figures:
        world, delays, alarms = row["world"], row["delays"], row["false_alarms"]
        assert isinstance(delays, dict)
        assert isinstance(alarms, dict)
        key = (world["rate"], world["residual_sd"]) if isinstance(world, dict) else None
        cells = []
        for factor in FACTORS:
            one = delays.get(f"{factor:g}")
            text = "" if one is None else f"{one['p50_min']:.0f} / {one['p90_min']:.0f}"
            goal = None if key is None else GOALS_MIN.get((*key, factor))
            if one is not None and goal is not None:
                text += f" ({'goal' if one['p90_min'] <= goal else 'MISSED'} {goal})"
            cells.append(text)
        named = world if key is None else f"{key[0]}, residual sd {key[1]:g}"
        kinds = ", ".join(f"{name} {n}" for name, n in alarms.items() if n)
        table.add_row(
            str(named),
            str(row["provider_months"]),
            f"{sum(alarms.values())} {kinds}",
            f"{row['per_month']:.3f}",
            *cells,
        )
    console.print(table)


def _jobs(options: argparse.Namespace) -> Iterator[Job]:
    for (rate, calls_s), noise in product(RATES.items(), NOISES):
        world = World(calls_s, Noise(noise), nights=1.0)
        for number in range(ceil(options.months / world.deployments)):
            yield Job((rate, noise), world, options.seed + number, delays=True)
    if options.strange:
        for name, world in STRANGE.items():
            for number in range(ceil(options.months / world.deployments)):
                yield Job(name, world, options.seed + 10_000 + number, delays=False)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.detector", description=__doc__)
    parser.add_argument("--months", type=int, help=f"provider-months of each kind; default {MONTHS}")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_MONTHS} of each")
    parser.add_argument("--strange", action="store_true", help="also worlds of other kinds, for false alarms")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes; default 1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    options = parser.parse_args()
    options.months = options.months or (QUICK_MONTHS if options.quick else MONTHS)
    return options


if __name__ == "__main__":
    main()
