"""The settings that are replayed, and what each launches. The delays and shares are the planner's own."""

from msgspec import Struct

from gateway.steering.spent_budget import hedge_quantile, hedged_at_s, raced_share

BUDGETS = (0.05, 0.1, 0.2, 0.5)
MOST_BUDGET = 7.0  # as in the settings of a race


class Setting(Struct, frozen=True):
    """``width`` attempts from the start; or with a ``budget``, what mode auto makes of it."""

    name: str
    width: int = 1
    budget: float | None = None

    @property
    def race(self) -> dict[str, object]:
        """The setting as ``race:`` has it in the configuration."""
        if self.budget is not None:
            return {"mode": "auto", "budget": self.budget}
        if self.width == 1:
            return {"mode": "single", "budget": 0.0}
        return {"mode": "race", "width": self.width, "budget": float(self.width - 1)}

    @property
    def is_pair(self) -> bool:
        """Whether two attempts start with every call."""
        return self.width == 2 if self.budget is None else self.budget == 1.0  # noqa: PLR2004

    @property
    def widest(self) -> int:
        """The most attempts of a call that did not fail."""
        if self.budget is None:
            return self.width
        return 2 + max(0, -int(-(self.budget - 1.0) // 1))

    @property
    def raced(self) -> float:
        """The share of calls in which a second attempt starts at once."""
        return float(self.width > 1) if self.budget is None else raced_share(self.budget)

    @property
    def hedged_from(self) -> float | None:
        """The share of the primary's first tokens after which the others are hedged; None if never."""
        return None if self.budget is None or not self.budget else hedge_quantile(self.budget)


def settings(budgets: tuple[float, ...] = BUDGETS) -> tuple[Setting, ...]:
    """Return all settings, from the cheapest on."""
    return (
        Setting("single"),
        *(Setting(f"budget {budget:g}", budget=budget) for budget in sorted(set(budgets)) if budget > 0),
        Setting("race of 2", 2),
        Setting("race of 3", 3),
    )


def hedge_delay_ms(quantile_ms: float) -> float:
    """Return when a hedge starts, if that is the quantile of the primary's first token."""
    return 1000 * hedged_at_s(quantile_ms / 1000)
