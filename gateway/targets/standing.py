"""Where a target stands: the figures of its window, what is left of its budget, and the verdict in words."""

import msgspec

from gateway.targets.burn import Burn, budget_left
from gateway.targets.target import Target

DAY_S = 86_400
BURNS_S = (3600, 6 * 3600, 3 * DAY_S)  # the windows that are shown beside the target's own
FAST = 1.0  # a burn rate above which the budget ends before the window does
WHOLE_FROM = 10.0  # larger factors are written without a fraction
_FEWEST_BAD = 2  # one bad call is an accident, not a rate


class Counts(msgspec.Struct, frozen=True):
    """Calls that count, those that were bad, and why: one that came too late may be too slow as well."""

    calls: int = 0
    bad: int = 0
    failed: int = 0
    late: int = 0  # the first token, or the client left before it and after the limit
    slow: int = 0
    halting: int = 0  # with too long a gap


class Standing(msgspec.Struct, frozen=True):
    """A target with its figures. ``good_share`` and ``budget_left`` are None while there are no calls."""

    target: Target
    counts: Counts
    burns: tuple[Burn, ...]
    sql: str
    misses_sql: str  # lists its bad calls, the newest first

    @property
    def good_share(self) -> float | None:
        """The share of calls that were good."""
        return 1.0 - self.counts.bad / self.counts.calls if self.counts.calls else None

    @property
    def budget_left(self) -> float | None:
        """The share of the error budget that is left; below 0 the target is missed."""
        return budget_left(self.counts.calls, self.counts.bad, self.target.objective)


def duration(seconds: float) -> str:
    """Return a length of time in its largest whole unit: 1h, 3d."""
    for unit, length_s in (("d", DAY_S), ("h", 3600), ("m", 60)):
        if seconds >= length_s and seconds % length_s == 0:
            return f"{seconds // length_s:.0f}{unit}"
    return f"{seconds:g}s"


def condition(target: Target) -> str:
    """Return what a good call is, in words."""
    wanted = target.definition
    parts = []
    if wanted.ttft_ms is not None:
        parts.append(f"first token under {wanted.ttft_ms:g} ms")
    if wanted.tok_s is not None:
        parts.append(f"at least {wanted.tok_s:g} tok/s")
    if wanted.gap_ms is not None:
        parts.append(f"no gap over {wanted.gap_ms:g} ms")
    return " and ".join(parts) or "answered"


def subject(target: Target) -> str:
    """Return which calls it is about, in words."""
    wanted = target.definition
    named = (("model", wanted.model), ("client", wanted.client), ("profile", wanted.profile))
    return ", ".join(f"{what} {name}" for what, name in named if name is not None) or "all calls"


def share(value: float) -> str:
    """Return a share as per cent, with no more digits than it has."""
    return f"{round(100 * value, 6):.10g} %"


def times(factor: float) -> str:
    """Return a factor in words: 2.3 times, 100 times."""
    return f"{factor:,.0f} times" if round(factor, 1) >= WHOLE_FROM else f"{factor:.1f} times"


def verdict(standing: Standing) -> str:
    """Return in a sentence or two whether the target is kept, and for how long it will be."""
    target, counts = standing.target, standing.counts
    aim = f"{share(target.objective)} are wanted over {target.days} days"
    good, left = standing.good_share, standing.budget_left
    if good is None or left is None:
        return f"No calls in {target.days} days: nothing can be said."
    why = _why(counts)
    if left < 0:
        return (
            f"Missed: {_rounded(good, target.objective)} of {counts.calls:,} calls were good, {aim}; "
            f"{counts.bad:,} {'was' if counts.bad == 1 else 'were'} bad, {times(1 - left)} as many as may be{why}."
        )
    words = f"Kept: {_rounded(good, target.objective)} of {counts.calls:,} calls were good, {aim}"
    words += f"; {100 * left:.0f} % of the error budget is left{why}."
    return words + _outlook(standing, left)


def _why(counts: Counts) -> str:
    """Return what most bad calls have in common, if anything."""
    causes = (
        (counts.failed, "failed"),
        (counts.late, "began too late"),
        (counts.slow, "were too slow"),
        (counts.halting, "paused for too long"),
    )
    number, words = max(causes, key=lambda cause: cause[0])
    if not counts.bad or number < counts.bad / 2:
        return ""
    return f" ({number:,} of {counts.bad:,} bad calls {words})"


def _outlook(standing: Standing, left: float) -> str:
    """Return how long the budget lasts if the last six hours go on, where they spend it too fast."""
    recent = next((burn for burn in standing.burns if burn.window_s == BURNS_S[1]), None)
    if recent is None or recent.burn_rate is None or recent.burn_rate <= FAST or recent.bad < _FEWEST_BAD:
        return ""
    days = left * standing.target.days / recent.burn_rate
    lasts = f"{days:.1f} days" if days >= 1 else f"{24 * days:.1f} hours"
    return f" In the last 6 hours it was spent {times(recent.burn_rate)} as fast as may be: it lasts {lasts} more."


def _rounded(good: float, objective: float) -> str:
    """Return a share such that it never reads as if it were on the other side of the objective, or as 100 %."""
    for digits in range(1, 6):
        written = float(f"{100 * good:.{digits}f}")
        if (written >= 100 * objective) == (good >= objective) and (written < 100.0 or good == 1.0):  # noqa: PLR2004
            return f"{100 * good:.{digits}f} %"
    return f"{100 * good:.6f} %"
