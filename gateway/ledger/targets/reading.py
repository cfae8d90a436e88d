"""Reads where targets stand: one statement for each of their windows."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from gateway.ledger.reports.words import Words
from gateway.ledger.targets import statements
from gateway.targets.burn import Burn, burn_rate
from gateway.targets.standing import BURNS_S, Counts, Standing
from gateway.targets.target import Target


class Answered(Protocol):
    """What the database answers, whoever has asked it."""

    @property
    def rows(self) -> Sequence[Sequence[Any]]:
        """The rows."""


Ask = Callable[[str], Awaitable[Answered]]


async def standings(ask: Ask, words: Words, targets: Sequence[Target], now: datetime) -> list[Standing]:
    """Return where each target stands at ``now``."""
    found = []
    for target in targets:
        sql = statements.counts(words, target.definition, target.window, now)
        counts = await _counts(ask, sql)
        shorter = [window_s for window_s in BURNS_S if window_s < target.window.total_seconds()]
        rates = await burns(ask, words, [target], shorter, now)
        misses = statements.misses(words, target.definition, target.window, now)
        found.append(Standing(target, counts, tuple(rates), sql, misses))
    return found


async def burns(
    ask: Ask, words: Words, targets: Sequence[Target], windows_s: Sequence[int], now: datetime
) -> list[Burn]:
    """Return how fast the budget of each target was spent in each of ``windows_s`` seconds before ``now``."""
    found = []
    for target in targets:
        for window_s in windows_s:
            sql = statements.counts(words, target.definition, timedelta(seconds=window_s), now)
            counts = await _counts(ask, sql)
            rate = burn_rate(counts.calls, counts.bad, target.objective)
            found.append(Burn(target.name, window_s, counts.calls, counts.bad, rate, sql))
    return found


async def _counts(ask: Ask, sql: str) -> Counts:
    [row] = (await ask(sql)).rows
    return Counts(*map(int, row))
