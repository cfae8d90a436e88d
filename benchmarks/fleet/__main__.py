"""``python -m benchmarks.fleet``: four gateways, six providers, one Redis, real sockets; tables and JSON.

Takes about four minutes on two cores with the default 20,000 calls.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.fleet.course import Course, booked_calls, direct_provider
from benchmarks.fleet.findings import lateness, losers, published, read_draws, recoveries, standings
from benchmarks.fleet.installation import installation
from benchmarks.fleet.report import Report, show
from benchmarks.fleet.world import CLIMATES, World
from benchmarks.harness import report as tables

CALLS = 20_000
RATE_PER_S = 90.0  # two cores carry it with room to spare


def main() -> None:
    """Run it as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS, help=f"calls made by the policies (default {CALLS})")
    parser.add_argument("--rate", type=float, default=RATE_PER_S, help=f"of them per second (default {RATE_PER_S:g})")
    parser.add_argument("--climate", choices=list(CLIMATES), default="calm", help="how providers change (default calm)")
    parser.add_argument("--seed", type=int, default=1, help="decides every draw and arrival (default 1)")
    parser.add_argument("--out", type=Path, default=Path("var/fleet"), help="where fleet.json goes")
    options = parser.parse_args()
    console = tables.console()
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end in order then too
    with tempfile.TemporaryDirectory(prefix="holeshot-fleet-") as folder:
        try:
            report = run(options, Path(folder), console)
        except KeyboardInterrupt:
            sys.exit("interrupted; everything is stopped")
    show(report, console)
    (options.out / "fleet.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    console.print(f"Written: {options.out / 'fleet.json'}")


def run(options: argparse.Namespace, folder: Path, console: Console) -> Report:
    """Make all the calls; return what came of them."""
    world, epoch_s = World(options.climate, options.seed), time.time()
    console.print("Starting six providers, Postgres, Redis and five gateways ...")
    columns = (TextColumn("calls"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with installation(world, epoch_s, folder) as installed, Progress(*columns, console=console) as progress:
        task = progress.add_task("calls", total=options.calls)
        course = Course(
            installed,
            world,
            calls=options.calls,
            rate_per_s=options.rate,
            epoch_s=epoch_s,
            tick=lambda: progress.advance(task),
        )
        uvloop.run(course.run())
        installed.settle()
        rows, interrupted = asyncio.run(booked_calls(installed))
    console.print("Comparing with what the fleet would have drawn ...")
    return _report(options, world, course, folder, (rows, interrupted))


def _report(options: argparse.Namespace, world: World, course: Course, folder: Path, rows: tuple[int, int]) -> Report:
    look, seen = course.look, course.observations
    assert look is not None, "the course was run to its end"
    draws = list(read_draws(folder))
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
        losers=losers(look, seen),
        recoveries=recoveries(seen, course.faults, standing, world),
        failed=len(failed),
        broken_off=sum(each.answer.ttft_s is not None and world.may_break(each.number, each.due_s) for each in failed),
        made=sum(each.answer.tries - each.answer.refused for each in raced),
        rows=rows[0],
        interrupted=rows[1],
        cpu_share=dict(look.cpu_share),
        sent_late_p99_ms=tables.known_quantile((draw.late_ms for draw in draws if draw.late_ms), 0.99),
        lateness=lateness(seen, world),
        misdrawn=sum(draw.differs(world) for draw in draws),
    )


if __name__ == "__main__":
    main()
