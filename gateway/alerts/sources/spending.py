"""Clients that have used most of what they may spend, and a whole installation that spends more than expected."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from gateway.alerts.condition import Condition, Figure, Kind, Severity, SourceUnavailable
from gateway.alerts.sources import literals
from gateway.errors import ApiError

DAY, MONTH = "usd_per_day", "usd_per_month"
_WORDS = {DAY: "today", MONTH: "this month"}
_EVERYBODY = "all"

Spent = Mapping[str | None, tuple[float, float]]  # US dollars of this UTC day and month, by client


class Thresholds(msgspec.Struct, frozen=True):
    """When somebody should know."""

    share: float  # of a client's limit
    usd_per_day: float | None  # of all clients together
    usd_per_month: float | None

    @property
    def of_all(self) -> dict[str, float]:
        """Those of all clients that are set."""
        both = {DAY: self.usd_per_day, MONTH: self.usd_per_month}
        return {name: limit for name, limit in both.items() if limit is not None}


class SpendingSource:
    """Compares what the ledger says was spent with limits. Rows on their way to the database are not in it yet."""

    kinds = (Kind.SPENDING,)

    def __init__(
        self,
        spent: Callable[[], Awaitable[Spent]],
        *,
        limits: Callable[[], Mapping[str | None, Mapping[str, float]]],
        thresholds: Callable[[], Thresholds],
        utc_now: Callable[[], datetime],
    ) -> None:
        """``limits`` are those of clients, by the limits' names; None: without a client."""
        self._spent = spent
        self._limits = limits
        self._thresholds = thresholds
        self._utc_now = utc_now

    async def conditions(self) -> Sequence[Condition]:
        """Return whose spending is above a threshold. The database is asked only if there is one."""
        thresholds = self._thresholds()
        limited = {
            (client, name): limit
            for client, limits in self._limits().items()
            for name, limit in limits.items()
            if name in _WORDS and limit > 0
        }
        if not limited and not thresholds.of_all:
            return []
        try:
            spent = await self._spent()
        except ApiError as error:
            raise SourceUnavailable(str(error)) from error
        found = []
        for (client, name), limit in limited.items():
            used_usd = spent.get(client, (0.0, 0.0))[name == MONTH]
            if used_usd >= thresholds.share * limit:
                found.append(self._of_client(client, name, used_usd, limit))
        for name, limit in thresholds.of_all.items():
            used_usd = sum(each[name == MONTH] for each in spent.values())
            if used_usd >= limit:
                found.append(self._of_all(name, used_usd, limit))
        return found

    def _of_client(self, client: str | None, name: str, used_usd: float, limit_usd: float) -> Condition:
        who = "Programs on this machine" if client is None else f"Client {client}"
        return self._condition(
            f"{client or '-'}/{name}",
            f"{who}: ${used_usd:.2f} spent {_WORDS[name]}, of a limit of ${limit_usd:.2f}",
            {"used_usd": round(used_usd, 6), "limit_usd": limit_usd, "limit": name},
            f" and client = {literals.text(client or '')}",
        )

    def _of_all(self, name: str, used_usd: float, limit_usd: float) -> Condition:
        return self._condition(
            f"{_EVERYBODY}/{name}",
            f"${used_usd:.2f} spent {_WORDS[name]} by all clients, alerts.{name} is ${limit_usd:.2f}",
            {"used_usd": round(used_usd, 6), "limit_usd": limit_usd, "limit": name},
            "",
        )

    def _condition(self, subject: str, summary: str, figures: Mapping[str, Figure], only: str) -> Condition:
        now, is_of_day = self._utc_now(), figures["limit"] == DAY
        since = now if is_of_day else now.replace(day=1)
        return Condition(
            kind=Kind.SPENDING,
            subject=f"{subject}/{since:%Y-%m-%d}" if is_of_day else f"{subject}/{since:%Y-%m}",  # the next is another
            severity=Severity.TICKET,
            summary=summary,
            figures=figures,
            sql=f"""\
select nullif(client, '') as client, model, sum(n) as calls,
  sum(case when coalesce(race_cost_usd, 0) > coalesce(cost_usd, 0) then race_cost_usd else cost_usd end) as cost_usd
from rollup_calls
where minutes = 1440 and window_start >= {literals.day(since)}{only}
group by client, model
order by cost_usd desc""",  # noqa: S608 - quoted
        )
