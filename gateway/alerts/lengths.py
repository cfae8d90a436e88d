"""The source of changes in how long prompts and answers are: the last day against each day of the week before.

Longer prompts cost more and are answered later, and shorter answers may be cut ones, though no provider has changed.
What is compared are sums that the ledger has: the mean of prompts and of answers in tokens, and which shares of the
answered prompts have more than 4 and 32 KB. Days differ, so the last one must lie outside all of them.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from gateway.alerts.alert import AlertKind, Condition, Figure, Severity, SourceUnavailable
from gateway.alerts.sources import instant
from gateway.alerts.sources import text as quoted
from gateway.core.errors import ApiError

DAY = timedelta(days=1)
DAYS_BEFORE = 7
LEAST_DAYS = 3  # of these that must have enough calls
LEAST_ANSWERED = 300  # calls of a day: a mean of fewer is moved by a few long ones
# How far outside the days before: the mean by a factor, a share by so much of 1. An open alert lasts until both are
# below the second; the days before soon contain what is new, so it ends within two days.
FACTOR, KEPT_FACTOR = 1.5, 1.25
SHARE, KEPT_SHARE = 0.2, 0.1


class Hour(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of a model's calls in one hour. ``sized``: answers whose prompt's size is known, and those over 4 and 32 KB.

    ``answered``: calls that neither failed nor were left by their client; tokens None: of none they are known.
    """

    model: str
    hour_at: datetime
    answered: int
    prompt_tokens: int | None
    completion_tokens: int | None
    sized: int | None
    over_4k: int | None
    over_32k: int | None


class LengthSource:
    """Reports models whose prompts or answers are much longer or shorter than on any day of the week before."""

    kinds = (AlertKind.LENGTHS_CHANGED,)

    def __init__(self, read: Callable[[str], Awaitable[Sequence[Hour]]], *, utc_now: Callable[[], datetime]) -> None:
        """``read`` runs a statement with the columns of ``Hour``."""
        self._read = read
        self._utc_now = utc_now

    async def conditions(self) -> Sequence[Condition]:
        """Return the changes that there are now."""
        until = self._utc_now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        try:
            hours = await self._read(hours_sql(until))
        except ApiError as error:
            raise SourceUnavailable(str(error)) from error
        by_model: dict[str, list[list[Hour]]] = {}
        for each in hours:
            days = by_model.setdefault(each.model, [[] for _ in range(DAYS_BEFORE + 1)])
            ago = int((until - each.hour_at - timedelta(seconds=1)) / DAY)
            if 0 <= ago <= DAYS_BEFORE:
                days[ago].append(each)
        found = (_condition(model, days, until) for model, days in by_model.items())
        return [each for each in found if each is not None]


def hours_sql(until: datetime, model: str | None = None) -> str:
    """Return the statement for the hours of eight days before the whole hour ``until``; of ``model`` only, if given."""
    second = timedelta(seconds=1)  # SQLite compares text, in which an instant sorts after the same one with a zone
    since = instant(until - (DAYS_BEFORE + 1) * DAY - second)
    hours = f"r.minutes = 60 and r.window_start > {since} and r.window_start <= {instant(until - second)}"
    only = "" if model is None else f"\nwhere by_call.model = {quoted(model)}"
    return f"""\
with by_call as (
  select
    r.model, r.window_start, sum(r.n - r.n_failed - r.n_left) as answered, sum(r.prompt_tokens) as prompt_tokens,
    sum(r.completion_tokens) as completion_tokens
  from rollup_calls as r
  where {hours}
  group by r.model, r.window_start
),
by_size as (
  select
    s.model, r.window_start, sum(r.n_won) as sized, sum(case when s.size_class >= 1 then r.n_won else 0 end) as over_4k,
    sum(case when s.size_class >= 2 then r.n_won else 0 end) as over_32k
  from rollup_attempts as r
  join rollup_series as s on s.id = r.series_id
  where s.api <> 'probe' and s.size_class >= 0 and {hours}
  group by s.model, r.window_start
)
select
  by_call.model, by_call.window_start as hour_at, answered, prompt_tokens, completion_tokens, sized, over_4k, over_32k
from by_call
left join by_size on by_size.model = by_call.model and by_size.window_start = by_call.window_start{only}
order by by_call.model, hour_at"""  # noqa: S608 - quoted


def _condition(model: str, days: Sequence[Sequence[Hour]], until: datetime) -> Condition | None:
    last, *before = (_figures(day) for day in days)
    changes: dict[str, tuple[float, float, float]] = {}  # by figure: of the last day, and the bounds of those before
    is_new = False
    for name, value in last.items():
        earlier = [each[name] for each in before if name in each]
        if len(earlier) < LEAST_DAYS:
            continue
        low, high = min(earlier), max(earlier)
        each = value, low, high
        if _is_outside(each, KEPT_FACTOR if name in _MEANS else None, KEPT_SHARE):
            changes[name] = each
            is_new = is_new or _is_outside(each, FACTOR if name in _MEANS else None, SHARE)
    if not changes:
        return None
    figures: dict[str, Figure] = {}
    for name, each in changes.items():
        figures |= dict(
            zip((name, f"{name}_low_before", f"{name}_high_before"), (round(x, 3) for x in each), strict=True)
        )
    said = "; ".join(_WORDS[name].format(*_written(name, each)) for name, each in changes.items())
    return Condition(
        kind=AlertKind.LENGTHS_CHANGED,
        subject=model,
        severity=Severity.TICKET,
        summary=f"{model}: in the last 24 h {said}, on each day of the week before",
        figures=figures,
        sql=hours_sql(until, model),
        opens=is_new,
    )


_MEANS = ("prompt_tokens", "answer_tokens")
_WORDS = {
    "prompt_tokens": "a prompt had {} on average, {} to {}",
    "answer_tokens": "an answer had {} on average, {} to {}",
    "over_4k_share": "{} of prompts were over 4 KB, {} to {}",
    "over_32k_share": "{} of prompts were over 32 KB, {} to {}",
}


def _written(name: str, values: Iterable[float]) -> list[str]:
    first, *others = values
    if name in _MEANS:
        return [f"{first:,.0f} tokens", *(f"{each:,.0f}" for each in others)]
    return [f"{each:.0%}" for each in (first, *others)]


def _figures(day: Sequence[Hour]) -> Mapping[str, float]:
    """Return what is compared of one day, as far as there were enough calls."""
    answered, sized = sum(each.answered for each in day), sum(each.sized or 0 for each in day)
    prompt_tokens, answer_tokens = (
        sum(getattr(each, name) or 0 for each in day) for name in ("prompt_tokens", "completion_tokens")
    )
    over_4k, over_32k = (sum(getattr(each, name) or 0 for each in day) for name in ("over_4k", "over_32k"))
    found: dict[str, float] = {}
    if answered >= LEAST_ANSWERED:
        found |= {"prompt_tokens": prompt_tokens / answered} if prompt_tokens else {}
        found |= {"answer_tokens": answer_tokens / answered} if answer_tokens else {}
    if sized >= LEAST_ANSWERED:
        found |= {"over_4k_share": over_4k / sized, "over_32k_share": over_32k / sized}
    return found


def _is_outside(figure: tuple[float, float, float], factor: float | None, share: float) -> bool:
    """Whether a figure lies so far outside the bounds of those before: by a factor, or a share by so much."""
    value, low, high = figure
    if factor is not None:
        return value > factor * high or value < low / factor
    return value > high + share or value < low - share
