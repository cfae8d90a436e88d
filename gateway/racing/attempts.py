"""The attempts of one race: launches, cuts, audits and waits for them."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec

from gateway.core.attempts import AttemptStart, Outcome, Role
from gateway.core.errors import ApiError, ClientDisconnected, CutByExpiry, CutByRevocation
from gateway.fleet.models import Model
from gateway.racing.attempt import ACTIVE, UNAWAITED, Attempt, RaceHandle, State
from gateway.racing.call import OpenCall
from gateway.racing.measurement import AUDIT_S, Measurement, Overtaken
from gateway.racing.slots import Seat
from gateway.racing.validation import flaw_rank
from gateway.steering import Launch, Plan
from providers.dialects import Dialect

# The rival that runs on behind the winner (``race.keep_rival``): it answers if the winner breaks.
#
#     NOBODY ──► BEHIND ──► CALLED         the winner has broken; it is an attempt like any other again
#                  │
#                  └──────► DISMISSED      the winner's answer is whole, or the rival cannot answer any more
#
# Only whole answers have one: of a stream the client has a part already. It began as any extra attempt did, under the
# same limits, which count a whole answer for each.

_MAY_ANSWER = frozenset({State.ASKED, State.HELD})
_MAY_BID = ACTIVE - {State.EMPTY}


class Place(Enum):
    """Where the rival is."""

    NOBODY = "nobody"  # no attempt has won yet, or the winner ran alone
    BEHIND = "behind"
    CALLED = "called"
    DISMISSED = "dismissed"


class Runner(Protocol):
    """The fields of an attempt on which its place depends."""

    start: AttemptStart
    state: State
    measurement: Measurement


_A = TypeVar("_A", bound=Runner)


class Rival(Generic[_A]):
    """At most one attempt of a race, chosen at the first claim."""

    __slots__ = ("_attempt", "_kept", "place")

    def __init__(self) -> None:
        self.place = Place.NOBODY
        self._attempt: _A | None = None
        self._kept: str | None = None  # its attempt's id, known also when the race is over

    def choose(self, losers: Iterable[_A]) -> _A | None:
        """Choose who runs on, at the first claim: who has a first token, else who was launched first."""
        able = [loser for loser in losers if loser.state in _MAY_ANSWER]
        if self.place is not Place.NOBODY or not able:
            return None
        chosen = min(able, key=lambda each: (each.measurement.first_at is None, each.start.number))
        self.place, self._attempt, self._kept = Place.BEHIND, chosen, chosen.start.id
        return chosen

    def is_behind(self, attempt: _A) -> bool:
        """Whether ``attempt`` runs on behind the winner."""
        return self.place is Place.BEHIND and attempt is self._attempt

    def was_kept(self, attempt: _A) -> bool:
        """Whether ``attempt`` has run on, whatever came of it."""
        return self._kept == attempt.start.id

    def call(self) -> _A | None:
        """Return the rival, as the winner has broken; None if it cannot answer."""
        found = self._attempt if self.place is Place.BEHIND else None
        if found is not None and found.state not in _MAY_ANSWER:
            found = None
        self._leave(Place.DISMISSED if found is None else Place.CALLED)
        return found

    def dismiss(self) -> _A | None:
        """Return the rival if it still runs behind the winner, which does not need it any more."""
        found = self._attempt if self.place is Place.BEHIND else None
        self._leave(Place.DISMISSED)
        return found

    def _leave(self, place: Place) -> None:
        if self.place is Place.BEHIND:
            self.place = place
        self._attempt = None


class Attempts:
    """The attempts that a race has launched."""

    def __init__(self, open_call: OpenCall, model: Model, plan: Plan, race: RaceHandle[Attempt]) -> None:
        self._open_call = open_call
        self._model = model
        self._plan = plan
        self._race: RaceHandle[Attempt] | None = race
        self._limits_s: dict[str, float] = {}  # watch times that differ from the usual, by attempt id
        open_call.use_model(model)
        self.empty: dict[Attempt, asyncio.Future[None]] = {}  # empty or invalid: win only when no other runs
        self.all: list[Attempt] = []  # in the order of launch
        is_kept = model.race.keep_rival and not open_call.call.streamed
        self._rival: Rival[Attempt] | None = Rival() if is_kept else None

    @property
    def active(self) -> list[Attempt]:
        """Those that may answer, or do."""
        return [attempt for attempt in self.all if attempt.state in ACTIVE]

    @property
    def asked(self) -> set[str]:
        """The deployments that were asked."""
        return {attempt.deployment.name for attempt in self.all}

    @property
    def watched(self) -> bool:
        """Whether any loser is still watched."""
        return any(attempt.state is State.WATCHED for attempt in self.all)

    def is_last(self, attempt: Attempt, dialect: Dialect) -> bool:
        """Whether nothing reads the prompt, of this ``dialect``, any more once the answer of ``attempt`` streams."""
        return attempt.deployment.spoken_to(dialect) is dialect and (len(self.all) == 1 or not self.watched)

    def others(self, attempt: Attempt) -> list[Attempt]:
        """Return the attempts that may still bid besides ``attempt``."""
        return [other for other in self.all if other is not attempt and other.state in _MAY_BID]

    def is_late(self, name: str) -> bool:
        """Whether it is too late to launch ``name``. A single attempt that hung for its whole clock is replaced."""
        age_s = self._open_call.services.clock() - self._open_call.call.received_at
        return len(self.all) > 1 and age_s >= self._model.deployments[name].clocks.ttft_s

    def begin(self, launches: Iterable[Launch]) -> bool:
        """Announce the call and launch its first attempts: the primary and those with it. Return whether there are any.

        Each takes its seat before the next launch is taken.
        """
        first = [self._prepare(launch) for launch in launches]
        if first:
            self._open_call.begin([attempt.start for attempt in first])
        self._ask(first)
        return bool(first)

    def launch(self, launch: Launch) -> None:
        """Launch one more attempt."""
        self._ask([self._prepare(launch)])

    def launch_extra(self, launch: Launch | None) -> bool:
        """Launch one more besides an invalid answer, which is paid for; return whether there is one to launch."""
        if launch is not None:
            self.launch(launch)
        return launch is not None

    def launch_next(self, name: str) -> None:
        """Launch ``name`` first, or to replace a failed one."""
        first = self._plan.launches[0]
        if first.role is Role.TAKEOVER:  # whoever is asked is to go on
            self.launch(msgspec.structs.replace(first, deployment=name))
        elif self.all:
            self.launch(Launch(deployment=name, delay_s=0.0, role=Role.FAILOVER))
        else:
            self.begin([Launch(name, 0.0, Role.PRIMARY, first.audited)])

    def overtaken(self, winner: Attempt, now: float) -> list[Attempt]:
        """Cut or watch all attempts but the ``winner``, at its claim; return them. A rival may run on."""
        losers = [attempt for attempt in self.all if attempt is not winner and attempt.state in ACTIVE]
        rival = None if self._rival is None else self._rival.choose(losers)
        for loser in losers:
            if loser is not rival:
                self.let_go(loser)
            if loser.token_at() is None:
                loser.overtaken = Overtaken(now, self._expected_s(loser, now))
        return losers if rival is None else [loser for loser in losers if loser is not rival]

    def is_behind(self, attempt: Attempt) -> bool:
        """Whether it runs on behind the winner, and answers if that breaks."""
        return self._rival is not None and self._rival.is_behind(attempt)

    def was_kept(self, attempt: Attempt) -> bool | None:
        """Whether it has run on behind a winner; None where none may."""
        return None if self._rival is None else self._rival.was_kept(attempt)

    def call_rival(self, release: Callable[[Attempt], None]) -> bool:
        """Let the rival answer, as the winner has broken: one that has its first token by ``release``, at once.

        Returns whether there is one.
        """
        rival = None if self._rival is None else self._rival.call()
        if rival is None:
            return False
        rival.overtaken = None  # by nobody who answers
        if rival.state is State.HELD:
            release(rival)
        return True

    def dismiss_rival(self) -> None:
        """Cut or watch the rival: the winner's answer is whole."""
        rival = None if self._rival is None else self._rival.dismiss()
        if rival is not None and rival.state in ACTIVE:
            self.let_go(rival)

    def let_go(self, loser: Attempt) -> None:
        """Cut a loser, or watch it if it is audited."""
        explores = self._plan.explores
        is_watched = loser.start.audited and loser.state is not State.EMPTY and loser.task is not None
        if is_watched and (explores or loser.token_at() is None):
            loser.audit(speed=explores, limit_s=self._limits_s.get(loser.start.id, AUDIT_S))
            if loser.task is not None:
                self._open_call.held_by(loser.task)
        else:
            loser.cut(Outcome.LOST)

    async def alone(self, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until only such answers as that of ``attempt`` are left: empty, or invalid."""
        self.empty[attempt] = loop.create_future()
        self.wake_empty()
        await self.empty[attempt]

    def wake_empty(self) -> None:
        """Let the best of the empty or invalid answers win, if no other attempt runs. One may have won and failed."""
        waiting = [attempt for attempt in self.empty if attempt.state in ACTIVE]
        if waiting and all(attempt in self.empty for attempt in self.active):
            future = self.empty[min(waiting, key=lambda attempt: flaw_rank(attempt.flaw()))]
            if not future.done():
                future.set_result(None)

    def abandon(self, reason: type[ApiError]) -> None:
        """Cut all attempts: the client has gone or was cut, or the gateway stops or has a bug.

        Audits go on if the client leaves: otherwise clients would bias the sample of losers. They end with the key.
        """
        gone = issubclass(reason, ClientDisconnected)
        may_go_on = gone and not issubclass(reason, CutByRevocation | CutByExpiry)
        for attempt in self.all:
            if attempt.state in ACTIVE or (attempt.state is State.WATCHED and not may_go_on):
                attempt.cut(Outcome.CLIENT_GONE if gone else Outcome.INTERRUPTED)

    async def reap(self) -> None:
        """Await all tasks except those of watched losers and of a winner that drains its connection."""
        running: list[asyncio.Task[None]] = []
        for attempt in self.all:
            if attempt.state in UNAWAITED:
                continue
            if attempt.task is None:  # it has ended, or a bug prevented its start
                if attempt.seat is not None:
                    attempt.seat.give_back()
            elif not attempt.task.done():
                running.append(attempt.task)
        if running:
            await asyncio.wait(running)

    def forget(self) -> None:
        """Release all attempts; a watched one is kept alive by its task."""
        self.all.clear()
        self.empty.clear()
        if self._rival is not None:
            self._rival.dismiss()
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

    def _ask(self, attempts: Sequence[Attempt]) -> None:
        """Start the tasks of attempts. Recorders are told of the launches when all requests are on their way."""
        assert self._race is not None
        services, loop, call = self._open_call.services, self._race.loop, self._open_call.call
        try:
            for attempt in attempts:
                attempt.started(services.tasks.start(attempt.run(), attempt, loop))
        finally:
            for attempt in attempts:
                services.outbox.add(services.recorder.attempt_started, call, attempt.start)

    def _expected_s(self, loser: Attempt, now: float) -> float | None:
        """Return the predicted time to first token of the primary, in seconds; None in exploring races."""
        primary = self._plan.primary
        if primary is None or self._plan.explores or loser.start.number > 1:
            return None
        return primary.expected_s(now - loser.measurement.started)
