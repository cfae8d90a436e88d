"""The findings as a table, and as sentences."""

from collections.abc import Iterable, Sequence

from benchmarks.harness.report import Grid
from benchmarks.limits.findings import Finding

_UNKNOWN = "-"
_COLUMNS = (
    *("situation", "limit", "allowed", "asked", "used", "died", "ledger", "over", "bound", "under", "late"),
    *("refused", "in vain", "added p50", "p99", "> 10 ms"),
)


def table(findings: Sequence[Finding], conditions: str) -> Grid:
    """Return it as a table; the last columns are the latency added to the first token, in ms."""
    return Grid("Used and allowed", _COLUMNS, [_cells(each) for each in findings], words=2, caption=conditions)


def parallel(findings: Iterable[Finding]) -> Iterable[str]:
    """Yield how many calls ran at the same time on average, for each situation."""
    for each in findings:
        if each.mean_parallel is not None and each.ideal_parallel is not None:
            yield (
                f"max_parallel, {each.situation}: {each.mean_parallel:.1f} calls at a time in the last quarter on "
                f"average; one gate that knows everything would have had {each.ideal_parallel:.1f}."
            )


def _cells(each: Finding) -> list[str]:
    amounts = [
        _UNKNOWN if value is None else f"${value:.4f}" if "usd" in each.limit else f"{value:,.0f}"
        for value in (each.amount, each.asked, each.used, each.in_ledger)
    ]
    return [
        *(each.situation, each.limit, *amounts[:3], str(each.died or ""), amounts[3]),
        *map(_share, (each.over, each.allowed, each.under)),
        _UNKNOWN if each.late_s is None else f"{each.late_s:.1f} s",
        *(f"{each.refused:,}", f"{each.falsely_refused:,}", _ms(each.added_p50_ms), _ms(each.added_p99_ms)),
        _share(each.slow_share, 1),
    ]


def _share(value: float | None, digits: int = 2) -> str:
    return _UNKNOWN if value is None else f"{value:.{digits}%}"


def _ms(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.1f}"
