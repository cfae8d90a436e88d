"""``python -m benchmarks.fleet``: four gateways, six providers, one Redis, real sockets; tables and JSON.

Takes about four minutes on two cores with the default 20,000 calls.
"""

import asyncio
import time
from typing import Any

import uvloop

from benchmarks.fleet.course import Course, booked_calls, direct_provider, installation
from benchmarks.fleet.findings import lateness, published, recoveries, standings
from benchmarks.fleet.report import Report, told
from benchmarks.fleet.world import CLIMATES, World
from benchmarks.harness.command import Run, Told, carry_out, command


def main() -> None:
    parser = command("fleet", __doc__)
    parser.add_argument("--calls", type=int, default=20_000, help="made by the policies")
    parser.add_argument("--rate", type=float, default=90.0, help="of them per second")  # two cores carry it easily
    parser.add_argument("--climate", choices=list(CLIMATES), default="calm", help="how providers change")
    parser.add_argument("--seed", type=int, default=1, help="decides every draw and arrival")
    carry_out(parser, measured)


def measured(run: Run) -> Told:
    """Make all the calls; return what came of them."""
    options = run.options
    world, epoch_s = World(options.climate, options.seed), time.time()
    run.say("Starting six providers, Postgres, Redis and five gateways")
    with installation(world, epoch_s, run.folder) as installed, run.counting(options.calls) as tick:
        course = Course(installed, world, calls=options.calls, rate_per_s=options.rate, epoch_s=epoch_s, tick=tick)
        uvloop.run(course.run())
        installed.settle()
        rows = asyncio.run(booked_calls(installed))
    run.say("Comparing with what the fleet would have drawn")
    return told(_report(options, world, course, rows))


def _report(options: Any, world: World, course: Course, rows: tuple[int, int]) -> Report:
    look, seen = course.look, course.observations
    assert look is not None, "the course was run to its end"
    raced = [each for each in seen if direct_provider(each.arm, each.number) is None]
    failed = [each for each in raced if not each.answer.whole]
    standing = standings(seen, world, look.at_s)
    return Report(
        climate=options.climate,
        seed=options.seed,
        calls=options.calls,
        rate_per_s=options.rate,
        standings=standing,
        published=published(seen, look, world),
        replicas_agree=look.replicas_agree,
        recoveries=recoveries(seen, course.faults, standing, world),
        failed=len(failed),
        broken_off=sum(each.answer.ttft_s is not None and world.may_break(each.number, each.due_s) for each in failed),
        made=sum(each.answer.tries - each.answer.refused for each in raced),
        rows=rows[0],
        interrupted=rows[1],
        cpu_share=dict(look.cpu_share),
        lateness=lateness(seen, world),
    )


if __name__ == "__main__":
    main()
