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

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

import structlog

from benchmarks.failover.cells import Row, all_rows
from benchmarks.harness.report import console, grid, markdown, print_json
from tests.support.faults import FAULTS, SETUPS
from tests.support.measured.servers import ROOT, prepare

PAGE = ROOT / "benchmarks" / "failover" / "RESULTS.md"
BEGIN, END = "<!-- made by: make bench WHAT=failover -->", "<!-- end of what the benchmark made -->"
WORDS = ("pass", "partial", "safe", "fail")


def main() -> None:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.failover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", nargs="+", default=[""], metavar="WORD", help="only those with one of these words")
    parser.add_argument("--setups", nargs="+", default=[""], metavar="WORD", help="likewise")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    options = parser.parse_args()
    prepare(parser)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    faults, setups = _named(FAULTS, options.faults), _named(SETUPS, options.setups)
    if options.write and len(faults) * len(setups) < len(FAULTS) * len(SETUPS):
        parser.error("--write needs all faults and setups")
    rows = asyncio.run(all_rows(faults, setups))
    if options.json:
        print_json(rows)
    else:
        _show(rows, faults, setups)
    if options.write:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), rows, faults, setups), encoding="utf-8")
    sys.exit(any(row.verdict.word == "fail" for row in rows))


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


def lines_of(rows: Sequence[Row], faults: Sequence[str], setups: Sequence[str]) -> list[list[str]]:
    """Return the cells of a table, the totals last."""
    found = {(row.fault, row.setup): cell(row) for row in rows}
    totals = [total(row for row in rows if row.setup == setup) for setup in setups]
    return [*([fault, *(found[fault, setup] for setup in setups)] for fault in faults), ["all", *totals]]


def with_table(page: str, rows: Sequence[Row], faults: Sequence[str], setups: Sequence[str]) -> str:
    """Return the page with this table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    assert mark, f"the page has no {END}"
    table = markdown(("the provider", *setups), lines_of(rows, faults, setups), words=1 + len(setups))
    return "\n".join([before + BEGIN, "", *table, "", END]) + after


def _show(rows: Sequence[Row], faults: Sequence[str], setups: Sequence[str]) -> None:
    caption = "verdict: seconds to the first token, to the end (the longest of several calls), requests to providers"
    out = console(220)
    out.print(grid("A provider fails", ("", *setups), lines_of(rows, faults, setups), caption=caption, words=9))
    for row in rows:
        if row.verdict.why:
            out.print(f"{row.verdict.word:8}{row.fault}; {row.setup}: {row.verdict.why}", highlight=False)


if __name__ == "__main__":
    main()
