"""Measures the gateway beside a plain pass-through proxy on the same mock upstream, against what was promised."""

import argparse
import platform
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import report, servers
from benchmarks.measuring import LoadError, measure
from benchmarks.report import Row
from benchmarks.scenarios import LATENCY, SCENARIOS
from benchmarks.servers import Server
from benchmarks.startup import measure_start

ROUNDS, QUICK_ROUNDS = 9, 5
QUICK_SHARE = 0.3  # of the calls
STARTS, QUICK_STARTS = 5, 2
START = "start"


class Bench:
    """One run of the benchmarks chosen."""

    def __init__(self, chosen: list[str], *, quick: bool) -> None:
        self._chosen = chosen
        self._quick = quick
        self._rounds = QUICK_ROUNDS if quick else ROUNDS
        self._share = QUICK_SHARE if quick else 1.0
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=Console(stderr=True)
        )
        self._task = self._progress.add_task("starting")

    def run(self) -> list[Row]:
        """Measure.

        Raises:
            LoadError, RuntimeError: something is broken.

        """
        rows: list[Row] = []
        with self._progress, tempfile.TemporaryDirectory(prefix="holeshot-bench-") as folder:
            with _running(Path(folder) / "measured") as running:
                for scenario in (*SCENARIOS, LATENCY):
                    if self._wants(scenario.name):
                        calls = max(scenario.concurrency, int(scenario.calls * self._share))
                        samples = measure(scenario, running, self._rounds, calls, self._say)
                        make = report.latency_rows if scenario is LATENCY else report.cpu_rows
                        rows += make(scenario, samples)
            if self._wants(START):
                rows += self._starts(Path(folder) / "started")
        return rows

    def _starts(self, folder: Path) -> list[Row]:
        with servers.upstream() as upstream:
            self._say("start: compiling")
            bytecode = folder / "bytecode"
            measure_start(upstream.port, folder / "thrown-away", bytecode)
            self._say("start: with a new database")
            first = measure_start(upstream.port, folder / "kept", bytecode)
            later = []
            for number in range(1, (QUICK_STARTS if self._quick else STARTS) + 1):
                self._say(f"start: number {number}")
                later.append(measure_start(upstream.port, folder / "kept", bytecode))
        return report.start_rows(first, later)

    def _wants(self, name: str) -> bool:
        return not self._chosen or name in self._chosen

    def _say(self, what: str) -> None:
        self._progress.update(self._task, description=what)


@contextmanager
def _running(folder: Path) -> Iterator[dict[str, Server]]:
    with (
        servers.upstream() as upstream,
        servers.passthrough(upstream.port) as passthrough,
        servers.gateway(upstream.port, folder) as gateway,
    ):
        yield {server.name: server for server in (upstream, passthrough, gateway)}


def main() -> None:
    """Run from the command line."""
    names = [scenario.name for scenario in (*SCENARIOS, LATENCY)] + [START]
    parser = argparse.ArgumentParser(prog="bench.py", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer calls and rounds: about a quarter of the time")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--only", action="append", choices=names, default=[], help="measure only this; may be repeated")
    arguments = parser.parse_args()
    if sys.platform != "linux":
        parser.exit(1, "bench.py reads CPU time and memory from Linux's /proc; run it on Linux, or in a container\n")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are stopped
    try:
        rows = Bench(arguments.only, quick=arguments.quick).run()
    except (LoadError, RuntimeError) as error:
        sys.exit(f"broken: {error}")
    conditions = (
        f"CPU: user and system time of the whole process tree per call, rows in SQLite included; medians over "
        f"{QUICK_ROUNDS if arguments.quick else ROUNDS} alternating rounds, ratios within a round. "
        f"Python {platform.python_version()}, {platform.machine()}."
    )
    if arguments.json:
        print(report.as_json(rows, conditions))
    else:
        report.show(rows, conditions)


if __name__ == "__main__":
    main()
