"""The watch of targets: it keeps their counts up to date, and shows where they stand, every half minute.

It waits and logs, so it stands above ``targets``, whose words the settings and ``core`` import.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from gateway.core.reports import ReportsUnreachable, ReportTooSlow
from gateway.core.targets import Standing, Target
from gateway.core.tasks import end_if_cancelled

EVERY_S = 30.0


class Counting(Protocol):
    """Counts the calls of targets in advance."""

    async def keep_up(self) -> None:
        """Count new windows; a problem is logged."""

    async def aclose(self) -> None:
        """Close the connection to the ledger."""


class TargetWatch:
    """Looks at the targets every half minute, as long as there are any."""

    def __init__(
        self,
        counting: Counting,
        standings: Callable[[], Awaitable[Sequence[Standing]]],
        targets: Callable[[], Sequence[Target]],
        *,
        show: Callable[[Sequence[Standing]], None],
        leaves: Callable[[], bool] = lambda: False,
    ) -> None:
        """``standings`` reads where the targets stand, for ``show``.

        ``leaves``: whether another replica should count, as this one's clock is off.
        """
        self._leaves = leaves
        self._counting = counting
        self._standings = standings
        self._show = show
        self._targets = targets
        self._had_some = False

    async def run(self) -> None:
        """Look until cancelled."""
        try:
            while True:
                await asyncio.sleep(EVERY_S)
                try:
                    await self.look()
                except (ReportsUnreachable, ReportTooSlow):  # logged; the last figures stay
                    pass
                except Exception:  # noqa: BLE001 - the next look may succeed
                    # Event targets.not_watched: One look at the targets failed. The next one follows; the last figures
                    # stay.
                    # Do: It is a bug: report it with the trace.
                    structlog.get_logger().exception("targets.not_watched")
                end_if_cancelled()
        finally:
            await self._counting.aclose()

    async def look(self) -> None:
        """Count, unless there are no targets, and show where they stand; once more after the last one has gone."""
        has_some = bool(self._targets())
        if not has_some and not self._had_some:
            return
        self._had_some = has_some
        if has_some and not self._leaves():
            await self._counting.keep_up()
        self._show(await self._standings())
