"""The figures of a run: quantiles, cost, duplicates, and regret against the oracle of the same draws."""

from collections.abc import Sequence
from math import inf
from statistics import fmean

import msgspec

from benchmarks.harness.report import quantile
from benchmarks.steering.race import Result


class Spread(msgspec.Struct, frozen=True):
    """A distribution in seconds."""

    mean: float
    p50: float
    p95: float
    p99: float


class Figures(msgspec.Struct, frozen=True):
    """One contender in one world, all seeds together."""

    calls: int
    failed: int
    ttft: Spread
    total: Spread
    waited: Spread  # what a reader waits: TTFT + max(longest stall, n/v - n/r)
    cost: float  # tokens paid over those of one attempt per call
    usd_per_1000: float
    duplicates: float  # extra attempts per call
    regret_ttft_s: float  # mean over calls, against the first-token oracle
    regret_total_s: float  # likewise, against the completion oracle
    recovery_s: float | None = None  # mean over the spells: until the deployment had half of its share of calls back
    stalled: float = 0.0  # share of answers with seconds of silence in them
    flawed: float = 0.0  # share of the answers
    met: float = 0.0  # share of the calls whose first token came within the world's goal


FAILED_S = 120.0  # what a failed call counts as


def figures(
    results: Sequence[Result],
    ttft_oracle: Sequence[Result],
    total_oracle: Sequence[Result],
    recoveries_s: Sequence[float] = (),
    *,
    goal_s: float = inf,
) -> Figures:
    """Describe ``results``; all three are of the same calls, in the same order."""
    ttft = [_or_failed(each.ttft_s) for each in results]
    total = [_or_failed(each.total_s) for each in results]
    once = sum(each.once for each in results)
    calls = len(results)
    return Figures(
        calls=calls,
        failed=sum(each.total_s is None for each in results),
        ttft=_spread(ttft),
        total=_spread(total),
        waited=_spread([_or_failed(each.waited_s) for each in results]),
        cost=sum(each.tokens for each in results) / once,
        usd_per_1000=1000 * sum(each.usd for each in results) / calls,
        duplicates=sum(each.extra for each in results) / calls,
        regret_ttft_s=fmean(ttft) - fmean(_or_failed(each.ttft_s) for each in ttft_oracle),
        regret_total_s=fmean(total) - fmean(_or_failed(each.total_s) for each in total_oracle),
        recovery_s=fmean(recoveries_s) if recoveries_s else None,
        stalled=sum(each.stall_s > 0 for each in results) / calls,
        met=sum(seconds <= goal_s for seconds in ttft) / calls,
        flawed=sum(each.is_flawed for each in results) / max(1, sum(each.total_s is not None for each in results)),
    )


def _spread(values: Sequence[float]) -> Spread:
    return Spread(fmean(values), *(quantile(values, q) for q in (0.50, 0.95, 0.99)))


def _or_failed(seconds: float | None) -> float:
    return FAILED_S if seconds is None else seconds
