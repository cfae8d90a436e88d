"""A race: runs the plans of a call's models until one attempt has answered.

However a race ends (an answer, a failure, a client that left, a bug), no task, connection or timer is left, except
those of audited losers. A race waits only for its own end: timers launch attempts, and attempts and free seats call the
race.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from gateway.core.attempts import Outcome, Role
from gateway.core.calls import Call, CallRecord
from gateway.core.errors import ApiError, InternalError
from gateway.fleet import Model
from gateway.racing.attempt import Attempt, Reading
from gateway.racing.call import BrokenAnswer, NoAnswer, OpenCall
from gateway.racing.entry import Entry, Phase
from gateway.racing.events import EVENTS
from gateway.racing.records import NOT_KNOWN, CallTimes, alone
from gateway.racing.sinks import Sink
from gateway.steering import Launch, Plan
from providers import UpstreamError

if TYPE_CHECKING:
    from gateway.racing.hold import HoldResult


class FallbackModel(msgspec.Struct, frozen=True):
    """A model that is asked beside a model that is late: a fallback."""

    model: Model
    plan: Plan
    call: Call  # as built for this model
    sink: Sink
    may_launch: Callable[[Launch], bool]
    on_seat_refused: Callable[[Launch], None]
    late_s: float | None  # after so many seconds without an answer the next model is asked beside this one; None: never
    reading: Reading[Attempt]  # how the attempts ask


class FallbackModels(Protocol):
    """The models that may be asked beside the first of a race, each when the one before it is late."""

    @property
    def late_s(self) -> float:
        """After how many seconds the first model is late."""

    async def next(self, *, is_rescued: bool) -> FallbackModel | None:
        """Return the next model, planned and paid for; None if there is none. ``is_rescued``: the call had a rescue."""

    def won(self, model: str) -> None:
        """Note that the answer of ``model``, a fallback, is about to begin."""

    def runs_on(self, model: str, attempts: Sequence[str]) -> bool:
        """Whether the overtaken primary of ``model`` runs on to its first token; ``attempts``: ids of the model's."""


class Race:
    """Runs the plans of a call: of its model, and of the models asked beside it. Use once: ``await race.run()``.

    ``may_launch`` is called for each extra launch when the launch is due; ``on_seat_refused`` if the launch gets no
    seat. ``call`` is the call as built for ``model``, if the open call has another model yet; ``reading`` is how the
    attempts of ``model`` ask; ``following`` are the models asked beside ``model``.
    """

    def __init__(
        self,
        open_call: OpenCall,
        model: Model,
        plan: Plan,
        sink: Sink,
        *,
        may_launch: Callable[[Launch], bool],
        on_seat_refused: Callable[[Launch], None] = lambda _: None,
        call: Call | None = None,
        reading: Reading[Attempt] = EVENTS,
        following: FallbackModels | None = None,
    ) -> None:
        self.open_call = open_call
        self.reading = reading
        self.following = following
        self.has_others = following is not None
        self.loop = open_call.services.tasks.loop
        self.over: asyncio.Future[None] = self.loop.create_future()
        self.winner: Attempt | None = None
        self.claimed_at: float | None = None
        self.held: HoldResult | None = None  # the hold that the win has ended
        self.overhead_ms: float | None = None
        self._plan = plan
        first = Entry(
            self,
            model,
            plan,
            call or open_call.call,
            sink,
            reading=reading,
            may_launch=may_launch,
            on_seat_refused=on_seat_refused,
        )
        self.entries = [first]
        self.unanswered: list[tuple[str, NoAnswer]] = []  # the models that have failed, in this order
        self._ending: NoAnswer | BrokenAnswer | Exception = NoAnswer()  # unless the call is recorded
        self.is_settled = False  # whether one model has won, and the others have given way
        self._late: asyncio.TimerHandle | None = None  # fires when the last of the models is late
        self._asking: asyncio.Task[None] | None = None  # plans and pays for the next model

    async def run(self) -> CallRecord | NoAnswer | BrokenAnswer:
        """Run to the end; return the call's record, which was passed to the recorder, or why there is none."""
        try:
            if not self._plan.launches:
                self.unanswered.append((self.entries[0].model, NoAnswer()))
                return NoAnswer()
            try:
                self.entries[0].guarded(self.entries[0].start)
                if self.following is not None:
                    self._late_in(self.following.late_s)
                await self.over
            except asyncio.CancelledError:
                self.abort(self.open_call.cancelled_as())
                raise
            finally:
                await self._reap()
        except asyncio.CancelledError:
            self.abort(self.open_call.cancelled_as())
            raise
        else:
            if isinstance(self._ending, Exception):
                raise self._ending
            return self.open_call.record or self._ending
        finally:
            self._forget()

    @property
    def phase(self) -> Phase:
        """The phase, derived from the race's parts, so that phase and parts agree."""
        if self.over.done():
            return Phase.OVER
        if self.winner is not None:
            return Phase.ANSWERING
        return Phase.RUNNING if all(entry.hold.leader is None for entry in self.entries) else Phase.HOLDING

    # The models of the race.

    def settle(self, entry: Entry) -> None:
        """Have the other models give way, once: ``entry`` has the answer."""
        if self.is_settled or self.following is None:
            return
        self.is_settled = True
        self._stop_asking()
        for other in self.entries:
            if other is not entry and not other.is_out:
                attempts = [attempt.start.id for attempt in other.attempts.all]
                other.give_way(runs_on=self.following.runs_on(other.model, attempts))
        if entry is not self.entries[0]:
            self.following.won(entry.model)

    def failed(self, entry: Entry) -> None:
        """Go on without a model after all its deployments failed: ask the next model if others run, else end."""
        entry.leave()
        self.unanswered.append((entry.model, entry.unanswered))
        self._ending = entry.unanswered
        if self._asking is not None and not self.is_settled:
            return
        if not self._runs:
            self.finish()
        elif entry is self.entries[-1]:
            self._ask_next()

    @property
    def _runs(self) -> bool:
        """Whether any model may still answer."""
        return any(not entry.is_out for entry in self.entries)

    def _late_in(self, seconds: float) -> None:
        if not self.over.done():
            self._late = self.loop.call_later(seconds, self._is_late)

    def _is_late(self) -> None:
        if self.phase is Phase.RUNNING:
            self._ask_next()

    def _ask_next(self) -> None:
        self._stop_asking()
        self._asking = self.loop.create_task(self._enter_next())

    async def _enter_next(self) -> None:
        """Plan and pay for the next model, and have it take part."""
        further: FallbackModel | None = None
        defect: Exception | None = None
        try:
            if self.following is not None:
                further = await self.following.next(is_rescued=len(self.entries) > 1 or self.is_rescued)
        except Exception as error:  # noqa: BLE001 - a defect is raised by ``run`` if no other model answers
            defect = error
        self._asking = None
        if self.is_settled or self.over.done():
            return
        if further is None:
            if not self._runs:
                self.finish() if defect is None else self.crash(defect)
            return
        if self._runs:  # else no model was asked after the last one failed
            self.open_call.unasked_since = self.open_call.services.clock()
        entry = Entry(
            self,
            further.model,
            further.plan,
            further.call,
            further.sink,
            reading=further.reading,
            may_launch=further.may_launch,
            on_seat_refused=further.on_seat_refused,
        )
        self.entries.append(entry)
        if further.late_s is not None:
            self._late_in(further.late_s)
        entry.guarded(entry.start)

    def _stop_asking(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if self._asking is not None:
            self._asking.cancel()

    # What is done to the whole race.

    def time_out(self, error: UpstreamError) -> None:
        """End the race with ``error`` as a timeout, unless an answer is committed."""
        entry = self.entries[0]
        if self.phase is Phase.OVER or (self.winner is not None and entry.sink.streams):
            return
        for attempt in entry.attempts.active:
            attempt.cut(Outcome.TIMEOUT, error)
            entry.failures.append((attempt.deployment.name, error))
        entry.fail()

    def so_far(self, error: UpstreamError) -> BrokenAnswer | None:
        """Return the winner's answer so far as if that had broken off with ``error``; None if the winner has ended.

        The winner runs on.
        """
        winner = self.winner
        if winner is None or self.phase is Phase.OVER or winner.ending is not None:
            return None
        return BrokenAnswer(winner.so_far(), error, self._times(winner), heard=winner.measurement.heard)

    def supersede(self, error: UpstreamError, outcome: Outcome) -> BrokenAnswer | None:
        """Cut the winner and end the race without a record: another deployment continues the answer.

        Returns the delivered part as an answer that broke off with ``error``; None if the race was over.
        """
        broken = self.cut_winner(error, outcome)
        if broken is not None:
            self._ending = broken
            self.finish()
        return broken

    def cut_winner(self, error: UpstreamError, outcome: Outcome) -> BrokenAnswer | None:
        """Cut the winner; return the answer so far, broken off with ``error``; None if the winner has ended."""
        winner = self.winner
        if winner is None or self.phase is Phase.OVER or winner.ending is not None:
            return None
        times, heard_part = self._times(winner), winner.measurement.heard
        error.deployment = winner.deployment.name
        winner.cut(outcome, None if outcome is Outcome.SUPERSEDED else error)
        self.open_call.services.outbox.drain()
        assert winner.record is not None  # built by the outbox
        return BrokenAnswer(winner.record, error, times, heard=heard_part)

    def withdraw(self) -> None:
        """End the race without an answer: no answer is needed any more."""
        if self.phase is Phase.OVER or isinstance(self._ending, Exception):
            return
        entry = self.entries[0]
        for attempt in entry.attempts.active:
            attempt.cut(Outcome.LOST)
        entry.fail()

    @property
    def is_rescued(self) -> bool:
        """Whether a rescue runs beside an attempt that hangs."""
        active = self.entries[0].attempts.active
        return len(active) > 1 and any(
            (attempt.start.counts_as or attempt.start.role) is Role.FAILOVER for attempt in active
        )

    async def break_off(self, attempt: Attempt, error: UpstreamError) -> None:
        """End the race with a part of an answer, unless a rival continues the answer.

        If no other deployment may finish the answer, the client gets an error.
        """
        self.open_call.services.outbox.drain()
        error.deployment = attempt.deployment.name
        sink, rescue = attempt.entry.sink, self.open_call.rescue
        if attempt.record is not None and sink.may_be_continued(error):
            broken = BrokenAnswer(attempt.record, error, self._times(attempt), heard=attempt.measurement.heard)
            if rescue is not None and await rescue.rival_goes_on(broken):
                return
            self._ending = broken
        else:
            self.close(200 if attempt.answer is None else attempt.answer.status, error.kind)
            await sink.fail(error)
        self.finish()

    def crash(self, defect: Exception) -> None:
        """End the race because of a bug in the gateway, which ``run`` raises."""
        self._ending = self._ending if isinstance(self._ending, Exception) else defect
        self.abort(InternalError)
        self.finish()

    def abort(self, reason: type[ApiError]) -> None:
        """Stop all attempts, and record the call with this error."""
        for entry in self.entries:
            entry.attempts.cut_all(reason)
        self.close(reason.status, reason.code)

    def close(self, status_code: int, error_kind: str | None) -> CallRecord:
        """Record the call, once."""
        self.open_call.services.outbox.drain()  # the winner's record is built with the others
        winner = self.winner
        return self.open_call.finish(
            None if winner is None else winner.record,
            status_code=status_code,
            error_kind=error_kind,
            times=self._times(winner),
            priced_as=self.reading.priced_as,
        )

    def _times(self, winner: Attempt | None) -> CallTimes:
        """Return the call's times as far as this race determines them."""
        # After a hold, the client's first token is not the provider's but the moment of release.
        has_token = winner is not None and (
            self.reading.is_compared or (winner.measurement.meaningful and not winner.whole)
        )
        first_at = self.claimed_at if has_token else None
        since_received_ms, first = self.open_call.since_received_ms, self.entries[0]
        hold_result = None if winner is None else self.held
        attempts = first.attempts.all
        is_first = bool(attempts) and attempts[0].start.number == 1  # the first attempt of all the call's models
        streamed = first.call.request.stream
        return CallTimes(
            None if first_at is None else since_received_ms(first_at),
            self.overhead_ms,
            alone(attempts, winner, first_at, since_received_ms, streamed=streamed, held=hold_result is not None)
            if is_first
            else NOT_KNOWN,
            hold_result,
        )

    def finish(self) -> None:
        """End the race: nothing is launched, and no model is asked any more."""
        for entry in self.entries:
            entry.cancel_launches()
        if self.following is not None:
            self._stop_asking()
        if not self.over.done():
            self.over.set_result(None)

    async def _reap(self) -> None:
        """Await all tasks, but for those that may outlive the call."""
        for entry in self.entries:
            if self.over.cancelled():
                entry.cancel_launches()
        if self.following is not None:
            self._stop_asking()
        if (asking := self._asking) is not None:
            await asyncio.wait({asking})
        for entry in self.entries:
            await entry.attempts.reap()

    def _forget(self) -> None:
        """Break the reference cycles."""
        self._ending = NoAnswer()  # an exception's frames refer to this race
        for entry in self.entries:
            entry.forget()
        self.entries.clear()
        self.following = self._late = self._asking = self.winner = None
