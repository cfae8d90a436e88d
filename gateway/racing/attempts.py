"""The attempts of one race: launched, cut, watched and awaited."""

import asyncio
from collections.abc import Iterable

from gateway.attempt_records import Outcome
from gateway.errors import ApiError, ClientDisconnected
from gateway.fleet.model import Model
from gateway.racing.attempt import Attempt
from gateway.racing.attempt_state import ACTIVE, UNAWAITED, State
from gateway.racing.course import Course
from gateway.racing.open_call import OpenCall
from gateway.racing.seats import Seat
from gateway.racing.watch import AUDIT_S, Overtaken
from gateway.steering.plans import Launch, Plan


class Attempts:
    """What a race has launched."""

    def __init__(self, open_call: OpenCall, model: Model, plan: Plan, race: Course[Attempt]) -> None:
        self._open_call = open_call
        self._model = model
        self._plan = plan
        self._race: Course[Attempt] | None = race
        self._limits_s: dict[str, float] = {}  # of those that are watched for another time than usual, by their ids
        open_call.asks(model)
        self.all: list[Attempt] = []  # in the order of their launch

    @property
    def active(self) -> list[Attempt]:
        """Those that may answer, or do."""
        return [attempt for attempt in self.all if attempt.state in ACTIVE]

    @property
    def watched(self) -> bool:
        """Whether there are losers that are read on."""
        return any(attempt.state is State.WATCHED for attempt in self.all)

    def others(self, attempt: Attempt) -> list[Attempt]:
        """Return who may still bid beside ``attempt``."""
        return [other for other in self.active if other is not attempt and other.state is not State.EMPTY]

    def is_late(self, name: str) -> bool:
        """Tell whether it is too late to ask ``name``; whoever hung through the whole clock alone is replaced once."""
        age_s = self._open_call.services.clock() - self._open_call.call.received_at
        return len(self.all) > 1 and age_s >= self._model.deployments[name].clocks.ttft_s

    def begin(self, launches: Iterable[Launch]) -> bool:
        """Tell of the call, and ask the first: the primary, and who starts beside it. Return whether there is any.

        Each has its seat before the next launch is asked for.
        """
        first = [self._prepare(launch) for launch in launches]
        if first:
            self._open_call.begin([attempt.start for attempt in first])
        for attempt in first:
            self._ask(attempt)
        return bool(first)

    def launch(self, launch: Launch) -> None:
        """Ask one more."""
        self._ask(self._prepare(launch))

    def overtaken(self, winner: Attempt, now: float) -> list[Attempt]:
        """Let go of everybody but the ``winner``, at the instant of its claim; return them."""
        losers = [attempt for attempt in self.active if attempt is not winner]
        for loser in losers:
            if loser.token_at() is None:
                loser.overtaken = Overtaken(now, self._expected_s(loser, now))
            self.let_go(loser)
        return losers

    def let_go(self, loser: Attempt) -> None:
        """Cut a loser, or watch it if it is audited."""
        explores = self._plan.explores
        is_watched = loser.start.audited and loser.state is not State.EMPTY and loser.task is not None
        if is_watched and (explores or loser.token_at() is None):
            loser.audit(speed=explores, limit_s=self._limits_s.get(loser.start.id, AUDIT_S))
            if loser.task is not None:
                self._open_call.holds_fleet(loser.task)
        else:
            loser.cut(Outcome.LOST)

    def abandon(self, reason: type[ApiError]) -> None:
        """Cut all: the client has gone, or the gateway stops or is at fault.

        A client's leaving ends no audit: who leaves, and when, must not choose what is seen of losers.
        """
        gone = issubclass(reason, ClientDisconnected)
        for attempt in self.all:
            if attempt.state in ACTIVE or (attempt.state is State.WATCHED and not gone):
                attempt.cut(Outcome.CLIENT_GONE if gone else Outcome.INTERRUPTED)

    async def reap(self) -> None:
        """Await every task but those nobody need wait for: of watched losers, and of a winner that drains."""
        running: list[asyncio.Task[None]] = []
        for attempt in self.all:
            if attempt.state in UNAWAITED:
                continue
            if attempt.task is None:  # it has ended, or a defect kept it from being started
                if attempt.seat is not None:
                    attempt.seat.give_back()
            elif not attempt.task.done():
                running.append(attempt.task)
        if running:
            await asyncio.wait(running)

    def forget(self) -> None:
        """Let go of all; one that is watched is kept by its task."""
        self.all.clear()
        self._race = None

    def _prepare(self, launch: Launch) -> Attempt:
        assert self._race is not None
        open_call, deployment = self._open_call, self._model.deployments[launch.deployment]
        now, lines = open_call.services.clock(), open_call.services.seats.lines
        start = open_call.launch(deployment, launch.role, now=now, audited=launch.audited)
        attempt = Attempt(self._race, deployment, start, now)
        if launch.watch_s is not None:
            self._limits_s[start.id] = launch.watch_s
        if lines and (line := lines.get(launch.deployment)) is not None:
            attempt.seat = Seat(line)
        self.all.append(attempt)
        return attempt

    def _ask(self, attempt: Attempt) -> None:
        """Start the task of an attempt."""
        assert self._race is not None
        services, loop = self._open_call.services, self._race.loop
        services.recorder.attempt_started(self._open_call.call.model, attempt.start)
        attempt.started(services.tasks.start(attempt.run(), attempt.deployment.name, loop))

    def _expected_s(self, loser: Attempt, now: float) -> float | None:
        """Return when the first token of the call's primary was to be expected; None in exploring races."""
        primary = self._plan.primary
        if primary is None or self._plan.explores or loser.start.number > 1:
            return None
        return primary.expected_s(now - loser.measurement.started)
