"""The budgets of all models, and the dollars that limit extra attempts besides."""

from collections.abc import Container

from gateway.attempt_records import Role
from gateway.settings.model import RaceSettings
from gateway.steering.budget import Budget
from gateway.steering.spending import Spending


class Budgets:
    """What extra attempts may still start: by the budget of their model, and by what they cost."""

    def __init__(self, spending: Spending) -> None:
        self._spending = spending
        self._budgets: dict[str, Budget] = {}

    def of(self, model: str) -> Budget:
        """Return the budget of a model, a new one at its first call."""
        budget = self._budgets.get(model)
        if budget is None:
            budget = self._budgets[model] = Budget()
        return budget

    def keep(self, models: Container[str]) -> None:
        """Forget all other models."""
        self._budgets = {model: budget for model, budget in self._budgets.items() if model in models}

    def draw(self, model: str, role: Role, race: RaceSettings, *, cost_usd: float | None, payer: str) -> str | None:
        """Charge an attempt that starts now; return the limit that refuses it, None if it may start."""
        limit, budget = self.too_dear(model, race, cost_usd=cost_usd, payer=payer), self.of(model)
        if limit is not None or not budget.draw(role, race.budget):
            return limit or "budget"
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
