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

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from msgspec import structs

from benchmarks.harness.report import console
from benchmarks.overload import report, sweep
from benchmarks.overload.report import Swept, svg
from benchmarks.overload.sweep import STEPS, UNLIMITED, Quiet, Step, Workload, gateway, keep_a_core_free
from tests.support.measured import servers
from tests.support.measured.load import LoadError
from tests.support.measured.servers import ROOT, Server, prepare

WORKLOADS = {
    "steady": Workload("100 tokens at 100 tok/s", "steady-single", "steady"),
    "at-once": Workload("100 tokens in one write", "at-once-single", "at-once"),
}
WINDOW_S, QUICK_WINDOW_S, CAPACITY_WINDOW_S = 10.0, 5.0, 4.0
QUICK_STEPS = (0.5, 1.0, 1.5, 2.0, 2.5)
OUT = ROOT / "var" / "overload"


def say(what: str) -> None:
    """Tell what is being done."""
    sys.stderr.write(f"{what}\n")


def swept(workload: Workload, upstream: Server, core: int, folder: Path, *, quick: bool, tries: int) -> Swept:
    """Measure one workload."""
    window_s, steps = (QUICK_WINDOW_S, QUICK_STEPS) if quick else (WINDOW_S, STEPS)
    with gateway(folder / "without", upstream.port, core, UNLIMITED) as server:
        quiet = Quiet(tries, say)
        say(f"{workload.name}: without load")
        calm, _ = quiet.measured(lambda: sweep.unloaded(workload, server))
        say(f"{workload.name}: looking for the capacity")
        capacity = sweep.capacity_per_s(workload, server, calm, CAPACITY_WINDOW_S, quiet)
        say(f"{workload.name}: {capacity:.0f}/s; without overload control")
        load = sweep.Load(workload, capacity, calm, window_s, may_be_cut=True)
        uncontrolled = list(taken(load, server, steps, quiet))
    with gateway(folder / "with", upstream.port, core, {}) as server:
        say(f"{workload.name}: with overload control")
        load = structs.replace(load, may_be_cut=False)
        controlled = list(taken(load, server, steps, Quiet(tries, say)))
    return Swept(workload, calm, capacity, controlled, uncontrolled)


def taken(load: sweep.Load, server: Server, steps: Sequence[float], quiet: Quiet) -> Iterator[Step]:
    """Take every step, the smallest load first."""
    for times in steps:
        say(f"{times:g} x capacity")
        yield sweep.step(load, server, times, quiet)


def main() -> None:
    """Run as the arguments say, and exit with 1 when the goal is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overload", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=sorted(WORKLOADS), help="one of the workloads")
    parser.add_argument("--quick", action="store_true", help="shorter windows, fewer steps")
    parser.add_argument(
        "--tries", type=int, default=3, help="of a step, while other programs use the machine [default: 3]"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--markdown", action="store_true", help="print tables for a document")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="for overload.svg [default: var/overload]")
    options = parser.parse_args()
    prepare(parser)
    try:
        core = keep_a_core_free()
        with tempfile.TemporaryDirectory(prefix="holeshot-overload-") as folder, ExitStack() as stack:
            upstream = stack.enter_context(servers.upstream())
            runs = [
                swept(workload, upstream, core, Path(folder) / name, quick=options.quick, tries=options.tries)
                for name, workload in WORKLOADS.items()
                if options.only in {None, name}
            ]
    except (LoadError, RuntimeError) as error:
        sys.exit(f"broken: {error}")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "overload.svg").write_text(svg(runs), encoding="utf-8")
    missed = [each for run in runs for each in report.missed(run)]
    _show(runs, missed, as_json=options.json, as_markdown=options.markdown)
    say(f"Plot: {options.out / 'overload.svg'}")
    sys.exit(bool(missed))


def _show(runs: Sequence[Swept], missed: Sequence[str], *, as_json: bool, as_markdown: bool) -> None:
    if as_json:
        told = msgspec.json.encode({"missed": missed, "runs": runs})
        print(msgspec.json.format(told).decode())
        return
    for run in runs:
        if as_markdown:
            print(report.as_markdown(run), end="\n\n")
        else:
            for table in report.tables(run):
                console().print(table)
    for doubt in (each for run in runs for each in report.doubts(run)):
        print(f"Something else was at work: {doubt}.")
    print("\n".join(f"Missed: {each}." for each in missed) or "The goal is reached.")


if __name__ == "__main__":
    main()
