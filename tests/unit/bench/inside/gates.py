"""How often a gate of ``holeshot bench`` decides rightly, where the truth is known."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from gateway.bench import BenchPlan, BenchSample, CheckOutcome, GateChecks, Report, judge, report
from gateway.bench.gate import SavedBench
from providers.simulator import Persona
from tests.unit.bench.inside.coverage import World

_SEEDS = 7919


def against(persona: Persona, factor: float, *, rounds: int, gates: int, mood: float = 0.0) -> Counter[CheckOutcome]:
    """Judge ``gates`` benches by a run of before, since which first tokens take ``factor`` times as long."""
    slower = msgspec.structs.replace(persona, ttft_median_s=persona.ttft_median_s * factor)
    before, now = World("before", (persona,), mood, tokens=12), World("now", (slower,), mood, tokens=12)
    found: Counter[CheckOutcome] = Counter()
    for number in range(gates):
        plan = before.plan(rounds, number)
        old = before.samples(plan, 2 * number * _SEEDS + rounds)
        new = now.samples(plan, (2 * number + 1) * _SEEDS + rounds)
        found[judge(GateChecks((), SavedBench(plan, old), "before"), _report(plan, new)).outcome] += 1
    return found


def _report(plan: BenchPlan, samples: Sequence[BenchSample]) -> Report:
    """Return a report with no more than a gate looks at."""
    empty = report(plan, [], sittings=1, at_most_usd=0.0)
    return msgspec.structs.replace(empty, samples=list(samples))
