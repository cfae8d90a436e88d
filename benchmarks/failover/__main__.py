"""A provider fails in sixteen ways, before five setups of the gateway: what does the client get?

    python -m benchmarks.failover [--faults silence cut] [--setups single] [--json] [--write]

One gateway in its own process, two scripted providers for each cell, real sockets, default time-outs. The one that the
gateway asks first fails; its usual first token takes 0.3 s, the other's a little longer, and an answer has 60 words.
It takes two minutes.

  pass     the whole text, once: its first token within 11 s (where first tokens are known: three times their q95, the
           other's own and 0.5 s), no pause over 15 s in it, at most two requests of a call to the provider that fails.
           After an outage the first choice answers again within 30 s. Where nobody can answer: an error within 2 s
  partial  the whole text, but later or with more requests than that
  safe     not the whole text, and the client is told: an error, no [DONE]
  fail     a part of the text that looks whole, wrong text, or no end within 65 s

It exits with 1 when a cell fails. --write puts the table into benchmarks/failover/RESULTS.md.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

import structlog

from benchmarks.failover.cells import Row, all_rows
from benchmarks.harness.command import Run, Told, carry_out, command
from benchmarks.harness.report import Grid, write_lines
from tests.support.faults import FAULTS, SETUPS
from tests.support.measured.servers import ROOT

PAGE = ROOT / "benchmarks" / "failover" / "RESULTS.md"
WORDS = ("pass", "partial", "safe", "fail")


CAPTION = "Verdict: seconds to the first token, to the end (the longest of several calls), requests to providers."


def main() -> None:
    parser = command("failover", __doc__)
    parser.add_argument("--faults", nargs="+", default=[""], metavar="WORD", help="only those with one of these words")
    parser.add_argument("--setups", nargs="+", default=[""], metavar="WORD", help="likewise")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation, if it is whole")
    carry_out(parser, measured)


def measured(run: Run) -> Told:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    faults, setups = _named(FAULTS, run.options.faults), _named(SETUPS, run.options.setups)
    rows = asyncio.run(all_rows(faults, setups, run.folder))
    grid = table(rows, faults, setups)
    if run.options.write and len(rows) == len(FAULTS) * len(SETUPS):
        write_lines(PAGE, "failover", grid.markdown())
    why = [f"{row.verdict.word:8}{row.fault}; {row.setup}: {row.verdict.why}" for row in rows if row.verdict.why]
    missed = [f"{row.fault}; {row.setup}" for row in rows if row.verdict.word == "fail"]
    return Told(facts=rows, grids=[grid], lines=why, missed=missed)


def _named(names: Iterable[str], words: Sequence[str]) -> list[str]:
    return [name for name in names if any(word in name for word in words)]


def cell(row: Row) -> str:
    """Return what a table has of a fault in a setup: verdict, first token and end in seconds, requests."""
    ttfts = [each.ttft_s for each in row.outcomes if each.ttft_s is not None]
    ends = [each.end_s for each in row.outcomes]
    ttft = f"{max(ttfts):.1f}" if ttfts else "-"
    known = [end for end in ends if end is not None]
    end = f"{max(known):.1f} s" if len(known) == len(ends) else "> 65 s"
    return f"{row.verdict.word}: {ttft}, {end}, {row.asked}"


def total(rows: Iterable[Row]) -> str:
    """Return how many cells of a setup passed, and so on."""
    counts = Counter(row.verdict.word for row in rows)
    return ", ".join(f"{counts[word]} {word}" for word in WORDS if counts[word])


def table(rows: Sequence[Row], faults: Sequence[str], setups: Sequence[str]) -> Grid:
    """Return a row for each fault and a column for each setup, the totals last."""
    found = {(row.fault, row.setup): cell(row) for row in rows}
    totals = [total(row for row in rows if row.setup == setup) for setup in setups]
    cells = [*([fault, *(found[fault, setup] for setup in setups)] for fault in faults), ["all", *totals]]
    return Grid("A provider fails", ("the provider", *setups), cells, words=1 + len(setups), caption=CAPTION)


if __name__ == "__main__":
    main()
