"""A race: runs a plan until one attempt has answered; ``race_phase`` has its phases.

However it ends (an answer, a failure, a client that left, a bug), no task, connection or timer is left, but for audited
losers. A race waits only for its own end: launches are timers; attempts call it, and seats that become free.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from gateway.core.attempts import Outcome, WinOn
from gateway.core.calls import CallRecord
from gateway.core.errors import ApiError, ClientDisconnected, InternalError
from gateway.core.log import get_logger
from gateway.fleet.models import Model
from gateway.racing.attempt import Attempt, Bid
from gateway.racing.attempts import Attempts
from gateway.racing.call import Broken, OpenCall, Times, Unanswered
from gateway.racing.hold import Hold
from gateway.racing.launches import LaunchSchedule, Replacing
from gateway.racing.measurement import milliseconds
from gateway.racing.reader import Block
from gateway.racing.records import NOT_KNOWN as UNKNOWN
from gateway.racing.records import alone
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


class Phase(Enum):
    """The phase of a race."""

    RUNNING = "running"  # no attempt has an answer; more may be launched
    HOLDING = "holding"  # one has its first token and waits for a better one; no launches
    ANSWERING = "answering"  # one has won, and no other runs
    OVER = "over"

    __hash__ = object.__hash__  # Enum's own is a call into Python


# The times of a race from its plan to its win, and their part in the call's record.


class Claim:
    """Times of one race, by the gateway's clock."""

    __slots__ = ("_open_call", "_overhead_ms", "claimed_at", "held", "planned_at")

    def __init__(self, open_call: OpenCall) -> None:
        self.planned_at = 0.0  # when the first attempt is launched, unless it waits for a seat
        self.claimed_at: float | None = None
        self.held: Held | None = None  # the hold that the win has ended
        self._open_call = open_call
        self._overhead_ms: float | None = None

    def winner(self, attempt: Attempt, exchange: Exchange, now: float, *, is_last: bool) -> Winner:
        """Return the facts about ``attempt``, which has won with a first token at ``now``, for the response headers."""
        open_call = self._open_call
        own_s = (self.planned_at - open_call.call.received_at) + max(0.0, open_call.services.clock() - now)
        self._overhead_ms = milliseconds(own_s)
        return Winner(
            call=open_call.call,
            provider=attempt.deployment.provider,
            deployment=attempt.deployment.name,
            launched=open_call.launched,
            ttft_ms=open_call.since_received_ms(now),
            overhead_ms=self._overhead_ms,
            exchange=exchange,
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
        """Return the call's times, as far as this race tells them."""
        # After a hold, the client's first token is not the provider's but the moment of release.
        first_at = self.claimed_at if winner is not None and winner.measurement.meaningful else None
        since_received_ms = self._open_call.since_received_ms
        streamed = self._open_call.call.streamed
        is_first = bool(attempts) and attempts[0].start.number == 1  # of all the call's models
        return Times(
            None if first_at is None else since_received_ms(first_at),
            self._overhead_ms,
            alone(attempts, winner, first_at, since_received_ms, streamed=streamed) if is_first else UNKNOWN,
            None if winner is None else self.held,
        )


class Race:
    """Runs one plan for one call. Use once: ``await Race(...).run()``.

    ``permit`` is called for each extra launch when it is due; ``full`` for those without a seat (``max_in_flight``).
    """

    def __init__(
        self,
        open_call: OpenCall,
        model: Model,
        plan: Plan,
        sink: Sink,
        *,
        permit: Callable[[Launch], bool],
        full: Callable[[Launch], None] = lambda _: None,
    ) -> None:
        self.open_call = open_call
        self.call = open_call.call
        self.sink = sink
        self.loop = open_call.services.tasks.loop
        self.winner: Attempt | None = None
        services = open_call.services
        self._plan = plan
        self._over: asyncio.Future[None] = self.loop.create_future()
        self._attempts = Attempts(open_call, model, plan, self)
        self._grid = LaunchSchedule(
            plan,
            clock=services.clock,
            permit=permit,
            go=self._launch,
            in_need=self._replace,
            lines=services.seats.lines,
            full=full,
            loop=self.loop,
        )
        self._made: Replacing | None = None
        at = self.call.deadline_at
        decode_s = {} if self.call.win_on is WinOn.VALID else plan.decode_s  # then a claim is the end of an answer
        self._hold = Hold(decode_s, self.release, self.loop, clock=services.clock, deadline_at=at)
        self._failures: list[tuple[str, UpstreamError]] = []
        self._ending: Unanswered | Broken | Exception = Unanswered()  # unless the call is recorded
        self._claim = Claim(open_call)

    async def run(self) -> CallRecord | Unanswered | Broken:
        """Run to the end; return the call's record, which the recorder has by then, or why there is none."""
        try:
            if not self._plan.launches:
                return Unanswered()
            try:
                self._guarded(self._start)
                await self._over
            except asyncio.CancelledError:
                self._abandon(self.open_call.cancelled_as())
                raise
            finally:
                self._hold.end()
                self._cancel_launches()
                await self._attempts.reap()
        except asyncio.CancelledError:
            self._abandon(self.open_call.cancelled_as())
            raise
        else:
            if isinstance(self._ending, Exception):
                raise self._ending
            return self.open_call.record or self._ending
        finally:
            self._forget()

    @property
    def phase(self) -> Phase:
        """The phase, derived from the race's parts, so that nothing can contradict it."""
        if self._over.done():
            return Phase.OVER
        if self.winner is not None:
            return Phase.ANSWERING
        return Phase.RUNNING if self._hold.leader is None else Phase.HOLDING

    def bid(self, attempt: Attempt, now: float) -> Bid:
        """Decide about an attempt that has its first token; who wins, cuts all others before a byte is forwarded."""
        if self._over.cancelled():  # its client has just gone, and ``run`` has not heard of it
            self._abandon(self.open_call.cancelled_as())
        if (phase := self.phase) in {Phase.ANSWERING, Phase.OVER}:
            return Bid.HELD if self.is_behind(attempt) else Bid.LOST
        # A race of one has none to wait for, nor to cut.
        may_be_held = len(self._attempts.all) > 1 and phase is Phase.RUNNING and attempt not in self._attempts.empty
        if may_be_held and self._hold.possible and self._hold.begin(attempt, self._attempts.others(attempt)):
            self._cancel_launches()
            return Bid.HELD
        if phase is Phase.HOLDING and attempt is not self._hold.leader and not self._hold.overtakes(attempt):
            self._attempts.let_go(attempt)
            self._grid.add(attempt.deployment.name)
            return Bid.LOST
        self._win(attempt, now)
        return Bid.WON

    def is_behind(self, attempt: Attempt) -> bool:
        """Whether it runs on behind the winner, and answers if that breaks."""
        return self._attempts.is_behind(attempt)

    def was_kept(self, attempt: Attempt) -> bool | None:
        """Whether it has run on behind a winner; None where none may."""
        return self._attempts.was_kept(attempt)

    def release(self, attempt: Attempt) -> None:
        """Let the held ``attempt`` win: no other has overtaken it."""
        self._win(attempt, self.open_call.services.clock())
        attempt.released()

    async def begin(self, attempt: Attempt, now: float) -> Forward | None:
        """Start the answer of ``attempt``, which has won with a first token at ``now``."""
        assert attempt.exchange is not None
        is_last = self._attempts.is_last(attempt, self.call.dialect)
        return await self.sink.begin(self._claim.winner(attempt, attempt.exchange, now, is_last=is_last))

    async def alone(self, attempt: Attempt) -> None:
        """Wait until only attempts with empty or invalid answers are left."""
        self._hold.failed(attempt, self._attempts.others(attempt))  # nobody is held for an empty answer
        if attempt.flaw() is not None and self.phase is Phase.RUNNING:
            self._add_one()
        await self._attempts.alone(attempt, self.loop)

    async def complete(self, last: Block) -> None:
        """End the race with the winner's complete answer; its ``last`` events have not been sent yet."""
        if not self.call.streamed:
            self._attempts.dismiss_rival()
        self._close(200, None)
        await self.sink.end(last)
        self._finish()

    async def failed(self, attempt: Attempt, error: UpstreamError) -> None:
        """Replace an attempt that failed; end the race if none is left, or if its answer was committed."""
        if self.phase is Phase.OVER:
            return  # it was watched
        if was_winner := attempt is self.winner:
            if self.sink.streams:
                await self._break_off(attempt, error)
                return
            self.winner = None
            self._grid.unlimit()  # it had begun to answer, so the request is valid
        active = self._attempts.active
        self._hold.failed(attempt, self._attempts.others(attempt))
        self._failures.append((attempt.deployment.name, error))
        if error.kind is ErrorKind.BAD_REQUEST:
            self._grid.limit(0 if active else 1)
        if was_winner and self._attempts.call_rival(self.release):
            return  # a failure of its own is replaced
        if self.phase is not Phase.RUNNING:
            return  # another attempt has an answer; a release may just have made the held one win
        is_replaced = self._add_one() if error.kind is ErrorKind.INVALID_ANSWER else self._replace()
        if not is_replaced and not self._attempts.active:
            self._fail()
        if self.winner is None:
            self._attempts.wake_empty()

    def give_up(self, error: UpstreamError) -> None:
        """End the race without an answer, unless one is committed: it took too long."""
        if self.phase is Phase.OVER or (self.winner is not None and self.sink.streams):
            return
        for attempt in self._attempts.active:
            attempt.cut(Outcome.TIMEOUT, error)
            self._failures.append((attempt.deployment.name, error))
        self._fail()

    def so_far(self, error: UpstreamError) -> Broken | None:
        """Return the winner's answer so far as one that broke off with ``error``; it runs on. None: it has ended."""
        winner = self.winner
        if winner is None or self.phase is Phase.OVER or winner.ending is not None:
            return None
        return Broken(winner.so_far(), error, self._claim.times(self._attempts.all, winner))

    def supersede(self, error: UpstreamError) -> Broken | None:
        """End the race without its call's record: another deployment goes on with the winner's answer.

        Returns what was delivered as an answer that broke off with ``error``; None if the race was over.
        """
        winner = self.winner
        if winner is None or self.phase is Phase.OVER or winner.ending is not None:
            return None
        times = self._claim.times(self._attempts.all, winner)
        winner.cut(Outcome.SUPERSEDED)
        self.open_call.services.outbox.drain()
        assert winner.record is not None  # built by the outbox
        broken = Broken(winner.record, error, times)
        self._ending = broken
        self._finish()
        return broken

    def withdraw(self) -> None:
        """End the race without an answer: it is not needed any more."""
        if self.phase is Phase.OVER or isinstance(self._ending, Exception):
            return
        for attempt in self._attempts.active:
            attempt.cut(Outcome.LOST)
        self._fail()

    async def _break_off(self, attempt: Attempt, error: UpstreamError) -> None:
        """End the race with a part of an answer; if no other deployment may finish it, its client is told."""
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
        self._abandon(why if issubclass(why, ClientDisconnected) else ClientDisconnected)
        self._finish()

    def crashed(self, attempt: Attempt, defect: Exception) -> None:
        """End the race because of a bug in the gateway."""
        attempt.end(Outcome.INTERRUPTED)
        if self.phase is Phase.OVER:
            # Event audit.crashed: A loser that ran on after its call to be measured failed by a bug. The caller had its
            # answer.
            # Do: It is a bug: report it with the trace.
            get_logger().error("audit.crashed", call=self.call.id, exc_info=defect)
        else:
            self._crash(defect)

    def _crash(self, defect: Exception) -> None:
        self._ending = self._ending if isinstance(self._ending, Exception) else defect
        self._abandon(InternalError)
        self._finish()

    def _start(self) -> None:
        self._claim.planned_at = self.open_call.services.clock()
        if not self._attempts.begin(self._grid.open()) and not self._replacing.line_up():
            self._fail()

    def _guarded(self, act: Callable[[], object]) -> None:
        """Do what may have a defect; ``run`` raises that, as the caller is a timer, or another call."""
        try:
            act()
        except Exception as defect:  # noqa: BLE001 - whatever it is
            self._crash(defect)

    def _launch(self, launch: Launch) -> None:
        self._guarded(lambda: self._attempts.launch(launch))

    @property
    def _replacing(self) -> Replacing:
        """Who replaces those that fail: made when first needed."""
        if self._made is None:
            self._made = Replacing(
                self.open_call, self._grid, self._attempts, fail=self._fail, guarded=self._guarded, loop=self.loop
            )
        return self._made

    def _add_one(self) -> bool:
        """Launch another besides an answer that is not valid: from the budget, or the next of a request's own order."""
        if self._grid.is_in_turn:
            return self._replace()
        return self._attempts.launch_extra(self._grid.extra())

    def _replace(self) -> bool:
        return self._replacing.replace()

    def _fail(self) -> None:
        """End the race: no attempt has answered, and no candidate is left."""
        self.open_call.services.outbox.drain()
        self._ending = Unanswered(tuple(self._failures), self._grid.full(), self._attempts.asked)
        self._finish()

    def _win(self, attempt: Attempt, now: float) -> None:
        self.winner = attempt
        self._claim.claimed_at, self._claim.held = now, None
        if self._hold.leader is not None:
            self._claim.held = self._hold.held(now)
            self._hold.end()
        self._cancel_launches()
        if len(self._attempts.all) == 1:
            return
        for loser in self._attempts.overtaken(attempt, now):
            self._grid.add(loser.deployment.name)  # healthy, and the last resort if a gathered answer breaks off

    def _cancel_launches(self) -> None:
        """Cancel pending launches, and wait for no seat."""
        if self._grid.pending:
            self._grid.close()
        if self._made is not None:
            self._made.leave()

    def _finish(self) -> None:
        self._cancel_launches()
        if not self._over.done():
            self._over.set_result(None)

    def _forget(self) -> None:
        """Break the reference cycles, so that a call's memory is freed at its end and not by the garbage collector."""
        self._failures.clear()
        self._ending = Unanswered()  # an exception's frames refer to this race
        self._grid.forget()
        self._hold.forget()
        if self._made is not None:
            self._made.forget()
        self._attempts.forget()
        self.winner = None

    def _abandon(self, reason: type[ApiError]) -> None:
        """Stop all attempts, and record the call with this error."""
        self._attempts.abandon(reason)
        self._close(reason.status, reason.code)

    def _close(self, status_code: int, error_kind: str | None) -> None:
        self._claim.close(self._attempts.all, self.winner, status_code, error_kind)
