"""How each way of calling did against the oracle, who knows every provider's draw."""

from collections.abc import Iterable, Sequence
from itertools import combinations

import msgspec

from benchmarks.fleet.course import Observation
from benchmarks.fleet.installation import POLICIES
from benchmarks.fleet.world import PERSONAS, World
from benchmarks.harness.report import known_quantile, milliseconds

LEARNING_S = 15.0  # the leaderboard was empty when the load began; these calls are left out of the comparison
QUANTILES = (0.50, 0.95, 0.99)
_HOPELESS_S = 30.0  # what a call without an answer counts when the best are chosen


class Standing(msgspec.Struct, frozen=True):
    """How one way of calling did against the best that the fleet had in store for the same calls."""

    arm: str
    calls: int
    failed: int  # without a whole answer
    attempts_per_call: float | None
    ttft_ms: tuple[float | None, ...]  # p50, p95, p99
    oracle_ms: tuple[float | None, ...]
    overhead_ms: tuple[float | None, ...]  # the gateway's own share, by its own account


def standings(observations: Sequence[Observation], world: World, until_s: float) -> list[Standing]:
    """Compare each way of calling with the oracle, over the steady load after learning."""
    began_s = min(each.due_s for each in observations)
    first_s = began_s + min(LEARNING_S, (until_s - began_s) / 3)
    steady: dict[str, list[Observation]] = {}
    for each in observations:
        if first_s <= each.due_s < until_s:
            steady.setdefault(each.arm, []).append(each)
    asked = [each for arm in POLICIES for each in steady.get(arm, ())]
    hindsight = [_in_hindsight(width, asked, world) for width in (1, 2)] if asked else []
    return [*(_standing(arm, seen, world) for arm, seen in sorted(steady.items())), *hindsight]


def _standing(arm: str, seen: Sequence[Observation], world: World) -> Standing:
    best = [world.best_ttft_s(each.number, each.due_s) for each in seen]
    launched = [each.answer.launched for each in seen if each.answer.launched is not None]
    overheads = [each.answer.overhead_ms for each in seen if each.answer.overhead_ms is not None]
    return Standing(
        arm=arm,
        calls=len(seen),
        failed=sum(not each.answer.whole for each in seen),
        attempts_per_call=sum(launched) / len(launched) if launched else None,
        ttft_ms=_quantiles(ttfts(seen)),
        oracle_ms=_quantiles(best),
        overhead_ms=tuple(known_quantile(overheads, q) for q in QUANTILES),
    )


def _in_hindsight(width: int, seen: Sequence[Observation], world: World) -> Standing:
    """Return what the best ``width`` providers would have done, raced for every call: by their draws, no socket used.

    Nobody who learns while calling can know them; but a policy that may race as many has this to reach for.
    """
    ways = [
        (names, [world.best_ttft_s(each.number, each.due_s, frozenset(PERSONAS) - set(names)) for each in seen])
        for names in combinations(PERSONAS, width)
    ]
    names, drawn = min(ways, key=lambda way: sum(_HOPELESS_S if ttft_s is None else ttft_s for ttft_s in way[1]))
    best = [world.best_ttft_s(each.number, each.due_s) for each in seen]
    return Standing(
        arm=f"drawn by {' + '.join(names)}",
        calls=len(seen),
        failed=drawn.count(None),
        attempts_per_call=width,
        ttft_ms=_quantiles(drawn),
        oracle_ms=_quantiles(best),
        overhead_ms=(None,) * len(QUANTILES),
    )


def _quantiles(ttfts_s: Iterable[float | None]) -> tuple[float | None, ...]:
    known = [ttft_s for ttft_s in ttfts_s if ttft_s is not None]
    return tuple(milliseconds(known_quantile(known, q)) for q in QUANTILES)


def ttfts(observations: Iterable[Observation]) -> list[float]:
    """Return the times to first token that there were, in seconds."""
    return [each.answer.ttft_s for each in observations if each.answer.ttft_s is not None]
