"""Replays a model's calls under other settings (docs/measuring.md has the method, its assumptions and its errors)."""

from collections.abc import Callable, Collection, Sequence
from random import Random
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from gateway.replay.draws import Draw, Resampled, SettingOutcome, costs, outcomes
from gateway.replay.rows import CAP_MS, ReplayedCall
from gateway.replay.sample import LEAST_AUDITS, LEAST_CALLS, AuditNeed, Sample, Stratum, needs, sampled
from gateway.replay.variants import QUANTILES, ReplaySetting, SortedValues
from gateway.replay.world import World, learned

DRAWS = 8  # of the unobserved attempts, each in a world learned from another resample of the calls
RESAMPLES = 25  # of the calls, for each draw
MOST_FREE = 8_000  # calls that represent only themselves; more would not make the tail more precise
_UNKNOWN = 0.01  # share of the calls that may be left out
_TIMES = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)  # Poisson of mean 1: how often a call is in a resample
_CHANCES = (0.36788, 0.73576, 0.91970, 0.98101, 0.99634, 0.99941, 1.0)


class Replayed(Struct, frozen=True):
    """The result for one model."""

    calls: int
    providers: Sequence[str]  # of all attempts
    deployments: Sequence[str]  # those left with enough data
    needs: Sequence[AuditNeed]
    is_enough: bool  # for p95 and beyond
    seen_ms: dict[str, float]  # quantiles of the calls' first tokens as they were
    seen_attempts: float  # per call, as it was
    outcomes: Sequence[SettingOutcome] = ()
    correlation: float | None = None  # mean correlation of two attempts of a call, of their ranks' normal scores
    note: str | None = None  # why there are no outcomes


def replay(
    calls: Sequence[ReplayedCall],
    asked: Sequence[ReplaySetting],
    random: Random,
    *,
    window_s: float,
    without: Collection[str] = (),
    progress: Callable[[float], None] = lambda _: None,
) -> Replayed:
    """Return the figures of the settings ``asked``. The first must be one attempt per call.

    ``without``: providers that are left out. ``progress`` is called with the share that is done.
    """
    world = learned(calls, [1.0] * len(calls))
    known = [each for each in needs(calls, window_s) if world.providers[each.deployment] not in without]
    left = [name for name in world.ranked if world.providers[name] not in without]
    answer = Replayed(
        len(calls),
        sorted(set(world.providers.values())),
        left,
        known,
        not any(each.more for each in known),
        *_seen(calls),
    )
    sample = sampled(calls, without)
    if note := _unanswerable(answer, sample):
        return replace(answer, note=note)
    sample = _thinned(sample, random)
    prices = costs(calls)
    draws: list[Draw] = []
    for number in range(DRAWS):
        there = world if not number else learned(calls, random.choices(_TIMES, cum_weights=_CHANCES, k=len(calls)))
        draws.append(Draw(sample, asked, without, random).play(there, prices))
        progress((number + 1) / (2 * DRAWS))
    resamples = []
    for number, draw in enumerate(draws):
        for _ in range(RESAMPLES):
            times = random.choices(_TIMES, cum_weights=_CHANCES, k=len(sample.calls))
            resamples.append(draw.quantiles(sample.weights(times, random)))
        progress(0.5 + (number + 1) / (2 * DRAWS))
    weights = sample.weights()
    found = Resampled([draw.quantiles(weights) for draw in draws], resamples)
    is_paired = bool(world.loadings)  # otherwise the correlation of two attempts is unknown
    tails = {each.name for each in asked if answer.is_enough or (each.is_pair and _are_raced(calls, without))}
    return replace(
        answer,
        outcomes=tuple(outcomes(asked, found, draws[0], sample, (len(left) if is_paired else 1, tails))),
        correlation=_correlation(world),
    )


def _unanswerable(answer: Replayed, sample: Sample) -> str | None:
    if answer.calls < LEAST_CALLS:
        calls = "1 call is" if answer.calls == 1 else f"{answer.calls} calls are"
        return f"{calls} too few, {LEAST_CALLS} are needed"
    if not answer.deployments:
        return "no deployment is left of which enough first tokens are known"
    audits = sum(each.audits for each in answer.needs)
    if sample.unknown > _UNKNOWN or (sample.strata and audits < LEAST_AUDITS):
        were = "1 was" if audits == 1 else f"{audits} were"
        return f"of the losers {were} audited, {LEAST_AUDITS} are needed for medians"
    return None


def _are_raced(calls: Sequence[ReplayedCall], without: Collection[str]) -> bool:
    """Whether nearly all calls were races of two, so that times of races of two are observed."""
    raced = sum(
        call.weight
        for call in calls
        if sum(each.starts_with_call and each.provider not in without for each in call.tries) == 2  # noqa: PLR2004
    )
    return raced >= (1 - _UNKNOWN) * sum(call.weight for call in calls)


def _seen(calls: Sequence[ReplayedCall]) -> tuple[dict[str, float], float]:
    answered = [(min(call.ttft_ms, CAP_MS), call.weight) for call in calls if call.ttft_ms is not None]
    if not answered:
        return {}, 0.0
    found = SortedValues([ms for ms, _ in answered]).quantiles([weight for _, weight in answered])
    tries = sum(call.weight * len(call.tries) for call in calls) / sum(call.weight for call in calls)
    return {f"p{share * 100:.0f}": ms for share, ms in zip(QUANTILES, found, strict=True)}, tries


def _correlation(world: World) -> float | None:
    pairs = [world.loadings[a] * world.loadings[b] for a in world.loadings for b in world.loadings if a < b]
    return fmean(pairs) if pairs else None


def _thinned(sample: Sample, random: Random) -> Sample:
    """Return a random part of many calls that represent only themselves, with a higher weight."""
    if sample.free <= MOST_FREE:
        return sample
    kept = sorted(random.sample(range(sample.free), MOST_FREE))
    factor, less = sample.free / MOST_FREE, sample.free - MOST_FREE
    heavier = [replace(sample.calls[place], weight=sample.calls[place].weight * factor) for place in kept]
    return Sample(
        [*heavier, *sample.calls[sample.free :]],
        [*[sample.leads[place] for place in kept], *sample.leads[sample.free :]],
        MOST_FREE,
        [Stratum(each.start - less, each.end - less, each.overtaken, each.rows) for each in sample.strata],
        sample.unknown,
    )
