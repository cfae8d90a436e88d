"""The findings as a table for a terminal, as Markdown, and as JSON."""

from collections.abc import Iterable, Sequence

import msgspec
from rich.table import Table

from benchmarks.harness.report import grid
from benchmarks.harness.report import markdown as as_markdown
from benchmarks.limits.findings import Finding

_UNKNOWN = "-"
_USED = ("situation", "limit", "allowed", "asked", "used", "died", "ledger", "over", "bound", "under", "late")
_REFUSED = ("refused", "in vain")
_ADDED = ("p50", "p99", "> 10 ms")
_TEXTS = 2  # columns


class Report(msgspec.Struct, frozen=True):
    """All that was found."""

    conditions: str
    findings: Sequence[Finding]
    missed: Sequence[str]


def table(report: Report) -> Table:
    """Return it as a table for a terminal; the last columns are the latency added to the first token, in ms."""
    made = grid("Used and allowed", (*_USED, *_REFUSED, *_ADDED), (), caption=report.conditions, words=_TEXTS)
    for column in made.columns:
        column.no_wrap = True
    last = None
    for each in report.findings:
        if last not in {None, each.situation}:
            made.add_section()
        last = each.situation
        made.add_row(*_used(each), *_refused(each), *_added(each))
    return made


def markdown(report: Report) -> str:
    """Return it as a table for a document, without the columns of latency."""
    rows = ([*_used(each), *_refused(each)] for each in report.findings if each.amount is not None)
    lines = as_markdown((*_USED, *_REFUSED), rows, words=_TEXTS)
    return "\n".join([*lines, "", report.conditions])


def added(findings: Iterable[Finding]) -> Iterable[str]:
    """Yield what was added to the first token of limited and unlimited calls, for each situation."""
    by_situation: dict[str, list[Finding]] = {}
    for each in findings:
        by_situation.setdefault(each.situation, []).append(each)
    for situation, some in by_situation.items():
        limited = [each for each in some if each.amount is not None]
        for kind, group in (("limits", limited), ("no limit", [each for each in some if each.amount is None])):
            shares = [each.slow_share for each in group if each.slow_share is not None]
            yield (
                f"added with {kind}, {situation}: p50 {_range(each.added_p50_ms for each in group)} ms, "
                f"p99 {_range(each.added_p99_ms for each in group)} ms, "
                f"more than 10 ms: {_range(share * 100 for share in shares)} %"
            )


def parallel(findings: Iterable[Finding]) -> Iterable[str]:
    """Yield how many calls ran at the same time on average, for each situation."""
    for each in findings:
        if each.mean_parallel is not None and each.ideal_parallel is not None:
            yield (
                f"max_parallel, {each.situation}: {each.mean_parallel:.1f} calls at a time in the last quarter on "
                f"average; one gate that knows everything would have had {each.ideal_parallel:.1f}"
            )


def _used(each: Finding) -> list[str]:
    return [
        each.situation,
        each.limit,
        _UNKNOWN if each.amount is None else _number(each.amount, each.limit),
        _number(each.asked, each.limit),
        _number(each.used, each.limit),
        str(each.died or ""),
        _number(each.in_ledger, each.limit),
        _share(each.over),
        _share(each.allowed),
        _share(each.under),
        _UNKNOWN if each.late_s is None else f"{each.late_s:.1f} s",
    ]


def _refused(each: Finding) -> list[str]:
    return [f"{each.refused:,}", f"{each.falsely_refused:,}"]


def _added(each: Finding) -> list[str]:
    return [_ms(each.added_p50_ms), _ms(each.added_p99_ms), _share(each.slow_share, 1)]


def _number(value: float, limit: str) -> str:
    return f"${value:.4f}" if "usd" in limit else f"{value:,.0f}"


def _share(value: float | None, digits: int = 2) -> str:
    return _UNKNOWN if value is None else f"{value:.{digits}%}"


def _ms(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.1f}"


def _range(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return _UNKNOWN
    low, high = f"{min(known):.1f}", f"{max(known):.1f}"
    return low if low == high else f"{low} to {high}"
