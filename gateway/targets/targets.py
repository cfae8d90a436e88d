"""Where a target stands: the figures of its window, what is left of its budget, and the verdict in words."""

import hashlib
from datetime import timedelta
from typing import Any

import msgspec

# How fast a target's error budget is spent: 1 is the rate at which it is gone just when its window ends.


class Burn(msgspec.Struct, frozen=True):
    """How many of a target's calls were bad in the last ``window_s`` seconds; ``sql`` gives the same figures.

    ``burn_rate``: the share of bad calls over the share that may be bad. None: there were no calls.
    """

    target: str
    window_s: int
    calls: int
    bad: int
    burn_rate: float | None
    sql: str


def burn_rate(calls: int, bad: int, objective: float) -> float | None:
    """Return how many times faster than allowed calls are bad; None without calls."""
    return bad / calls / (1.0 - objective) if calls else None


def budget_left(calls: int, bad: int, objective: float) -> float | None:
    """Return the share of the error budget that is left; below 0 it is overspent. None without calls."""
    rate = burn_rate(calls, bad, objective)
    return None if rate is None else 1.0 - rate


# A target: which share of which calls is to be answered, how soon and how fast. docs/alerts.md#targets has the rules.


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which calls a target is about, and which of them are good. None: any, or no such condition.

    ``ttft_ms``: the first token comes sooner. ``tok_s``: the answer is at least so fast after it, by the tokens that
    the provider counts. ``gap_ms``: no two chunks are further apart, or no pause of speech is longer. A good call
    fulfils all of them, and is answered.
    """

    model: str | None = None  # as the client named it
    client: str | None = None
    profile: str | None = None
    ttft_ms: float | None = None
    tok_s: float | None = None
    gap_ms: float | None = None

    @property
    def key(self) -> str:
        """Return a name for what is counted by it: it changes when the counts would."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:32]

    @property
    def has_conditions(self) -> bool:
        """Whether good calls are more than answered ones."""
        return self.ttft_ms is not None or self.tok_s is not None or self.gap_ms is not None


class Target(msgspec.Struct, frozen=True):
    """A definition, and the share of its calls (above 0, below 1) that are to be good in each ``days`` days."""

    name: str
    definition: Definition
    objective: float
    days: int = 28

    @property
    def window(self) -> timedelta:
        """Over how long it is kept or missed."""
        return timedelta(days=self.days)


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


# A standing as JSON: what the page and ``holeshot slo --json`` show.


def as_object(standing: Standing) -> dict[str, Any]:
    """Return all that is known of a target and where it stands."""
    target = standing.target
    return {
        "name": target.name,
        **msgspec.structs.asdict(target.definition),
        "objective": target.objective,
        "days": target.days,
        "subject": subject(target),
        "condition": condition(target),
        **msgspec.structs.asdict(standing.counts),
        "good_share": standing.good_share,
        "budget_left": standing.budget_left,
        "burns": [
            {name: getattr(burn, name) for name in ("window_s", "calls", "bad", "burn_rate", "sql")}
            for burn in standing.burns
        ],
        "verdict": verdict(standing),
        "sql": standing.sql,
        "misses_sql": standing.misses_sql,
    }
