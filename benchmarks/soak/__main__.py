"""Soak a gateway: 100,000 calls, some of which meet a fault, and see whether it keeps anything of them.

A gateway as in production (its own process, Postgres, Redis, client keys) stands before a simulated fleet in another
process. Calls are streamed and whole chat completions, raced, hedged and one at a time, and embeddings. One in twenty
meets a fault: a closed port, a reset before headers or in mid-answer, silence, 429, 500, bytes that are no HTTP, an
answer that stalls, ends early or is no JSON, or a client that hangs up at a random instant. Every fifth of these is met
at all providers. Each few seconds the configuration changes, with a SIGHUP.

Each second the gateway is sampled: resident memory, open descriptors, tasks, calls not yet in SQL, spool on disk. The
samples and the figures go to the folder of --out. It exits with 1 when

  - a call did not end as it must: with a whole answer of its own, or with an error where its fault allows that;
  - more than 1 % of the calls without a fault found all providers out;
  - the ledger has not exactly one row for each call;
  - descriptors or tasks are not back, a minute after the load, at what they were before it;
  - resident memory grew by more than 5 % between the second quarter of the run and the last one;
  - a reload had no effect, or the gateway logged an error.

Examples:
  python -m benchmarks.soak                        five minutes on two cores
  python -m benchmarks.soak --calls 5000           half a minute: ends and rows; growth needs more
  python -m benchmarks.soak --share 0 --reload 0   the same load without faults
  python -m benchmarks.soak --json | jq .problems
"""

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.soak.course import Order, soak
from benchmarks.soak.report import lines, problems
from tests.support.measured.servers import ROOT, prepare

CALLS, CONCURRENCY, SHARE, RELOAD_S = 100_000, 32, 0.05, 15.0
OUT = ROOT / "var" / "soak"


def main() -> None:
    """Run as the arguments say, and exit with 1 when something is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=CALLS, help=f"how many [default: {CALLS}]")
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY, help=f"at a time [default: {CONCURRENCY}]")
    parser.add_argument("--share", type=float, default=SHARE, help=f"of calls that meet a fault [default: {SHARE}]")
    parser.add_argument(
        "--reload",
        type=float,
        default=RELOAD_S,
        metavar="S",
        help=f"seconds between reloads; 0: none [default: {RELOAD_S:g}]",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the calls and their faults [default: 1]")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="for soak.json [default: var/soak]")
    parser.add_argument("--json", action="store_true", help="print JSON instead of words")
    options = parser.parse_args()
    if options.calls < 1 or options.concurrency < 1 or not 0 <= options.share <= 1:
        parser.error("--calls and --concurrency are at least 1, --share is between 0 and 1")
    prepare(parser)
    order = Order(
        calls=options.calls,
        concurrency=options.concurrency,
        share=options.share,
        seed=options.seed,
        reload_s=options.reload,
    )
    progress_console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        tempfile.TemporaryDirectory(prefix="holeshot-soak-") as folder,
        Progress(*columns, console=progress_console, disable=not progress_console.is_terminal) as progress,
    ):
        task = progress.add_task("calls", total=order.calls)
        try:
            report = soak(order, Path(folder), lambda: progress.advance(task))
        except RuntimeError as error:
            sys.exit(f"broken: {error}")
    wrong = list(problems(report))
    options.out.mkdir(parents=True, exist_ok=True)
    told = msgspec.json.format(msgspec.json.encode({"problems": wrong, **msgspec.to_builtins(report)}))
    (options.out / "soak.json").write_bytes(told + b"\n")
    if options.json:
        sys.stdout.buffer.write(told + b"\n")
    else:
        for line in (*lines(report), f"Samples: {options.out / 'soak.json'}"):
            print(line)
        print("\n".join(f"Wrong: {each}." for each in wrong) or "Nothing is wrong.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
