"""How often a gate of ``holeshot bench`` decides rightly, where the truth is known."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

import msgspec

from benchmarks.bench_coverage.coverage import Truth, World, truth_of
from gateway.bench.figures import FEWEST_ROUNDS, Cell, Draws, cells
from gateway.bench.gate import Outcome, Saved, Wanted, judge, read_condition
from gateway.bench.plan import Plan, Sample
from gateway.bench.report import Report, report
from providers.simulator.persona import Persona

_SEEDS = 7919


@cache
def _known(persona: Persona) -> tuple[World, Truth]:
    world = World("goal", (persona,), tokens=12)
    return world, truth_of(world, number=20_000)


def goals(persona: Persona, factor: float, *, metric: str, rounds: int, gates: int) -> Counter[Outcome]:
    """Judge ``gates`` benches by a goal, where the true figure is ``factor`` times the limit."""
    world, truth = _known(persona)
    limit = truth.figures[persona.name, metric] / factor
    wanted = Wanted((read_condition(f"{metric} > {limit:.6f}"),))
    found: Counter[Outcome] = Counter()
    for number in range(gates):
        plan = world.plan(rounds, number)
        samples = world.samples(plan, number * _SEEDS + rounds)
        figures = cells(plan, samples, Draws(range(rounds), number, 500))
        found[judge(wanted, _report(plan, samples, figures)).outcome] += 1
    return found


def against(persona: Persona, factor: float, *, rounds: int, gates: int, mood: float = 0.0) -> Counter[Outcome]:
    """Judge ``gates`` benches by a run of before, since which first tokens take ``factor`` times as long."""
    slower = msgspec.structs.replace(persona, ttft_median_s=persona.ttft_median_s * factor)
    before, now = World("before", (persona,), mood, tokens=12), World("now", (slower,), mood, tokens=12)
    found: Counter[Outcome] = Counter()
    for number in range(gates):
        plan = before.plan(rounds, number)
        old = before.samples(plan, 2 * number * _SEEDS + rounds)
        new = now.samples(plan, (2 * number + 1) * _SEEDS + rounds)
        found[judge(Wanted((), Saved(plan, old), "before"), _report(plan, new, [])).outcome] += 1
    return found


def _report(plan: Plan, samples: Sequence[Sample], figures: Sequence[Cell]) -> Report:
    """Return a report with no more than a gate looks at."""
    empty = report(plan, [], sittings=1, at_most_usd=0.0)
    return msgspec.structs.replace(empty, samples=list(samples), cells=list(figures))


def table(persona: Persona, gates: int) -> str:
    """Return all worlds as a table of Markdown: broken / too little data / holds, in percent."""
    lines = [f"| what is true | {FEWEST_ROUNDS} rounds | 20 | 50 |", "|---|---|---|---|"]
    for metric in ("ttft_p50_ms", "ttft_p95_ms"):
        for factor in (0.8, 0.9, 1.0, 1.1, 1.25, 1.5):
            row = [goals(persona, factor, metric=metric, rounds=rounds, gates=gates) for rounds in (8, 20, 50)]
            lines.append(_row(f"{metric} is {factor:g} × the limit", row))  # noqa: RUF001 - times
    for mood in (0.0, 0.3):
        for factor in (1.0, 1.1, 1.25, 1.5):
            row = [against(persona, factor, rounds=rounds, gates=4 * gates, mood=mood) for rounds in (8, 20, 50)]
            moods = ", with moods" if mood else ""
            lines.append(_row(f"first tokens take {factor:g} × as long as before{moods}", row))  # noqa: RUF001 - times
    return "\n".join(lines)


def _row(name: str, found: Sequence[Counter[Outcome]]) -> str:
    order = (Outcome.BROKEN, Outcome.UNDECIDED, Outcome.HOLDS)
    cells_ = (" / ".join(f"{100 * each[outcome] / each.total():.0f}" for outcome in order) for each in found)
    return f"| {name} | {' | '.join(cells_)} |"
