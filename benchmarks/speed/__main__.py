"""Measures the gateway beside a pass-through proxy and nginx on the same mock upstream, against what was promised."""

import functools
from collections.abc import Callable, Iterator, Mapping

from benchmarks.harness import report
from benchmarks.harness.command import Run, Told, carry_out, command
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

Part = Callable[[MeasuredServers, Effort], Iterator[Row]]


def cpu(scenario: Scenario, measured: MeasuredServers, effort: Effort) -> Iterator[Row]:
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


def measured(run: Run) -> Told:
    """Measure. A part that breaks is a row that says so, and the others are measured all the same."""
    effort = Effort(run.options.quick, run.say)
    rows: list[Row] = []
    with measured_servers() as servers:
        for name in run.options.only or PARTS:
            try:
                rows += PARTS[name](servers, effort)
            except (LoadError, RuntimeError) as error:
                rows.append(Row(title=f"{name}: broken", value=None, broken=True, detail=str(error)))
    conditions = (
        f"CPU: user and system time of the whole process tree per call, rows in PostgreSQL and standings in Redis "
        f"included, the stores' own not; medians over {QUICK_ROUNDS if effort.quick else ROUNDS} alternating "
        f"rounds, ratios within a round. {report.described()}."
    )
    grid = report.figures("Holeshot, measured", rows, conditions)
    return Told(
        facts=rows,
        grids=[grid],
        above=[row.title for row in rows if row.reached is False],
        missed=[row.title for row in rows if row.broken],
    )


def main() -> None:
    parser = command("speed", __doc__, quick="fewer calls and rounds: about a third of the time")
    parser.add_argument("--only", action="append", choices=PARTS, default=[], help="measure only this; may be repeated")
    carry_out(parser, measured)


if __name__ == "__main__":
    main()
