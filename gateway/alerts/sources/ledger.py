"""A ledger that falls behind, and a spool that cannot be written."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from gateway.alerts.condition import Condition, Kind, Severity
from gateway.alerts.sources import literals

BEFORE = timedelta(hours=1)  # of what the evidence shows


class LedgerState(Protocol):
    """What a ledger says of itself."""

    @property
    def pending(self) -> int:
        """Entries that are not in SQL yet."""

    @property
    def oldest_pending_s(self) -> float | None:
        """Their maximum age; None if there are none."""

    @property
    def connected(self) -> bool:
        """Whether the database answers."""

    @property
    def spool_problem(self) -> str | None:
        """Why rows would be lost with this process."""

    @property
    def lost(self) -> int:
        """Entries that reached neither disk nor SQL."""


class LedgerSource:
    """Asks this process's own ledger; the incident is its replica's."""

    kinds = (Kind.LEDGER_BEHIND, Kind.SPOOL)

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

    async def conditions(self) -> Sequence[Condition]:
        """Return what is wrong with the ledger."""
        found = []
        oldest_s = self._ledger.oldest_pending_s
        if oldest_s is not None and oldest_s > self._behind_s():
            found.append(self._behind(oldest_s))
        problem = self._ledger.spool_problem
        if problem is not None:
            found.append(self._spool(problem))
        return found

    def _behind(self, oldest_s: float) -> Condition:
        why = "the database is slow" if self._ledger.connected else "the database does not answer"
        return Condition(
            kind=Kind.LEDGER_BEHIND,
            subject=self._replica,
            severity=Severity.TICKET,
            summary=f"Replica {self._replica}: {self._ledger.pending} rows wait for the database, the oldest for "
            f"{oldest_s:.0f} s: {why}",
            figures={"pending": self._ledger.pending, "oldest_s": round(oldest_s, 1)},
            sql=self._newest_rows(),
        )

    def _spool(self, problem: str) -> Condition:
        lost = f"; {self._ledger.lost} rows are lost" if self._ledger.lost else ""
        return Condition(
            kind=Kind.SPOOL,
            subject=self._replica,
            severity=Severity.PAGE,
            summary=f"Replica {self._replica}: the spool is {problem}, so rows are in memory only{lost}",
            figures={"problem": problem, "lost": self._ledger.lost},
            sql=self._newest_rows(),
        )

    def _newest_rows(self) -> str:
        """Return a statement that shows until when the database has rows: what waits cannot be in it."""
        return f"""\
select replica, max(started_at) as newest, count(*) as calls
from calls
where started_at >= {literals.instant(self._utc_now() - BEFORE)}
group by replica
order by replica"""  # noqa: S608 - quoted
