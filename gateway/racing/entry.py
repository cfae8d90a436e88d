"""One model in a race: its plan, the deployments asked so far, and those that may still be asked.

The model's attempts call its entry: attempts bid for the win, fail, fall silent. The entry tells the race what concerns
the whole call.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from gateway.core.attempts import EXPLORING, REPEATING, Outcome, Role, WinOn
from gateway.core.calls import Call, CallRecord
from gateway.core.errors import ApiError, ClientDisconnected
from gateway.core.log import get_logger
from gateway.core.race_failures import OPERATORS
from gateway.fleet import Model
from gateway.racing.attempt import ACTIVE, Attempt, AttemptState, Bid, Reading
from gateway.racing.attempts import Attempts
from gateway.racing.backup import Backup
from gateway.racing.call import NoAnswer, OpenCall
from gateway.racing.hold import Hold, HoldResult
from gateway.racing.ladder import (
    AFTER_INVALID,
    MODEL,
    Others,
    another_deployment,
    goes_on,
    others_after,
    without_thoughts,
)
from gateway.racing.launches import LaunchSchedule, SeatWait
from gateway.racing.measurement import OvertakeTimes, milliseconds
from gateway.racing.other_forms import RetryForm
from gateway.racing.reader import Block
from gateway.racing.reasoning import without_reasoning
from gateway.racing.records import outcome_of
from gateway.racing.rewording import RewordedRequest
from gateway.racing.sinks import Forward, Sink, Winner
from gateway.settings import Cause
from gateway.steering import Launch, Plan
from providers import OF_ONE_DEPLOYMENT, OF_SIZE, ErrorKind, UpstreamError, kinds

_FILTERS = (Cause.CONTENT_FILTER,)  # the causes of a fallback that is asked after content filters only
_BROKEN = frozenset({ErrorKind.DISCONNECTED, ErrorKind.UPSTREAM_TRUNCATED})  # after a token: an answer broke off
_UNSENT = kinds(lambda facts: not facts.is_sent)

# The phases of a race and their transitions.
#
#     RUNNING ──► HOLDING ──► ANSWERING ──► OVER
#       ▲ │ ▲        │          ▲   │
#       │ │ └────────┘          │   │    back to RUNNING: the held attempt has failed,
#       │ └─────────────────────┘   │    or the winner, whose answer is gathered and not committed
#       └───────────────────────────┘    OVER may follow any


class Phase(StrEnum):  # a string has a hash without a Python call; Enum's is one
    """The phase of a race."""

    RUNNING = "running"  # no attempt has an answer; more may be launched
    HOLDING = "holding"  # an attempt has its first token and waits for a better one; no launches
    ANSWERING = "answering"  # an attempt has won, and no other runs
    OVER = "over"


class RaceOfEntries(Protocol):
    """A race as its entries see it."""

    open_call: OpenCall
    loop: asyncio.AbstractEventLoop
    over: asyncio.Future[None]  # done when the race has ended
    winner: Attempt | None
    claimed_at: float | None  # when the winner bid
    held: HoldResult | None  # the hold that the win has ended
    overhead_ms: float | None
    entries: list["Entry"]
    has_others: bool  # whether other models take part, or may

    def settle(self, entry: "Entry") -> None:
        """Have the other models give way, once: ``entry`` has the answer."""

    def failed(self, entry: "Entry") -> None:
        """Go on without a model, as all its deployments have failed."""

    async def break_off(self, attempt: Attempt, error: UpstreamError) -> None:
        """End with a part of an answer."""

    def close(self, status_code: int, error_kind: str | None) -> CallRecord:
        """Record the call, once."""

    def finish(self) -> None:
        """End: nothing is launched any more."""

    def abort(self, reason: type[ApiError]) -> None:
        """Stop all attempts, and record the call with this error."""

    def crash(self, defect: Exception) -> None:
        """End because of a bug in the gateway, which the race raises."""


class Entry:
    """One model in a race: its plan, the deployments asked so far, and those that may still be asked."""

    def __init__(
        self,
        race: RaceOfEntries,
        model: Model,
        plan: Plan,
        call: Call,
        sink: Sink,
        *,
        reading: Reading[Attempt],
        may_launch: Callable[[Launch], bool],
        on_seat_refused: Callable[[Launch], None],
    ) -> None:
        services = race.open_call.services
        self.race = race
        self.call = call
        self.open_call = race.open_call
        self.sink = sink
        self.loop = race.loop
        self.reading = reading
        self.model = model.name
        self.is_out = False  # the model has failed, or given way to another
        self.unanswered = NoAnswer()  # why the model has failed
        self.failures: list[tuple[str, UpstreamError]] = []
        self._fallbacks = model.fallbacks
        self._plan = plan
        self.attempts = Attempts(race.open_call, model, plan, self)
        is_kept = model.race.keep_rival and not race.open_call.call.request.stream and reading.has_tokens
        self._backup: Backup[Attempt] | None = Backup() if is_kept else None
        self._schedule = LaunchSchedule(
            plan,
            now=services.clock(),
            may_launch=may_launch,
            lines=services.seats.lines,
            on_seat_refused=on_seat_refused,
            sent=race.open_call.sent,
        )
        self._timer: asyncio.TimerHandle | None = None  # of the next launch, or of the end of a hold
        self._due_at = 0.0  # when the timer fires
        self._seat_wait: SeatWait | None = None
        decode_s = {} if call.decision.win_on is WinOn.VALID else plan.decode_s  # with VALID a bid has a whole answer
        deadline_at = None if call.traits.deadline_ms is None else call.deadline_at
        self.hold: Hold[Attempt] = Hold(decode_s, deadline_at=deadline_at)

    @property
    def phase(self) -> Phase:
        """The phase of the race as far as this model takes part in it."""
        if self.is_out or self.race.over.done():
            return Phase.OVER
        if self.race.winner is not None:
            return Phase.ANSWERING
        return Phase.RUNNING if self.hold.leader is None else Phase.HOLDING

    def bid(self, attempt: Attempt, now: float) -> Bid:
        """Decide about an attempt with its first token. If it wins, all others are cut before a byte is sent."""
        if self.race.over.cancelled():  # the client has just gone, and ``run`` has not been resumed yet
            self.race.abort(self.open_call.cancelled_as())
        if (phase := self.phase) in {Phase.ANSWERING, Phase.OVER}:
            if phase is Phase.ANSWERING and self._overtakes_silence(attempt, now):
                return Bid.WON
            return Bid.HELD if self.is_standing_by(attempt) else Bid.LOST
        # A single attempt has no other attempt to wait for or to cut.
        may_be_held = len(self.attempts.all) > 1 and phase is Phase.RUNNING and attempt not in self.attempts.empty
        may_be_held = may_be_held and not attempt.whole  # a whole answer is complete
        if may_be_held and self.hold.possible and self.hold.begin(attempt, self.attempts.others(attempt), now):
            self.cancel_launches()
            self._set_timer()
            return Bid.HELD
        if phase is Phase.HOLDING and attempt is not self.hold.leader and not self.hold.overtakes(attempt):
            self._lose(attempt)
            self._schedule.add(attempt.deployment.name)
            return Bid.LOST
        self._win(attempt, now)
        return Bid.WON

    def is_standing_by(self, attempt: Attempt) -> bool:
        """Whether ``attempt`` is the backup, which runs on after its loss, and answers if the winner fails."""
        return self._backup is not None and self._backup.is_standing_by(attempt)

    def was_kept(self, attempt: Attempt) -> bool | None:
        """Whether ``attempt`` was ever the backup; None if this race keeps none."""
        return None if self._backup is None else self._backup.was_kept(attempt)

    def release(self, attempt: Attempt) -> None:
        """Let the held ``attempt`` win: no other has overtaken it."""
        self._win(attempt, self.open_call.services.clock())
        attempt.end_hold()

    def keep_rival(self) -> None:
        """Have a loser stand by: the stream's sink lets the loser answer, or dismisses it."""
        self._backup = Backup()

    @property
    def rival(self) -> Attempt | None:
        """The backup while it runs; None if there is none."""
        return None if self._backup is None else self._backup.running

    def go_on_with_rival(self, sink: Sink) -> None:
        """Let the backup, which has bid, answer where the winner's stream stopped: ``sink`` joins the two."""
        self.sink = sink
        self._call_backup(self.release)

    def stands_still(self, attempt: Attempt) -> bool:
        """Ask another deployment beside ``attempt``, which is silent in its answer; return whether one was asked.

        While the client has seen nothing of the answer, the two compete: the first with another token goes on, and the
        other one is cut. If the client has seen a part, the open call's rescue continues the stream.
        """
        if attempt is self.race.winner:
            if self.sink.streams:
                rescue = self.open_call.rescue
                return rescue is not None and rescue.stands_still(attempt)
            if self._call_backup(lambda backup: self._replace_silent(backup, self.open_call.services.clock())):
                return True
        elif self.phase is not Phase.RUNNING or attempt.state is not AttemptState.ASKED:
            return False
        if any(not other.still for other in self.attempts.others(attempt)):
            return False  # another deployment is asked already
        launch = self._schedule.beside(Role.FAILOVER)
        if launch is not None:
            self.guarded(lambda: self.attempts.launch_next(launch.deployment))
        return launch is not None

    def goes_on(self, attempt: Attempt) -> None:
        """Cut the attempts beside ``attempt``, which was silent and has now more of its answer."""
        if attempt is self.race.winner and not self.sink.streams:
            for rival in self.attempts.others(attempt):
                if not self.is_standing_by(rival):
                    rival.cut(Outcome.LOST)
                    self._schedule.add(rival.deployment.name)

    def _overtakes_silence(self, attempt: Attempt, now: float) -> bool:
        """Let ``attempt`` win in place of a silent winner, if the client has seen nothing; return whether it won."""
        winner = self.race.winner
        if winner is None or not winner.still or self.sink.streams or self.is_standing_by(attempt):
            return False
        error = UpstreamError(ErrorKind.STALL_TIMEOUT, "stood still until another deployment answered")
        self.failures.append((winner.deployment.name, error))
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
        race, open_call = self.race, self.open_call
        runs_on = len(race.entries) > 1 and any(each is not self and each.attempts.watched for each in race.entries)
        own_s = open_call.own_s + max(0.0, open_call.services.clock() - now)
        race.overhead_ms = milliseconds(own_s)
        return await self.sink.begin(
            Winner(
                call=self.call,
                provider=attempt.deployment.provider,
                deployment=attempt.deployment.name,
                launched=open_call.launched,
                ttft_ms=None if attempt.whole else open_call.since_received_ms(now),
                overhead_ms=race.overhead_ms,
                exchange=attempt.exchange,
                key_name=attempt.sendings.key_name,
                is_last=not runs_on and self.attempts.is_last(attempt, self.call),
            )
        )

    async def wait_until_last(self, attempt: Attempt) -> None:
        """Wait until only attempts with empty or invalid answers are left."""
        self._no_more_bids(attempt)  # no attempt is held to wait for an empty answer
        if attempt.flaw() is not None and self.phase is Phase.RUNNING:
            another_deployment(self) if self._schedule.is_in_turn else self.ask_beside()
        await self.attempts.wait_until_last(attempt, self.loop)

    async def complete(self, last: Block) -> None:
        """End the race with the winner's complete answer, whose ``last`` events have not been sent yet."""
        if not self.call.request.stream:
            if self.race.winner is not None and self.race.winner.still:
                self.goes_on(self.race.winner)
            self.dismiss_backup()
        winner = self.race.winner
        self.race.close(200 if winner is None or winner.answer is None else winner.answer.status, None)
        await self.sink.end(last)
        self.race.finish()

    async def failed(self, attempt: Attempt, error: UpstreamError) -> None:
        """Replace an attempt that failed; end the race if none is left, or if the answer was committed."""
        if self.phase is Phase.OVER:
            return  # the attempt was a watched loser
        was_ahead = attempt is self.hold.leader  # at the leader's token all launches were cancelled
        if was_winner := attempt is self.race.winner:
            if self.sink.streams:
                await self.race.break_off(attempt, error)
                return
            self.race.winner, was_ahead = None, True
        active = self.attempts.active
        self._no_more_bids(attempt)
        self.failures.append((attempt.deployment.name, error))
        if error.kind in _UNSENT:
            self.open_call.sent.number -= 1
        if outcome_of(error) is not Outcome.TIMEOUT:
            self.attempts.excused.add(attempt)
        self._learn_from(attempt, error, has_begun=was_winner or attempt.token_at() is not None, alone=not active)
        if was_winner and self._call_backup(self.release):
            if self.phase is Phase.RUNNING:  # a backup that fails too is replaced
                self._schedule_rescues()
        elif self._answers_beside(attempt):
            self._schedule_rescues()
        elif self.phase is Phase.RUNNING:  # else another attempt answers, perhaps the held one, just released
            self._go_on_after(attempt, error, was_ahead=was_ahead)

    def _no_more_bids(self, attempt: Attempt) -> None:
        """Release the held attempt if the hold was for ``attempt``, which bids no more."""
        if (leader := self.hold.failed(attempt, self.attempts.others(attempt))) is not None:
            self.release(leader)

    def _learn_from(self, attempt: Attempt, error: UpstreamError, *, has_begun: bool, alone: bool) -> None:
        """Limit the launches if the request itself may be invalid."""
        if self.call.request.runs_on and error.status is None and error.kind not in _UNSENT:
            self.open_call.may_run_on = True  # the provider may have started the background response: never twice
            self._schedule.limit(0)
            return
        match others_after(error):
            case None:
                if has_begun:
                    self._schedule.unlimit()  # the attempt had begun to answer, so the request is valid
            case Others.LONGER:
                self._schedule.longer_than(attempt.deployment, self.attempts.contexts)
            case Others.ELSEWHERE:
                self._filtered(attempt, alone=alone)
            case Others.ONE:
                self._schedule.limit(1 if alone else 0)
            case Others.ALL:
                pass

    def _filtered(self, attempt: Attempt, *, alone: bool) -> None:
        """Allow one more deployment or fallback in all, of another provider, as a filter has refused the request.

        A fallback that is asked after content filters only goes before the model's other deployments.
        """
        self.open_call.filtered += 1
        has_own = any(each.causes == _FILTERS for each in self._fallbacks)
        self._schedule.limit(1 if alone and self.open_call.filtered == 1 and not has_own else 0)
        self._schedule.others_first(attempt.deployment.provider)

    def sent_without(self, attempt: Attempt, paths: Sequence[str]) -> None:
        """Note the fields (``paths``) that ``attempt`` was sent without, as its deployment refuses them."""
        raised = attempt.sendings.most > 0
        self.call = self.open_call.sent_without(self.call, attempt.deployment, paths, raised=raised)

    def ask_again(self, attempt: Attempt, again: RetryForm) -> bool:
        """Ask the deployment of ``attempt`` again; return whether it was asked.

        A request with another key or in another form is also sent while an attempt is held, beside a silent winner, and
        as a winner's backup.
        """
        phase = self.phase
        if phase is Phase.OVER or (phase is not Phase.RUNNING and again.role not in REPEATING):
            return False
        if again.reworded is not None:
            self._use(again.reworded, attempt.deployment.name)
        self.guarded(lambda: self._repeat(attempt, again.role))
        return True

    def _repeat(self, refused: Attempt, role: Role) -> None:
        attempt = self.attempts.launch_again(refused, role)
        if self._backup is not None:
            self._backup.replace(refused, attempt)

    def keeps_last_for_another(self) -> bool:
        """Whether the call may make one request more, and another deployment has a free seat for that request."""
        return self.open_call.sent.left == 1 and self._schedule.has_next

    def _answers_beside(self, failed: Attempt) -> bool:
        """Whether another attempt already runs in place of ``failed``, which was silent.

        If the winner is silent, and the attempt beside the winner has failed, ask one more.
        """
        if self.race.winner is not None and self.race.winner.still:
            self.stands_still(self.race.winner)
        return self.race.winner is None and failed.still and bool(self.attempts.others(failed))

    def _go_on_after(self, attempt: Attempt, error: UpstreamError, *, was_ahead: bool) -> None:
        """Replace an attempt that failed; end the race if no other is left."""
        if (
            (attempt.start.counts_as or attempt.start.role) in EXPLORING
            and self._schedule.is_in_turn
            and self.attempts.active
        ):
            return  # the call did not wait for an attempt that explores
        is_paid = error.kind is ErrorKind.INVALID_ANSWER and not error.is_unpaid
        rungs = AFTER_INVALID if is_paid and not self._schedule.is_in_turn else MODEL
        if not goes_on(self, rungs) and not self.attempts.active:
            self._leave_unanswered()
        elif was_ahead and self.attempts.active:
            self._schedule_rescues()
        if self.race.winner is None:
            self.attempts.wake_empty()

    def client_gone(self, attempt: Attempt) -> None:
        """End the race: the client has disconnected."""
        attempt.end(Outcome.CLIENT_GONE)
        why = self.open_call.cancelled_as()
        self.race.abort(why if issubclass(why, ClientDisconnected) else ClientDisconnected)
        self.race.finish()

    def crashed(self, attempt: Attempt, defect: Exception) -> None:
        """End the race because of a bug in the gateway."""
        attempt.end(Outcome.INTERRUPTED)
        if self.phase is Phase.OVER:
            # Event audit.crashed: A loser that ran on to be measured failed by a bug. The caller had its answer.
            # Do: It is a bug: report it with the trace.
            get_logger().error("audit.crashed", call=self.call.caller.id, exc_info=defect)
        else:
            self.race.crash(defect)

    def start(self) -> None:
        """Launch the attempts that are due at the start, or wait for a seat."""
        open_call = self.open_call
        open_call.own_s += open_call.services.clock() - open_call.unasked_since  # without a wait for a seat
        sent = open_call.sent
        # A fallback may launch only as many as the first models have left.
        most = None if not sent.number else min(sent.left, 1) if open_call.filtered else sent.left
        if not self.attempts.begin(self._schedule.open(open_call.services.clock(), most)) and not self.wait_for_seat():
            self.fail()
        if self._schedule.pending or self._schedule.withheld_at is not None:
            self._set_timer()

    def _set_timer(self) -> None:
        """Have the timer fire when a hold ends or the next launch is due. A timer that fires too early does nothing."""
        due_at = self._schedule.due_at if self.hold.leader is None else self.hold.until
        if due_at is None or (self._timer is not None and self._due_at <= due_at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_at = due_at
        self._timer = self.loop.call_later(due_at - self.open_call.services.clock(), self.guarded, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now = max(self._due_at, self.open_call.services.clock())  # a loop's timer may fire a little early
        if (leader := self.hold.leader) is not None and self.hold.until <= now:
            self.release(leader)
            return
        for launch in self._schedule.due(now, self.attempts.spoke_at()):
            if launch is None:
                another_deployment(self)
            else:
                self.attempts.launch(launch)
        self._set_timer()

    def _schedule_rescues(self) -> None:
        self._schedule.schedule_rescues(self.open_call.services.clock())
        self._set_timer()

    def _seated(self, deployment: str) -> None:
        """Ask ``deployment``, which has a free seat now."""
        self._set_timer()
        self.guarded(lambda: self.attempts.launch_next(deployment))

    def guarded(self, act: Callable[[], object]) -> None:
        """Call ``act``. ``run`` raises an exception of ``act``: the caller here is a timer, or another call."""
        try:
            act()
        except Exception as defect:  # noqa: BLE001 - of any kind
            self.race.crash(defect)

    # What the rungs of the ladder use.

    @property
    def is_asked(self) -> bool:
        """Whether any attempt of this model may still answer."""
        return bool(self.attempts.active)

    def next_deployment(self) -> str | None:
        """Remove the next candidate with a free seat from the candidates, and return it; None if there is none."""
        return self._schedule.next()

    def is_late(self, deployment: str) -> bool:
        """Whether it is too late to ask ``deployment``."""
        return self.attempts.is_late(deployment)

    def wait_for_seat(self) -> bool:
        """Wait for the first free seat of the deployments that are full; return whether any is full."""
        if self._seat_wait is None:
            self._seat_wait = SeatWait(
                self.open_call, self._schedule, self.attempts, fail=self.fail, seated=self._seated, loop=self.loop
            )
        return self._seat_wait.line_up()

    def ask(self, deployment: str) -> None:
        """Ask ``deployment`` in place of the attempt that failed."""
        self.attempts.launch_next(deployment)

    def ask_beside(self) -> bool:
        """Ask one more deployment, paid from the budget; return whether there is one."""
        return self.attempts.launch_extra(self._schedule.beside(Role.HEDGE))

    def bound(self) -> tuple[str, RewordedRequest] | None:
        """Return the next deployment that refused reasoning, and the request without reasoning; None: no other.

        Each deployment is returned once.
        """
        if self.open_call.may_run_on:
            return None
        left_out = self.open_call.left_out
        refused = (each for each in self.failures if each[1].findings.is_bound and each[0] not in left_out)
        if (first := next(refused, None)) is None:
            return None
        name, error = first
        deployment = next(each.deployment for each in self.attempts.all if each.deployment.name == name)
        reworded = without_reasoning(self.call, deployment, error.edited_from or 0)
        return None if reworded is None else (name, reworded)

    def broken(self) -> str | None:
        """Return the deployment whose whole answer broke off; None: none or several, or another model may answer."""
        is_repeatable = self.reading.has_tokens and not (self.sink.streams or self.call.request.stateful)
        broken = [name for name, error in self.failures if error.kind in _BROKEN]
        if not is_repeatable or self.race.has_others or len(broken) != 1:
            return None
        begun = {each.deployment.name for each in self.attempts.all if each.token_at() is not None}
        return broken[0] if broken[0] in begun else None

    def allow(self, deployment: str, reworded: RewordedRequest) -> None:
        """Make ``deployment`` a candidate once more, for this request."""
        self.open_call.left_out.add(deployment)
        self._use(reworded, deployment)
        self._schedule.unlimit()
        self._schedule.add(deployment)

    def _use(self, reworded: RewordedRequest, deployment: str) -> None:
        """Ask ``deployment`` with another request from now on."""
        before = self.call
        self.call = reworded.of(before, deployment)
        if self.open_call.call is before:
            self.open_call.continue_as(self.call)

    def fail(self) -> None:
        """Leave the race, as no attempt has answered and no candidate is left; unless the model's last rung is left."""
        if not without_thoughts(self):
            self._leave_unanswered()

    def _leave_unanswered(self) -> None:
        self.open_call.services.outbox.drain()
        # The refusal of a key, or of one short deployment, tells the client less than other errors do; an error that
        # only the operator can mend tells least.
        failures = [each for each in self.failures if each[1].scope not in OF_ONE_DEPLOYMENT]
        if all(error.kind in OPERATORS for _, error in failures):
            failures = [each for each in self.failures if each[1].scope in OF_SIZE] or failures
        self.unanswered = NoAnswer(tuple(failures or self.failures), self._schedule.full(), self.attempts.asked)
        self.open_call.unasked_since = self.open_call.services.clock()  # until another model is asked
        self.race.failed(self)

    def cancel_launches(self) -> None:
        """Cancel pending launches and the wait for a seat."""
        if self._schedule.pending or self._schedule.withheld_at is not None:
            self._schedule.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._seat_wait is not None:
            self._seat_wait.leave()

    def give_way(self, *, runs_on: bool) -> None:
        """Leave the race: an answer of another model has won. ``runs_on``: the primary is audited."""
        self.hold.end()
        runs_on = runs_on and self.reading.has_tokens
        self._overtaken(None, self.open_call.services.clock(), runs_on=runs_on)
        self.leave()

    def leave(self) -> None:
        """Leave the race: nothing is launched any more."""
        self.is_out = True
        self.cancel_launches()

    def forget(self) -> None:
        """Break the reference cycles, so that a call's memory is freed at its end and not by the garbage collector."""
        self.failures.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.hold.end()
        if self._seat_wait is not None:
            self._seat_wait.forget()
        if self._backup is not None:
            self._backup.dismiss()
        self.attempts.forget()

    def _win(self, attempt: Attempt, now: float) -> None:
        race = self.race
        race.winner = attempt
        if race.has_others:
            race.settle(self)
        race.claimed_at, race.held = now, None
        if self.hold.leader is not None:
            race.held = self.hold.held(now)
            self.hold.end()
        self.cancel_launches()
        if len(self.attempts.all) == 1:
            return
        for loser in self._overtaken(attempt, now):
            self._schedule.add(loser.deployment.name)  # healthy: the last resort if a gathered answer breaks

    # What becomes of the losers: cut, watched, or kept as the backup.

    def _overtaken(self, winner: Attempt | None, now: float, *, runs_on: bool = False) -> list[Attempt]:
        """Cut or watch the losers when ``winner`` has won, except a backup; return those cut or watched.

        ``winner``: None if another model has won; then there is no backup. ``runs_on``: the primary is audited, until
        its first token or its time-out.
        """
        losers = [attempt for attempt in self.attempts.all if attempt is not winner and attempt.state in ACTIVE]
        backup = None if self._backup is None or winner is None else self._backup.choose(losers)
        self.attempts.excused.update(losers)
        for loser in losers:
            if (
                runs_on
                and loser.first_asked.start.role is Role.PRIMARY
                and loser.state is AttemptState.ASKED
                and loser.task is not None
            ):
                loser.start = msgspec.structs.replace(loser.start, audited=True)
                self.attempts.watch(loser, speed=False, limit_s=loser.deployment.clocks.ttft_s)
            elif loser is not backup:
                self._lose(loser)
            if loser.token_at() is None:
                loser.overtaken = OvertakeTimes(now, self._expected_s(loser, now))
        return losers if backup is None else [loser for loser in losers if loser is not backup]

    def _call_backup(self, release: Callable[[Attempt], None]) -> bool:
        """Let the backup answer, as the winner has failed; return whether there is a backup.

        If the backup already has its first token, ``release`` is called with it at once.
        """
        backup = None if self._backup is None else self._backup.call()
        if backup is None:
            return False
        backup.overtaken = None  # the winner did not answer
        if backup.state is AttemptState.HELD:
            release(backup)
        return True

    def dismiss_backup(self) -> None:
        """Cut or watch the backup: the winner's answer is complete."""
        backup = None if self._backup is None else self._backup.dismiss()
        if backup is not None and backup.state in ACTIVE:
            self._lose(backup)

    def _lose(self, loser: Attempt) -> None:
        """Cut a loser, or watch an audited one."""
        explores = self._plan.explores
        is_watched = loser.start.audited and loser.state is not AttemptState.EMPTY and loser.task is not None
        if is_watched and (explores or loser.token_at() is None):
            self.attempts.watch(loser, speed=explores)
        else:
            loser.cut(Outcome.LOST)

    def _expected_s(self, loser: Attempt, now: float) -> float | None:
        """Return the predicted time to first token of the primary, in seconds; None in exploring races."""
        primary = self._plan.primary
        if primary is None or self._plan.explores or loser.first_asked.start.number > 1:
            return None
        return primary.expected_s(now - loser.measurement.started)
