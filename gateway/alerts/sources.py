"""The sources of alerts: burn rates, the ledger, workers and slowdowns. Outages and spending have their own files."""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec

from gateway.alerts.alert import AlertCondition, AlertKind, Severity, SourceUnavailable, key_of
from gateway.core.errors import ApiError
from gateway.core.targets import Burn

# Targets whose error budget burns too fast: several windows, several burn rates. The rules are those of the SRE
# workbook (chapter 5, "Alerting on SLOs"). A long window shows that the burn matters, a short window that the burn
# still goes on, so that an alert is soon resolved. A burn rate of 1 uses up the budget exactly within the target's
# window; 14.4 uses 2 % of a month's budget in an hour, 86.4 uses 1 % in five minutes. That last rule is the gateway's
# own: if all calls are bad, an hour is too long to wait.

HOUR_S = 3600


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
# A short window with few calls ends an alert only if chance cannot explain so few bad calls.
KEPT_AT = 0.5
_CHANCE = 1.0  # standard deviations
# After a fast burn, the windows of the slow rule still contain that burn. This is no second incident until the slow
# rule's short window has passed.
COVERED_S = 6 * HOUR_S
# In a ledger that is younger than the long window, a fast burn first looks like a slow one, so the slow rule waits.
SLOW_AFTER_S = float(HOUR_S)


def opens_after_s(rule: BurnRule, share: float, objective: float) -> float | None:
    """Return after how many seconds ``rule`` applies to a target kept so far, if ``share`` of calls is bad from now on.

    Calls are assumed to come evenly, and to be enough. None: never.
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
        """Return at most one condition of each kind: of the first rule that applies, else of a rule that keeps open."""
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
SUMS_AFTER_S = 60.0  # a migration of large tables ends a fold, and others wait for the migration


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
        """Why rows would be lost with this process; None: no rows would be lost."""

    @property
    def lost(self) -> int:
        """Entries that reached neither disk nor SQL."""

    @property
    def sums_stand_still_s(self) -> float | None:
        """For how long stored rows could not be added up; None: they are added up."""

    @property
    def sums_problem(self) -> str:
        """Why stored rows could not be added up."""


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
        """``stopped_lately`` returns the process ids of stopped workers."""
        self._stopped_lately = stopped_lately
        self._replica = replica
        self._utc_now = utc_now

    async def conditions(self) -> Sequence[AlertCondition]:
        """Return one condition for all stopped workers, if there are any."""
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


# Deployments that got slower, as the detector has found.


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
        """Return the deployments that are slower than before."""
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
