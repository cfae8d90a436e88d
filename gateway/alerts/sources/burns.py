"""Targets whose error budget burns too fast: several windows, several burn rates.

The rules are those of the SRE workbook (chapter 5, "Alerting on SLOs"): a long window shows that it matters, a short
one that it still goes on, so that an alert is soon resolved. A burn rate of 1 uses up the budget exactly within the
target's window; 14.4 uses 2 % of a month's budget in an hour, 86.4 uses 1 % in five minutes. That last rule is ours:
where all calls are bad, an hour is too long to wait.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from gateway.alerts.condition import Condition, Kind, Severity, SourceUnavailable, key_of
from gateway.errors import ApiError
from gateway.targets.burn import Burn

HOUR_S = 3600


class Rule(msgspec.Struct, frozen=True):
    """It holds if the budget burns at least ``factor`` times too fast in both windows."""

    kind: Kind
    severity: Severity
    long_s: int
    short_s: int
    factor: float


RULES = (
    Rule(Kind.BURN_FAST, Severity.PAGE, 300, 60, 86.4),
    Rule(Kind.BURN_FAST, Severity.PAGE, HOUR_S, 300, 14.4),
    Rule(Kind.BURN_FAST, Severity.PAGE, 6 * HOUR_S, 1800, 6.0),
    Rule(Kind.BURN_SLOW, Severity.TICKET, 72 * HOUR_S, 6 * HOUR_S, 1.0),
)
WINDOWS_S = tuple(sorted({seconds for rule in RULES for seconds in (rule.long_s, rule.short_s)}))
# An open alert lasts while both windows burn at this part of the factor: near the factor a rate goes up and down by
# chance. A short window of few calls ends it only when chance does not explain that so few of them are bad.
KEPT_AT = 0.5
_CHANCE = 1.0  # standard deviations
# After a fast burn, the windows of the slow rule are still full of it: that is no second incident. This ends with its
# short window.
COVERED_S = 6 * HOUR_S
# A ledger that is younger than the long window shows a fast burn there first. Nothing slow is in such a hurry.
SLOW_AFTER_S = float(HOUR_S)


def opens_after_s(rule: Rule, share: float, objective: float) -> float | None:
    """Return when a target that was kept until now burns by ``rule``, if from now on this ``share`` of calls is bad.

    Calls come evenly, and there are enough of them. None: never.
    """
    burn = share / (1.0 - objective)
    return None if burn < rule.factor else rule.long_s * rule.factor / burn


class BurnSource:
    """Reads the burn rates of all targets."""

    kinds = (Kind.BURN_FAST, Kind.BURN_SLOW)

    def __init__(
        self, burns: Callable[[Sequence[int]], Awaitable[Sequence[Burn]]], *, least_bad: Callable[[], int]
    ) -> None:
        """``least_bad`` bad calls in the long window are needed: at night a single one may burn at a hundred."""
        self._burns = burns
        self._least_bad = least_bad

    async def conditions(self) -> Sequence[Condition]:
        """Return the targets whose budget burns too fast."""
        try:
            burns = await self._burns(WINDOWS_S)
        except ApiError as error:
            raise SourceUnavailable(str(error)) from error
        by_target: dict[str, dict[int, Burn]] = {}
        for burn in burns:
            by_target.setdefault(burn.target, {})[burn.window_s] = burn
        return [each for target, windows in by_target.items() for each in self._of(target, windows)]

    def _of(self, target: str, windows: Mapping[int, Burn]) -> list[Condition]:
        """Return at most one condition of each kind: of the first rule that holds, else of one that holds nearly."""
        found: dict[Kind, Condition] = {}
        for rule in RULES:
            long, short = windows.get(rule.long_s), windows.get(rule.short_s)
            if long is None or short is None or long.bad < self._least_bad():
                continue
            opens = min(_rate(long), _rate(short)) >= rule.factor
            known = found.get(rule.kind)
            if (opens or _lasts(rule, long, short)) and (known is None or (opens and not known.opens)):
                found[rule.kind] = _condition(target, rule, long, short, opens=opens)
        return list(found.values())


def _lasts(rule: Rule, long: Burn, short: Burn) -> bool:
    """Whether an alert that is open stays so."""
    kept_at = KEPT_AT * rule.factor
    if _rate(long) < kept_at:
        return False
    most_bad = short.bad + _CHANCE * math.sqrt(short.bad + 1)
    return most_bad >= kept_at * short.calls * long.bad / long.calls / _rate(long)


def _rate(burn: Burn) -> float:
    return burn.burn_rate or 0.0


def _condition(target: str, rule: Rule, long: Burn, short: Burn, *, opens: bool) -> Condition:
    is_slow = rule.kind is Kind.BURN_SLOW
    return Condition(
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
        covered_by=key_of(Kind.BURN_FAST, target) if is_slow else None,
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
