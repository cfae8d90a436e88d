"""One comparison of the ledger with the truth."""

from collections.abc import Iterator

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One comparison. ``holds`` says whether the measured value may be so far from the truth."""

    name: str
    truth: float
    measured: float
    goal: str
    holds: bool


def within(name: str, truth: float, measured: float | None, share: float) -> Figure:
    """Compare two values that may differ by a share of the truth."""
    found = float("nan") if measured is None else measured
    return Figure(name, truth, found, f"± {share:.0%}", abs(found - truth) <= share * abs(truth) + 1e-9)


def equal(name: str, truth: float, measured: float | None) -> Figure:
    """Compare two values that must be the same, but for rounding."""
    found = float("nan") if measured is None else measured
    return Figure(name, truth, found, "the same", abs(found - truth) <= 1e-6 * max(1.0, abs(truth)))


def between(name: str, truth: float, low: float | None, high: float | None) -> Iterator[Figure]:
    """See that two bounds enclose the truth; each is a figure of its own."""
    least, most = (float("nan") if bound is None else bound for bound in (low, high))
    yield Figure(f"{name}, at least", truth, least, "≤ truth", least <= truth * (1 + 1e-9))
    yield Figure(f"{name}, at most", truth, most, "≥ truth", most >= truth * (1 - 1e-9))
