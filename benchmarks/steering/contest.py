"""Who runs in which world, and the figures of all of them together."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import msgspec

from benchmarks.steering.baselines import BASELINES
from benchmarks.steering.figures import Figures, figures
from benchmarks.steering.gateway_policy import Lengths
from benchmarks.steering.race import Result
from benchmarks.steering.recovery import recoveries_s
from benchmarks.steering.simulation import (
    ALWAYS_BEST,
    ALWAYS_CHEAPEST,
    ALWAYS_DEAREST,
    Contender,
    be_quiet,
    setting,
    simulate,
    warm,
)
from benchmarks.steering.worlds import KINDS, WORLDS, World
from gateway.core.calls import Mode, Objective

ORACLE = Contender("oracle", Objective.FIRST_TOKEN)
COMPLETION_ORACLE = Contender("oracle", Objective.COMPLETION)
COST_ORACLE = Contender("oracle", Objective.COST)
HINDSIGHT = Contender(ALWAYS_BEST, Objective.FIRST_TOKEN)
PEAK = Contender("peak EWMA", Objective.FIRST_TOKEN)
COMPLETION_PEAK = Contender("peak EWMA", Objective.COMPLETION)
RACES = Contender("holeshot", Objective.FIRST_TOKEN, budget=1.0)
ECONOMY = Contender("holeshot", Objective.FIRST_TOKEN, budget=0.1)
SINGLE = Contender("holeshot", Objective.FIRST_TOKEN, budget=0.1, mode=Mode.SINGLE)
COMPLETION = Contender("holeshot", Objective.COMPLETION, budget=0.1, holds=True)
COMPLETION_RACES = Contender("holeshot", Objective.COMPLETION, budget=1.0, holds=True)
COST = Contender("holeshot", Objective.COST, budget=0.1)
DEADLINE = Contender("holeshot", Objective.FIRST_TOKEN, budget=0.1, deadline=True)
CHEAPEST = Contender(ALWAYS_CHEAPEST, Objective.FIRST_TOKEN)
DEAREST = Contender(ALWAYS_DEAREST, Objective.FIRST_TOKEN)
READING = Contender("holeshot", Objective.READING, budget=0.1)
READING_RACES = Contender("holeshot", Objective.READING, budget=1.0)
COMPLETION_AT_ONCE = Contender("holeshot", Objective.COMPLETION, budget=0.1)
COMPLETION_RACES_AT_ONCE = Contender("holeshot", Objective.COMPLETION, budget=1.0)
READING_HELD = Contender("holeshot", Objective.READING, budget=0.1, holds=True)
READING_RACES_HELD = Contender("holeshot", Objective.READING, budget=1.0, holds=True)
AT_ONCE = (  # as it ships, and the same with holds
    (READING_RACES, READING_RACES_HELD),
    (READING, READING_HELD),
    (COMPLETION_RACES_AT_ONCE, COMPLETION_RACES),
    (COMPLETION_AT_ONCE, COMPLETION),
)
ONE_LENGTH = Contender("holeshot", Objective.COMPLETION, budget=0.1, lengths=Lengths.BY_MODEL, holds=True)
TOLD_LENGTHS = Contender("holeshot", Objective.COMPLETION, budget=0.1, lengths=Lengths.TOLD, holds=True)


class Standing(msgspec.Struct, frozen=True):
    """One world, all seeds: figures by contender."""

    world: str
    figures: dict[str, Figures]


def contenders(world: World) -> list[Contender]:
    priced = [CHEAPEST, DEAREST, DEADLINE, COST_ORACLE, COST] if world.prices else []
    others = [Contender(name, Objective.FIRST_TOKEN) for name in BASELINES]
    ours = [SINGLE, ECONOMY, RACES, COMPLETION, COMPLETION_RACES]
    lengths = [ONE_LENGTH, TOLD_LENGTHS] if world.kinds is not KINDS else []
    at_once = [each for pair in AT_ONCE for each in pair if each not in ours]
    return [ORACLE, COMPLETION_ORACLE, HINDSIGHT, *others, COMPLETION_PEAK, *ours, *at_once, *lengths, *priced]


def run(
    worlds: Sequence[str], calls: int, seeds: Sequence[int], jobs: int, tick: Callable[[str], None]
) -> list[Standing]:
    """Run all contenders in all worlds with all seeds; ``tick`` hears of each world and seed done."""
    heats = [(world, calls, seed) for world in worlds for seed in seeds]
    done: dict[tuple[str, int], dict[str, list[Result]]] = {}
    for world, seed, results in _heats(heats, jobs):
        done[world, seed] = results
        tick(world)
    return [_standing(world, [done[world, seed] for seed in seeds]) for world in worlds]


def _heats(heats: Sequence[tuple[str, int, int]], jobs: int) -> Iterable[tuple[str, int, dict[str, list[Result]]]]:
    if jobs == 1:
        yield from map(_heat, heats)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(_heat, heat) for heat in heats]):
            yield future.result()


def _heat(heat: tuple[str, int, int]) -> tuple[str, int, dict[str, list[Result]]]:
    name, calls, seed = heat
    be_quiet()
    where = setting(WORLDS[name], calls, seed)
    return name, seed, {each.label: warm(where, simulate(where, each)) for each in contenders(where.world)}


def _standing(world: str, by_seed: Sequence[dict[str, list[Result]]]) -> Standing:
    together = {label: [result for heat in by_seed for result in heat[label]] for label in by_seed[0]}
    first, whole = together[ORACLE.label], together[COMPLETION_ORACLE.label]
    recovered = {label: [s for heat in by_seed for s in recoveries_s(WORLDS[world], heat[label])] for label in together}
    goal_s = WORLDS[world].ttft_goal_s
    described = {
        label: figures(results, first, whole, recovered[label], goal_s=goal_s) for label, results in together.items()
    }
    return Standing(world, described)
