"""What the policy has to reach, and whether it does."""

from collections.abc import Iterator, Mapping

import msgspec

from benchmarks.steering import contest
from benchmarks.steering.figures import Figures
from benchmarks.steering.simulation import Contender
from gateway.core.calls import Objective

ByWorld = Mapping[str, Mapping[str, Figures]]  # figures by world and contender

RACES = {"calm": (1.15, 1.2, 1.25), "drift": (1.2, 1.3, 1.35), "outage": (1.25, 1.3, 1.35)}
ECONOMY = dict.fromkeys(RACES, (1.5, 1.85, 2.1))
RACES_COST, ECONOMY_COST, COMPLETION_COST = 1.9, 1.15, 1.2
COMPLETION = {"calm": 1.1, "outage": 1.1, "decode": 1.1}
KINDS_TOTAL = 1.05
READING_WAIT = 1.05
QUIET, QUIET_MEAN = frozenset({"minute", "fiveminutes"}), 1.1
RECOVERY_S = 30.0
HERD_P95 = 2.2
HERD_COMPLETION_P95_S = 3.0


class Target(msgspec.Struct, frozen=True):
    """One figure: what it has to be at most, and what it is."""

    what: str
    world: str
    limit: float
    reached: float

    @property
    def holds(self) -> bool:
        return self.reached <= self.limit


def targets(by_world: ByWorld) -> list[Target]:
    """Return all targets of the worlds that were run."""
    found = [
        *_first_token(by_world, contest.RACES, RACES, RACES_COST),
        *_first_token(by_world, contest.ECONOMY, ECONOMY, ECONOMY_COST),
        *_completion(by_world),
    ]
    if (herd := by_world.get("herd")) is not None:
        ratio = herd[contest.ECONOMY.label].ttft.p95 / herd[contest.ORACLE.label].ttft.p95
        found.append(Target(f"{contest.ECONOMY.label}: TTFT p95 x oracle", "herd", HERD_P95, ratio))
        whole_s = herd[contest.COMPLETION.label].total.p95
        found.append(Target(f"{contest.COMPLETION.label}: total p95, s", "herd", HERD_COMPLETION_P95_S, whole_s))
    if (kinds := by_world.get("kinds")) is not None:
        ratio = kinds[contest.COMPLETION.label].total.mean / kinds[contest.TOLD_LENGTHS.label].total.mean
        found.append(Target(f"{contest.COMPLETION.label}: total mean x told", "kinds", KINDS_TOTAL, ratio))
    for world in QUIET & by_world.keys():
        figures = by_world[world]
        ratio = figures[contest.ECONOMY.label].ttft.mean / figures[contest.HINDSIGHT.label].ttft.mean
        found.append(Target(f"{contest.ECONOMY.label}: TTFT mean x always the best", world, QUIET_MEAN, ratio))
    for world, figures in by_world.items():
        found += [
            Target(
                f"{now.label}: reading wait x held",
                world,
                READING_WAIT,
                _waited_s(figures, now) / _waited_s(figures, held),
            )
            for now, held in contest.AT_ONCE
            if now.objective is Objective.READING
        ]
        found += [
            Target(f"{each.label}: half its calls back after, s", world, RECOVERY_S, back_s)
            for each in (contest.ECONOMY, contest.RACES)
            if (back_s := figures[each.label].recovery_s) is not None
        ]
        found += _everywhere(world, figures)
    return found


def _waited_s(figures: Mapping[str, Figures], contender: Contender) -> float:
    return figures[contender.label].waited.mean


def _first_token(
    by_world: ByWorld, contender: Contender, limits: Mapping[str, tuple[float, ...]], cost: float
) -> Iterator[Target]:
    for world, quantiles in limits.items():
        if world not in by_world:
            continue
        own, best = by_world[world][contender.label], by_world[world][contest.ORACLE.label]
        for name, limit in zip(("p50", "p95", "p99"), quantiles, strict=True):
            ratio = getattr(own.ttft, name) / getattr(best.ttft, name)
            yield Target(f"{contender.label}: TTFT {name} x oracle", world, limit, ratio)
        yield Target(f"{contender.label}: tokens paid", world, cost, own.cost)


def _completion(by_world: ByWorld) -> Iterator[Target]:
    for world, limit in COMPLETION.items():
        if world in by_world:
            own, best = (by_world[world][each.label] for each in (contest.COMPLETION, contest.COMPLETION_ORACLE))
            label = contest.COMPLETION.label
            yield Target(f"{label}: total mean x oracle", world, limit, own.total.mean / best.total.mean)
            yield Target(f"{label}: tokens paid", world, COMPLETION_COST, own.cost)


def _everywhere(world: str, figures: Mapping[str, Figures]) -> Iterator[Target]:
    """Nowhere a failed call, nowhere worse than peak-EWMA with two choices in the mean of its own objective."""
    peak, whole_peak = figures[contest.PEAK.label], figures[contest.COMPLETION_PEAK.label]
    for each in (contest.RACES, contest.ECONOMY):
        yield Target(f"{each.label}: TTFT mean x peak EWMA", world, 1.0, figures[each.label].ttft.mean / peak.ttft.mean)
    for each in (contest.COMPLETION, contest.COMPLETION_RACES):
        # against the better of its two: weighing first tokens, and weighing whole answers
        best_s = min(peak.total.mean, whole_peak.total.mean)
        yield Target(f"{each.label}: total mean x peak EWMA", world, 1.0, figures[each.label].total.mean / best_s)
    failed = sum(figures[each].failed for each in figures if each.startswith(contest.RACES.name))
    yield Target(f"{contest.RACES.name}: failed calls", world, 0.0, float(failed))
