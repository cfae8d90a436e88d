"""The published quantiles of racers that are cut by each other, against fleets whose draws are known."""

from collections.abc import Iterator
from math import inf
from random import Random
from statistics import fmean

import pytest
from msgspec import Struct

from gateway.steering import BUCKETS
from gateway.steering.constants import LEAST_AUDITS
from gateway.steering.counts import bucket
from gateway.steering.survival import AuditedCounts, Quantile, audited_quantiles
from tests.support.savings import Fleet

SHARES = (0.50, 0.95)
TRUE_DRAWS = 40_000


class Compared(Struct, frozen=True):
    """One provider: its true quantiles, and as they are published. Seconds."""

    true_s: tuple[float, ...]
    quantiles: tuple[Quantile, ...]


class _Counts:
    def __init__(self) -> None:
        self.own, self.audited_events = ([0.0] * BUCKETS for _ in range(2))
        self.overtaken = self.audited = 0

    def add(self, own_ms: float, other_ms: float, *, audited: bool) -> None:
        index = bucket(own_ms / 1000)
        if own_ms <= other_ms:
            self.own[index] += 1
            return
        self.overtaken += 1
        if audited:
            self.audited += 1
            self.audited_events[index] += 1


def compared(seed: int, difficulty: float, calls: int, audit_share: float) -> Iterator[Compared]:
    """Race ``calls`` calls and yield each provider that has audits enough."""
    fleet, random = Fleet(seed, difficulty), Random(-seed)
    counts = [_Counts() for _ in fleet.providers]
    for _ in range(calls):
        first, second, first_ms, second_ms = fleet.draw()
        audited = random.random() < audit_share
        counts[first].add(first_ms, second_ms, audited=audited)
        counts[second].add(second_ms, first_ms, audited=audited)
    nobody = [0.0] * BUCKETS
    for provider, known in enumerate(counts):
        if known.audited < LEAST_AUDITS:
            continue
        drawn = sorted(fleet.draw_of(provider) for _ in range(TRUE_DRAWS))
        fair = AuditedCounts(known.own, nobody, known.overtaken, known.audited, known.audited_events, nobody)
        yield Compared(
            tuple(drawn[int(share * TRUE_DRAWS)] / 1000 for share in SHARES),
            audited_quantiles(fair, SHARES),
        )


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
