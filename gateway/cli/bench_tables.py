"""The report of a bench on a terminal: verdicts, then tables."""

from pathlib import Path

from gateway.bench.figures import ALL, Cell
from gateway.bench.report import Report
from gateway.bench.shown import shown
from gateway.bench.verdicts import NOTICED
from gateway.cli.terminal import prose, say, write_table

_FIRST = ("ttft_p50_ms", "ttft_p95_ms", "decode_tps_p50", "e2e_tps_p50", "itl_p50_ms", "gap_p95_ms", "total_p50_ms")
_SECOND = ("errors", "goodput", "goodput_per_s", "as_asked", "tokens_mean", "tokens_per_s", "cost_per_1000_usd")

_WORDS = {"ttft": "first tokens", "decode_tps": "decoding", "total": "whole answers", "cost": "cost"}
_BY_CLASS = ("ttft_p50_ms", "decode_tps_p50", "total_p50_ms", "errors")


def write_report(report: Report, journal: Path) -> None:
    """Print the report of the bench with this ``journal``."""
    plan, labels = report.plan, report.plan.labels
    if not report.requests:
        say("nothing was measured")
        return
    for level in plan.concurrencies:
        of_level = [cell for cell in report.cells if cell.concurrency == level and cell.kind == ALL]
        at = f", {level} at a time" if len(plan.concurrencies) > 1 or level > 1 else ""
        for names, title in ((_FIRST, f"all classes of prompts{at}"), (_SECOND, f"answers{at}")):
            known = [name for name in names if any(name in cell.figures for cell in of_level)]
            rows = [[labels[cell.deployment], cell.requests, *_row(cell, known)] for cell in of_level]
            write_table(("deployment", "requests", *known), rows, title=title)
    by_class = [cell for cell in report.cells if cell.kind != ALL]
    if by_class:
        known = [name for name in _BY_CLASS if any(name in cell.figures for cell in by_class)]
        rows = [[cell.kind, labels[cell.deployment], cell.concurrency, *_row(cell, known)] for cell in by_class]
        write_table(("class", "deployment", "at a time", *known), rows, title="by class of prompts")
    for verdict in report.verdicts:
        if verdict.is_shown:
            prose(verdict.words)
    silent = [verdict for verdict in report.verdicts if not verdict.is_shown]
    if silent:
        prose(
            f"no difference shown in {len(silent)} of {len(report.verdicts)} comparisons (--json and --html list them)"
        )
    _offer(report, journal)
    if not report.is_whole:
        say(f"note: {report.requests} of {plan.requests} requests were sent")
    say(f"spent: {_money(report)}")


def _offer(report: Report, journal: Path) -> None:
    """Say how many rounds would show what was not shown, and how to run them."""
    needed: dict[str, int] = {}
    for verdict in report.verdicts:
        if not verdict.is_shown and verdict.rounds_needed is not None and verdict.rounds_needed > verdict.rounds:
            needed[verdict.aspect] = max(verdict.rounds_needed, needed.get(verdict.aspect, 0))
    if not needed:
        return
    words = ", ".join(f"{_WORDS[aspect]} {number}" for aspect, number in needed.items())
    prose(f"a difference of {100 * NOTICED:.0f} % is shown in four of five benches with about so many rounds: {words}")
    say(f"more rounds: holeshot bench --resume {journal} --rounds {min(needed.values())}")


def _money(report: Report) -> str:
    known = "unknown" if report.spent_usd is None else f"${report.spent_usd:.4f}"
    return (
        known
        if report.at_most_usd <= (report.spent_usd or 0.0) * 1.005
        else f"{known}, at most ${report.at_most_usd:.4f}"
    )


def _row(cell: Cell, names: list[str]) -> list[str]:
    return [shown(name, cell.figures.get(name)) for name in names]
