"""What is held by the exit code: overshoot everywhere, undershoot in calm, and that the ledger has every call."""

from collections.abc import Iterable, Iterator

from benchmarks.limits.findings import Finding

UNDERSHOOT = 0.02  # of a limit, in calm
_ROUNDING = 1e-6  # of sums of many small dollars


def missed(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield a sentence for each goal that is missed."""
    for each in findings:
        where = f"{each.situation}, {each.limit}"
        if each.over is not None and each.allowed is not None and each.over > each.allowed + _ROUNDING:
            yield f"{where}: overshoot {each.over:.2%}, more than {each.allowed:.2%}"
        if each.situation == "calm" and each.under is not None and each.under > UNDERSHOOT:
            yield f"{where}: undershoot {each.under:.2%}, more than {UNDERSHOOT:.0%}"
        if each.failed:
            yield f"{where}: {each.failed} calls were neither answered nor refused by a limit"
        if not _is_booked(each):
            yield f"{where}: the ledger has {each.in_ledger:g}, and {each.whole:g} were used by whole answers"


def _is_booked(finding: Finding) -> bool:
    """Whether the ledger has what whole answers used, and at most what broken ones did besides."""
    slack = _ROUNDING * finding.whole
    return finding.whole - slack <= finding.in_ledger <= finding.whole + finding.lost + slack
