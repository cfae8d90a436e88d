"""Sources of alerts: clients that have spent most of a limit, and an installation that spends more than expected."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from math import inf
from typing import TypeVar
from zoneinfo import ZoneInfo

import msgspec

from gateway.alerts.alert import AlertCondition, AlertKind, Figure, Severity, SourceUnavailable, key_of
from gateway.alerts.sources import day, instant, text
from gateway.core.calls import NearLimit
from gateway.core.errors import ApiError

HOUR, DAY, WEEK, MONTH, TOTAL = "usd_per_hour", "usd_per_day", "usd_per_week", "usd_per_month", "usd_total"
_WORDS = {HOUR: "this hour", DAY: "today", WEEK: "this week", MONTH: "this month", TOTAL: "in all"}
_SUMMED = (DAY, MONTH)  # the limits for which the ledger has sums, in UTC
_ALL_CLIENTS = "all"
_Who = TypeVar("_Who")
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)  # earlier than any call

Spent = Mapping[str | None, tuple[float, float]]  # US dollars of this UTC day and month, by client


class Thresholds(msgspec.Struct, frozen=True):
    """The values above which an alert is opened."""

    share: float  # of a client's limit
    usd_per_day: float | None  # of all clients together
    usd_per_month: float | None

    @property
    def of_all(self) -> dict[str, float]:
        """The thresholds for all clients together that are set."""
        both = {DAY: self.usd_per_day, MONTH: self.usd_per_month}
        return {name: limit for name, limit in both.items() if limit is not None}


class Spenders(msgspec.Struct, frozen=True):
    """Owners of limits in dollars other than clients: teams, or models."""

    word: str  # the word for such an owner
    limits: Callable[[], Mapping[str, Mapping[str, float]]]  # by name
    spent: Callable[[], Awaitable[Mapping[str | None, tuple[float, float]]]]  # of this UTC day and month
    sql: Callable[[str, datetime], str]  # the evidence for one owner, since then


def team_sql(team: str, since: datetime) -> str:
    """Return the SQL of what calls of a team have cost, by client and model."""
    return f"""\
select client, model, count(*) as calls, sum(cost_usd) as cost_usd
from calls
where started_at >= {instant(since)} and tags ->> 'team' = {text(team)} and cost_usd > 0
group by client, model
order by sum(cost_usd) desc"""  # noqa: S608 - quoted


def model_sql(model: str, since: datetime) -> str:
    """Return the SQL of what attempts for a model have cost, by deployment and client."""
    return f"""\
select a.deployment, c.client, count(*) as attempts, sum(a.cost_usd) as cost_usd
from attempts as a
join calls as c on c.id = a.call_id
where a.started_at >= {instant(since)} and coalesce(a.model, c.model) = {text(model)} and a.cost_usd > 0
group by a.deployment, c.client
order by sum(a.cost_usd) desc"""  # noqa: S608 - quoted


class SpendingSource:
    """Compares spending in the ledger with limits. Rows on their way to the database do not count yet."""

    kinds = (AlertKind.SPENDING,)

    def __init__(
        self,
        spent: Callable[[], Awaitable[Spent]],
        *,
        limits: Callable[[], Mapping[str | None, Mapping[str, float]]],
        thresholds: Callable[[], Thresholds],
        utc_now: Callable[[], datetime],
        others: Sequence[Spenders] = (),
    ) -> None:
        """``limits`` returns the limits of each client, by the client's name; None: calls without a client."""
        self._others = others
        self._spent = spent
        self._limits = limits
        self._thresholds = thresholds
        self._utc_now = utc_now

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return the owners that have spent more than a threshold. Without a threshold the database is not read."""
        try:
            found = await self._of_clients()
            for each in self._others:
                found += await self._of_others(each)
        except ApiError as error:
            raise SourceUnavailable(str(error)) from error
        return found

    async def _of_others(self, others: Spenders) -> list[AlertCondition]:
        limited, now = _dollars(others.limits()), self._utc_now()
        spent = await others.spent() if limited else {}
        found = []
        for (who, name), limit_usd in limited.items():
            used_usd = spent.get(who, (0.0, 0.0))[name == MONTH]
            if used_usd >= self._thresholds().share * limit_usd:
                found.append(
                    self._condition(
                        f"{others.word}:{who}/{name}",
                        f"{others.word.capitalize()} {who}: ${used_usd:.2f} spent {_WORDS[name]},"
                        f" of a limit of ${limit_usd:.2f}{_new_in_utc(name, now)}",
                        {"used_usd": round(used_usd, 6), "limit_usd": limit_usd, "limit": name},
                        others.sql(who, _began(name, now)),
                        now,
                    )
                )
        return found

    async def _of_clients(self) -> list[AlertCondition]:
        thresholds = self._thresholds()
        limited = _dollars(self._limits())
        if not limited and not thresholds.of_all:
            return []
        now = self._utc_now()  # before the answer, which may be about a day that ends meanwhile
        spent = await self._spent()
        found = []
        for (client, name), limit in limited.items():
            used_usd = spent.get(client, (0.0, 0.0))[name == MONTH]
            if used_usd >= thresholds.share * limit:
                found.append(self._of_client(client, name, used_usd, limit, now))
        for name, limit in thresholds.of_all.items():
            used_usd = sum(each[name == MONTH] for each in spent.values())
            if used_usd >= limit:
                found.append(self._of_all(name, used_usd, limit, now))
        return found

    def _of_client(
        self, client: str | None, name: str, used_usd: float, limit_usd: float, now: datetime
    ) -> AlertCondition:
        who = "Programs on this machine" if client is None else f"Client {client}"
        return self._condition(
            f"{client or '-'}/{name}",
            f"{who}: ${used_usd:.2f} spent {_WORDS[name]}, of a limit of ${limit_usd:.2f}{_new_in_utc(name, now)}",
            {"used_usd": round(used_usd, 6), "limit_usd": limit_usd, "limit": name},
            _spending_sql(f" and client = {text(client or '')}", _began(name, now)),
            now,
        )

    def _of_all(self, name: str, used_usd: float, limit_usd: float, now: datetime) -> AlertCondition:
        return self._condition(
            f"{_ALL_CLIENTS}/{name}",
            f"${used_usd:.2f} spent {_WORDS[name]} by all clients, alerts.{name} is ${limit_usd:.2f}"
            f"{_new_in_utc(name, now)}",
            {"used_usd": round(used_usd, 6), "limit_usd": limit_usd, "limit": name},
            _spending_sql("", _began(name, now)),
            now,
        )

    def _condition(
        self, subject: str, summary: str, figures: Mapping[str, Figure], sql: str, now: datetime
    ) -> AlertCondition:
        return AlertCondition(
            kind=AlertKind.SPENDING,
            subject=f"{subject}/{_window(str(figures['limit']), now)}",  # the next window is another incident
            severity=Severity.TICKET,
            summary=summary,
            figures=figures,
            sql=sql,
        )


def _dollars(limits: Mapping[_Who, Mapping[str, float]]) -> dict[tuple[_Who, str], float]:
    """Return the limits in dollars, by owner and name."""
    return {
        (who, name): limit
        for who, named in limits.items()
        for name, limit in named.items()
        if name in _SUMMED and limit > 0
    }


def _began(name: str, now: datetime) -> datetime:
    """Return when the day or month of a limit began, as the ledger's sums have it."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day if name == DAY else day.replace(day=1)


def _new_in_utc(name: str, now: datetime) -> str:
    """Return when the next window begins, as ``_new_at``."""
    began = _began(name, now)
    ends = began + timedelta(days=1) if name == DAY else (began + timedelta(days=32)).replace(day=1)
    return _new_at(ends.timestamp(), "UTC")


def _window(name: str, now: datetime) -> str:
    return f"{now:%Y-%m-%d}" if name == DAY else f"{now:%Y-%m}"


def _spending_sql(only: str, since: datetime) -> str:
    return f"""\
select nullif(client, '') as client, model, sum(n) as calls,
  sum(case when cost_usd is null or race_cost_usd > cost_usd then race_cost_usd else cost_usd end) as cost_usd
from rollup_calls
where minutes = 1440 and window_start >= {day(since)}{only}
group by client, model
order by cost_usd desc"""  # noqa: S608 - quoted


class NearSource:
    """Compares what clients, teams and models have spent, as this process knows, where the ledger has no sums.

    The ledger's sums are of UTC days: they say nothing of other zones, and of hours, weeks and totals.
    """

    kinds = (AlertKind.SPENDING,)

    def __init__(
        self,
        near: Callable[[float], Sequence[NearLimit]],
        *,
        share: Callable[[], float],
    ) -> None:
        """``near`` returns the limits of which this share is used."""
        self._near = near
        self._share = share

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return one condition for each limit that is near."""
        return [
            AlertCondition(
                kind=AlertKind.SPENDING,
                subject=f"{each.owner}/{each.name}/{each.window}",
                severity=Severity.TICKET,
                summary=f"{each.owner.replace(':', ' ', 1).capitalize()}: ${each.used_usd:.2f} spent"
                f" {_WORDS[each.name]}, of a limit of ${each.limit_usd:.2f}{_new_at(each.ends_s, each.zone)}",
                figures={"used_usd": round(each.used_usd, 6), "limit_usd": each.limit_usd, "limit": each.name},
                sql=_evidence(each.owner, _instant(each.starts_s)),
            )
            for each in self._near(self._share())
        ]


def _new_at(ends_s: float, zone: str) -> str:
    """Return when a limit's next window begins, in its own zone, as the end of a sentence; "" for a total."""
    if ends_s == inf:
        return ""
    at = datetime.fromtimestamp(ends_s, ZoneInfo(zone))
    return f", which is new at {at:%Y-%m-%d %H:%M} {zone}"


def _instant(unix_s: float) -> datetime:
    return _FIRST if unix_s == -inf else datetime.fromtimestamp(unix_s, UTC)


def _evidence(owner: str, since: datetime) -> str:
    kind, _, name = owner.partition(":")
    if kind == "model":
        return model_sql(name, since)
    if kind == "team":
        return team_sql(name, since)
    return _spending_sql(f" and client = {text(name)}", since)


# End users are many: all who have spent most of a limit are one alert. Another alert opens when twice as many have.

NAMED = 10  # names in the sentence


class EndUserSource:
    """Compares what end users have spent, as this process knows, with their limits."""

    kinds = (AlertKind.SPENDING,)

    def __init__(
        self,
        near: Callable[[float], Sequence[NearLimit]],
        *,
        share: Callable[[], float],
    ) -> None:
        """``near`` returns the limits of which end users have used this share."""
        self._near = near
        self._share = share

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return one condition for 1, 2, 4, … end users; the largest covers all that were not reported before."""
        share = self._share()
        windows: dict[tuple[str, str, str], list[NearLimit]] = {}
        for each in sorted(self._near(share), key=lambda each: each.used_usd / each.limit_usd, reverse=True):
            windows.setdefault((each.name, each.window, each.zone), []).append(each)
        found: list[AlertCondition] = []
        for (name, window, zone), those in sorted(windows.items()):
            within = f"{name}/{window}" if zone == "UTC" else f"{name}/{window} {zone}"
            subjects = [f"end users/{within}/{2**power}" for power in range(len(those).bit_length())]
            named = ", ".join(f"{each.owner} (${each.used_usd:.2f} of ${each.limit_usd:.2f})" for each in those[:NAMED])
            more = f" and {len(those) - NAMED} more" if len(those) > NAMED else ""
            first = those[0]
            found += [
                AlertCondition(
                    kind=AlertKind.SPENDING,
                    subject=subject,
                    severity=Severity.TICKET,
                    summary=f"{len(those)} end {'user has' if len(those) == 1 else 'users have'} spent {share:.0%} of a"
                    f" limit {_WORDS[name]}{_new_at(first.ends_s, zone)}, or more: {named}{more}",
                    figures={"n": len(those), "limit": name},
                    sql=_END_USERS_SQL.format(since=instant(_instant(first.starts_s))),
                    covered_by=None if following is None else key_of(AlertKind.SPENDING, following),
                )
                for subject, following in zip_longest(subjects, subjects[1:])
            ]
        return found


_END_USERS_SQL = """\
select tags ->> 'team' as team, client, tags ->> 'end_user' as end_user, count(*) as calls, sum(cost_usd) as cost_usd
from calls
where started_at >= {since} and tags ->> 'end_user' is not null and cost_usd > 0
group by 1, 2, 3
order by sum(cost_usd) desc
limit 50"""
