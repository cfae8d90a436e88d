"""Deployments that got slower, as the detector has found them."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from gateway.alerts.condition import Condition, Kind, Severity, SourceUnavailable
from gateway.errors import ApiError


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
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

    kinds = (Kind.SLOWER,)

    def __init__(self, slowdowns: Callable[[], Awaitable[Sequence[Slowdown]]]) -> None:
        self._slowdowns = slowdowns

    async def conditions(self) -> Sequence[Condition]:
        """Return the deployments that are slower than they were."""
        try:
            found = await self._slowdowns()
        except ApiError as error:
            raise SourceUnavailable(str(error)) from error
        worst: dict[tuple[str, str], Slowdown] = {}  # one incident, however many metrics show it
        for each in found:
            known = worst.setdefault((each.deployment, each.model), each)
            if each.ratio > known.ratio:
                worst[each.deployment, each.model] = each
        return [_condition(each) for each in worst.values()]


def _condition(found: Slowdown) -> Condition:
    return Condition(
        kind=Kind.SLOWER,
        subject=f"{found.deployment}/{found.model}",
        severity=Severity.TICKET,
        summary=(
            f"Deployment {found.deployment}, model {found.model}: {found.metric} is worse by {found.ratio:.2f} times"
            f" (between {found.low:.2f} and {found.high:.2f}) since {found.began_at:%Y-%m-%d %H:%M} UTC"
        ),
        figures={"ratio": found.ratio, "low": found.low, "high": found.high, "n": found.n, "metric": found.metric},
        sql=found.evidence_sql,
    )
