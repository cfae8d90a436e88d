"""The starting grid: who is launched when, who stands by, and whether the budget lets them.

A plan's later launches are timers. A launch the budget refuses, and every deployment the plan only names, stands by as
a candidate, to replace an attempt that fails.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from gateway.calls import Role
from gateway.steering.planner import Launch, Plan

EXTRA_ROLES = frozenset({Role.RACE, Role.HEDGE, Role.EXPLORE})  # these draw on the budget; replacing a failure does not


class Grid:
    """The launches of one race that have not happened yet. ``go`` is called at each launch a timer brings."""

    def __init__(
        self,
        plan: Plan,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        permit: Callable[[Launch], bool],
        go: Callable[[Launch], None],
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._permit = permit
        self._go: Callable[[Launch], None] | None = go
        self._loop = loop
        self._began = clock()
        self._timers: list[tuple[Launch, asyncio.TimerHandle]] = []
        self._candidates: deque[str] = deque(plan.rest)
        self._left: int | None = None  # launches still allowed, once the request itself was called wrong

    def open(self) -> list[Launch]:
        """Schedule what is for later; return what starts now."""
        now: list[Launch] = []
        for launch in self._plan.launches:
            if launch.delay_s > 0:
                self._schedule(launch)
            elif self._allowed(launch):
                now.append(launch)
        return now

    def close(self) -> None:
        """Launch nobody any more of one's own accord; those that were to come stand by."""
        for launch, timer in self._timers:
            timer.cancel()
            self._candidates.append(launch.deployment)
        self._timers.clear()

    def forget(self) -> None:
        """Let go of whoever is called at a launch: the race is over."""
        self._go = None

    def add(self, deployment: str) -> None:
        """Let ``deployment`` stand by, last."""
        self._candidates.append(deployment)

    def limit(self, launches: int) -> None:
        """Allow only so many launches more: the request itself may be wrong."""
        if self._left is None:
            self.close()
            self._left = launches

    def unlimit(self) -> None:
        """Take the limit back."""
        self._left = None

    def next(self) -> str | None:
        """Return who replaces an attempt that failed: the plan's own next first, then who stands by."""
        if self._left is not None:
            if self._left == 0:
                return None
            self._left -= 1
        if self._timers:
            launch, timer = self._timers.pop(0)
            timer.cancel()
            return launch.deployment
        return self._candidates.popleft() if self._candidates else None

    def _allowed(self, launch: Launch) -> bool:
        """Ask the budget. Who is refused stands by: as a rescue if the plan has those, else as a candidate."""
        if launch.role not in EXTRA_ROLES or self._permit(launch):
            return True
        if self._plan.rescue_s is not None:
            delay_s = max(launch.delay_s, self._plan.rescue_s)
            self._schedule(Launch(deployment=launch.deployment, delay_s=delay_s, role=Role.FAILOVER))
        else:
            self._candidates.append(launch.deployment)
        return False

    def _schedule(self, launch: Launch) -> None:
        timer = self._loop.call_later(self._began + launch.delay_s - self._clock(), self._fire, launch)
        self._timers.append((launch, timer))
        self._timers.sort(key=lambda pending: pending[1].when())

    def _fire(self, launch: Launch) -> None:
        self._timers = [pending for pending in self._timers if pending[0] is not launch]
        if self._go is not None and self._allowed(launch):
            self._go(launch)
