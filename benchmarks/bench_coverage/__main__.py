"""``python -m benchmarks.bench_coverage``: prints how often the intervals of ``holeshot bench`` hold the truth.

Each world is benched many times, with draws of the simulated providers instead of requests, so it takes no waiting.
"""

import argparse
import sys
from collections.abc import Sequence

import msgspec

from benchmarks.bench_coverage.coverage import Coverage, Tally, run, truth_of
from benchmarks.bench_coverage.world import World, interval_of
from providers.simulator.persona import DEMO_FLEET, Persona

_BY_NAME = {persona.name: persona for persona in DEMO_FLEET}
_SWIFT, _STEADY, _BURSTY = _BY_NAME["sim-swift"], _BY_NAME["sim-steady"], _BY_NAME["sim-bursty"]


def _named(persona: Persona, name: str, ttft_factor: float = 1.0) -> Persona:
    return msgspec.structs.replace(persona, name=name, ttft_median_s=persona.ttft_median_s * ttft_factor)


WORLDS = (
    World("three of the demo's", (_SWIFT, _STEADY, _BURSTY)),
    World("the same, with moods", (_SWIFT, _STEADY, _BURSTY), mood=0.3),
    World("four equal ones", tuple(_named(_STEADY, f"equal-{number}") for number in range(4))),
    World("four equal ones, with moods", tuple(_named(_STEADY, f"equal-{number}") for number in range(4)), mood=0.3),
    World("one 20 % slower", (_STEADY, _named(_STEADY, "slower", 1.25))),
)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benches", type=int, default=200, help="of each world and number of rounds (default 200)")
    parser.add_argument("--rounds", type=int, nargs="*", default=[8, 12, 20, 50])
    options = parser.parse_args()
    for world in WORLDS:
        truth = truth_of(world)
        found = {rounds: run(world, truth, rounds=rounds, benches=options.benches) for rounds in options.rounds}
        _print(world, found)


def _print(world: World, found: dict[int, Coverage]) -> None:
    names = list(dict.fromkeys(name for coverage in found.values() for name in coverage.figures))
    _row(f"{world.name}: intervals that hold the truth", [f"{rounds} rounds" for rounds in found])
    for name in names:
        _row(name, [_share(coverage.figures.get(name, Tally())) for coverage in found.values()])
    together = [coverage.together for coverage in found.values()]
    _row("benches that show a difference", [f"{each.benches_that_show} of {each.benches}" for each in together])
    _row("verdicts shown", [f"{each.shown} of {each.comparisons}" for each in together])
    _row("of these false", [str(each.wrong) for each in together])
    sys.stdout.write("\n")


def _share(tally: Tally) -> str:
    if not tally.number:
        return "too few"
    low, high = interval_of(tally.held, tally.number)
    return f"{tally.held / tally.number:.1%} ({low:.0%} to {high:.0%})"


def _row(head: str, cells: Sequence[str]) -> None:
    sys.stdout.write(f"{head:<52}" + "".join(f"{cell:>24}" for cell in cells) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
