"""Spending: what each model's extra attempts may have cost today, compared with ``race.usd_per_day``."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime


class Spending:
    """US dollars at list price by model, for the current UTC day: of this replica, and as known of the others.

    An attempt is charged when it starts, with its maximum: its prompt and an answer of the usual length. For a loser
    that is cut early this is too much, but running calls can never overdraw. Replicas share their totals through Redis
    once a second; without Redis, each applies the limit to what it knows.
    """

    def __init__(self, unix_clock: Callable[[], float]) -> None:
        self._unix_clock = unix_clock
        self._day = ""
        self._own: dict[str, float] = {}
        self._others: dict[str, float] = {}
        self._before = self._day, self._own, self._others

    def may_spend(self, model: str, usd: float, limit_usd: float) -> bool:
        """Whether ``usd`` more is within the day's limit. A model asked about is kept up to date."""
        self._turn()
        self._own.setdefault(model, 0.0)
        return self.today_usd(model) + usd <= limit_usd

    def charge(self, model: str, usd: float) -> None:
        """Charge an extra attempt that starts now."""
        self._turn()
        self._own[model] = self._own.get(model, 0.0) + usd

    def today_usd(self, model: str) -> float:
        """Return what all replicas have spent on ``model`` today, as far as this one knows."""
        self._turn()
        return self._own.get(model, 0.0) + self._others.get(model, 0.0)

    def own_usd(self) -> tuple[str, Mapping[str, float]]:
        """Return the day (2026-03-04) and this replica's own spending by model, for the other replicas."""
        self._turn()
        return self._day, self._own

    def learn(self, day: str, model: str, others_usd: float) -> None:
        """Set what the other replicas have spent on ``model`` on ``day``."""
        self._turn()
        if day == self._day:
            self._others[model] = others_usd

    def _turn(self) -> None:
        """Begin new sums on another day; those before are kept, as a clock that was wrong comes back to its day."""
        day = datetime.fromtimestamp(self._unix_clock(), UTC).date().isoformat()
        if day != self._day:
            before, self._before = self._before, (self._day, self._own, self._others)
            self._day, self._own, self._others = before if before[0] == day else (day, {}, {})
