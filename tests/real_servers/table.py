"""The table of what was found: a row for each server and way, a column for each case, and notes below."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from tests.real_servers.watched import Watched, Way


class Cell(NamedTuple):
    """How one case went."""

    verdict: str  # pass, FAIL or skip
    words: str
    client: Watched | None = None

    @property
    def starred(self) -> bool:
        """Whether its users should know of something."""
        return any(words in self.words for words in ("RAN ON", "GIVEN UP", "BEGUN TWICE"))

    @property
    def measured(self) -> str:
        if self.client is None:
            return ""
        goaways = self.client.goaways
        return (
            f"{len(self.client.connections)} connections, connect p50 {self.client.connect_p50_ms:.1f} ms, "
            f"{self.client.retries} retries" + (f", GOAWAYs {dict(goaways)}" if goaways else "")
        )


class Table:
    """Says each result as it comes, and all of them at the end."""

    def __init__(self, cases: Sequence[str]) -> None:
        self.failed = False
        self._cases = cases
        self._rows: dict[tuple[str, Way], dict[str, Cell]] = {}
        self._left_out: dict[str, str] = {}

    def put(self, server: str, way: Way, case: str, cell: Cell) -> None:
        self.failed |= cell.verdict == "FAIL"
        self._rows.setdefault((server, way), {})[case] = cell
        _say(f"{cell.verdict}  {server:<10} {way!s:<13} {case:<12} {cell.words} [{cell.measured}]")

    def leave_out(self, server: str, why: str, *, failed: bool = False) -> None:
        self.failed |= failed
        self._left_out[server] = why
        _say(f"{'FAIL' if failed else 'skip'}  {server:<10} {why}")

    def show(self) -> None:
        """Print it: verdict, and connections/retries where it was run."""
        widths = [max(len(case), 12) for case in self._cases]
        head = "  ".join(f"{case:<{width}}" for case, width in zip(self._cases, widths, strict=True))
        _say(f"\n{'server':<10}  {'way':<13}  {head}  connect p50\n(each: verdict connections/retries)")
        for (server, way), cells in self._rows.items():
            row = "  ".join(
                f"{_short(cells.get(case)):<{width}}" for case, width in zip(self._cases, widths, strict=True)
            )
            made = sorted(ms for cell in cells.values() if cell.client for ms in cell.client.connect_ms)
            connect = f"{made[len(made) // 2]:.1f} ms" if made else ""
            _say(f"{server:<10}  {way!s:<13}  {row}  {connect}")
        for server, why in self._left_out.items():
            _say(f"{server:<10}  {why}")
        reasons = dict.fromkeys(
            (server, case, cell.words)
            for (server, _), cells in self._rows.items()
            for case, cell in cells.items()
            if cell.verdict != "pass" or cell.starred
        )
        for server, case, words in reasons:
            _say(f"note: {server}, {case}: {words}")
        _say("something failed" if self.failed else "all is well")


def _short(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    if cell.client is None:
        return cell.verdict
    return f"{cell.verdict}{'*' if cell.starred else ''} {len(cell.client.connections)}/{cell.client.retries}"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
