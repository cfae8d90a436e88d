"""Measures the gateway beside a pass-through proxy and nginx on the same mock upstream, against what was promised."""

import argparse
import functools
import sys
from collections.abc import Callable, Iterator, Mapping

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.harness import report
from benchmarks.harness.report import Row
from benchmarks.speed import crowd, losers, scenarios, startup, stream_memory
from benchmarks.speed.scenarios import (
    FIRST_TOKEN,
    FIRST_TOKEN_LIMITS,
    QUICK_ROUNDS,
    ROUNDS,
    SCENARIOS,
    Effort,
    Scenario,
)
from tests.support.measured.gateways import MeasuredServers, measured_servers
from tests.support.measured.load import LoadError
from tests.support.measured.servers import prepare

Part = Callable[[MeasuredServers, Effort], Iterator[Row]]


def cpu(scenario: Scenario, measured: MeasuredServers, effort: Effort) -> Iterator[Row]:
    """What a call costs."""
    return scenarios.cpu_rows(scenario, scenarios.measure(scenario, measured, effort))


def first_token(measured: MeasuredServers, effort: Effort) -> Iterator[Row]:
    """What is added to the first token of one call at a time."""
    return scenarios.latency_rows(FIRST_TOKEN, scenarios.measure(FIRST_TOKEN, measured, effort), FIRST_TOKEN_LIMITS)


PARTS: Mapping[str, Part] = {
    **{scenario.name: functools.partial(cpu, scenario) for scenario in SCENARIOS},
    FIRST_TOKEN.name: first_token,
    crowd.NAME: crowd.rows,
    losers.NAME: losers.rows,
    losers.TLS_NAME: losers.tls_rows,
    stream_memory.NAME: stream_memory.rows,
    startup.NAME: startup.rows,
}


def run(names: list[str], *, quick: bool) -> list[Row]:
    """Measure. A part that breaks is a row that says so, and the others are measured all the same."""
    progress = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=Console(stderr=True)
    )
    task = progress.add_task("starting")
    effort = Effort(quick, lambda what: progress.update(task, description=what))
    rows: list[Row] = []
    with progress, measured_servers() as servers:
        for name in names:
            try:
                rows += PARTS[name](servers, effort)
            except (LoadError, RuntimeError) as error:
                rows.append(Row(title=f"{name}: broken", value=None, broken=True, detail=str(error)))
    return rows


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer calls and rounds: about a third of the time")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of a table")
    form.add_argument("--markdown", action="store_true", help="print Markdown instead of a table")
    parser.add_argument("--only", action="append", choices=PARTS, default=[], help="measure only this; may be repeated")
    arguments = parser.parse_args()
    prepare(parser)
    rows = run(arguments.only or list(PARTS), quick=arguments.quick)
    conditions = (
        f"CPU: user and system time of the whole process tree per call, rows in PostgreSQL and standings in Redis "
        f"included, the stores' own not; medians over {QUICK_ROUNDS if arguments.quick else ROUNDS} alternating "
        f"rounds, ratios within a round. {report.described()}."
    )
    if arguments.json:
        print(report.as_json(rows, conditions))
    elif arguments.markdown:
        print(report.as_markdown(rows, conditions))
    else:
        report.console().print(report.table(rows, conditions))
    sys.exit(any(row.broken for row in rows))


if __name__ == "__main__":
    main()
