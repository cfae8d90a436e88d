"""Simulates a month of two gateways and injects incidents: which alerts fired, and which should have.

    python -m benchmarks.alerts [--seed 1] [--days 30]
    python -m benchmarks.alerts --calm 20

It fails when an alert is missed, does not end, or comes without a cause; or more than once while the database is there.
``--calm`` counts how often the rule of five minutes opens an alert in so many months in which nothing is wrong.
"""

import argparse
import asyncio
import sys
import time
from collections import deque
from random import Random

from benchmarks.alerts.incidents import Incident, incidents
from benchmarks.alerts.world import REPLICAS, SETTINGS, Finding, Findings, Month, Simulation, compare, poisson
from benchmarks.harness.report import markdown
from gateway.alerts.alerts import LOOK_S
from gateway.alerts.sources import RULES


async def simulate(happening: list[Incident], *, seed: int, days: float) -> Findings:
    """Return what became of the incidents."""
    month = Month(Random(seed), happening, days)
    simulation = Simulation(month, seed)
    restarts = sorted(each.start_s + after_s for each in happening for after_s in each.restarts)
    while simulation.now_s + LOOK_S <= days * 86_400:
        if restarts and simulation.now_s >= restarts[0]:
            restarts.pop(0)
            simulation.restart()
        await simulation.step(LOOK_S)
    return compare(happening, simulation.delivered)


def table(findings: Findings) -> str:
    """Return the table, as benchmarks/alerts/RESULTS.md has it."""
    columns = ("injected", "expected", "fired after", "resolved after its end", "duplicates")
    lines = markdown(columns, map(_cells, findings.findings), words=len(columns))
    lines += ["", f"False alarms: {len(findings.false_alarms)}. Missed: {len(findings.missed)}."]
    return "\n".join(lines)


def _cells(found: Finding) -> list[str]:
    expected = f"`{found.expected}`" if found.expected else "none"
    spans = _span(found.fired_after_s), _span(found.resolved_after_s)
    return [found.incident.name, expected, *spans, str(found.duplicates) if found.expected else "–"]  # noqa: RUF001 - a dash


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "–"  # noqa: RUF001 - a dash
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 60:
        return f"{sign}{seconds:.0f} s"
    minutes = seconds / 60
    return f"{sign}{minutes:.1f} min" if minutes < 120 else f"{sign}{minutes / 60:.1f} h"


def false_pages(random: Random, days: int, calls_per_minute: float, objective: float, used: float) -> int:
    """Return how often the rule of five minutes begins to hold while calls are bad by chance alone.

    ``used`` is the share of its error budget that the target usually spends.
    """
    rule, allowed, least_bad = RULES[0], 1.0 - objective, SETTINGS.burn_least_bad
    minutes, pages, holds = rule.long_s // 60, 0, False
    lately: deque[int] = deque(maxlen=minutes)
    for _ in range(days * 1440):
        lately.append(poisson(random, calls_per_minute * allowed * used))
        was, holds = holds, False
        if sum(lately) >= least_bad:  # only then it matters how many calls there were
            calls = [max(bad, poisson(random, calls_per_minute)) for bad in lately]
            both = ((sum(lately), sum(calls)), (lately[-1], calls[-1]))
            holds = all(n and bad / n / allowed >= rule.factor for bad, n in both)
        pages += holds and not was
    return pages


def calm(random: Random, months: int) -> None:
    """Print how many pages there are without a cause."""
    print("| calls a minute | objective | error budget used | months | pages |\n|--:|--:|--:|--:|--:|")
    for calls in (4.0, 30.0, 300.0):
        for objective, used in ((0.95, 1.0), (0.99, 1.0), (0.99, 3.0), (0.999, 1.0), (0.999, 3.0)):
            pages = false_pages(random, months * 30, calls, objective, used)
            print(f"| {calls:g} | {objective:.1%} | {used:.0%} | {months} | {pages} |", flush=True)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--calm", type=int, metavar="MONTHS", help="count false alarms of the rule of five minutes")
    arguments = parser.parse_args()
    if arguments.calm:
        calm(Random(arguments.seed), arguments.calm)
        return 0
    happening = [each for each in incidents(Random(arguments.seed)) if each.end_s < arguments.days * 86_400]
    began_s = time.perf_counter()
    findings = asyncio.run(simulate(happening, seed=arguments.seed, days=arguments.days))
    print(table(findings))
    print(
        f"\n{arguments.days:g} days, {REPLICAS} replicas, seed {arguments.seed}; {time.perf_counter() - began_s:.0f} s",
        file=sys.stderr,
    )
    for each in findings.false_alarms:
        print(f"false alarm: {each}", file=sys.stderr)
    for each in findings.missed:
        print(f"missed: {each}", file=sys.stderr)
    needless = sum(each.duplicates for each in findings.findings if each.incident.database != "away")
    return 1 if findings.false_alarms or findings.missed or needless else 0


if __name__ == "__main__":
    sys.exit(main())
