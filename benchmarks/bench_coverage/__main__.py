"""``python -m benchmarks.bench_coverage``: prints how often the intervals of ``holeshot bench`` hold the truth.

Each world is benched many times, with draws of the simulated providers instead of requests, so it takes no waiting.
"""

import argparse
import sys
from collections.abc import Sequence

import msgspec

from benchmarks.bench_coverage import gates
from benchmarks.bench_coverage.coverage import Coverage, Tally, World, interval_of, run, truth_of
from providers.simulator.persona import Persona

# A fast first token; hardly ever late; very fast decoding after an unpredictable first token.
_SWIFT = Persona(
    name="swift",
    ttft_median_s=0.16,
    ttft_sigma=0.35,
    tail_share=0.04,
    decode_tps=90,
    error_share=0.01,
    input_usd_per_mtok=0.59,
    output_usd_per_mtok=0.79,
)
_STEADY = Persona(
    name="steady",
    ttft_median_s=0.28,
    ttft_sigma=0.12,
    tail_share=0.004,
    decode_tps=70,
    error_share=0.01,
    input_usd_per_mtok=0.40,
    output_usd_per_mtok=0.60,
)
_BURSTY = Persona(
    name="bursty",
    ttft_median_s=0.24,
    ttft_sigma=0.55,
    tail_share=0.06,
    decode_tps=500,
    error_share=0.03,
    input_usd_per_mtok=0.85,
    output_usd_per_mtok=1.20,
)


def _named(persona: Persona, name: str, ttft_factor: float = 1.0) -> Persona:
    return msgspec.structs.replace(persona, name=name, ttft_median_s=persona.ttft_median_s * ttft_factor)


WORLDS = (
    World("three unlike ones", (_SWIFT, _STEADY, _BURSTY)),
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
    parser.add_argument("--gates", action="store_true", help="instead, how often --fail-if and --against are right")
    options = parser.parse_args()
    if options.gates:
        sys.stdout.write(gates.table(_STEADY, options.benches) + "\n")
        return
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
