"""The published quantiles of racers that are cut by each other, against fleets whose draws are known."""

from math import inf
from statistics import fmean

import pytest

from benchmarks.steering.leaderboards import compared


@pytest.mark.parametrize("difficulty", [0.0, 0.6])
def test_quantiles_are_unbiased_and_their_intervals_hold_however_much_calls_share(difficulty: float) -> None:
    found = [each for seed in range(1, 7) for each in compared(seed, difficulty, calls=5_000, audit_share=0.1)]
    p50, p95 = ([each.quantiles[at] for each in found] for at in range(2))
    assert all(quantile.value_s < inf for quantile in (*p50, *p95))
    assert abs(fmean(each.quantiles[0].value_s / each.true_s[0] - 1 for each in found)) < 0.05
    assert abs(fmean(each.quantiles[1].value_s / each.true_s[1] - 1 for each in found)) < 0.10
    for at in range(2):
        held = [each.quantiles[at].low_s <= each.true_s[at] <= each.quantiles[at].high_s for each in found]
        assert fmean(held) >= 0.9
