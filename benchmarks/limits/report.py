"""The findings as a table, and as sentences."""

from collections.abc import Iterable, Sequence

from benchmarks.harness.report import Grid, shown
from benchmarks.limits.findings import Finding

_COLUMNS = (
    *("situation", "limit", "allowed", "asked", "used", "died", "ledger", "over", "bound", "under", "late s"),
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
        f"${value:.4f}" if "usd" in each.limit and value is not None else shown(value, ",.0f")
        for value in (each.amount, each.asked, each.used, each.in_ledger)
    ]
    return [
        *(each.situation, each.limit, *amounts[:3], str(each.died or ""), amounts[3]),
        *(shown(share, ".2%") for share in (each.over, each.allowed, each.under)),
        *(shown(each.late_s, ".1f"), f"{each.refused:,}", f"{each.falsely_refused:,}"),
        *(shown(each.added_p50_ms, ".1f"), shown(each.added_p99_ms, ".1f"), shown(each.slow_share, ".1%")),
    ]
