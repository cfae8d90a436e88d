"""Where the gateway spends its time: calls under cProfile, and the dearest functions per call, in microseconds.

A deterministic profile makes small Python functions look dearer than they are (about twice) and says nothing of threads
or the garbage collector. It counts exactly how often each is called, and that is what finds work done per event.
"""

import argparse
import pstats
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from rich.table import Table

from benchmarks.harness import gateways, load, servers
from benchmarks.harness.load import Order
from benchmarks.harness.report import console
from benchmarks.harness.servers import Server
from benchmarks.micro.hot_path import WAYS

FEW_CALLS, MANY_CALLS = 100, 1600  # what they differ by is calls alone: starting and warming up cancel out
CONCURRENCY = 16
LEAST_TIMES = 0.2  # per call; what happens less often is background work


class Spot(msgspec.Struct, frozen=True):
    """A function: its own and its whole time per call of the gateway, and how often it runs in one."""

    own_us: float
    whole_us: float
    times: float
    where: str


Figures = Mapping[tuple[str, int, str], tuple[int, int, float, float, Any]]  # calls, all calls, own and whole seconds


def profile(case: str) -> list[Spot]:
    """Return the functions of one case, the dearest by own time first."""
    few, many = _figures(case, FEW_CALLS), _figures(case, MANY_CALLS)
    calls = MANY_CALLS - FEW_CALLS
    spots = []
    for function, (_, times, own_s, whole_s, _) in many.items():
        _, few_times, few_own_s, few_whole_s, _ = few.get(function, (0, 0, 0.0, 0.0, None))
        path, line, name = function
        spots.append(
            Spot(
                (own_s - few_own_s) / calls * 1e6,
                (whole_s - few_whole_s) / calls * 1e6,
                (times - few_times) / calls,
                f"{_short(path)}:{line} {name}",
            )
        )
    return sorted((spot for spot in spots if spot.times >= LEAST_TIMES), key=lambda spot: -spot.own_us)


def _figures(case: str, calls: int) -> Figures:
    """Return what cProfile says of a gateway that is started, called so often, and stopped."""
    with tempfile.TemporaryDirectory(prefix="holeshot-profile-") as name, servers.upstream() as upstream:
        folder, port = Path(name), servers.free_port()
        dump = folder / "calls.prof"
        config = gateways.write_config(folder, upstream.port, port, gateways.sqlite(folder))
        command = [sys.executable, "-m", "cProfile", "-o", str(dump), *gateways.gateway_command(config)]
        with servers.running(command, gateways.environment()) as process:
            servers.wait_until_listening(process, port)
            question = WAYS[case].question(Server("gateway", process.pid, port, gateways.HEADERS))
            load.run(Order(question=question, calls=calls, concurrency=CONCURRENCY))
        return cast("Figures", vars(pstats.Stats(str(dump)))["stats"])


def _short(path: str) -> str:
    for root in (f"{Path.cwd()}/", "site-packages/", "/lib/"):
        path = path.rpartition(root)[2]
    return path.removeprefix("~")


def _table(title: str, spots: list[Spot]) -> Table:
    made = Table(title=title, title_justify="left")
    for name in ("own µs", "whole µs", "times per call"):
        made.add_column(name, justify="right")
    made.add_column("function", overflow="fold")
    for spot in spots:
        made.add_row(f"{spot.own_us:.1f}", f"{spot.whole_us:.1f}", f"{spot.times:.1f}", spot.where)
    return made


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiling.hot_spots", description=__doc__)
    parser.add_argument("case", nargs="*", help=f"any of {', '.join(WAYS)}; all without")
    parser.add_argument("--rows", type=int, default=40, help="functions to show [default: 40]")
    arguments = parser.parse_args()
    for case in arguments.case:
        if case not in WAYS:
            parser.error(f"there is no case {case!r}: {', '.join(WAYS)}")
    output = console()
    for case in arguments.case or WAYS:
        output.print(_table(f"{case}: µs per call, under cProfile", profile(case)[: arguments.rows]))


if __name__ == "__main__":
    main()
