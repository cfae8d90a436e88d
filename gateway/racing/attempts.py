"""The attempts of one model in a race: how they are launched, watched and waited for."""

import asyncio
from collections.abc import Iterable, Sequence
from operator import attrgetter

import msgspec

from gateway.core.attempts import REPEATING, AttemptStart, Outcome, Role
from gateway.core.calls import Call
from gateway.core.errors import ApiError, ClientDisconnected, CutByExpiry, CutByRevocation
from gateway.fleet import Model
from gateway.racing.attempt import ACTIVE, RUNNING, UNAWAITED, Attempt, AttemptState, EntryHandle
from gateway.racing.call import OpenCall
from gateway.racing.measurement import AUDIT_S
from gateway.racing.seats import Seat
from gateway.racing.validation import flaw_rank
from gateway.steering import Launch, Plan

_STATE, _START = attrgetter("state"), attrgetter("start")


def audits_go_on(reason: type[ApiError]) -> bool:
    """Whether audits of a call that ends for ``reason`` go on.

    Audits go on if the client leaves: audits that ended then would bias the sample of losers. A key that ends, ends
    the audits of its calls.
    """
    return issubclass(reason, ClientDisconnected) and not issubclass(reason, CutByRevocation | CutByExpiry)


def cut_for(attempt: Attempt, reason: type[ApiError]) -> None:
    """Cut an attempt of a call that ends for ``reason``."""
    if attempt.state in ACTIVE or (attempt.state is AttemptState.WATCHED and not audits_go_on(reason)):
        attempt.cut(Outcome.CLIENT_GONE if issubclass(reason, ClientDisconnected) else Outcome.INTERRUPTED)


class Attempts:
    """The attempts that a race has launched."""

    def __init__(self, open_call: OpenCall, model: Model, plan: Plan, entry: EntryHandle[Attempt]) -> None:
        self._open_call = open_call
        self._model = model
        self._plan = plan
        self._entry: EntryHandle[Attempt] | None = entry
        self._limits_s: dict[str, float] = {}  # watch times that differ from the usual, by attempt id
        open_call.use_model(model)
        self.empty: dict[Attempt, asyncio.Future[None]] = {}  # with empty or invalid answers
        self.all: list[Attempt] = []  # in the order of launch
        self.excused: set[Attempt] = set()  # attempts that failed without a timeout, or lost to a first token

    @property
    def active(self) -> list[Attempt]:
        """The attempts that may answer, or are answering."""
        return [attempt for attempt in self.all if attempt.state in ACTIVE]

    def spoke_at(self) -> float | None:
        """Return when the last attempt to begin to speak did so; None if no running attempt has begun."""
        begun = (attempt.measurement.answer_at for attempt in self.active)
        return max((at for at in begun if at is not None), default=None)

    @property
    def asked(self) -> set[str]:
        """The deployments that had an attempt."""
        return {attempt.deployment.name for attempt in self.all}

    @property
    def contexts(self) -> dict[str, int | None]:
        """The context of each deployment in tokens; None: unknown."""
        return {name: each.capabilities.context_tokens for name, each in self._model.deployments.items()}

    @property
    def watched(self) -> bool:
        """Whether any loser is still watched."""
        return AttemptState.WATCHED in map(_STATE, self.all)

    def is_last(self, attempt: Attempt, call: Call) -> bool:
        """Whether the prompt of ``call`` is not needed any more once the answer of ``attempt`` streams."""
        return attempt.deployment.spoken_in(call) is call.request.dialect and (len(self.all) == 1 or not self.watched)

    def others(self, attempt: Attempt) -> list[Attempt]:
        """Return the attempts that may still bid besides ``attempt``."""
        return [other for other in self.all if other is not attempt and other.state in RUNNING]

    def is_late(self, name: str) -> bool:
        """Whether it is too late to launch ``name``: two attempts were silent for its ``ttft_s``, or one for two.

        A single attempt is always replaced. Neither a failed attempt nor a loser was silent: if a long answer breaks,
        the call's age says nothing about another deployment. For a continuation ``continuation.in_time`` decides.

        For example, with a ``ttft_s`` of 20 s and one silent attempt, another one is too late after 40 s.
        """
        mute = [attempt for attempt in self.all if attempt.token_at() is None]
        silent = sum(attempt not in self.excused for attempt in mute)
        if self._plan.launches[0].role is Role.TAKEOVER or (len(mute) < len(self.all) and not silent):
            return False
        age_s = self._open_call.services.clock() - self._open_call.call.caller.received_at
        timeouts = 1 if silent > 1 else 2
        return len(self.all) > 1 and age_s >= timeouts * self._model.deployments[name].clocks.ttft_s

    def begin(self, launches: Iterable[Launch]) -> bool:
        """Announce the call and launch its first attempts; return whether there are any.

        Each attempt takes its seat before the next item of ``launches`` is read.
        """
        first = list(map(self._prepare, launches))
        if first:
            self._open_call.begin(list(map(_START, first)))
        self._ask(first)
        return bool(first)

    def launch(self, launch: Launch) -> None:
        """Launch one more attempt."""
        self._ask([self._prepare(launch)])

    def launch_extra(self, launch: Launch | None) -> bool:
        """Launch one more beside an invalid answer, which is billed all the same; return whether one was launched."""
        if launch is not None:
            self.launch(launch)
        return launch is not None

    def launch_next(self, name: str) -> None:
        """Launch ``name`` as the primary, or in place of a failed attempt."""
        first = self._plan.launches[0]
        if first.role is Role.TAKEOVER:  # every attempt of this plan continues an answer
            self.launch(msgspec.structs.replace(first, deployment=name))
        elif self.all:
            is_bare = name in self._open_call.left_out and self._last_at(name) is not None
            self.launch(Launch(deployment=name, delay_s=0.0, role=Role.BARE if is_bare else Role.FAILOVER))
        else:
            self.begin([Launch(name, 0.0, first.role, first.audited)])

    def launch_again(self, refused: Attempt, role: Role) -> Attempt:
        """Repeat the request of ``refused`` in its seat as ``role``, with another key or form; return that attempt."""
        start = refused.start
        watch_s = self._limits_s.get(start.id)
        launch = Launch(refused.deployment.name, 0.0, role, audited=start.audited, watch_s=watch_s, weight=start.weight)
        self.excused.add(refused)
        attempt = self._prepare(launch, refused)
        if role in REPEATING:
            attempt.sendings.tried = refused.sendings.tried
        self._ask([attempt])
        return attempt

    def watch(self, loser: Attempt, *, speed: bool, limit_s: float | None = None) -> None:
        """Have a loser run on, to be measured. ``limit_s``: for how long; None: as its launch says."""
        loser.audit(speed=speed, limit_s=self._limits_s.get(loser.start.id, AUDIT_S) if limit_s is None else limit_s)
        if loser.task is not None:
            self._open_call.held_by(loser.task)

    async def wait_until_last(self, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until no attempt runs but those with an empty or invalid answer, and ``attempt`` is the best."""
        self.empty[attempt] = loop.create_future()
        self.wake_empty()
        await self.empty[attempt]

    def wake_empty(self) -> None:
        """Let the best empty or invalid answer win, if no other attempt runs. An earlier best may have failed."""
        waiting = [attempt for attempt in self.empty if attempt.state in ACTIVE]
        if waiting and all(attempt in self.empty for attempt in self.active):
            future = self.empty[min(waiting, key=lambda attempt: flaw_rank(attempt.flaw()))]
            if not future.done():
                future.set_result(None)

    def cut_all(self, reason: type[ApiError]) -> None:
        """Cut all attempts: the client has gone or was cut, or the gateway stops or has a bug."""
        for attempt in self.all:
            cut_for(attempt, reason)

    async def reap(self) -> None:
        """Await all tasks except those of watched losers and of a winner that drains its connection."""
        running: list[asyncio.Task[None]] = []
        for attempt in self.all:
            if attempt.state in UNAWAITED:
                continue
            if attempt.task is None:  # the attempt has ended, or a bug prevented its start
                if attempt.seat is not None:
                    attempt.seat.give_back()
            elif not attempt.task.done():
                running.append(attempt.task)
        if running:
            await asyncio.wait(running)

    def forget(self) -> None:
        """Release all attempts; a watched one is kept alive by its task."""
        self.all.clear()
        self.excused.clear()
        self.empty.clear()
        self._entry = None

    def _prepare(self, launch: Launch, refused: Attempt | None = None) -> Attempt:
        assert self._entry is not None
        open_call, deployment = self._open_call, self._model.deployments[launch.deployment]
        now, lines = open_call.services.clock(), open_call.services.seats.lines
        start = open_call.launch(
            self._entry.call,
            deployment,
            launch.role,
            now=now,
            audited=launch.audited,
            weight=launch.weight,
            refused=None if refused is None and launch.role is not Role.BARE else self._refused_by(launch, refused),
        )
        open_call.sent.number += 1
        attempt = Attempt(self._entry, deployment, start, now, refused)
        if launch.watch_s is not None:
            self._limits_s[start.id] = launch.watch_s
        if refused is not None and refused.seat is not None:
            attempt.seat, refused.seat = refused.seat, None
        elif lines and (line := lines.get(launch.deployment)) is not None:
            attempt.seat = Seat(line)
        self.all.append(attempt)
        return attempt

    def _refused_by(self, launch: Launch, refused: Attempt | None) -> AttemptStart | None:
        return self._last_at(launch.deployment) if refused is None else refused.start

    def _last_at(self, name: str) -> AttemptStart | None:
        """Return the last attempt at the deployment ``name`` so far; None if there was none."""
        return next((each.start for each in reversed(self.all) if each.deployment.name == name), None)

    def _ask(self, attempts: Sequence[Attempt]) -> None:
        """Start the tasks of attempts. The launches are reported once all requests are on their way."""
        assert self._entry is not None
        services, loop, call = self._open_call.services, self._entry.loop, self._entry.call
        try:
            for attempt in attempts:
                attempt.started(services.tasks.start(attempt.run(), attempt, loop))
        finally:
            for attempt in attempts:
                services.outbox.add(services.recorder.attempt_started, call, attempt.start)
