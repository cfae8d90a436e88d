"""Whom a model in a race asks, and when: the pending launches, the candidates for failover, and the wait for a seat.

``LaunchSchedule`` decides, without I/O: from the time and from what has happened, what is to be launched. A
launch that is refused, and every other deployment of the plan, becomes a candidate that can replace a failed attempt.
The entry of the model launches, and has one timer, for the time when the next launch is due.
"""

import asyncio
from bisect import insort_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from gateway.core.attempts import Role
from gateway.fleet import Deployment
from gateway.racing.attempts import Attempts
from gateway.racing.call import OpenCall
from gateway.racing.seats import Line
from gateway.steering import STRATEGIES, Launch, Plan, Speaking
from providers import OfCall

if TYPE_CHECKING:
    from gateway.racing.seats import Wait

EXTRA_ROLES = frozenset({Role.RACE, Role.HEDGE, Role.EXPLORE})  # these use the budget; replacing a failure does not

_BESIDE = frozenset({Role.FAILOVER, Role.PROBE})  # planned in these roles, a launch needs no budget

RETRIED_AFTER_S = 1.0  # a refused rescue is tried again after this time at the soonest
_SLACK_S = 0.001  # rescues that are nearly as far apart as planned are not moved

_DUE = itemgetter(0, 1)


class LaunchSchedule:
    """The pending launches and the candidates of one model in a race, as a value without timers or tasks.

    ``now`` is always a time of the race's clock, in seconds. For example, of a primary, a hedge 0.3 s later and one
    deployment more, with a ``rescue_s`` of 2 s, ``open(now)`` yields the primary, and ``due_at`` is 0.3 s later. Then
    ``due`` yields the hedge, if the purse pays for it; else the hedge is a rescue, due 2 s after the start.

    ``may_launch`` returns whether the budget allows an extra launch; probes are only counted. ``on_seat_refused`` is
    told each extra launch that gets no seat.
    """

    # When the last launch that had to wait for a speaking attempt was planned, and when that launch is due now, in
    # seconds after the start: (0.3, 1.1). None: no launch has waited.
    _waited: tuple[float, float] | None = None
    # When the last rescue that was launched was planned and due. None: no rescue was launched.
    _rescued: tuple[float, float] | None = None

    def __init__(
        self,
        plan: Plan,
        *,
        now: float,
        may_launch: Callable[[Launch], bool],
        lines: Mapping[str, Line],
        on_seat_refused: Callable[[Launch], None],
        sent: OfCall,
    ) -> None:
        self._plan = plan
        self._sent = sent
        self._may_launch = may_launch
        self._lines = lines  # of the deployments with max_in_flight
        self._on_seat_refused = on_seat_refused
        self._began = now
        # When each is due and was planned, in seconds after the start, and the launch: the next one first.
        self.pending: list[tuple[float, float, Launch]] = []
        self._candidates: list[str] = list(plan.rest)  # short, so a list: a deque takes 760 bytes
        self.withheld_at: float | None = None  # when a hedge is due for which no deployment is left
        self._left: int | None = None  # launches still allowed, after a provider has called the request invalid

    @property
    def due_at(self) -> float | None:
        """When ``due`` is to be asked next; None: nothing is pending."""
        pending, withheld_at = self.pending, self.withheld_at
        if not pending:
            return withheld_at
        return pending[0][0] if withheld_at is None else min(pending[0][0], withheld_at)

    @property
    def is_over(self) -> bool:
        """Whether no other deployment is asked: the request is wrong, or the call may make no more requests."""
        return self._left == 0 or self._sent.left <= 0

    @property
    def has_next(self) -> bool:
        """Whether a deployment with a free seat may be asked in place of one that has failed."""
        return self._chosen() is not None

    @property
    def is_in_turn(self) -> bool:
        """Whether deployments are tried one after the other: then the next attempt is no extra one."""
        return STRATEGIES[self._plan.mode].in_turn

    def open(self, now: float, most: int | None = None) -> Iterator[Launch]:
        """Yield the launches due now. A launch must have its seat before the next launch is requested.

        ``most``: the number to launch; the other launches become candidates.
        """
        launches: Sequence[Launch] = self._plan.launches
        if most is not None and len(launches) > most:
            self._candidates[:0] = [launch.deployment for launch in launches[most:]]
            launches = launches[:most]
        if launches and self._lines and not self._has_room(launches[0].deployment):
            launches = self._without_the_full(launches)
        for launch in launches:
            if launch.delay_s > 0:
                self._put(launch, launch.delay_s)
            elif self._allowed(launch, 0.0, None):
                yield launch
        if (withheld := self._plan.withheld) is not None:
            self.withheld_at = now + withheld.delay_s

    def due(self, now: float, spoke_at: float | None) -> Iterator[Launch | None]:
        """Yield each launch that is due. None: a rescue's deployment has no free seat, so another one is to be asked.

        ``spoke_at``: when the latest of the running attempts began to speak; None: none has begun.
        """
        if self.withheld_at is not None and self.withheld_at <= now and self._plan.withheld is not None:
            self.withheld_at = None
            self._may_launch(self._plan.withheld)
        while self.pending and self.pending[0][0] <= now:
            due_at, _, launch = self.pending.pop(0)
            due_s = due_at - self._began
            if self._sent.left <= 0:
                continue
            if launch.speaking is not None and self._waits(now, launch, launch.speaking, spoke_at):
                continue
            if launch.role is Role.FAILOVER and self._keeps_its_distance(launch, due_s):
                continue
            if self._allowed(launch, due_s, spoke_at):
                if launch.role is Role.FAILOVER:
                    self._rescued = launch.delay_s, due_s
                yield launch
            elif launch.role not in EXTRA_ROLES and not self._has_room(launch.deployment):
                yield None
            if launch.role is Role.FAILOVER and not self.pending:
                self.schedule_rescues(now)

    def close(self) -> None:
        """Launch nothing that is pending; its deployments become the first candidates for failover."""
        self.withheld_at = None
        self._candidates[:0] = [launch.deployment for *_, launch in self.pending]
        self.pending.clear()

    def add(self, deployment: str) -> None:
        """Add ``deployment`` as the last candidate."""
        self._candidates.append(deployment)

    def limit(self, launches: int) -> None:
        """Allow only this many further launches: the request itself may be invalid."""
        if self._left is None:
            self.close()
            self._left = launches

    def longer_than(self, deployment: Deployment, contexts: Mapping[str, int | None]) -> None:
        """Leave out deployments without a longer context than ``deployment``, for which the prompt is too long.

        The deployment with the longest of ``contexts`` is asked first; those of unknown length stay, and come last.
        """
        self.close()
        least = deployment.capabilities.context_tokens or 0
        able = [name for name in self._candidates if (context := contexts.get(name)) is None or context > least]
        self._candidates = sorted(able, key=lambda name: -(contexts.get(name) or 0))

    def others_first(self, provider: str) -> None:
        """Move the deployments of other providers to the front of the candidates."""
        self._candidates.sort(key=lambda name: name.partition("/")[0] == provider)

    def unlimit(self) -> None:
        """Remove the limit."""
        self._left = None

    def next(self, *, last_resort: bool = False) -> str | None:
        """Return the deployment that replaces a failed attempt: the plan's next launch first, then the candidates.

        Deployments without a free seat are skipped. While the race can wait for a healthy one, unhealthy ones are used
        only as a ``last_resort``.
        """
        name = self._chosen(last_resort=last_resort)
        if name is not None:
            self._take(name)
        return name

    def beside(self, role: Role) -> Launch | None:
        """Return an extra launch beside an attempt whose answer is unusable, or that is silent; None if there is none.

        The launch uses the budget. If the budget refuses, a candidate stays a candidate, and a rescue pending.
        """
        name = self._chosen()
        if name is None:
            return None
        launch = Launch(deployment=name, delay_s=0.0, role=role)
        if not self._may_launch(launch):
            return None
        self._take(name)
        return launch

    def full(self) -> tuple[str, ...]:
        """Return the deployments to wait for: healthy candidates without a free seat."""
        if self.is_over or not self._lines:
            return ()
        tripped = self._plan.tripped
        return tuple(name for name in self._standing_by() if name not in tripped and not self._has_room(name))

    def slot_found(self, now: float, deployment: str, *, alone: bool) -> bool:
        """Remove ``deployment``, which has a free seat now, from the candidates; return whether it may be asked.

        If ``deployment`` runs ``alone``, and nothing else is to be launched, schedule rescues.
        """
        self._remove(deployment)
        if self.is_over:
            return False
        if self._left is not None:
            self._left -= 1
        if alone and not self.pending:
            self.schedule_rescues(now)
        return True

    def schedule_rescues(self, now: float) -> None:
        """Make the next rescue pending: the deployment asked now may hang, and no launch of the plan is left.

        One more rescue starts each ``rescue_s`` until one answers, or no deployment is left. None starts if the request
        itself may be invalid.
        """
        if self._plan.rescue_s is None or self._left is not None:
            return
        self._began, self._rescued = now, None
        if (name := next(iter(self._standing_by()), None)) is not None:
            self._remove(name)
            self._put(Launch(name, self._plan.rescue_s, Role.FAILOVER), self._plan.rescue_s)

    def _chosen(self, *, last_resort: bool = False) -> str | None:
        """Return the next deployment, without removing it."""
        if self.is_over:
            return None
        if not self._lines:
            return self.pending[0][-1].deployment if self.pending else next(iter(self._candidates), None)
        standing_by, tripped = self._standing_by(), self._plan.tripped
        free = [name for name in standing_by if self._has_room(name)]
        well = [name for name in free if name not in tripped]
        if not well and not last_resort and self.full():
            return None
        return next(iter(well or free), None)

    def _take(self, name: str) -> None:
        self._remove(name)
        if self._left is not None:
            self._left -= 1

    def _standing_by(self) -> Sequence[str]:
        """Return all candidates, pending launches included, in order and without duplicates."""
        return tuple(dict.fromkeys([*(launch.deployment for *_, launch in self.pending), *self._candidates]))

    def _remove(self, deployment: str) -> None:
        """Remove ``deployment`` from the candidates, once."""
        for number, (*_, launch) in enumerate(self.pending):
            if launch.deployment == deployment:
                del self.pending[number]
                return
        if deployment in self._candidates:
            self._candidates.remove(deployment)

    def _has_room(self, deployment: str) -> bool:
        line = self._lines.get(deployment)
        return line is None or line.has_room

    def _without_the_full(self, launches: Sequence[Launch]) -> Sequence[Launch]:
        """Return ``launches`` with a primary that has a free seat, swapped with the planned one; none if all are full.

        A deployment that is left out becomes a candidate.
        """
        primary, *others = launches
        self._candidates[:0] = [launch.deployment for launch in launches]
        name = self.next()
        if name is None:
            for launch in others:
                if launch.delay_s <= 0 and launch.role in EXTRA_ROLES:
                    self._on_seat_refused(launch)
            return ()
        full = primary.deployment
        others = [
            msgspec.structs.replace(each, deployment=full) if each.deployment == name else each for each in others
        ]
        for launch in others:
            self._remove(launch.deployment)
        return [msgspec.structs.replace(primary, deployment=name), *others]

    def _allowed(self, launch: Launch, due_s: float, spoke_at: float | None) -> bool:
        """Check that there is a seat and, for extra launches, the budget, for a launch that is due.

        A refused launch becomes a candidate, or a rescue if it is an extra launch and the plan has rescues.
        """
        line = self._lines.get(launch.deployment) if self._lines else None
        if launch.role not in EXTRA_ROLES:
            if line is None or line.has_room:
                if launch.role not in _BESIDE or self._may_launch(launch):
                    return True
                # Too many calls were rescued lately: this rescue waits until fewer were, or the first attempt fails.
                self._put(launch, due_s + max(RETRIED_AFTER_S, self._plan.rescue_s or 0.0))
                return False
        elif line is not None and not line.has_room_for_extra:
            self._on_seat_refused(launch)
        elif self._may_launch(launch):
            return True
        if launch.role in EXTRA_ROLES and self._plan.rescue_s is not None:
            # A rescue is for a call that hangs: not for one in which an attempt has just begun to speak.
            silent_since_s = 0.0 if spoke_at is None else spoke_at - self._began
            rescue = Launch(launch.deployment, launch.delay_s, Role.FAILOVER)
            self._put(rescue, max(due_s, silent_since_s + self._plan.rescue_s))
        else:
            self._candidates.append(launch.deployment)
        return False

    def _put(self, launch: Launch, due_s: float) -> None:
        """Make a launch pending, due ``due_s`` after the start; at equal times, those planned sooner come first."""
        insort_right(self.pending, (self._began + due_s, launch.delay_s, launch), key=_DUE)

    def _keeps_its_distance(self, launch: Launch, due_s: float) -> bool:
        """Have a rescue wait if it is due too soon after the last rescue; return whether the rescue waits.

        Two rescues are as far apart as in the plan. For example, the plan has a rescue at 2 s, and a hedge that the
        budget refused became a rescue at 2 s: then the planned one waits.
        """
        if self._rescued is None:
            return False
        planned_s, rescued_s = self._rescued
        wait_s = rescued_s + (launch.delay_s - planned_s or self._plan.rescue_s or 0.0) - due_s
        if wait_s <= _SLACK_S:
            return False
        self._put(launch, due_s + wait_s)
        return True

    def _waits(self, now: float, launch: Launch, speaking: Speaking, spoke_at: float | None) -> bool:
        """Make a launch pending once more if an attempt has begun to speak; return whether it is pending.

        Launches that wait for the same attempt are as far apart as in the plan, which assumes a silent attempt.
        """
        if spoke_at is None:
            return False
        delay_s = max(speaking.at_s, spoke_at - self._began + speaking.after_s)
        if self._waited is not None:
            silent_s, waited_s = self._waited
            delay_s = max(delay_s, waited_s + launch.delay_s - silent_s)
        if delay_s <= now - self._began:
            return False
        self._waited = launch.delay_s, delay_s
        self._put(msgspec.structs.replace(launch, speaking=None), delay_s)
        return True


# Waits for a seat while the deployments that may still be asked are full.


class SeatWait:
    """The wait of one race for the first free seat.

    ``seated`` is called with a deployment that has a seat for this call, ``fail`` if no seat is free in time.
    """

    __slots__ = ("_attempts", "_fail", "_launch", "_loop", "_open_call", "_schedule", "_wait")

    def __init__(
        self,
        open_call: OpenCall,
        schedule: LaunchSchedule,
        attempts: Attempts,
        *,
        fail: Callable[[], None],
        seated: Callable[[str], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._open_call = open_call
        self._schedule = schedule
        self._attempts = attempts
        self._fail: Callable[[], None] | None = fail
        self._launch: Callable[[str], None] | None = seated
        self._loop = loop
        self._wait: Wait | None = None  # made when first needed

    def line_up(self) -> bool:
        """Wait for the first free seat of any remaining deployment; return whether an attempt runs or waits."""
        names = self._schedule.full()
        if not names:
            return False
        if self._wait is None:
            self._wait = self._open_call.wait(seated=self._seated, timed_out=self._timed_out, loop=self._loop)
        self._wait.line_up(names)
        return bool(self._attempts.active) or self._wait.start_clock() or self._take_last_resort()

    def leave(self) -> None:
        """Stop waiting for seats."""
        if self._wait is not None:
            self._wait.leave()

    def forget(self) -> None:
        """Release the callbacks: the race is over."""
        if self._wait is not None:
            self._open_call.waited(self._wait)
            self._wait = None
        self._fail = self._launch = None

    def _take_last_resort(self) -> bool:
        if (name := self._schedule.next(last_resort=True)) is not None:
            self._attempts.launch_next(name)
        return name is not None

    def _seated(self, name: str) -> None:
        now, alone = self._open_call.services.clock(), not self._attempts.active
        if self._schedule.slot_found(now, name, alone=alone) and self._launch is not None:
            self._launch(name)

    def _timed_out(self) -> None:
        """Handle a wait without success: launch a last resort, else end the race."""
        if self._attempts.active:  # a rescue was launched meanwhile
            self.line_up()
        elif not self._take_last_resort() and self._fail is not None:
            self._fail()
