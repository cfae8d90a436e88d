"""Which model a deployment's answers state that they are from (``attempts.model_version``), and a source for changes.

Noticing costs a call one look into a set, and needs no database. Only what is new to this process is looked for in the
ledger, where all replicas' answers are: so a change is the same for all of them, and one that is old is none.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from gateway.alerts.alert import Condition, Kind, Severity, SourceUnavailable
from gateway.alerts.sources import instant, text
from gateway.core.errors import ApiError
from gateway.core.reports import ReportTooSlow

LEAST_ANSWERS = 3  # that state it: a single one may be a fluke
LEAST_BEFORE = 20  # answers that stated others, before the first of them: two models in turn are no change
LASTS = timedelta(hours=1)  # an alert; then the new model is what is usual
HISTORY = timedelta(days=1)  # of the ledger that is looked through
MOST_DEPLOYMENTS = 1000  # clients may name any
MOST_MODELS = 10  # of one deployment; with more, what it states is no version
_SHOWN = 3  # of the models before, in a summary


class News(msgspec.Struct, frozen=True):
    """A model that a deployment has begun to state, as far as this process knows."""

    deployment: str
    model: str
    first_at: datetime  # of its answers in this process


class StatedModels:
    """What deployments' answers have stated in this process."""

    def __init__(self, utc_now: Callable[[], datetime]) -> None:
        # By deployment. None is in each: an answer may state nothing. Calls look here, and tell what is not in it.
        self.known: dict[str, set[str | None]] = {}
        self._new: dict[tuple[str, str], tuple[int, datetime]] = {}  # answers so far, and the first one's time
        self._news: dict[tuple[str, str], News] = {}
        self._utc_now = utc_now

    def add(self, deployment: str, model: str | None) -> None:
        """Note an answer that states a model that is not in ``known``. What a deployment states at first is no news."""
        known = self.known.get(deployment)
        if known is None:
            if len(self.known) >= MOST_DEPLOYMENTS:
                self.known.clear()
            self.known[deployment] = {None, model}
            return
        if model is None or len(known) > MOST_MODELS:
            return
        if len(known) == 1:
            known.add(model)
            return
        if len(self._new) >= MOST_DEPLOYMENTS:
            self._new.clear()
        answers, first_at = self._new.get((deployment, model)) or (0, self._utc_now())
        self._new[deployment, model] = answers + 1, first_at
        if answers + 1 >= LEAST_ANSWERS:
            del self._new[deployment, model]
            known.add(model)
            self._news[deployment, model] = News(deployment, model, first_at)

    @property
    def news(self) -> Sequence[News]:
        """What has not been settled yet, the oldest first."""
        return tuple(self._news.values())

    def settle(self, news: News) -> None:
        """Forget what has been looked into."""
        self._news.pop((news.deployment, news.model), None)


class Stated(msgspec.Struct, frozen=True):
    """A model that a deployment has stated lately, as the ledger has it.

    ``earlier``: how many of its answers came before the first one of the model that is asked about.
    """

    model_version: str
    answers: int
    first_at: datetime
    last_at: datetime
    earlier: int


class StatedModelSource:
    """Says that a deployment's answers are from another model than before, for as long as that is new."""

    kinds = (Kind.MODEL_CHANGED,)

    def __init__(
        self,
        stated: StatedModels,
        read: Callable[[str], Awaitable[Sequence[Stated]]],
        *,
        utc_now: Callable[[], datetime],
    ) -> None:
        """``read`` runs a statement that has the columns of ``Stated``."""
        self._stated = stated
        self._read = read
        self._utc_now = utc_now
        self._open: dict[str, tuple[datetime, Condition]] = {}  # by deployment, with the end

    async def conditions(self) -> Sequence[Condition]:
        """Return the changes that are new. The database is asked only when this process has noticed one."""
        for news in self._stated.news:
            found = await self._look_into(news)
            self._stated.settle(news)
            if found is not None:
                self._open[news.deployment] = found
        now = self._utc_now()
        self._open = {name: each for name, each in self._open.items() if now < each[0]}
        return [condition for _, condition in self._open.values()]

    async def _look_into(self, news: News) -> tuple[datetime, Condition] | None:
        """Return the alert's end and condition; None if the ledger knows the model already."""
        sql = evidence(news.deployment, news.model, self._utc_now() - HISTORY)
        try:
            rows = await self._read(sql)
        except ReportTooSlow:  # it will be so each time, and rather a false alarm than none
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


def evidence(deployment: str, model: str, since: datetime) -> str:
    """Return a statement that shows what a deployment has stated, and how many answers came before ``model``'s."""
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


def _condition(news: News, first_at: datetime, others: Sequence[Stated], sql: str) -> Condition:
    last_first = sorted(others, key=lambda row: row.last_at, reverse=True)
    before = ", ".join(repr(row.model_version) for row in last_first[:_SHOWN])
    return Condition(
        kind=Kind.MODEL_CHANGED,
        subject=news.deployment,
        severity=Severity.TICKET,
        summary=(
            f"Deployment {news.deployment} states another model since {first_at:%Y-%m-%d %H:%M} UTC: {news.model!r}"
            + (f", before {before}" if before else "")
        ),
        figures={"model": news.model, "before": before or None, "first_at": first_at.isoformat()},
        sql=sql,
    )
