"""A race: runs a plan until one attempt has answered; ``race_phase`` has its phases.

However it ends (an answer, a failure, a client that left, a bug), no task, connection or timer is left, except those of
audited losers. A race waits only for its own end: timers launch attempts, and attempts and free seats call it.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from gateway.core.attempts import Outcome, Role, WinOn
from gateway.core.calls import Call, CallRecord
from gateway.core.errors import ApiError, ClientDisconnected, InternalError
from gateway.core.log import get_logger
from gateway.fleet.models import Model
from gateway.racing.attempt import Attempt, AttemptState, Bid
from gateway.racing.attempts import Attempts
from gateway.racing.call import Broken, OpenCall, Times, Unanswered
from gateway.racing.hold import Hold
from gateway.racing.launches import LaunchSchedule, Replacements
from gateway.racing.measurement import milliseconds
from gateway.racing.other_forms import Again, Reworded, without_reasoning
from gateway.racing.reader import Block
from gateway.racing.records import NOT_KNOWN as UNKNOWN
from gateway.racing.records import alone, outcome_of
from gateway.racing.sinks import Forward, Sink, Winner
from gateway.steering import Launch, Plan
from providers import ErrorKind, Exchange, UpstreamError

if TYPE_CHECKING:
    from gateway.racing.hold import Held

# The phases of a race and their transitions.
#
#     RUNNING ──► HOLDING ──► ANSWERING ──► OVER
#       ▲ │ ▲        │          ▲   │
#       │ │ └────────┘          │   │    back to RUNNING: the held attempt has failed,
#       │ └─────────────────────┘   │    or the winner, whose answer is gathered and not committed
#       └───────────────────────────┘    OVER may follow any


_UNSENT = frozenset({ErrorKind.CONNECT_ERROR, ErrorKind.CONNECT_TIMEOUT, ErrorKind.LOCAL_RESOURCES})


class Phase(StrEnum):  # a string has a hash without a Python call; Enum's is one
    """The phase of a race."""

    RUNNING = "running"  # no attempt has an answer; more may be launched
    HOLDING = "holding"  # one has its first token and waits for a better one; no launches
    ANSWERING = "answering"  # one has won, and no other runs
    OVER = "over"


# The times of a race from its plan to its win, as the call's record needs them.


class Claim:
    """Times of one race, by the gateway's clock."""

    __slots__ = ("_open_call", "_overhead_ms", "before", "call", "claimed_at", "held")

    def __init__(self, open_call: OpenCall, call: Call) -> None:
        self.claimed_at: float | None = None
        self.held: Held | None = None  # the hold that the win has ended
        self.before: Sequence[Attempt] = ()  # those of the late model beside whose race this one has won
        self.call = call
        self._open_call = open_call
        self._overhead_ms: float | None = None

    def winner(self, attempt: Attempt, exchange: Exchange, now: float, *, is_last: bool) -> Winner:
        """Return the facts about ``attempt``, which has won with a first token at ``now``, for the response headers."""
        open_call = self._open_call
        own_s = open_call.own_s + max(0.0, open_call.services.clock() - now)
        self._overhead_ms = milliseconds(own_s)
        return Winner(
            call=self.call,
            provider=attempt.deployment.provider,
            deployment=attempt.deployment.name,
            launched=open_call.launched,
            ttft_ms=None if attempt.whole else open_call.since_received_ms(now),
            overhead_ms=self._overhead_ms,
            exchange=exchange,
            key_name=attempt.sendings.key_name,
            is_last=is_last,
        )

    def close(
        self, attempts: Sequence[Attempt], winner: Attempt | None, status_code: int, error_kind: str | None
    ) -> CallRecord:
        """Record the call, once."""
        self._open_call.services.outbox.drain()  # the winner's record is built with the others
        times = self.times(attempts, winner)
        return self._open_call.finish(
            None if winner is None else winner.record,
            status_code=status_code,
            error_kind=error_kind,
            ttft_ms=times.ttft_ms,
            overhead_ms=times.overhead_ms,
            alone=times.alone,
            held=times.held,
        )

    def times(self, attempts: Sequence[Attempt], winner: Attempt | None) -> Times:
        """Return the call's times as far as this race determines them."""
        # After a hold, the client's first token is not the provider's but the moment of release.
        has_token = winner is not None and winner.measurement.meaningful and not winner.whole
        first_at = self.claimed_at if has_token else None
        since_received_ms = self._open_call.since_received_ms
        streamed = self.call.streamed
        held = None if winner is None else self.held
        attempts = self.before or attempts
        is_first = bool(attempts) and attempts[0].start.number == 1  # of all the call's models
        return Times(
            None if first_at is None else since_received_ms(first_at),
            self._overhead_ms,
            alone(attempts, winner, first_at, since_received_ms, streamed=streamed, held=held is not None)
            if is_first
            else UNKNOWN,
            held,
        )


class Race:
    """Runs one plan for one call. Use once: ``await Race(...).run()``.

    ``may_launch`` is called for each extra launch when it is due; ``on_slot_refused`` if it gets no seat. ``call`` is
    as built for ``model``, if that is not yet the model of the open call.
    """

    def __init__(
        self,
        open_call: OpenCall,
        model: Model,
        plan: Plan,
        sink: Sink,
        *,
        may_launch: Callable[[Launch], bool],
        on_slot_refused: Callable[[Launch], None] = lambda _: None,
        call: Call | None = None,
    ) -> None:
        self.open_call = open_call
        self.call = call or open_call.call
        self.sink = sink
        self.loop = open_call.services.tasks.loop
        self.winner: Attempt | None = None
        services = open_call.services
        self._plan = plan
        self._over: asyncio.Future[None] = self.loop.create_future()
        self._attempts = Attempts(open_call, model, plan, self)
        self._schedule = LaunchSchedule(
            plan,
            clock=services.clock,
            may_launch=may_launch,
            launch=lambda launch: self._guarded(lambda: self._attempts.launch(launch)),
            on_no_slot=self._replace,
            lines=services.seats.lines,
            on_slot_refused=on_slot_refused,
            loop=self.loop,
        )
        self._made_replacements: Replacements | None = None
        at = self.call.deadline_at
        decode_s = {} if self.call.win_on is WinOn.VALID else plan.decode_s  # VALID: bids have whole answers
        self._hold = Hold(decode_s, self.release, self.loop, clock=services.clock, deadline_at=at)
        self._failures: list[tuple[str, UpstreamError]] = []
        self._ending: Unanswered | Broken | Exception = Unanswered()  # unless the call is recorded
        self._claim = Claim(open_call, self.call)

    async def run(self) -> CallRecord | Unanswered | Broken:
        """Run to the end; return the call's record, which was passed to the recorder, or why there is none."""
        try:
            if not self._plan.launches:
                return Unanswered()
            try:
                self._guarded(self._start)
                await self._over
            except asyncio.CancelledError:
                self._abort(self.open_call.cancelled_as())
                raise
            finally:
                self._hold.end()
                self._cancel_launches()
                await self._attempts.reap()
        except asyncio.CancelledError:
            self._abort(self.open_call.cancelled_as())
            raise
        else:
            if isinstance(self._ending, Exception):
                raise self._ending
            return self.open_call.record or self._ending
        finally:
            self._forget()

    @property
    def phase(self) -> Phase:
        """The phase, derived from the race's parts, so that it cannot contradict them."""
        if self._over.done():
            return Phase.OVER
        if self.winner is not None:
            return Phase.ANSWERING
        return Phase.RUNNING if self._hold.leader is None else Phase.HOLDING

    def bid(self, attempt: Attempt, now: float) -> Bid:
        """Decide about an attempt that has its first token. If it wins, all others are cut before a byte is sent."""
        if self._over.cancelled():  # the client has just gone, and ``run`` has not been resumed yet
            self._abort(self.open_call.cancelled_as())
        if (phase := self.phase) in {Phase.ANSWERING, Phase.OVER}:
            if phase is Phase.ANSWERING and self._overtakes_silence(attempt, now):
                return Bid.WON
            return Bid.HELD if self.is_standing_by(attempt) else Bid.LOST
        # A single attempt has no other to wait for or to cut.
        may_be_held = len(self._attempts.all) > 1 and phase is Phase.RUNNING and attempt not in self._attempts.empty
        may_be_held = may_be_held and not attempt.whole  # it is complete
        if may_be_held and self._hold.possible and self._hold.begin(attempt, self._attempts.others(attempt)):
            self._cancel_launches()
            return Bid.HELD
        if phase is Phase.HOLDING and attempt is not self._hold.leader and not self._hold.overtakes(attempt):
            self._attempts.cut_or_watch(attempt)
            self._schedule.add(attempt.deployment.name)
            return Bid.LOST
        self._win(attempt, now)
        return Bid.WON

    def is_standing_by(self, attempt: Attempt) -> bool:
        """Whether ``attempt`` is the backup: it runs on after its loss, and answers if the winner fails."""
        return self._attempts.is_standing_by(attempt)

    def was_kept(self, attempt: Attempt) -> bool | None:
        """Whether ``attempt`` was ever the backup; None if this race keeps none."""
        return self._attempts.was_kept(attempt)

    def release(self, attempt: Attempt) -> None:
        """Let the held ``attempt`` win: no other has overtaken it."""
        self._win(attempt, self.open_call.services.clock())
        attempt.end_hold()

    def stands_still(self, attempt: Attempt) -> bool:
        """Ask another deployment beside ``attempt``, which is silent in its answer; return whether one was asked.

        While the client has seen nothing of the answer, the first with another token goes on, and the other is cut. A
        stream that it sees is continued by the open call's rescue.
        """
        if attempt is self.winner:
            if self.sink.streams:
                rescue = self.open_call.rescue
                return rescue is not None and rescue.stands_still(attempt)
            if self._attempts.call_backup(lambda backup: self._replace_silent(backup, self.open_call.services.clock())):
                return True
        elif self.phase is not Phase.RUNNING or attempt.state is not AttemptState.ASKED:
            return False
        if any(not other.still for other in self._attempts.others(attempt)):
            return False  # another is asked already
        launch = self._schedule.beside(Role.FAILOVER)
        if launch is not None:
            self._guarded(lambda: self._attempts.launch_next(launch.deployment))
        return launch is not None

    def goes_on(self, attempt: Attempt) -> None:
        """Cut the attempts beside ``attempt``, which was silent: it has more of its answer."""
        if attempt is self.winner and not self.sink.streams:
            for rival in self._attempts.others(attempt):
                if not self.is_standing_by(rival):
                    rival.cut(Outcome.LOST)
                    self._schedule.add(rival.deployment.name)

    def _overtakes_silence(self, attempt: Attempt, now: float) -> bool:
        """Let ``attempt`` win in place of a silent winner, of which the client has seen nothing; return if it may."""
        winner = self.winner
        if winner is None or not winner.still or self.sink.streams or self.is_standing_by(attempt):
            return False
        error = UpstreamError(ErrorKind.STALL_TIMEOUT, "stood still until another deployment answered")
        self._failures.append((winner.deployment.name, error))
        winner.failed_at = now
        winner.cut(Outcome.STALLED, error)
        self._win(attempt, now)
        return True

    def _replace_silent(self, backup: Attempt, now: float) -> None:
        """Let a backup that has its first token win in place of the silent winner."""
        if self._overtakes_silence(backup, now):
            backup.end_hold()

    async def begin(self, attempt: Attempt, now: float) -> Forward | None:
        """Start the answer of ``attempt``, which has won with a first token at ``now``."""
        assert attempt.exchange is not None
        runs_on = any(each.state is AttemptState.WATCHED for each in self._claim.before)
        is_last = not runs_on and self._attempts.is_last(attempt, self.call)
        return await self.sink.begin(self._claim.winner(attempt, attempt.exchange, now, is_last=is_last))

    async def wait_until_last(self, attempt: Attempt) -> None:
        """Wait until only attempts with empty or invalid answers are left."""
        self._hold.failed(attempt, self._attempts.others(attempt))  # no attempt is held to wait for an empty answer
        if attempt.flaw() is not None and self.phase is Phase.RUNNING:
            self._add_one()
        await self._attempts.wait_until_last(attempt, self.loop)

    async def complete(self, last: Block) -> None:
        """End the race with the winner's complete answer; its ``last`` events have not been sent yet."""
        if not self.call.streamed:
            if self.winner is not None and self.winner.still:
                self.goes_on(self.winner)
            self._attempts.dismiss_backup()
        self._close(200, None)
        await self.sink.end(last)
        self._finish()

    async def failed(self, attempt: Attempt, error: UpstreamError) -> None:
        """Replace an attempt that failed; end the race if none is left, or if its answer was committed."""
        if self.phase is Phase.OVER:
            return  # it was a watched loser
        was_ahead = attempt is self._hold.leader  # at its token all launches were cancelled
        if was_winner := attempt is self.winner:
            if self.sink.streams:
                await self._break_off(attempt, error)
                return
            self.winner, was_ahead = None, True
        active = self._attempts.active
        self._hold.failed(attempt, self._attempts.others(attempt))
        self._failures.append((attempt.deployment.name, error))
        if outcome_of(error) is not Outcome.TIMEOUT:
            self._attempts.excused.add(attempt)
        self._learn_from(attempt, error, has_begun=was_winner or attempt.token_at() is not None, alone=not active)
        if was_winner and self._attempts.call_backup(self.release):
            if self.phase is Phase.RUNNING:  # if the backup fails too, it is replaced
                self._schedule.schedule_rescues()
        elif self._answers_beside(attempt):
            self._schedule.schedule_rescues()
        elif self.phase is Phase.RUNNING:  # else another has an answer; a release may just have made the held one win
            self._go_on_after(attempt, error, was_ahead=was_ahead)

    def _learn_from(self, attempt: Attempt, error: UpstreamError, *, has_begun: bool, alone: bool) -> None:
        """Limit the launches if the request itself may be invalid."""
        if self.call.runs_on and error.status is None and error.kind not in _UNSENT:
            self._schedule.limit(0)  # it may have been started: never twice
        elif error.kind is not ErrorKind.BAD_REQUEST:
            if has_begun:
                self._schedule.unlimit()  # it had begun to answer, so the request is valid
        elif error.is_too_long:
            self._schedule.longer_than(attempt.deployment, self._attempts.contexts)
        elif not (error.is_of_one_key or error.is_of_one_model):  # else another may read the reasoning, or take it
            self._schedule.limit(1 if alone else 0)

    def sent_without(self, attempt: Attempt, paths: Sequence[str]) -> None:
        """Note the fields that the request of ``attempt`` was sent without, as its deployment refuses them."""
        self.call = self._claim.call = self.open_call.sent_without(self.call, attempt.deployment, paths)

    def ask_again(self, attempt: Attempt, again: Again) -> bool:
        """Ask the deployment of ``attempt`` again in another form; return whether it was."""
        if self.phase is not Phase.RUNNING:
            return False
        if again.reworded is not None:
            self._use(again.reworded, attempt.deployment.name)
        self._guarded(lambda: self._attempts.launch_again(attempt, again.role))
        return True

    def _answers_beside(self, failed: Attempt) -> bool:
        """Whether another was asked beside ``failed``, which was silent. If the winner is silent, replace its rival."""
        if self.winner is not None and self.winner.still:
            self.stands_still(self.winner)
        return self.winner is None and failed.still and bool(self._attempts.others(failed))

    def _go_on_after(self, attempt: Attempt, error: UpstreamError, *, was_ahead: bool) -> None:
        """Replace an attempt that failed; end the race if no other is left."""
        if attempt.start.role is Role.PROBE and self._schedule.is_in_turn and self._attempts.active:
            return  # the call did not wait for it
        is_replaced = self._add_one() if error.kind is ErrorKind.INVALID_ANSWER else self._replace()
        if not is_replaced and not self._attempts.active:
            self._fail()
        elif was_ahead and self._attempts.active:
            self._schedule.schedule_rescues()
        if self.winner is None:
            self._attempts.wake_empty()

    def time_out(self, error: UpstreamError) -> None:
        """End the race with ``error`` as a timeout, unless an answer is committed."""
        if self.phase is Phase.OVER or (self.winner is not None and self.sink.streams):
            return
        for attempt in self._attempts.active:
            attempt.cut(Outcome.TIMEOUT, error)
            self._failures.append((attempt.deployment.name, error))
        self._fail()

    def so_far(self, error: UpstreamError) -> Broken | None:
        """Return the winner's answer so far as if it had broken off with ``error``; None if it has ended.

        The winner runs on.
        """
        winner = self.winner
        if winner is None or self.phase is Phase.OVER or winner.ending is not None:
            return None
        return Broken(winner.so_far(), error, self._claim.times(self._attempts.all, winner))

    def supersede(self, error: UpstreamError, outcome: Outcome) -> Broken | None:
        """Cut the winner and end the race without a record: another deployment continues the answer.

        Returns the delivered part as an answer that broke off with ``error``; None if the race was over.
        """
        winner = self.winner
        if winner is None or self.phase is Phase.OVER or winner.ending is not None:
            return None
        times = self._claim.times(self._attempts.all, winner)
        winner.cut(outcome, None if outcome is Outcome.SUPERSEDED else error)
        self.open_call.services.outbox.drain()
        assert winner.record is not None  # built by the outbox
        broken = self._ending = Broken(winner.record, error, times)
        self._finish()
        return broken

    def withdraw(self) -> None:
        """End the race without an answer: it is not needed any more."""
        if self.phase is Phase.OVER or isinstance(self._ending, Exception):
            return
        for attempt in self._attempts.active:
            attempt.cut(Outcome.LOST)
        self._fail()

    @property
    def attempts(self) -> Sequence[Attempt]:
        """The attempts so far, in the order of launch."""
        return tuple(self._attempts.all)

    @property
    def is_rescued(self) -> bool:
        """Whether a rescue runs beside an attempt that hangs."""
        active = self._attempts.active
        return len(active) > 1 and any(attempt.start.role is Role.FAILOVER for attempt in active)

    def stop(self, reason: type[ApiError]) -> None:
        """End the race: another race records the call, which ends with this error."""
        self._hold.end()
        self._attempts.cut_all(reason)
        self._finish()

    def give_way(self, *, runs_on: bool) -> None:
        """End the race without an answer: that of another model has won. ``runs_on``: its primary is audited."""
        if self.phase is not Phase.OVER:
            self._hold.end()
            self._attempts.overtaken(None, self.open_call.services.clock(), runs_on=runs_on)
            self._finish()

    def follow(self, attempts: Sequence[Attempt]) -> None:
        """Set the attempts of the late model beside whose race this one has won."""
        self._claim.before = attempts

    async def _break_off(self, attempt: Attempt, error: UpstreamError) -> None:
        """End the race with a part of an answer. If no other deployment may finish it, the client gets an error."""
        self.open_call.services.outbox.drain()
        if attempt.record is not None and self.sink.may_be_continued(error):
            self._ending = Broken(attempt.record, error, self._claim.times(self._attempts.all, attempt))
        else:
            self._close(200, error.kind)
            await self.sink.fail(error)
        self._finish()

    def client_gone(self, attempt: Attempt) -> None:
        """End the race: the client has disconnected."""
        attempt.end(Outcome.CLIENT_GONE)
        why = self.open_call.cancelled_as()
        self._abort(why if issubclass(why, ClientDisconnected) else ClientDisconnected)
        self._finish()

    def crashed(self, attempt: Attempt, defect: Exception) -> None:
        """End the race because of a bug in the gateway."""
        attempt.end(Outcome.INTERRUPTED)
        if self.phase is Phase.OVER:
            # Event audit.crashed: A loser that ran on to be measured failed by a bug. The caller had its answer.
            # Do: It is a bug: report it with the trace.
            get_logger().error("audit.crashed", call=self.call.id, exc_info=defect)
        else:
            self._crash(defect)

    def _crash(self, defect: Exception) -> None:
        self._ending = self._ending if isinstance(self._ending, Exception) else defect
        self._abort(InternalError)
        self._finish()

    def _start(self) -> None:
        open_call = self.open_call
        open_call.own_s += open_call.services.clock() - open_call.unasked_since  # a wait for a seat is not part of it
        if not self._attempts.begin(self._schedule.open()) and not self._replacements.line_up():
            self._fail()

    def _guarded(self, act: Callable[[], object]) -> None:
        """Call ``act``. Its exception is raised by ``run``: the caller here is a timer, or another call."""
        try:
            act()
        except Exception as defect:  # noqa: BLE001 - whatever it is
            self._crash(defect)

    @property
    def _replacements(self) -> Replacements:
        """Replaces failed attempts. Created on first use."""
        if self._made_replacements is None:
            self._made_replacements = Replacements(
                self.open_call, self._schedule, self._attempts, fail=self._fail, guarded=self._guarded, loop=self.loop
            )
        return self._made_replacements

    def _add_one(self) -> bool:
        """Launch one more attempt beside an invalid answer: an extra one from the budget, or the next one in order."""
        if self._schedule.is_in_turn:
            return self._replace()
        return self._attempts.launch_extra(self._schedule.beside(Role.HEDGE))

    def _replace(self) -> bool:
        return self._replacements.replace()

    def _ask_without_reasoning(self) -> bool:
        """Ask once more without the reasoning that no key could read; return whether an attempt was launched.

        Each deployment that refused it may be asked so, one after the other.
        """
        asked = self.open_call.left_out
        name = next((name for name, error in self._failures if error.is_bound and name not in asked), None)
        if name is None:
            return False
        deployment = next(each.deployment for each in self._attempts.all if each.deployment.name == name)
        if (reworded := without_reasoning(self.call, deployment)) is None:
            return False
        asked.add(name)
        self._use(reworded, name)
        self._schedule.unlimit()
        self._schedule.add(name)
        return self._replace()

    def _use(self, reworded: Reworded, deployment: str) -> None:
        """Ask ``deployment`` with another request from now on."""
        before = self.call
        self.call = self._claim.call = reworded.of(before, deployment)
        if self.open_call.call is before:
            self.open_call.continue_as(self.call)

    def _fail(self) -> None:
        """End the race: no attempt has answered, and no candidate is left."""
        if self._ask_without_reasoning():
            return
        self.open_call.services.outbox.drain()
        # The others tell more than what one key, or one short deployment, refuses.
        failures = [each for each in self._failures if not each[1].is_of_one_deployment]
        self._ending = Unanswered(tuple(failures or self._failures), self._schedule.full(), self._attempts.asked)
        self.open_call.unasked_since = self.open_call.services.clock()  # until another model is asked
        self._finish()

    def _win(self, attempt: Attempt, now: float) -> None:
        self.winner = attempt
        if self.open_call.rivals is not None:
            self.open_call.rivals.won(self)
        self._claim.claimed_at, self._claim.held = now, None
        if self._hold.leader is not None:
            self._claim.held = self._hold.held(now)
            self._hold.end()
        self._cancel_launches()
        if len(self._attempts.all) == 1:
            return
        for loser in self._attempts.overtaken(attempt, now):
            self._schedule.add(loser.deployment.name)  # healthy, and the last resort if a gathered answer breaks off

    def _cancel_launches(self) -> None:
        """Cancel pending launches and the wait for a seat."""
        if self._schedule.pending or self._schedule.withheld is not None:
            self._schedule.close()
        if self._made_replacements is not None:
            self._made_replacements.leave()

    def _finish(self) -> None:
        self._cancel_launches()
        if not self._over.done():
            self._over.set_result(None)

    def _forget(self) -> None:
        """Break the reference cycles, so that a call's memory is freed at its end and not by the garbage collector."""
        self._failures.clear()
        self._ending = Unanswered()  # an exception's frames refer to this race
        self._schedule.forget()
        self._hold.forget()
        if self._made_replacements is not None:
            self._made_replacements.forget()
        self._attempts.forget()
        self._claim.before = ()
        self.winner = None

    def _abort(self, reason: type[ApiError]) -> None:
        """Stop all attempts, and record the call with this error."""
        self._attempts.cut_all(reason)
        if self.open_call.rivals is not None:
            self.open_call.rivals.stop(self, reason)
        self._close(reason.status, reason.code)

    def _close(self, status_code: int, error_kind: str | None) -> None:
        self._claim.close(self._attempts.all, self.winner, status_code, error_kind)
