"""The sources of alerts: burn rates, the ledger, workers, slowdowns and spending. Outages have a file of their own."""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from math import inf
from typing import Protocol, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from gateway.alerts.alert import AlertCondition, AlertKind, Figure, Severity, SourceUnavailable, key_of
from gateway.core.calls import NearLimit
from gateway.core.errors import ApiError
from gateway.core.targets import Burn

# Targets whose error budget burns too fast: several windows, several burn rates. The rules are those of the SRE
# workbook (chapter 5, "Alerting on SLOs"): a long window shows that the burn matters, a short one that it still goes
# on, so that an alert is soon resolved. A burn rate of 1 uses up the budget exactly within the target's window; 14.4
# uses 2 % of a month's budget in an hour, 86.4 uses 1 % in five minutes. That last rule is ours: if all calls are bad,
# an hour is too long to wait.

HOUR_S = 3600
_Who = TypeVar("_Who")


class BurnRule(msgspec.Struct, frozen=True):
    """A rule that applies if the budget burns at least ``factor`` times too fast in both windows."""

    kind: AlertKind
    severity: Severity
    long_s: int
    short_s: int
    factor: float


RULES = (
    BurnRule(AlertKind.BURN_FAST, Severity.PAGE, 300, 60, 86.4),
    BurnRule(AlertKind.BURN_FAST, Severity.PAGE, HOUR_S, 300, 14.4),
    BurnRule(AlertKind.BURN_FAST, Severity.PAGE, 6 * HOUR_S, 1800, 6.0),
    BurnRule(AlertKind.BURN_SLOW, Severity.TICKET, 72 * HOUR_S, 6 * HOUR_S, 1.0),
)
WINDOWS_S = tuple(sorted({seconds for rule in RULES for seconds in (rule.long_s, rule.short_s)}))
# An open alert lasts while both windows burn at this part of the factor: near the factor, a rate crosses it by chance.
# A short window with few calls ends it only if chance does not explain that so few of them are bad.
KEPT_AT = 0.5
_CHANCE = 1.0  # standard deviations
# After a fast burn, the windows of the slow rule still contain it, which is no second incident, until its short window
# has passed.
COVERED_S = 6 * HOUR_S
# In a ledger that is younger than the long window, a fast burn first looks like a slow one, so the slow rule waits.
SLOW_AFTER_S = float(HOUR_S)


def opens_after_s(rule: BurnRule, share: float, objective: float) -> float | None:
    """Return after how many seconds ``rule`` applies to a target kept so far, if ``share`` of calls is bad from now on.

    It assumes that calls come evenly, and that there are enough of them. None: never.
    """
    burn = share / (1.0 - objective)
    return None if burn < rule.factor else rule.long_s * rule.factor / burn


class BurnSource:
    """Reads the burn rates of all targets."""

    kinds = (AlertKind.BURN_FAST, AlertKind.BURN_SLOW)

    def __init__(
        self, burns: Callable[[Sequence[int]], Awaitable[Sequence[Burn]]], *, least_bad: Callable[[], int]
    ) -> None:
        """``least_bad`` returns how many bad calls the long window needs: at night, a single one may be a high rate."""
        self._burns = burns
        self._least_bad = least_bad

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return the targets whose budget burns too fast."""
        try:
            burns = await self._burns(WINDOWS_S)
        except ApiError as error:
            raise SourceUnavailable(str(error)) from error
        by_target: dict[str, dict[int, Burn]] = {}
        for burn in burns:
            by_target.setdefault(burn.target, {})[burn.window_s] = burn
        return [each for target, windows in by_target.items() for each in self._of(target, windows)]

    def _of(self, target: str, windows: Mapping[int, Burn]) -> list[AlertCondition]:
        """Return at most one condition of each kind: of the first rule that applies, else of one that keeps it open."""
        found: dict[AlertKind, AlertCondition] = {}
        for rule in RULES:
            long, short = windows.get(rule.long_s), windows.get(rule.short_s)
            if long is None or short is None or long.bad < self._least_bad():
                continue
            opens = min(_rate(long), _rate(short)) >= rule.factor
            known = found.get(rule.kind)
            if (opens or _lasts(rule, long, short)) and (known is None or (opens and not known.opens)):
                found[rule.kind] = _condition(target, rule, long, short, opens=opens)
        return list(found.values())


def _lasts(rule: BurnRule, long: Burn, short: Burn) -> bool:
    """Whether an open alert stays open."""
    kept_at = KEPT_AT * rule.factor
    if _rate(long) < kept_at:
        return False
    most_bad = short.bad + _CHANCE * math.sqrt(short.bad + 1)
    return most_bad >= kept_at * short.calls * long.bad / long.calls / _rate(long)


def _rate(burn: Burn) -> float:
    return burn.burn_rate or 0.0


def _condition(target: str, rule: BurnRule, long: Burn, short: Burn, *, opens: bool) -> AlertCondition:
    is_slow = rule.kind is AlertKind.BURN_SLOW
    return AlertCondition(
        kind=rule.kind,
        subject=target,
        severity=rule.severity,
        summary=(
            f"Target {target}: the error budget burns {_rate(long):.1f} times too fast over {_span(rule.long_s)}"
            f" ({long.bad} of {long.calls} calls missed it), and {_rate(short):.1f} times over {_span(rule.short_s)}"
        ),
        figures={
            "burn_rate_long": round(_rate(long), 3),
            "burn_rate_short": round(_rate(short), 3),
            "threshold": rule.factor,
            "long_s": rule.long_s,
            "short_s": rule.short_s,
            "calls": long.calls,
            "bad": long.bad,
        },
        sql=long.sql,
        after_s=SLOW_AFTER_S if is_slow else 0.0,
        opens=opens,
        covered_by=key_of(AlertKind.BURN_FAST, target) if is_slow else None,
        covered_s=COVERED_S if is_slow else 0.0,
    )


def _span(seconds: int) -> str:
    minutes = seconds // 60
    return (
        f"{minutes} min"
        if seconds < HOUR_S
        else f"{minutes // 60} h"
        if seconds < 48 * HOUR_S
        else f"{minutes // 1440} d"
    )


# Values as SQL literals for both Postgres and SQLite, for the evidence of alerts.


def text(value: str) -> str:
    """Return text as a literal. NUL characters, which neither database stores, are left out."""
    return "'" + value.replace("\x00", "").replace("'", "''") + "'"


def texts(values: Iterable[str]) -> str:
    """Return a list of texts, to stand after ``in``."""
    return f"({', '.join(map(text, values))})"


def instant(at: datetime) -> str:
    """Return an instant, for ``column >= …``. SQLite compares text, in which its rows' fractions sort after the "+"."""
    return f"'{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}+00'"


def day(at: datetime) -> str:
    """Return the UTC day of an instant, for ``window_start >= …``."""
    return f"'{at.astimezone(UTC):%Y-%m-%d}'"


# A ledger that falls behind, and a spool that cannot be written.

BEFORE = timedelta(hours=1)  # covered by the evidence
SUMS_AFTER_S = 60.0  # a migration of large tables ends a fold, and others wait for it


class LedgerState(Protocol):
    """The state of a ledger."""

    @property
    def pending(self) -> int:
        """Entries that are not in SQL yet."""

    @property
    def oldest_pending_s(self) -> float | None:
        """The age of the oldest pending row; None if none is pending."""

    @property
    def connected(self) -> bool:
        """Whether the database answers."""

    @property
    def spool_problem(self) -> str | None:
        """Why rows would be lost with this process; None if they would not."""

    @property
    def lost(self) -> int:
        """Entries that reached neither disk nor SQL."""

    @property
    def sums_stand_still_s(self) -> float | None:
        """For how long stored rows could not be added up; None: they are."""

    @property
    def sums_problem(self) -> str:
        """Why not."""


class LedgerSource:
    """Reads the state of this process's ledger; the incident's subject is the replica."""

    kinds = (AlertKind.LEDGER_BEHIND, AlertKind.SPOOL, AlertKind.LEDGER_UNRECORDED, AlertKind.SUMS)

    def __init__(
        self,
        ledger: LedgerState,
        *,
        replica: str,
        behind_s: Callable[[], float],
        utc_now: Callable[[], datetime],
    ) -> None:
        self._ledger = ledger
        self._replica = replica
        self._behind_s = behind_s
        self._utc_now = utc_now

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return the problems of the ledger."""
        found = []
        oldest_s = self._ledger.oldest_pending_s
        if oldest_s is not None and oldest_s > self._behind_s():
            found.append(self._behind(oldest_s))
        problem = self._ledger.spool_problem
        if problem is not None:
            found.append(self._spool(problem))
            if not self._ledger.connected:
                found.append(self._unrecorded(problem))
        if (still_s := self._ledger.sums_stand_still_s) is not None:
            found.append(self._sums(still_s))
        return found

    def _behind(self, oldest_s: float) -> AlertCondition:
        why = "the database is slow" if self._ledger.connected else "the database does not answer"
        return AlertCondition(
            kind=AlertKind.LEDGER_BEHIND,
            subject=self._replica,
            severity=Severity.TICKET,
            summary=f"Replica {self._replica}: {self._ledger.pending} rows wait for the database, the oldest for "
            f"{oldest_s:.0f} s: {why}",
            figures={"pending": self._ledger.pending, "oldest_s": round(oldest_s, 1)},
            sql=self._newest_rows(),
        )

    def _spool(self, problem: str) -> AlertCondition:
        lost = f"; {self._ledger.lost} rows are lost" if self._ledger.lost else ""
        return AlertCondition(
            kind=AlertKind.SPOOL,
            subject=self._replica,
            severity=Severity.PAGE,
            summary=f"Replica {self._replica}: the spool is {problem}, so rows are in memory only{lost}",
            figures={"problem": problem, "lost": self._ledger.lost},
            sql=self._newest_rows(),
        )

    def _unrecorded(self, problem: str) -> AlertCondition:
        return AlertCondition(
            kind=AlertKind.LEDGER_UNRECORDED,
            subject=self._replica,
            severity=Severity.PAGE,
            summary=f"Replica {self._replica}: the database does not answer, and the spool is {problem}:"
            " rows are lost if the process ends",
            figures={"problem": problem, "pending": self._ledger.pending, "lost": self._ledger.lost},
            sql=self._newest_rows(),
        )

    def _sums(self, still_s: float) -> AlertCondition:
        return AlertCondition(
            kind=AlertKind.SUMS,
            subject=self._replica,
            severity=Severity.TICKET,
            summary=f"Replica {self._replica}: rows are stored, but have not been added up for {still_s:.0f} s, so"
            f" reports and alerts of spending stand still: {self._ledger.sums_problem}",
            figures={"stand_still_s": round(still_s, 1)},
            sql=self._newest_rows(),
            after_s=SUMS_AFTER_S,
        )

    def _newest_rows(self) -> str:
        """Return a statement that shows the newest rows in the database; waiting rows are not in it yet."""
        return f"""\
select replica, max(started_at) as newest, count(*) as calls
from calls
where started_at >= {instant(self._utc_now() - BEFORE)}
group by replica
order by replica"""  # noqa: S608 - quoted


# Workers whose event loop stands still.


class WorkerSource:
    """Reads which workers of this replica have stood still within the last minute."""

    kinds = (AlertKind.WORKER_STOPPED,)

    def __init__(
        self, stopped_lately: Callable[[], Sequence[int]], *, replica: str, utc_now: Callable[[], datetime]
    ) -> None:
        """``stopped_lately`` returns their process ids."""
        self._stopped_lately = stopped_lately
        self._replica = replica
        self._utc_now = utc_now

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return one condition for all of them, if there are any."""
        stopped = self._stopped_lately()
        if not stopped:
            return []
        return [
            AlertCondition(
                kind=AlertKind.WORKER_STOPPED,
                subject=self._replica,
                severity=Severity.PAGE,
                summary=f"Replica {self._replica}: {len(stopped)} of its workers stood still, so their calls hung",
                figures={"stopped": len(stopped), "pids": ", ".join(map(str, stopped))},
                sql=f"""\
select started_at, id, model, status_code, error_kind
from calls
where replica = {text(self._replica)} and error_kind = 'interrupted'
  and started_at >= {instant(self._utc_now() - BEFORE)}
order by started_at desc
limit 50""",  # noqa: S608 - quoted
            )
        ]


# Deployments that got slower, as found by the detector.


class OpenSlowdown(msgspec.Struct, frozen=True, kw_only=True):
    """An open row of the table ``slowdowns``: ``ratio`` times as slow as before, between ``low`` and ``high``."""

    deployment: str
    model: str
    metric: str
    began_at: datetime
    ratio: float
    low: float
    high: float
    n: int
    evidence_sql: str


class SlowdownSource:
    """Reads the slowdowns that have not ended."""

    kinds = (AlertKind.SLOWER,)

    def __init__(self, slowdowns: Callable[[], Awaitable[Sequence[OpenSlowdown]]]) -> None:
        self._slowdowns = slowdowns

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return the deployments that are slower than they were."""
        try:
            found = await self._slowdowns()
        except ApiError as error:
            raise SourceUnavailable(str(error)) from error
        worst: dict[tuple[str, str], OpenSlowdown] = {}  # one incident for all metrics of a deployment
        for each in found:
            known = worst.setdefault((each.deployment, each.model), each)
            if each.ratio > known.ratio:
                worst[each.deployment, each.model] = each
        return [_slowdowns_condition(each) for each in worst.values()]


def _slowdowns_condition(found: OpenSlowdown) -> AlertCondition:
    return AlertCondition(
        kind=AlertKind.SLOWER,
        subject=f"{found.deployment}/{found.model}",
        severity=Severity.TICKET,
        summary=(
            f"Deployment {found.deployment}, model {found.model}: {found.metric} is worse by {found.ratio:.2f} times"
            f" (between {found.low:.2f} and {found.high:.2f}) since {found.began_at:%Y-%m-%d %H:%M} UTC"
        ),
        figures={"ratio": found.ratio, "low": found.low, "high": found.high, "n": found.n, "metric": found.metric},
        sql=found.evidence_sql,
    )


# Clients, teams, models and end users that have spent most of their limit, and an installation that spends more than
# expected.

HOUR, DAY, WEEK, MONTH, TOTAL = "usd_per_hour", "usd_per_day", "usd_per_week", "usd_per_month", "usd_total"
_WORDS = {HOUR: "this hour", DAY: "today", WEEK: "this week", MONTH: "this month", TOTAL: "in all"}
_SUMMED = (DAY, MONTH)  # of which the ledger's sums tell, in UTC
_ALL_CLIENTS = "all"
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
    """Others than clients that have limits in dollars: teams, or models."""

    word: str  # what they are
    limits: Callable[[], Mapping[str, Mapping[str, float]]]  # by name
    spent: Callable[[], Awaitable[Mapping[str | None, tuple[float, float]]]]  # of this UTC day and month
    sql: Callable[[str, datetime], str]  # the evidence of one, since then


def team_sql(team: str, since: datetime) -> str:
    """Return what calls of a team have cost, by client and model."""
    return f"""\
select client, model, count(*) as calls, sum(cost_usd) as cost_usd
from calls
where started_at >= {instant(since)} and tags ->> 'team' = {text(team)} and cost_usd > 0
group by client, model
order by sum(cost_usd) desc"""  # noqa: S608 - quoted


def model_sql(model: str, since: datetime) -> str:
    """Return what attempts for a model have cost, by deployment and client."""
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
        """``limits`` returns the limits of each client, by their names; None: without a client."""
        self._others = others
        self._spent = spent
        self._limits = limits
        self._thresholds = thresholds
        self._utc_now = utc_now

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return whose spending is above a threshold. The database is read only if there is one."""
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
        now = self._utc_now()  # before the answer, which may be of the day that ends meanwhile
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
            subject=f"{subject}/{_window(str(figures['limit']), now)}",  # the next is another
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
    """Return when the day or month of a limit began of which the ledger's sums tell."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day if name == DAY else day.replace(day=1)


def _new_in_utc(name: str, now: datetime) -> str:
    """Return when the next one begins, as ``_new_at``."""
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
    """Compares what clients, teams and models have spent, as this process knows it, where the sums do not tell.

    The ledger's sums are of UTC days: of other zones, and of hours, weeks and totals they tell nothing.
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
    """Return when a limit's next window begins, in its own zone, as it ends a sentence; of a total nothing."""
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


# End users are many: those that have spent most of a limit are one alert, and another one when they are twice as many.

NAMED = 10  # in the sentence


class EndUserSource:
    """Compares what end users have spent, as this process knows it, with their limits."""

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
        """Return one condition for 1, 2, 4, … of them; the largest covers those that were not told before it."""
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
