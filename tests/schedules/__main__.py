"""Run scenarios: ``python -m tests.schedules`` runs 1,000; ``--seed 7`` one, and tells what happened in it.

Exits with 1 when one fails: it prints its seed, a smaller scenario that fails too, and how to run either again.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from gateway.core.processes import collect_less
from tests.schedules.checks import wrong
from tests.schedules.scenario import Scenario, drawn, read
from tests.schedules.shrinking import shrunk
from tests.schedules.simulation import Evidence, run

COLLECT_EVERY = 100  # scenarios
SHOWN = 5  # failures


def main() -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.schedules", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="how many scenarios to run (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first one's seed (default: %(default)s)")
    parser.add_argument(
        "--step", type=int, default=1, help="from one seed to the next: several processes share the work"
    )
    parser.add_argument("--seed", type=int, help="run this one alone, and tell what happened in it")
    parser.add_argument("--scenario", type=Path, help="run the scenario of this file, as printed when one fails")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of strings is part of a run
        command = [sys.executable, "-m", "tests.schedules", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    if options.seed is not None or options.scenario is not None:
        scenario = read(options.scenario.read_text()) if options.scenario is not None else drawn(options.seed)
        return _one(scenario)
    return _many(range(options.first, options.first + options.count * options.step, options.step), as_json=options.json)


def _many(seeds: range, *, as_json: bool) -> int:
    collect_less()
    began = time.perf_counter()
    failed: dict[int, list[str]] = {}
    calls = 0
    for done, seed in enumerate(seeds, start=1):
        evidence, problems = _judged(drawn(seed), collect=done % COLLECT_EVERY == 0)
        calls += len(evidence.store.calls) if evidence is not None else 0
        if problems:
            failed[seed] = problems
        if sys.stderr.isatty():
            filled = 40 * done // len(seeds)
            sys.stderr.write(f"\r[{'#' * filled}{'.' * (40 - filled)}] {done}/{len(seeds)}, {len(failed)} failed")
    seconds = time.perf_counter() - began
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    if as_json:
        result = {"scenarios": len(seeds), "calls": calls, "seconds": round(seconds, 1), "failed": failed}
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        rate = len(seeds) / seconds
        sys.stdout.write(
            f"{len(seeds)} scenarios with {calls} calls in {seconds:.0f} s ({rate:.0f}/s): {len(failed)} failed\n"
        )
        for seed in list(failed)[:SHOWN]:
            sys.stdout.write(told(seed, failed[seed]))
    return 1 if failed else 0


def told(seed: int, problems: list[str]) -> str:
    """Return what to print of a scenario that fails: what is wrong, and the smallest one that fails likewise."""
    kind = problems[0].partition(":")[0]

    def fails(scenario: Scenario) -> bool:
        return any(problem.startswith(kind) for problem in _judged(scenario)[1])

    small = shrunk(drawn(seed), fails)
    found = _judged(small)[1] or problems
    lines = [f"\nseed {seed}: {problem}" for problem in problems[:SHOWN]]
    lines.append(f"\nsmallest: {found[0]}\n{small.written()}")
    lines.append(f"\nagain: python -m tests.schedules --seed {seed}, or --scenario FILE with the line above\n")
    return "".join(lines)


def _one(scenario: Scenario) -> int:
    evidence, problems = _judged(scenario, collect=True)
    if evidence is not None:
        sys.stdout.write(story(evidence))
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write("failed\n" if problems else "all is well\n")
    return 1 if problems else 0


def _judged(scenario: Scenario, *, collect: bool = False) -> tuple[Evidence | None, list[str]]:
    try:
        evidence = run(scenario, collect=collect)
        return evidence, wrong(evidence)
    except Exception as error:  # noqa: BLE001 - whatever it is, the scenario has failed
        return None, [f"raised: {error!r}"]


def story(evidence: Evidence) -> str:
    """Return what happened: to each client, in each call, at each provider."""
    lines = []
    for client in evidence.clients:
        for seen in client.seen:
            how = "stream" if seen.ask.stream else "whole"
            asked = f"{seen.name} {seen.ask.dialect} {seen.ask.model} {how}"
            lines.append(f"{asked}: {seen.status} {seen.body[-80:]!r}")
    rows = sorted(evidence.store.attempts.values(), key=lambda row: row.number)
    for call in evidence.store.calls.values():
        ended = f"{call.status_code} {call.error_kind}, first token {call.ttft_ms} ms"
        lines.append(f"{call.request_id} {call.model} {call.mode}: {ended}")
        lines += [
            f"   {row.number} {row.deployment} {row.role} +{row.launch_offset_ms} ms: {row.outcome} {row.error_kind}"
            f" ttft {row.ttft_ms} cut {row.censored_at_ms} {row.provider_request_id}"
            for row in rows
            if row.call_id == call.id
        ]
    lines += [
        f"{each.tag} for {each.call} at {each.at:.4f}: first token {each.token_at}, {each.how} {each.over_at}"
        for provider in evidence.providers.values()
        for each in provider.asked
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
