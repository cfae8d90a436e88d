"""Where the truth is known, intervals of ``holeshot bench`` hold it, and its verdicts are right."""

from gateway.bench import CheckOutcome
from tests.unit.bench.inside import gates
from tests.unit.bench.inside.coverage import WORLDS, Coverage, World, run, truth_of


def coverage(name: str, rounds: int, benches: int) -> Coverage:
    world = next(world for world in WORLDS if world.name == name)
    quick = World(world.name, world.personas, world.mood, tokens=12)
    return run(quick, truth_of(quick, number=8_000), rounds=rounds, benches=benches)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    found = coverage("three unlike ones", 20, 25)
    figures = {name: tally for name, tally in found.figures.items() if tally.number}
    assert {"ttft_p50_ms", "decode_tps_p50", "total_p50_ms", "errors", "goodput", "verdict: ttft"} <= set(figures)
    number, held = sum(tally.number for tally in figures.values()), sum(tally.held for tally in figures.values())
    assert held / number > 0.92
    assert all(tally.held / tally.number > 0.82 for tally in figures.values())
    assert found.together.shown > found.together.comparisons / 4
    assert found.together.wrong == 0


def test_equal_deployments_are_hardly_ever_told_apart() -> None:
    found = coverage("four equal ones, with moods", 10, 30)
    assert found.together.benches_that_show <= 5  # 1.5 are expected; more than 5 happens once in two hundred times
    assert found.together.comparisons == 30 * 6 * 5


def test_a_run_like_the_one_before_hardly_ever_breaks_the_gate_and_a_slower_one_does() -> None:
    steady = WORLDS[-1].personas[0]
    assert gates.against(steady, 1.0, rounds=10, gates=20)[CheckOutcome.BROKEN] <= 2  # at most 0.5 are expected
    assert gates.against(steady, 1.5, rounds=20, gates=10)[CheckOutcome.BROKEN] >= 8
