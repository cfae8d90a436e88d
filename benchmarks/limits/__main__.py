"""Limits of clients and models over four replicas with faults: what was used, beside what was allowed.

Four gateways (a process each) with one Redis and one Postgres get 500 calls a second in all. For each situation there
are clients of their own, one for each limit, and one without; each limit is used up at two thirds of a phase, and the
calls go on. What was used is counted from whole answers by arithmetic of its own. It exits with 1 when

  - more was used than allowed, by more than what the calls in flight used beyond the expected and, if a replica was
    killed, what it could not report any more; more calls ran at the same time than allowed;
  - less was used in calm, by more than 2 %;
  - a call was neither answered nor refused by a limit;
  - the ledger has not what whole answers used.

Limits by the minute need phases within a minute: each begins with a half of a minute of the clock (a third in a quick
run), and the first one is waited for.

Examples:
  python -m benchmarks.limits              six situations, under four minutes
  python -m benchmarks.limits --quick      four shorter ones, two minutes
  python -m benchmarks.limits --only hung
  python -m benchmarks.limits --json | jq .missed
"""

import asyncio
import os
from collections.abc import Collection

import uvloop

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.replicas import Replicas
from benchmarks.harness.report import known_quantile
from benchmarks.limits import course
from benchmarks.limits.course import WEIGHTS, Phase, installation
from benchmarks.limits.findings import Booked, booked_by_client, found, missed
from benchmarks.limits.report import parallel, table
from benchmarks.limits.trials import RATE_PER_S, SITUATIONS, Job, Situation, Trial, drawn, trials

PERIOD_S, QUICK_PERIOD_S = 30.0, 20.0


def main() -> None:
    parser = command("limits", __doc__, quick="four situations, each of 17 s instead of 27 s")
    names = [situation.name for situation in SITUATIONS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="SITUATION", help=f"of: {', '.join(names)}")
    parser.add_argument("--seed", type=int, default=1, help="of the calls and their answers")
    carry_out(parser, measured)


def measured(run: Run) -> Told:
    only, quick, seed = run.options.only, run.options.quick, run.options.seed
    situations = [each for each in SITUATIONS if (each.name in only if only else each.is_brief or not quick)]
    period_s = QUICK_PERIOD_S if quick else PERIOD_S
    length_s = period_s - course.PAUSE_S
    jobs: dict[Situation, list[Job]] = {}
    for each in situations:
        jobs[each] = drawn(each, sum(map(len, jobs.values())), length_s, seed)
    tried = {each: trials(each, jobs[each], length_s) for each in situations}
    run.say("Starting Postgres, Redis, a provider and four gateways")
    with installation([trial for some in tried.values() for trial in some], run.folder) as installed:
        phases = uvloop.run(_phases(installed, tried, jobs, period_s, run))
        installed.settle()
        booked = asyncio.run(booked_by_client(installed))
    findings = [
        found(trial, phases[situation], booked.get(trial.client, Booked()))
        for situation, some in tried.items()
        for trial in some
    ]
    grid = table(findings, _conditions(phases.values(), seed))
    return Told(facts=findings, grids=[grid], lines=list(parallel(findings)), missed=list(missed(findings)))


async def _phases(
    installed: Replicas,
    tried: dict[Situation, list[Trial]],
    jobs: dict[Situation, list[Job]],
    period_s: float,
    run: Run,
) -> dict[Situation, Phase]:
    phases: dict[Situation, Phase] = {}
    await course.warm_up(installed, next(iter(jobs.values())))
    await asyncio.to_thread(course.seen_by_provider, installed)  # nothing of that counts
    for situation, some in tried.items():
        run.say(f"{situation.name}: from the next beginning of {period_s:g} s of the clock")
        phases[situation] = await course.run(installed, situation, some, jobs[situation], period_s)
    return phases


def _conditions(phases: Collection[Phase], seed: int) -> str:
    late_s = known_quantile(
        (each.sent_s - phase.began_s - each.job.due_s for phase in phases for each in phase.made), 0.99
    )
    others = [phase.others_cores for phase in phases if phase.others_cores is not None]
    length_s = max(phase.length_s for phase in phases)
    return (
        f"{RATE_PER_S:g} calls/s, of which four replicas get {':'.join(map(str, WEIGHTS))}. Phases of {length_s:g} s, "
        f"each within a minute of the clock, which was waited for. {os.cpu_count()} cores, of which other programs had "
        f"{min(others, default=0.0):.1f} to {max(others, default=0.0):.1f}; calls left the load up to "
        f"{(late_s or 0.0) * 1000:.0f} ms late (p99). Seed {seed}."
    )


if __name__ == "__main__":
    main()
