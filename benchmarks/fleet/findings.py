"""What the run says: against the oracle, who knows every draw; the leaderboard; faults; lateness."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import inf
from typing import Any

import msgspec

from benchmarks.fleet.course import (
    AUDITED,
    LETTERS_PER_TOKEN,
    POLICIES,
    Entry,
    Fault,
    Look,
    Observation,
    direct_provider,
    silent,
)
from benchmarks.fleet.world import PERSONAS, World, delivers
from benchmarks.harness.report import known_quantile, milliseconds, weighted_quantile
from gateway.http import size_class

LEARNING_S = 15.0  # the leaderboard was empty when the load began; these calls are left out of the comparison
QUANTILES = (0.50, 0.95, 0.99)
_HOPELESS_S = 30.0  # what a call without an answer counts when the best are chosen
WINDOW_S = 5
BAD_FACTOR = 1.5  # times the steady p95: the window is not as it should be
_ENVELOPE_BYTES = 110  # of a body, beside its prompt


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


class Recovery(msgspec.Struct, frozen=True):
    """What a fault did to one policy."""

    fault: str
    arm: str
    calls: int  # until the next fault
    failed: int
    retried: int
    worst_p95_ms: float | None  # of any five seconds
    oracle_p95_ms: float | None  # of the fleet that was left, while the fault lasted or five seconds
    p50_at_end_ms: float | None  # of the last ten seconds before the next fault
    usual_p50_ms: float | None
    recovered_s: float  # from its beginning to the last five seconds whose p95 was half again as high as usual


def recoveries(
    observations: Sequence[Observation], faults: tuple[Fault, ...], standing: Sequence[Standing], world: World
) -> list[Recovery]:
    """Tell what each fault did, and for how long."""
    ends_s = [*(fault.begin_s for fault in faults[1:]), inf]
    usual = {each.arm: each.ttft_ms for each in standing}
    found = []
    for fault, end_s in zip(faults, ends_s, strict=True):
        for arm in POLICIES:
            seen = [each for each in observations if each.arm == arm and fault.begin_s <= each.due_s < end_s]
            lasted_s = max((each.due_s for each in seen), default=fault.begin_s) - fault.begin_s
            windows = {
                at: milliseconds(
                    known_quantile(
                        ttfts(each for each in seen if 0 <= each.due_s - fault.begin_s - at < WINDOW_S), 0.95
                    )
                )
                for at in range(max(1, int(lasted_s) - WINDOW_S + 1))
            }
            usual_p50_ms, usual_p95_ms, _ = usual.get(arm, (None, None, None))
            limit_ms = BAD_FACTOR * (usual_p95_ms or 0.0)
            last = [each for each in seen if each.due_s >= fault.begin_s + lasted_s - 2 * WINDOW_S]
            hit = [each for each in seen if each.due_s < max(fault.end_s, fault.begin_s + WINDOW_S)]
            best = [world.best_ttft_s(each.number, each.due_s, silent(faults, each.due_s)) for each in hit]
            found.append(
                Recovery(
                    fault=fault.name,
                    arm=arm,
                    calls=len(seen),
                    failed=sum(not each.answer.whole for each in seen),
                    retried=sum(each.answer.tries > 1 for each in seen),
                    worst_p95_ms=max((ms for ms in windows.values() if ms is not None), default=None),
                    oracle_p95_ms=milliseconds(known_quantile((ttft_s for ttft_s in best if ttft_s is not None), 0.95)),
                    p50_at_end_ms=milliseconds(known_quantile(ttfts(last), 0.50)),
                    usual_p50_ms=usual_p50_ms,
                    recovered_s=max((at + WINDOW_S for at, ms in windows.items() if ms and ms > limit_ms), default=0),
                )
            )
    return found


class Published(msgspec.Struct, frozen=True):
    """A quantile of one deployment as the leaderboard has it, beside the true one."""

    model: str
    provider: str
    events: int
    censored: int
    biased: bool
    quantile: float
    published_ms: float | None
    low_ms: float | None
    high_ms: float | None
    true_ms: float | None

    @property
    def error(self) -> float | None:
        if self.published_ms is None or self.true_ms is None:
            return None
        return self.published_ms / self.true_ms - 1

    @property
    def inside(self) -> bool | None:
        """Whether the truth is in the published interval; None when there is none."""
        if self.low_ms is None or self.high_ms is None or self.true_ms is None:
            return None
        return self.low_ms <= self.true_ms <= self.high_ms


def published(observations: Sequence[Observation], look: Look, world: World) -> list[Published]:
    """Compare the leaderboards with what the providers would have drawn for every call of the model.

    A deployment may be asked for long prompts more or less often than others, so each call's draw counts as often as
    calls of its prompt class were sent there.
    """
    found = []
    for model, rows in look.leaderboards.items():
        calls = [each for each in observations if each.arm == model and each.due_s < look.at_s]
        for row in rows:
            provider = row["deployment"].partition("/")[0]
            weights = _class_weights(look.entries, model, provider, calls, world)
            draws = [(world.draw(provider, each.number, each.due_s), each.number) for each in calls]
            truth = [
                (run.ttft_s, weights.get(_prompt_class(world, number), 0.0)) for run, number in draws if delivers(run)
            ]
            found += [_published(model, provider, row, q, weighted_quantile(truth, q)) for q in (0.50, 0.95)]
    return sorted(found, key=lambda each: (each.model, each.provider, each.quantile))


def _published(model: str, provider: str, row: Mapping[str, Any], q: float, true_s: float | None) -> Published:
    name = f"ttft_p{round(q * 100)}"
    return Published(
        model=model,
        provider=provider,
        events=row["events"],
        censored=row["censored"],
        biased=row["biased"],
        quantile=q,
        published_ms=row[f"{name}_ms"],
        low_ms=row.get(f"{name}_low_ms"),
        high_ms=row.get(f"{name}_high_ms"),
        true_ms=milliseconds(true_s),
    )


def _prompt_class(world: World, number: int) -> int:
    """Return the class that the gateway puts a call's prompt in."""
    return size_class(LETTERS_PER_TOKEN * world.prompt_tokens(number) + _ENVELOPE_BYTES)


def _class_weights(
    entries: Iterable[Entry], model: str, provider: str, calls: Sequence[Observation], world: World
) -> dict[int, float]:
    """Return for each prompt class how often a call of it counts: its share of the attempts over that of the calls."""
    asked = Counter[int]()
    for entry in entries:
        if entry.model == model and entry.provider == provider:
            asked[entry.prompt_class] += entry.attempts
    made = Counter(_prompt_class(world, each.number) for each in calls)
    return {each: asked[each] / made[each] for each in made}


class Lateness(msgspec.Struct, frozen=True):
    """The lateness of the calls that went one way."""

    way: str
    calls: int
    late_ms: tuple[float | None, ...]  # p50, p95, p99


def lateness(observations: Sequence[Observation], world: World) -> list[Lateness]:
    """Return the lateness of direct calls over their provider's draw, and of all six raced over the best draw."""
    direct, raced = [], []
    for each in observations:
        provider, ttft_s = direct_provider(each.arm, each.number), each.answer.ttft_s
        if ttft_s is None:
            continue
        if provider is not None:
            direct.append(ttft_s - world.draw(provider, each.number, each.due_s).ttft_s)
        elif each.arm == AUDITED:
            raced.append(ttft_s - (world.best_ttft_s(each.number, each.due_s) or ttft_s))
    return [_of("without a gateway", direct), _of("through a gateway that races all six", raced)]


def _of(way: str, late_s: Sequence[float]) -> Lateness:
    return Lateness(way, len(late_s), tuple(milliseconds(known_quantile(late_s, q)) for q in QUANTILES))
