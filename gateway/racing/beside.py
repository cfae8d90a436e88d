"""Runs the race of another model beside that of a model whose answer is late. The first token wins.

No wait is timed out: the late model runs on, and may still win. Imported only where a call may fall back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

import msgspec

from gateway.core.attempts import Role
from gateway.core.calls import CallRecord
from gateway.core.errors import ApiError
from gateway.core.tasks import retrieve
from gateway.racing.attempts import cut_for
from gateway.racing.call import Broken, OpenCall, Unanswered
from gateway.racing.race import Phase
from gateway.steering import Plan

Ending = CallRecord | Unanswered | Broken


class Rival(Protocol):
    """A race of one model."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it runs in."""

    @property
    def phase(self) -> Phase:
        """Its phase."""

    @property
    def attempts(self) -> Sequence[Any]:
        """The attempts so far that may run on after their loss."""

    @property
    def is_rescued(self) -> bool:
        """Whether a rescue runs beside an attempt that hangs."""

    def stop(self, reason: type[ApiError]) -> None:
        """End it: another one records the call, which ends with this error."""

    def give_way(self, *, runs_on: bool) -> None:
        """End it without an answer: that of another model has won. ``runs_on``: its primary is audited."""

    def follow(self, attempts: Sequence[Any]) -> None:
        """Set the attempts of the late model beside which this one has won."""


class Lane(msgspec.Struct, frozen=True):
    """The race of one model; ``run`` runs it. It is late after ``late_s`` seconds; None: never."""

    race: Rival
    run: Callable[[], Awaitable[Ending]]
    late_s: float | None = None


def plan_beside(plan: Plan, late: str) -> Plan:
    """Return the plan of a model that runs beside the model ``late``: without the extra attempts of its start."""
    if not plan.launches:
        return plan
    first, *others = plan.launches
    later = [each for each in others if each.delay_s > 0]
    left = [each.deployment for each in others if each.delay_s <= 0]
    if (told := plan.explanation) is not None:
        starts = (
            msgspec.structs.replace(told.launches[0], role=Role.FALLBACK, audited=False, extra=True, why=Role.FALLBACK),
            *(each for each in told.launches[1:] if each.delay_s > 0),
        )
        notes = (*told.notes, f"asked beside model {late!r}, as its answer was late")
        told = msgspec.structs.replace(told, launches=starts, notes=notes, rest=(*left, *told.rest))
    return msgspec.structs.replace(
        plan,
        launches=(msgspec.structs.replace(first, role=Role.FALLBACK, audited=False), *later),
        rest=(*left, *plan.rest),
        explores=False,
        explanation=told,
    )


class Beside:
    """The races of one call's models, each begun when the one before it is late. Use once: ``await Beside(...).run()``.

    ``begin`` prepares the next model's race; it returns None if no model is left. ``on_won`` is called before the
    answer of a race begins that is not the first. ``runs_on`` decides whether the primary of a race that another model
    has overtaken runs on to its first token.
    """

    def __init__(
        self,
        open_call: OpenCall,
        first: Lane,
        *,
        begin: Callable[[], Coroutine[None, None, Lane | None]],
        on_won: Callable[[Rival], None],
        runs_on: Callable[[Rival], bool],
    ) -> None:
        self.unanswered: list[tuple[Rival, Unanswered]] = []  # the races that have failed, in this order
        self._open_call = open_call
        self._first = first
        self._begin = begin
        self._on_won = on_won
        self._runs_on = runs_on
        self._decided: Rival | None = None  # the one that has a first token, or ends the call with an error
        self._primary: Sequence[Any] = ()  # the attempts of the first race when it was late
        self._running: list[Rival] = [first.race]
        self._beginning: asyncio.Task[Lane | None] | None = None
        self._others: asyncio.Task[Ending] | None = None  # runs all races but the first

    async def run(self) -> Ending:
        """Run until one race has answered, or all have failed; return the end of the one that answered."""
        first = self._first
        timer = None if first.late_s is None else first.race.loop.call_later(first.late_s, self._late)
        try:
            ending = await first.run()
            if timer is not None:
                timer.cancel()
            self._running.remove(first.race)
            if self._decided is None and isinstance(ending, Unanswered):
                self.unanswered.append((first.race, ending))
            elif self._decided is None or self._decided is first.race:
                return ending
            return ending if self._others is None else await asyncio.shield(self._others)
        except BaseException:
            if self._others is not None:
                self._others.cancel()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            try:
                if self._others is not None:
                    await _until_done(self._others)
            finally:
                self._forget()

    def won(self, race: Rival) -> None:
        """Stop the other races: ``race`` has a first token."""
        if self._decided is not None:
            return
        self._decide(race)
        for other in self._running:
            if other is not race:
                other.give_way(runs_on=self._runs_on(other))
        if race is not self._first.race:
            race.follow(self._primary)
            self._on_won(race)

    def stop(self, race: Rival, reason: type[ApiError]) -> None:
        """Stop the other races: ``race`` ends the call with this error."""
        self._decide(race)
        for other in self._running:
            if other is not race:
                other.stop(reason)
        for attempt in self._primary:  # one that was overtaken may run on
            cut_for(attempt, reason)

    def _decide(self, race: Rival) -> None:
        self._decided = race
        if self._beginning is not None:
            self._beginning.cancel()

    def _is_decided(self) -> bool:
        return self._decided is not None

    def _late(self) -> None:
        """Begin the next model's race beside the first, unless that has a first token by now."""
        race = self._first.race
        if race.phase is Phase.RUNNING:
            self._primary, self._open_call.rivals = race.attempts, self
            self._others = race.loop.create_task(self._run_others())

    async def _run_others(self) -> Ending:
        """Run the other models' races, each beside those before it; return the end of the one that answered."""
        loop = self._first.race.loop
        lanes: dict[asyncio.Task[Ending], Rival] = {}
        try:
            while (lane := await self._next()) is not None and not self._is_decided():
                if self._running:  # else nobody was asked since the last of them has failed
                    self._open_call.unasked_since = self._open_call.services.clock()
                self._running.append(lane.race)
                task = loop.create_task(self._run(lane))
                lanes[task] = lane.race
                await asyncio.wait({task}, timeout=lane.late_s)
                if not self._running:  # then the causes of all failures decide which model is next
                    break
            if lanes:
                await asyncio.wait(lanes)
            return next((task.result() for task, race in lanes.items() if race is self._decided), Unanswered())
        finally:
            for task in lanes:
                task.cancel()
            if lanes:
                await asyncio.wait(lanes)
            for task in lanes:
                retrieve(task)
            lanes.clear()

    async def _next(self) -> Lane | None:
        """Return the next model's race; None if no model is left, or another race has its first token by now."""
        if self._is_decided():
            return None
        self._beginning = self._first.race.loop.create_task(self._begin())
        try:
            await asyncio.wait({self._beginning})
            return None if self._beginning.cancelled() else self._beginning.result()
        finally:
            await _ended(self._beginning)
            self._beginning = None

    async def _run(self, lane: Lane) -> Ending:
        ending = await lane.run()
        if lane.race in self._running:
            self._running.remove(lane.race)
        if self._decided is None and isinstance(ending, Unanswered):
            self.unanswered.append((lane.race, ending))
        return ending

    def _forget(self) -> None:
        """Break the reference cycles."""
        self._open_call.rivals = None
        self._running.clear()
        self._primary = ()
        self._decided = self._others = None


async def _ended(task: asyncio.Task[Lane | None]) -> None:
    """Cancel a task and await it."""
    task.cancel()
    await asyncio.wait({task})
    retrieve(task)


async def _until_done(task: asyncio.Task[Ending]) -> None:
    """Await a task that ends by itself; cancel it if the caller is cancelled meanwhile."""
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise
    finally:
        if task.done():
            retrieve(task)
