"""The standing of a target: the figures of its window, the rest of the error budget, and the verdict in words."""

import hashlib
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Annotated

import msgspec
from msgspec import Meta

# The burn rate of a target's error budget: at 1, the budget is used up exactly when the window ends.


class Burn(msgspec.Struct, frozen=True):
    """The number of a target's bad calls in the last ``window_s`` seconds; ``sql`` gives the same figures.

    ``burn_rate``: the share of bad calls over the allowed share. None without calls.
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
    """Return the rest of the error budget, as a share; below 0 it is overspent. None without calls."""
    rate = burn_rate(calls, bad, objective)
    return None if rate is None else 1.0 - rate


# A target: the calls to count, and the conditions of a good call. docs/monitoring.md#targets has the rules.


class Definition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The calls that a target counts, and the conditions of a good call. None: any, or no such condition.

    ``ttft_ms``: the first token comes sooner. ``tok_s``: the answer after it is at least so fast, by the provider's
    token count. ``gap_ms``: no gap between chunks, or pause of speech, is longer. A good call is answered, and meets
    all conditions.
    """

    model: str | None = None  # as the client named it
    client: str | None = None
    profile: str | None = None
    ttft_ms: float | None = None
    tok_s: float | None = None
    gap_ms: float | None = None

    @property
    def key(self) -> str:
        """A hash of the definition, under which counts are stored: other counts have another hash."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:32]

    @property
    def has_conditions(self) -> bool:
        """Whether a good call needs more than an answer."""
        return self.ttft_ms is not None or self.tok_s is not None or self.gap_ms is not None


class Target(msgspec.Struct, frozen=True):
    """A definition, and the wanted share of good calls (above 0, below 1) in each ``days`` days."""

    name: str
    definition: Definition
    objective: float
    days: int = 28

    @property
    def window(self) -> timedelta:
        """The length of the target's window."""
        return timedelta(days=self.days)


DAY_S = 86_400
BURNS_S = (3600, 6 * 3600, 3 * DAY_S)  # the windows shown beside the target's own
FAST = 1.0  # the budget of a higher burn rate ends before the window does
WHOLE_FROM = 10.0  # larger factors are written without a fraction
_FEWEST_BAD = 2  # a single bad call gives no rate


class Counts(msgspec.Struct, frozen=True):
    """Calls that count, bad ones, and bad ones by reason; a call may have several reasons."""

    calls: int = 0
    bad: int = 0
    failed: int = 0
    late: int = 0  # first token after the limit, or the client left after the limit without one
    slow: int = 0
    halting: int = 0  # with a gap that is too long


class Standing(msgspec.Struct, frozen=True):
    """A target with its figures. ``good_share`` and ``budget_left`` are None without calls."""

    target: Target
    counts: Counts
    burns: tuple[Burn, ...]
    sql: str
    misses_sql: str  # lists the target's bad calls, the newest first

    @property
    def good_share(self) -> float | None:
        """The share of good calls."""
        return 1.0 - self.counts.bad / self.counts.calls if self.counts.calls else None

    @property
    def budget_left(self) -> float | None:
        """The rest of the error budget, as a share; below 0 the target is missed."""
        return budget_left(self.counts.calls, self.counts.bad, self.target.objective)


def duration(seconds: float) -> str:
    """Return a length of time in its largest whole unit: 1h, 3d."""
    for unit, length_s in (("d", DAY_S), ("h", 3600), ("m", 60)):
        if seconds >= length_s and seconds % length_s == 0:
            return f"{seconds // length_s:.0f}{unit}"
    return f"{seconds:g}s"


def condition(target: Target) -> str:
    """Return the condition of a good call, in words."""
    definition = target.definition
    parts = []
    if definition.ttft_ms is not None:
        parts.append(f"first token under {definition.ttft_ms:g} ms")
    if definition.tok_s is not None:
        parts.append(f"at least {definition.tok_s:g} tok/s")
    if definition.gap_ms is not None:
        parts.append(f"no gap over {definition.gap_ms:g} ms")
    return " and ".join(parts) or "answered"


def subject(target: Target) -> str:
    """Return the calls counted by a target, in words."""
    definition = target.definition
    names = (("model", definition.model), ("client", definition.client), ("profile", definition.profile))
    return ", ".join(f"{what} {name}" for what, name in names if name is not None) or "all calls"


def share(value: float) -> str:
    """Return a share in per cent, without superfluous digits."""
    return f"{round(100 * value, 6):.10g} %"


def times(factor: float) -> str:
    """Return a factor in words: 2.3 times, 100 times."""
    return f"{factor:,.0f} times" if round(factor, 1) >= WHOLE_FROM else f"{factor:.1f} times"


def verdict(standing: Standing) -> str:
    """Return a sentence or two: whether the target is kept, and how long its budget will last."""
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
    """Return the reason shared by most bad calls, or an empty text."""
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
    """Return how long the budget lasts at the rate of the last six hours; empty unless that is too fast."""
    recent = next((burn for burn in standing.burns if burn.window_s == BURNS_S[1]), None)
    if recent is None or recent.burn_rate is None or recent.burn_rate <= FAST or recent.bad < _FEWEST_BAD:
        return ""
    days = left * standing.target.days / recent.burn_rate
    lasts = f"{days:.1f} days" if days >= 1 else f"{24 * days:.1f} hours"
    return f" In the last 6 hours it was spent {times(recent.burn_rate)} as fast as may be: it lasts {lasts} more."


def _rounded(good: float, objective: float) -> str:
    """Return a share rounded on its own side of the objective; a share below 1 is never shown as 100 %.

    views/targets.js shows the same figure: halves are rounded up, as in JavaScript.
    """
    for digits in range(1, 6):
        text = str(Decimal(100 * good).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
        if (float(text) >= 100 * objective) == (good >= objective) and (float(text) < 100.0 or good == 1.0):  # noqa: PLR2004
            return f"{text} %"
    return f"{100 * good} %"


# A standing as JSON, for the page and ``holeshot slo --json``.

SQL = Annotated[str, Meta(description="One statement that gives the same figures in `holeshot sql`.")]


class ShownBurn(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a target's error budget is used up."""

    window_s: Annotated[int, Meta(description="Of the last so many seconds.")]
    calls: int
    bad: int
    burn_rate: Annotated[
        float | None,
        Meta(description="1 spends the budget just within the target's days; null without calls."),
    ]
    sql: SQL


class TargetStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A target and its standing."""

    name: str
    model: Annotated[str | None, Meta(description="Whose calls; null: any.")]
    client: str | None
    profile: str | None
    ttft_ms: Annotated[float | None, Meta(description="The first token comes sooner.")]
    tok_s: Annotated[float | None, Meta(description="At least, after it.")]
    gap_ms: Annotated[float | None, Meta(description="The longest between two chunks.")]
    objective: Annotated[float, Meta(description="The share of calls that is to be good.")]
    days: Annotated[int, Meta(description="Over how long.")]
    subject: Annotated[str, Meta(description="Whose calls, in words.")]
    condition: Annotated[str, Meta(description="What a good call is, in words.")]
    calls: Annotated[int, Meta(description="That count, by the rules of the page 'Alerts, monitoring and slowdowns'.")]
    bad: int
    failed: Annotated[int, Meta(description="Of the bad ones.")]
    late: Annotated[
        int, Meta(description="Of the bad ones: the first token came too late, or the client left before it.")
    ]
    slow: Annotated[int, Meta(description="Of the bad ones.")]
    halting: Annotated[int, Meta(description="Of the bad ones: with too long a gap.")]
    good_share: float | None
    budget_left: Annotated[
        float | None, Meta(description="The share of the error budget; below 0 the target is missed.")
    ]
    burns: list[ShownBurn]
    verdict: Annotated[str, Meta(description="Whether it is kept, in words.")]
    sql: SQL
    misses_sql: Annotated[str, Meta(description="A statement that lists its newest bad calls.")]


def shown(standing: Standing) -> TargetStanding:
    """Return a target and its standing as one object."""
    target = standing.target
    return TargetStanding(
        name=target.name,
        **msgspec.structs.asdict(target.definition),
        objective=target.objective,
        days=target.days,
        subject=subject(target),
        condition=condition(target),
        **msgspec.structs.asdict(standing.counts),
        good_share=standing.good_share,
        budget_left=standing.budget_left,
        burns=[
            ShownBurn(window_s=each.window_s, calls=each.calls, bad=each.bad, burn_rate=each.burn_rate, sql=each.sql)
            for each in standing.burns
        ],
        verdict=verdict(standing),
        sql=standing.sql,
        misses_sql=standing.misses_sql,
    )
