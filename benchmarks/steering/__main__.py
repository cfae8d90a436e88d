"""Simulate the steering policy against others and the oracle."""

from benchmarks.harness.command import Choices, Run, Told, carry_out, command
from benchmarks.steering import contest, report
from benchmarks.steering.targets import targets
from benchmarks.steering.worlds import HELD_OUT, TUNED, WEAKNESSES, WORLDS

CALLS, SEEDS = 1600, [1, 2]  # about three minutes on one core
FULL_CALLS, FULL_SEEDS = 14_400, [1, 2, 3]
HELD_OUT_SEEDS = [101, 102, 103]
GROUPS = {"tuned": TUNED, "held-out": HELD_OUT, "weaknesses": WEAKNESSES}


def main() -> None:
    parser = command("steering", __doc__)
    names = ", ".join((*WORLDS, *GROUPS))
    choices = Choices((*WORLDS, *GROUPS))
    parser.add_argument("worlds", nargs="*", metavar="WORLD", choices=choices, help=f"of {names}; or all")
    parser.add_argument("--calls", type=int, help=f"per world and seed (default: {CALLS:,})")
    parser.add_argument("--seeds", type=int, nargs="+", help=f"(default: {SEEDS})")
    parser.add_argument("--held-out-seeds", action="store_true", help=f"seeds {HELD_OUT_SEEDS}: never tune on them")
    parser.add_argument("--full", action="store_true", help=f"{FULL_CALLS:,} calls, seeds {FULL_SEEDS}")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    carry_out(parser, measured)


def measured(run: Run) -> Told:
    """Run all contenders in the worlds that are asked for."""
    options = run.options
    calls = options.calls or (FULL_CALLS if options.full else CALLS)
    seeds = options.seeds or (HELD_OUT_SEEDS if options.held_out_seeds else FULL_SEEDS if options.full else SEEDS)
    groups = {name: [world.name for world in worlds] for name, worlds in GROUPS.items()}
    worlds = [name for word in options.worlds for name in groups.get(word, [word])] or list(WORLDS)
    with run.counting(len(worlds) * len(seeds), "worlds") as tick:
        standings = contest.run(worlds, calls, seeds, options.jobs, lambda _: tick())
    reached = targets({standing.world: standing.figures for standing in standings})
    return report.told(standings, reached, calls=calls, seeds=seeds)


if __name__ == "__main__":
    main()
