"""The sources of changes that are no failure: the model that answers state, and the length of prompts and answers.

The check costs a call one set lookup, and no database. Only values that are new to this process are looked up in the
ledger, which has the answers of all replicas: so a change is one for all replicas, and an old value is no change.

A model's name changes at once. A fingerprint differs by machine at some providers, and is rolled out over hours: it is
a change if no answer had it for a week, and then all have it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from gateway.alerts.alert import AlertCondition, AlertKind, Figure, Severity, SourceUnavailable
from gateway.alerts.sources import instant, text
from gateway.core.errors import ApiError
from gateway.core.prompt_classes import MeasuredApi
from gateway.core.reports import ReportTooSlow

LEAST_ANSWERS = 3  # answers that state the new value: a single answer may be an accident
LEAST_BEFORE = 20  # answers with other values before the new value's first: two alternating models are no change
LASTS = timedelta(hours=1)  # how long an alert lasts; then the new model is usual
HISTORY = timedelta(days=1)  # how far back the ledger is searched
MOST_DEPLOYMENTS = 1000  # clients may name any deployment
MOST_MODELS = 10  # of one deployment; with more, the stated value is no version
MOST_FINGERPRINTS = 30  # of one deployment; with more, a fingerprint is no version
TAKES_OVER = 20  # answers in a row with the new fingerprint, in all replicas, and none with another
FINGERPRINTS = timedelta(days=7)  # how far back the ledger is searched for fingerprints
ROLLED_OUT = timedelta(days=1)  # the longest rollout; after it, several alternating fingerprints are usual
FIRST_LOOK, LONGEST_LOOK = timedelta(minutes=1), timedelta(minutes=30)  # intervals of looking whether it has taken over
_SHOWN = 3  # earlier models in a summary


class News(msgspec.Struct, frozen=True):
    """A model, or a ``fingerprint`` of a model, that a deployment has begun to state, as far as this process knows."""

    deployment: str
    model: str | None
    first_at: datetime  # the value's first answer in this process
    fingerprint: str | None = None


class StatedValues:
    """Values of one field that deployments' answers have stated in this process, at most ``most`` of a deployment."""

    def __init__(self, utc_now: Callable[[], datetime], most: int) -> None:
        # By deployment. Each set has None, as an answer may state nothing. Calls look here, and report only new values.
        self.known: dict[str, set[str | None]] = {}
        self._new: dict[tuple[str, str], tuple[int, datetime]] = {}  # answers so far, and the first one's time
        self._utc_now = utc_now
        self._most = most

    def note(self, deployment: str, value: str | None) -> datetime | None:
        """Note an answer with a value that is not in ``known``; once the value is news, return its first answer's time.

        The first value of a deployment is no news.
        """
        known = self.known.get(deployment)
        if known is None:
            if len(self.known) >= MOST_DEPLOYMENTS:
                self.known.clear()
            self.known[deployment] = {None, value}
            return None
        if value is None or len(known) > self._most:
            return None
        if len(known) == 1:
            known.add(value)
            return None
        if len(self._new) >= MOST_DEPLOYMENTS:
            self._new.clear()
        answers, first_at = self._new.get((deployment, value)) or (0, self._utc_now())
        self._new[deployment, value] = answers + 1, first_at
        if answers + 1 < LEAST_ANSWERS:
            return None
        del self._new[deployment, value]
        known.add(value)
        return first_at


class StatedModels(StatedValues):
    """The models that deployments' answers have stated in this process, and their ``fingerprints``."""

    def __init__(self, utc_now: Callable[[], datetime]) -> None:
        super().__init__(utc_now, MOST_MODELS)
        self.fingerprints = StatedValues(utc_now, MOST_FINGERPRINTS)
        self._news: dict[tuple[str, str | None, str | None], News] = {}

    def add(self, deployment: str, model: str | None) -> None:
        """Note an answer that states a model that is not in ``known``."""
        first_at = self.note(deployment, model)
        if first_at is not None:
            self._news[deployment, model, None] = News(deployment, model, first_at)

    def add_fingerprint(self, deployment: str, fingerprint: str, model: str | None) -> None:
        """Note an answer of ``model`` that states a fingerprint that is not in ``fingerprints.known``."""
        first_at = self.fingerprints.note(deployment, fingerprint)
        if first_at is not None:
            self._news[deployment, model, fingerprint] = News(deployment, model, first_at, fingerprint)

    @property
    def news(self) -> Sequence[News]:
        """News that are not settled yet, the oldest first."""
        return tuple(self._news.values())

    def settle(self, news: News) -> None:
        """Remove news that have been checked against the ledger."""
        self._news.pop((news.deployment, news.model, news.fingerprint), None)


class StatedModel(msgspec.Struct, frozen=True):
    """A model, or a model's fingerprint, that a deployment has stated lately, from the ledger.

    ``earlier``: how many of its answers came before the first answer with the new value; ``later``: how many came after
    the last answer with any other value.
    """

    model_version: str
    answers: int
    first_at: datetime
    last_at: datetime
    earlier: int
    later: int = 0


class StatedModelSource:
    """Reports that a deployment's answers state another model than before, for as long as the model is new."""

    kinds = (AlertKind.MODEL_CHANGED,)

    def __init__(
        self,
        stated: StatedModels,
        read: Callable[[str], Awaitable[Sequence[StatedModel]]],
        *,
        utc_now: Callable[[], datetime],
    ) -> None:
        """``read`` runs a statement with the columns of ``StatedModel``."""
        self._stated = stated
        self._read = read
        self._utc_now = utc_now
        self._open: dict[str, tuple[datetime, AlertCondition]] = {}  # by deployment, with the alert's end
        self._due: dict[News, datetime] = {}  # fingerprints that have not taken over, with the time of the next look

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return the new changes. The database is read only if this process has noticed a change."""
        for news in self._stated.news:
            if news.fingerprint is not None:
                await self._follow(news)
                continue
            found = await self._look_into(news)
            self._stated.settle(news)
            if found is not None:
                self._open[news.deployment] = found
        now = self._utc_now()
        self._open = {name: each for name, each in self._open.items() if now < each[0]}
        return [condition for _, condition in self._open.values()]

    async def _look_into(self, news: News) -> tuple[datetime, AlertCondition] | None:
        """Return the alert's end and condition; None if the ledger has the model already."""
        sql = evidence(news.deployment, news.model or "", self._utc_now() - HISTORY)
        try:
            rows = await self._read(sql)
        except ReportTooSlow:  # the report will be too slow each time: a false alarm is better than none
            return news.first_at + LASTS, _condition(news, news.first_at, [], sql)
        except ApiError as error:
            raise SourceUnavailable(str(error)) from error
        own = next((row for row in rows if row.model_version == news.model), None)
        first_at = news.first_at if own is None else own.first_at  # rows come at the end of calls
        others = [row for row in rows if row.model_version != news.model]
        earlier = sum(row.answers if own is None else row.earlier for row in others)
        ends_at = first_at + LASTS
        if earlier < LEAST_BEFORE or self._utc_now() >= ends_at:
            return None
        return ends_at, _condition(news, first_at, others, sql)

    async def _follow(self, news: News) -> None:
        """Look, at intervals, whether a new fingerprint has taken over, or alternates with others."""
        now = self._utc_now()
        if now < self._due.get(news, now):
            return
        sql = evidence_of_fingerprint(news, now - FINGERPRINTS)
        try:
            rows = await self._read(sql)
        except ReportTooSlow:  # no alert is better than a false one: a fingerprint is only a hint
            self._forget(news)
            return
        except ApiError as error:
            raise SourceUnavailable(str(error)) from error
        own = next((row for row in rows if row.model_version == news.fingerprint), None)
        others = [row for row in rows if row.model_version != news.fingerprint]
        first_at = news.first_at if own is None else own.first_at
        is_new = now - first_at < ROLLED_OUT and (own is None or sum(row.earlier for row in others) >= LEAST_BEFORE)
        if is_new and (own is None or own.later < TAKES_OVER):
            self._due[news] = now + min(max(now - first_at, FIRST_LOOK), LONGEST_LOOK)
            return
        self._forget(news)
        if is_new:
            self._open[news.deployment] = now + LASTS, _condition(news, first_at, others, sql)

    def _forget(self, news: News) -> None:
        self._due.pop(news, None)
        self._stated.settle(news)


def evidence(deployment: str, model: str, since: datetime) -> str:
    """Return a statement that shows a deployment's stated models, and how many answers came before ``model``'s."""
    answers = (
        f"select model_version, started_at from attempts where deployment = {text(deployment)}"  # noqa: S608 - quoted
        f" and started_at >= {instant(since)} and model_version is not null"
    )
    return f"""\
with stated as ({answers})
select model_version, count(*) as answers, min(started_at) as first_at, max(started_at) as last_at,
  sum(case when started_at < (select min(started_at) from stated where model_version = {text(model)})
    then 1 else 0 end) as earlier
from stated
group by model_version
order by first_at"""  # noqa: S608 - quoted


def evidence_of_fingerprint(news: News, since: datetime) -> str:
    """Return the same for the fingerprints of a model, with the number of answers after the last of any other."""
    model = "is null" if news.model is None else f"= {text(news.model)}"
    own, other = (f"system_fingerprint {compares} {text(news.fingerprint or '')}" for compares in ("=", "<>"))
    answers = (
        f"select system_fingerprint, started_at from attempts where deployment = {text(news.deployment)}"  # noqa: S608 - quoted
        f" and model_version {model} and started_at >= {instant(since)} and system_fingerprint is not null"
    )
    return f"""\
with stated as ({answers})
select system_fingerprint as model_version, count(*) as answers, min(started_at) as first_at,
  max(started_at) as last_at,
  sum(case when started_at < (select min(started_at) from stated where {own}) then 1 else 0 end) as earlier,
  sum(case when started_at > (select max(started_at) from stated where {other}) then 1 else 0 end) as later
from stated
group by system_fingerprint
order by first_at"""  # noqa: S608 - quoted


def _condition(news: News, first_at: datetime, others: Sequence[StatedModel], sql: str) -> AlertCondition:
    last_first = sorted(others, key=lambda row: row.last_at, reverse=True)
    before = ", ".join(repr(row.model_version) for row in last_first[:_SHOWN])
    since = f"since {first_at:%Y-%m-%d %H:%M} UTC"
    stated = (
        f"states another model {since}: {news.model!r}"
        if news.fingerprint is None
        else f"states another fingerprint of {news.model or 'its model'} {since}: {news.fingerprint!r}"
    )
    own = {} if news.fingerprint is None else {"fingerprint": news.fingerprint}
    return AlertCondition(
        kind=AlertKind.MODEL_CHANGED,
        subject=news.deployment,
        severity=Severity.TICKET,
        summary=f"Deployment {news.deployment} {stated}" + (f", before {before}" if before else ""),
        figures={"model": news.model, **own, "before": before or None, "first_at": first_at.isoformat()},
        sql=sql,
    )


# How long prompts and answers are: the last day against each day of the week before. Longer prompts cost more and are
# answered later, and shorter answers may have been cut, though no provider has changed. Sums of the ledger are
# compared: the mean of prompts and of answers in tokens, and which shares of the answered prompts have more than 4 and
# 32 KB. Days differ, so the last day must lie outside all earlier days.

DAY = timedelta(days=1)
DAYS_BEFORE = 7
LEAST_DAYS = 3  # days of the week before that must have enough calls
LEAST_ANSWERED = 300  # calls of a day: a few long calls move a mean of fewer
# How far outside the days before: the mean by a factor, a share by so much of 1. An open alert lasts until both are
# below the second number. The days before soon contain the new lengths, so the alert ends within two days.
FACTOR, KEPT_FACTOR = 1.5, 1.25
SHARE, KEPT_SHARE = 0.2, 0.1


class ModelHour(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of a model's calls in one hour. ``sized``: answers whose prompt's size is known, and those over 4 and 32 KB.

    ``answered``: calls without an error, and calls that the client left; these have tokens, too, but no counts of
    tokens. Tokens None: no call's tokens are known.
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

    def __init__(
        self, read: Callable[[str], Awaitable[Sequence[ModelHour]]], *, utc_now: Callable[[], datetime]
    ) -> None:
        """``read`` runs a statement with the columns of ``ModelHour``."""
        self._read = read
        self._utc_now = utc_now

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return the changes that hold now."""
        until = self._utc_now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        try:
            hours = await self._read(hours_sql(until))
        except ApiError as error:
            raise SourceUnavailable(str(error)) from error
        by_model: dict[str, list[list[ModelHour]]] = {}
        for each in hours:
            days = by_model.setdefault(each.model, [[] for _ in range(DAYS_BEFORE + 1)])
            ago = int((until - each.hour_at - timedelta(seconds=1)) / DAY)
            if 0 <= ago <= DAYS_BEFORE:
                days[ago].append(each)
        found = (_changed(model, days, until) for model, days in by_model.items())
        return [each for each in found if each is not None]


def hours_sql(until: datetime, model: str | None = None) -> str:
    """Return the statement for the hours of eight days before the whole hour ``until``; of ``model`` only, if given."""
    second = timedelta(seconds=1)  # SQLite compares text, in which an instant sorts after the same instant with a zone
    since = instant(until - (DAYS_BEFORE + 1) * DAY - second)
    hours = f"r.minutes = 60 and r.window_start > {since} and r.window_start <= {instant(until - second)}"
    counting = text(MeasuredApi.COUNT_TOKENS)
    only = "" if model is None else f"\nwhere by_call.model = {text(model)}"
    return f"""\
with by_call as (
  select
    r.model, r.window_start, sum(r.n_total + r.n_left) as answered, sum(r.prompt_tokens) as prompt_tokens,
    sum(r.completion_tokens) as completion_tokens
  from rollup_calls as r
  where {hours}
  group by r.model, r.window_start
),
by_size as (
  select
    s.model, r.window_start, sum(case when s.api <> {counting} then r.n_won else 0 end) as sized,
    sum(case when s.api <> {counting} and s.size_class >= 1 then r.n_won else 0 end) as over_4k,
    sum(case when s.api <> {counting} and s.size_class >= 2 then r.n_won else 0 end) as over_32k,
    sum(case when s.api = {counting} then r.n_won else 0 end) as counted
  from rollup_attempts as r
  join rollup_series as s on s.id = r.series_id
  where s.api <> 'probe' and s.size_class >= 0 and {hours}
  group by s.model, r.window_start
)
select
  by_call.model, by_call.window_start as hour_at, answered - coalesce(counted, 0) as answered, prompt_tokens,
  completion_tokens, sized, over_4k, over_32k
from by_call
left join by_size on by_size.model = by_call.model and by_size.window_start = by_call.window_start{only}
order by by_call.model, hour_at"""  # noqa: S608 - quoted


def _changed(model: str, days: Sequence[Sequence[ModelHour]], until: datetime) -> AlertCondition | None:
    last, *before = (_figures(day) for day in days)
    changes: dict[str, tuple[float, float, float]] = {}  # by figure: the last day's, and the bounds of the days before
    is_new = False
    for name, value in last.items():
        earlier = [each[name] for each in before if name in each]
        if len(earlier) < LEAST_DAYS:
            continue
        low, high = min(earlier), max(earlier)
        each = value, low, high
        if _is_outside(name, each, KEPT_FACTOR, KEPT_SHARE):
            changes[name] = each
            is_new = is_new or _is_outside(name, each, FACTOR, SHARE)
    if not changes:
        return None
    figures: dict[str, Figure] = {}
    for name, each in changes.items():
        figures |= dict(
            zip((name, f"{name}_low_before", f"{name}_high_before"), (round(x, 3) for x in each), strict=True)
        )
    said = "; ".join(_WORDS[name].format(*_written(name, each)) for name, each in changes.items())
    return AlertCondition(
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


def _figures(day: Sequence[ModelHour]) -> Mapping[str, float]:
    """Return the figures of one day that are compared, if there were enough calls."""
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


def _is_outside(name: str, figure: tuple[float, float, float], factor: float, share: float) -> bool:
    """Whether a figure is so far outside the bounds of the days before: a mean by ``factor``, a share by ``share``."""
    value, low, high = figure
    if name in _MEANS:
        return value > factor * high or value < low / factor
    return value > high + share or value < low - share
