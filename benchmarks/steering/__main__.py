"""Simulate the steering policy against others and the oracle: ``python -m benchmarks.steering --help``."""

import argparse
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.steering import contest, report
from benchmarks.steering.targets import targets
from benchmarks.steering.worlds import HELD_OUT, TUNED, WEAKNESSES, WORLDS

CALLS, SEEDS = 1600, [1, 2]  # about three minutes on one core
FULL_CALLS, FULL_SEEDS = 14_400, [1, 2, 3]
HELD_OUT_SEEDS = [101, 102, 103]


def main() -> None:
    """Run what is asked for; print the tables, write JSON."""
    options = _options()
    calls = options.calls or (FULL_CALLS if options.full else CALLS)
    seeds = options.seeds or (HELD_OUT_SEEDS if options.held_out_seeds else FULL_SEEDS if options.full else SEEDS)
    console = Console(width=None if Console().is_terminal else 150)
    began_s = time.monotonic()
    columns = (TextColumn("{task.description:12}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(options.worlds) * len(seeds))
        standings = contest.run(
            options.worlds,
            calls,
            seeds,
            options.jobs,
            lambda world: progress.update(task, advance=1, description=world),
        )
    reached = targets({standing.world: standing.figures for standing in standings})
    report.show(console, standings, reached)
    console.print(f"seeds {seeds}, {time.monotonic() - began_s:.0f} s")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_bytes(report.as_json(standings, reached, calls=calls, seeds=seeds))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.steering", description=__doc__)
    parser.add_argument(
        "worlds", nargs="*", metavar="WORLD", help=f"of {', '.join(WORLDS)}; tuned, held-out, weaknesses; default all"
    )
    parser.add_argument("--calls", type=int, help=f"per world and seed; default {CALLS:,}")
    parser.add_argument("--seeds", type=int, nargs="+", help=f"default {SEEDS}")
    parser.add_argument("--held-out-seeds", action="store_true", help=f"seeds {HELD_OUT_SEEDS}: never tune on them")
    parser.add_argument("--full", action="store_true", help=f"{FULL_CALLS:,} calls, seeds {FULL_SEEDS}")
    parser.add_argument("--jobs", type=int, default=1, help="processes; default 1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    options = parser.parse_args()
    groups = {
        name: [world.name for world in worlds]
        for name, worlds in (("tuned", TUNED), ("held-out", HELD_OUT), ("weaknesses", WEAKNESSES))
    }
    named = [name for word in options.worlds for name in groups.get(word, [word])]
    if unknown := [name for name in named if name not in WORLDS]:
        parser.error(f"no world is called {unknown[0]!r}")
    options.worlds = named or list(WORLDS)
    return options


if __name__ == "__main__":
    main()
