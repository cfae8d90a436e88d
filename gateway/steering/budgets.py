"""The budgets of all models, and the dollars that limit extra attempts besides."""

from collections.abc import Container, Sequence
from math import inf

from gateway.attempt_records import Role
from gateway.settings.model import RaceSettings
from gateway.steering.budget import FREE, Budget
from gateway.steering.constants import DEMAND_S, LIMIT_GROWS, LIMIT_USED
from gateway.steering.health import Health
from gateway.steering.load import Launches
from gateway.steering.spending import Spending


class Budgets:
    """What extra attempts may still start: by the budget of their model, and by what they cost."""

    def __init__(self, spending: Spending) -> None:
        self._spending = spending
        self._budgets: dict[str, Budget] = {}
        self._calls: dict[str, Launches] = {}  # by model
        self._extra: dict[str, Launches] = {}

    def of(self, model: str) -> Budget:
        """Return the budget of a model, a new one at its first call."""
        budget = self._budgets.get(model)
        if budget is None:
            budget = self._budgets[model] = Budget()
        return budget

    def call(self, model: str, now_s: float) -> None:
        """Count a call."""
        self._calls.setdefault(model, Launches()).add(now_s)

    def room(self, model: str, healths: Sequence[Health], now_s: float) -> tuple[float, float]:
        """Return how many extra attempts a minute leave room for all calls, and how many calls are expected.

        The first is infinite while no deployment has answered 429. What one admits in a minute is known from its last
        429s. A peer of theirs may be limited as they are, unless it has admitted more: then it is trusted with more,
        step by step.
        """
        limits = [health.limit(now_s) for health in healths]
        known = [limit for limit in limits if limit is not None]
        if not known:
            return inf, 1.0
        usual = sum(known) / len(known)
        launched = [health.launches.in_minute(now_s) for health in healths]
        admitted = sum(
            max(LIMIT_GROWS * seen, usual) if limit is None else limit
            for limit, seen in zip(limits, launched, strict=True)
        )
        calls = self._calls[model].in_seconds(DEMAND_S, now_s) * (60.0 / DEMAND_S) if model in self._calls else 0.0
        demand = max(1.0, calls, sum(launched) - self._extra_of(model).in_minute(now_s))
        return max(0.0, LIMIT_USED * admitted - demand), demand

    def _extra_of(self, model: str) -> Launches:
        return self._extra.setdefault(model, Launches())

    def keep(self, models: Container[str]) -> None:
        """Forget all other models."""
        self._calls = {model: calls for model, calls in self._calls.items() if model in models}
        self._extra = {model: extra for model, extra in self._extra.items() if model in models}
        self._budgets = {model: budget for model, budget in self._budgets.items() if model in models}

    def draw(
        self,
        model: str,
        role: Role,
        race: RaceSettings,
        *,
        cost_usd: float | None,
        payer: str,
        room: float = inf,
        now_s: float,
    ) -> str | None:
        """Charge an attempt that starts now; return the limit that refuses it, None if it may start.

        ``room`` is what rate limits leave for extra attempts in a minute.
        """
        limit, budget = self.too_dear(model, race, cost_usd=cost_usd, payer=payer), self.of(model)
        extra = self._extra_of(model)
        if limit is None and role not in FREE and extra.in_minute(now_s) >= room:
            limit = "rate_limits"
        if limit is not None or not budget.draw(role, race.budget):
            return limit or "budget"
        if role not in FREE:
            extra.add(now_s)
        if cost_usd is not None and race.usd_per_day is not None:
            self._spending.charge(payer, cost_usd)
        if cost_usd is not None and race.extra_usd_per_call is not None:
            budget.pay(cost_usd)
        return None

    def too_dear(self, model: str, race: RaceSettings, *, cost_usd: float | None, payer: str) -> str | None:
        """Return the limit on dollars that an attempt would exceed; None for none, or without a known price."""
        if cost_usd is None:
            return None
        if race.usd_per_day is not None and not self._spending.may_spend(payer, cost_usd, race.usd_per_day):
            return "usd_per_day"
        per_call = race.extra_usd_per_call
        return None if per_call is None or self.of(model).affords(cost_usd, per_call) else "extra_usd_per_call"
