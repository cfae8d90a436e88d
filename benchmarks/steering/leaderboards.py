"""The leaderboard of a fleet that races, against its true quantiles: bias and coverage over many seeded fleets.

``python -m benchmarks.steering.leaderboards`` prints the table of docs/steering.md.
"""

from collections.abc import Iterator
from math import inf
from random import Random
from statistics import fmean

from msgspec import Struct

from gateway.steering.constants import BUCKETS, LEAST_AUDITS
from gateway.steering.counts import bucket
from gateway.steering.survival import AuditedCounts, Quantile, audited_quantiles, quantiles
from tests.support.savings import Fleet

SHARES = (0.50, 0.95)
TRUE_DRAWS = 40_000


class Compared(Struct, frozen=True):
    """One provider: its true quantiles, and as they are published with and without audits. Seconds."""

    true_s: tuple[float, ...]
    quantiles: tuple[Quantile, ...]
    kaplan_meier: tuple[Quantile, ...]
    audits: int


class _Counts:
    def __init__(self) -> None:
        self.events, self.censored, self.own, self.audited_events = ([0.0] * BUCKETS for _ in range(4))
        self.overtaken = self.audited = 0

    def add(self, own_ms: float, other_ms: float, *, audited: bool) -> None:
        index = bucket(own_ms / 1000)
        if own_ms <= other_ms:
            self.own[index] += 1
            self.events[index] += 1
            return
        self.overtaken += 1
        if audited:
            self.audited += 1
            self.audited_events[index] += 1
            self.events[index] += 1
        else:
            self.censored[bucket(other_ms / 1000)] += 1


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
            quantiles(known.events, known.censored, SHARES),
            known.audited,
        )


def main() -> None:
    """Print bias and coverage: 50 fleets, 10,000 attempts each."""
    print("audited  difficulty  quantile  audits    bias   error  covered  Kaplan-Meier's bias")
    for audit_share in (0.05, 0.10):
        for difficulty in (0.0, 0.3, 0.6):
            found = [each for seed in range(1, 51) for each in compared(seed, difficulty, 5_000, audit_share)]
            for at, share in enumerate(SHARES):
                pairs = [(each.quantiles[at], each.true_s[at]) for each in found]
                errors = [published.value_s / true_s - 1 for published, true_s in pairs if published.value_s < inf]
                before = [each.kaplan_meier[at].value_s / each.true_s[at] - 1 for each in found]
                print(
                    f"{audit_share:7.0%}  {difficulty:10.0%}  {share:8.0%}  {fmean(each.audits for each in found):6.0f}"
                    f"  {fmean(errors):+6.1%}  {fmean(error * error for error in errors) ** 0.5:6.1%}"
                    f"  {fmean(low.low_s <= true_s <= low.high_s for low, true_s in pairs):7.0%}"
                    f"  {fmean(error for error in before if error < inf):+19.1%}"
                )


if __name__ == "__main__":
    main()
