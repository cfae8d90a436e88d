"""Keeps the counts of targets up to date, and shows in the metrics where the targets stand."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import nan

import structlog

from gateway.ledger.targets.counting import TargetCounting
from gateway.reports import Reports, ReportsUnreachable, ReportTooSlow
from gateway.runtime import Runtime
from gateway.settings.model import Settings
from gateway.targets.standing import Standing, duration
from gateway.targets.target import Target
from gateway.watching.families import TARGET_BAD, TARGET_BUDGET, TARGET_BURN, TARGET_CALLS
from gateway.watching.metrics import Metrics, Readings
from gateway.watching.series import Family

EVERY_S = 30.0
Reading = tuple[tuple[str, ...], float | None]  # the values of labels, and a figure if it is known


def target_watch(
    settings: Settings,
    runtime: Runtime,
    *,
    reports: Reports,
    metrics: Metrics,
    targets: Callable[[], Sequence[Target]],
) -> "TargetWatch":
    """Compose the watch of a process. ``targets`` are those in force at each moment."""
    counting = TargetCounting(
        settings.database_url.get_secret_value(), targets, utc_now=runtime.utc_now, clock=runtime.clock
    )
    return TargetWatch(counting, reports, metrics, targets)


class TargetFigures:
    """How much of each target's budget is left, and how fast it is spent, as metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._standings: Sequence[Standing] = ()
        for family, read in _SHOWN:
            metrics.read_series(family, partial(self._readings, read))

    def show(self, standings: Sequence[Standing]) -> None:
        """Show these from now on."""
        self._standings = standings

    def _readings(self, read: Callable[[Standing], Iterator[Reading]]) -> Readings:
        return {values: nan if number is None else number for each in self._standings for values, number in read(each)}


class TargetWatch:
    """Looks at the targets every half minute, as long as there are any."""

    def __init__(
        self,
        counting: TargetCounting,
        reports: Reports,
        metrics: Metrics,
        targets: Callable[[], Sequence[Target]],
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self._counting = counting
        self._reports = reports
        self._figures = TargetFigures(metrics)
        self._targets = targets
        self._every_s = every_s
        self._had_some = False

    async def run(self) -> None:
        """Look until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._every_s)
                try:
                    await self._look()
                except (ReportsUnreachable, ReportTooSlow):  # logged; the last figures stay
                    pass
                except Exception:  # noqa: BLE001 - the next look may succeed
                    structlog.get_logger().exception("targets.not_watched")
        finally:
            await self._counting.aclose()

    async def _look(self) -> None:
        has_some = bool(self._targets())
        if not has_some and not self._had_some:
            return
        self._had_some = has_some
        if has_some:
            await self._counting.keep_up()
        self._figures.show(await self._reports.targets())


def _calls(each: Standing) -> Iterator[Reading]:
    yield (each.target.name,), float(each.counts.calls)


def _bad(each: Standing) -> Iterator[Reading]:
    yield (each.target.name,), float(each.counts.bad)


def _budget(each: Standing) -> Iterator[Reading]:
    yield (each.target.name,), each.budget_left


def _burns(each: Standing) -> Iterator[Reading]:
    for burn in each.burns:
        yield (each.target.name, duration(burn.window_s)), burn.burn_rate


_SHOWN: Sequence[tuple[Family, Callable[[Standing], Iterator[Reading]]]] = (
    (TARGET_CALLS, _calls),
    (TARGET_BAD, _bad),
    (TARGET_BUDGET, _budget),
    (TARGET_BURN, _burns),
)
