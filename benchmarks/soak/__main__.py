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
  python -m benchmarks.soak --json | jq .missed
"""

from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.soak.course import Order, soak
from benchmarks.soak.report import lines, problems


def main() -> None:
    parser = command("soak", __doc__)
    parser.add_argument("--calls", type=int, default=100_000, help="how many")
    parser.add_argument("--concurrency", type=int, default=32, help="at a time")
    parser.add_argument("--share", type=float, default=0.05, help="of calls that meet a fault")
    parser.add_argument("--reload", type=float, default=15.0, metavar="S", help="seconds between reloads; 0: none")
    parser.add_argument("--seed", type=int, default=1, help="of the calls and their faults")
    carry_out(parser, measured)


def measured(run: Run) -> Told:
    asked = run.options
    order = Order(asked.calls, asked.concurrency, asked.share, asked.seed, asked.reload)
    with run.counting(order.calls) as tick:
        report = soak(order, run.folder, tick)
    return Told(facts=report, lines=list(lines(report)), missed=list(problems(report)))


if __name__ == "__main__":
    main()
