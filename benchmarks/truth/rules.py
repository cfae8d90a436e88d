"""Ways to hold one column against the truth, over all rows that have one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any, TypeAlias

import msgspec

One: TypeAlias = Any  # a Called or an Attempt
Truth: TypeAlias = Callable[[Any], Any]
NEAR_MS = 5.0  # between the clocks of two processes: a wake-up each, and the way between them
NEAR_SHARE = 0.05


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


Rule: TypeAlias = Callable[[str, Sequence[One]], Iterator[Figure]]


def same(truth: Truth, *, only: Truth = lambda _: True, off: float = 0.0, name: str = "") -> Rule:
    """Compare value by value; a share ``off`` of the rows may differ, where two clocks decide."""

    def rule(column: str, rows: Sequence[One]) -> Iterator[Figure]:
        picked = [one for one in rows if only(one)]
        wrong = [one for one in picked if not _alike(one.row[column], truth(one))]
        most = int(off * len(picked))
        goal = "all the same" if not most else f"≤ {most} differ"
        example = "" if len(wrong) <= most else f"; {wrong[0].row[column]!r}, not {truth(wrong[0])!r}"
        label = f"{column}{name}, rows that differ of {len(picked)}{example}"
        yield Figure(label, 0, len(wrong), goal, len(wrong) <= most and bool(picked))

    return rule


def near(
    truth: Truth, *, only: Truth = lambda _: True, off: float = 0.02, ms: float = NEAR_MS, share: float = NEAR_SHARE
) -> Rule:
    """Compare measurements: null where the truth is, and half of them within a few milliseconds or 5 %."""

    def rule(column: str, rows: Sequence[One]) -> Iterator[Figure]:
        picked = [one for one in rows if only(one)]
        pairs = [(truth(one), _number(one.row[column])) for one in picked]
        nulls = sum((due is None) != (found is None) for due, found in pairs)
        most = int(off * len(picked))
        yield Figure(f"{column}, wrongly null or not of {len(picked)}", 0, nulls, f"≤ {most}", nulls <= most)
        known = [(due, found) for due, found in pairs if due is not None and found is not None]
        if not known:
            yield Figure(f"{column}, nothing to compare", 1, 0, "some", holds=False)
            return
        middle = median(due for due, _ in known)
        measured = middle + median(found - due for due, found in known)
        allowed = max(ms, share * abs(middle))
        yield Figure(f"{column}, median", middle, measured, f"± {allowed:.3g}", abs(measured - middle) <= allowed)

    return rule


def at_most(most: Truth, *, only: Truth = lambda _: True, least: float = 0.0, off: float = 0.02) -> Rule:
    """See that a figure whose truth cannot be seen from outside is possible."""

    def rule(column: str, rows: Sequence[One]) -> Iterator[Figure]:
        picked = [one for one in rows if only(one)]
        wrong = sum(one.row[column] is None or not least <= one.row[column] <= most(one) for one in picked)
        allowed = int(off * len(picked))
        label = f"{column}, impossible of {len(picked)}"
        yield Figure(label, 0, wrong, f"≤ {allowed}", wrong <= allowed and bool(picked))

    return rule


def bound(side: str, truth: Truth, *, only: Truth) -> Rule:
    """See that a bound (``low`` or ``high``) is there, and on its side of the truth: of what a provider has billed."""

    def rule(column: str, rows: Sequence[One]) -> Iterator[Figure]:
        picked = [one for one in rows if only(one)]
        sign = 1 if side == "low" else -1
        wrong = [one for one in picked if one.row[column] is None or sign * (one.row[column] - truth(one)) > 1e-12]
        example = f"; call {wrong[0].made.job.number}" if wrong else ""
        yield Figure(f"{column}, on the wrong side of {len(picked)}{example}", 0, len(wrong), "none", not wrong)

    return rule


def speed(truth: Truth, *, only: Truth) -> Rule:
    """Compare speeds: half of them within 3 %."""

    def rule(column: str, rows: Sequence[One]) -> Iterator[Figure]:
        picked = [one for one in rows if only(one)]
        ratios = [(one.row[column] or 0.0) / truth(one) for one in picked]
        middle = median(ratios) if ratios else 0.0
        yield Figure(
            f"{column}, measured / true, median of {len(picked)}", 1, middle, "± 0.03", abs(middle - 1) <= 0.03
        )

    return rule


def mean(truth: Truth, within: float, *, only: Truth) -> Rule:
    """Compare means of counts that two processes take at slightly different instants."""

    def rule(column: str, rows: Sequence[One]) -> Iterator[Figure]:
        picked = [one for one in rows if only(one) and one.row[column] is not None]
        known = len(picked) >= 0.98 * sum(map(bool, map(only, rows)))
        due = sum(truth(one) for one in picked) / max(1, len(picked))
        found = sum(one.row[column] for one in picked) / max(1, len(picked))
        yield Figure(
            f"{column}, mean of {len(picked)}", due, found, f"± {within}", abs(found - due) <= within and known
        )

    return rule


def _number(value: Any) -> Any:
    """Return an instant as milliseconds, anything else as it is."""
    return value.timestamp() * 1000 if isinstance(value, datetime) else value


def _alike(found: Any, due: Any) -> bool:
    if isinstance(due, float) and isinstance(found, int | float):
        return abs(found - due) <= 1e-9 * max(1e-6, abs(due)) + 1e-15
    if isinstance(found, Mapping) and isinstance(due, Mapping):
        return found.keys() == due.keys() and all(_alike(found[key], value) for key, value in due.items())
    return bool(found == due)
