"""Offer a gateway more calls than it can serve, with overload control and without it, and see what is answered.

The gateway is alone on one core; the load, the mock upstream and this process have the others. The upstream sends its
first token after 300 ms. Calls come by chance, whatever becomes of those before (open loop, Poisson), at a quarter of
the capacity up to two and a half times as much. The capacity is the most good answers per second of any closed loop. A
good answer is whole, and its TTFT is at most twice that without load, counted from when the call was due.

It exits with 1 when, at twice the capacity,

  - good answers are fewer than 90 % of the most of any step of either sweep, or
  - the TTFT's 99 % quantile of answered calls is more than twice the TTFT without load.

Both are asked of each workload: "steady", 100 tokens at 100 tok/s, as providers stream; and "at-once", the whole answer
in one write, where a call costs least beside its refusal.

Examples:
  python -m benchmarks.overload                    both workloads, ten minutes
  python -m benchmarks.overload --quick            shorter windows, and fewer steps: four minutes
  python -m benchmarks.overload --only steady --json
"""

from pathlib import Path

from msgspec import structs

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.overload import report, sweep
from benchmarks.overload.report import Swept, svg
from benchmarks.overload.sweep import STEPS, UNLIMITED, Quiet, Workload, gateway, keep_a_core_free
from tests.support.measured import servers
from tests.support.measured.servers import Server

WORKLOADS = {
    "steady": Workload("100 tokens at 100 tok/s", "steady-single", "steady"),
    "at-once": Workload("100 tokens in one write", "at-once-single", "at-once"),
}
WINDOW_S, QUICK_WINDOW_S, CAPACITY_WINDOW_S = 10.0, 5.0, 4.0
QUICK_STEPS = (0.5, 1.0, 1.5, 2.0, 2.5)


def swept(workload: Workload, upstream: Server, core: int, folder: Path, run: Run) -> Swept:
    """Measure one workload."""
    say, quiet = run.say, Quiet(run.options.tries, run.say)
    window_s, steps = (QUICK_WINDOW_S, QUICK_STEPS) if run.options.quick else (WINDOW_S, STEPS)
    with gateway(folder / "without", upstream.port, core, UNLIMITED) as server:
        say(f"{workload.name}: without load")
        calm, _ = quiet.measured(lambda: sweep.unloaded(workload, server))
        say(f"{workload.name}: looking for the capacity")
        capacity = sweep.capacity_per_s(workload, server, calm, CAPACITY_WINDOW_S, quiet)
        say(f"{workload.name}: {capacity:.0f}/s; without overload control")
        load = sweep.Load(workload, capacity, calm, window_s, may_be_cut=True)
        uncontrolled = [sweep.step(load, server, times, quiet) for times in steps]
    with gateway(folder / "with", upstream.port, core, {}) as server:
        say(f"{workload.name}: with overload control")
        load = structs.replace(load, may_be_cut=False)
        controlled = [sweep.step(load, server, times, quiet) for times in steps]
    return Swept(workload, calm, capacity, controlled, uncontrolled)


def main() -> None:
    """Run as the arguments say."""
    parser = command("overload", __doc__, quick="shorter windows, fewer steps")
    parser.add_argument("--only", choices=sorted(WORKLOADS), help="one of the workloads")
    parser.add_argument("--tries", type=int, default=3, help="of a step, while other programs use the machine")
    carry_out(parser, measured)


def measured(run: Run) -> Told:
    """Measure the workloads; the picture is beside the figures."""
    core = keep_a_core_free()
    with servers.upstream() as upstream:
        runs = [
            swept(workload, upstream, core, run.folder / name, run)
            for name, workload in WORKLOADS.items()
            if run.options.only in {None, name}
        ]
    return Told(
        facts=runs,
        grids=[grid for each in runs for grid in report.tables(each)],
        lines=[f"Something else was at work: {doubt}." for each in runs for doubt in report.doubts(each)],
        missed=[missed for each in runs for missed in report.missed(each)],
        pictures={"overload.svg": svg(runs)},
    )


if __name__ == "__main__":
    main()
