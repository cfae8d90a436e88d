"""One attempt: a single upstream request, from its launch to its record.

An attempt is one task. The task keeps the data until the answer has begun, bids for the win, and after a win forwards
the rest to the sink. Only the task uses the exchange; a cut aborts the exchange. The attempt's entry (``EntryHandle``)
says how the attempt asks and how its answer is read (``Reading``): as ``Events`` (``events.py``), or unread
(``relayed.py``).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import suppress
from enum import Enum, StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gateway.core.attempts import REPEATING, AttemptRecord, AttemptStart, Flaw, Outcome, WinOn
from gateway.core.calls import Call
from gateway.core.tasks import retrieve
from gateway.fleet import Deployment
from gateway.racing.call import OpenCall
from gateway.racing.ladder import NOT_AGAIN, recorded
from gateway.racing.measurement import (
    AUDIT_TOKENS,
    AUDIT_TOKENS_S,
    Measurement,
    OvertakeTimes,
    ToolCalls,
    WatchEnd,
)
from gateway.racing.other_forms import ApiRefusal, RetryForm
from gateway.racing.reader import LONG_BYTES, Block, drain
from gateway.racing.records import Ending, decide_within, keep_words, mark_words, outcome_of
from gateway.racing.sinks import ClientGone, Forward, Sink
from gateway.racing.timeouts import AttemptClocks
from gateway.racing.validation import UNJUDGED, Judgement
from providers import ErrorKind, Exchange, Form, Sendings, UpstreamError, kinds

if TYPE_CHECKING:
    from gateway.racing.seats import Seat

# The states of an attempt and their transitions.
#
#           ┌─────────► HELD ────────┐
#           │                        ▼
#     ASKED ┼───────────────────► ANSWERING ──► ANSWERED ──► DRAINING
#           │                        ▲             │            │
#           ├─────────► EMPTY ───────┘             ▼            ▼
#           └─────────► WATCHED ───────────────► OVER ◄─────────┘
#
# An attempt may go to OVER from every state: it failed, was cut, or its client left. HELD may also become WATCHED.


class AttemptState(StrEnum):  # a string has a hash without a Python call; Enum's is one
    """The state of an attempt."""

    ASKED = "asked"  # launched; no delta yet that can win the race
    HELD = "held"  # has its first token, but waits for another attempt that is predicted to be better
    EMPTY = "empty"  # its answer is complete but empty, and used only if no other attempt is left
    ANSWERING = "answering"  # has won: its events are sent to the client
    ANSWERED = "answered"  # its answer is complete and recorded
    DRAINING = "draining"  # its body is read to the end, so that the connection can be reused
    WATCHED = "watched"  # has lost, and is audited: read until its first token, or a few more
    OVER = "over"  # its record is fixed and its exchange dropped


ACTIVE = frozenset(
    {AttemptState.ASKED, AttemptState.HELD, AttemptState.EMPTY, AttemptState.ANSWERING}
)  # attempts in these states may still answer the client, or answer it now
RUNNING = ACTIVE - {AttemptState.EMPTY}  # the states in which the provider still works
UNAWAITED = frozenset({AttemptState.WATCHED, AttemptState.DRAINING})  # a race does not wait for their end

FOLLOWING: Mapping[AttemptState, frozenset[AttemptState]] = {
    AttemptState.ASKED: frozenset(
        {AttemptState.HELD, AttemptState.EMPTY, AttemptState.ANSWERING, AttemptState.WATCHED, AttemptState.OVER}
    ),
    AttemptState.HELD: frozenset({AttemptState.ANSWERING, AttemptState.WATCHED, AttemptState.OVER}),
    AttemptState.EMPTY: frozenset({AttemptState.ANSWERING, AttemptState.OVER}),
    AttemptState.ANSWERING: frozenset({AttemptState.ANSWERED, AttemptState.OVER}),
    AttemptState.ANSWERED: frozenset({AttemptState.DRAINING, AttemptState.OVER}),
    AttemptState.DRAINING: frozenset({AttemptState.OVER}),
    AttemptState.WATCHED: frozenset({AttemptState.OVER}),
    AttemptState.OVER: frozenset(),
}


LARGE_READ_BYTES = 16 * 1024  # after a larger read other tasks have a turn
RESTS = 4  # after a large read without any answer (a thousand pings), the task rests 4 times as long as it parsed


# What attempts use of the entry of their model in a race.

Attempt_contra = TypeVar("Attempt_contra", contravariant=True)


class Bid(Enum):
    """The result of an attempt's bid with its first token."""

    WON = "won"
    LOST = "lost"
    HELD = "held"  # waits: another attempt is predicted to be better


class EntryHandle(Protocol[Attempt_contra]):
    """The entry of a model in a race, as its attempts see it."""

    call: Call  # as built for this model: an audited loser may outlive the change to a fallback
    open_call: OpenCall
    sink: Sink
    loop: asyncio.AbstractEventLoop
    reading: "Reading[Any]"  # how its attempts ask

    def bid(self, attempt: Attempt_contra, now: float) -> Bid:
        """Decide about an attempt with its first token. If the attempt wins, all others are cut."""

    def release(self, attempt: Attempt_contra) -> None:
        """Let a held attempt win."""

    def is_standing_by(self, attempt: Attempt_contra) -> bool:
        """Whether ``attempt`` is the backup, which runs on after its loss, and answers if the winner fails."""

    def was_kept(self, attempt: Attempt_contra) -> bool | None:
        """Whether ``attempt`` was ever the backup; None if this race keeps none."""

    def stands_still(self, attempt: Attempt_contra) -> bool:
        """Ask another deployment beside ``attempt``, which is silent in its answer; return whether one was asked."""

    def goes_on(self, attempt: Attempt_contra) -> None:
        """Cut the attempts beside ``attempt``, which was silent and has now more of its answer."""

    async def begin(self, attempt: Attempt_contra, now: float) -> Forward | None:
        """Start the answer of an attempt that has won with a first token at ``now``."""

    async def wait_until_last(self, attempt: Attempt_contra) -> None:
        """Wait until only attempts with empty or invalid answers are left."""

    async def complete(self, last: Block) -> None:
        """End the race with the winner's complete answer, whose ``last`` events have not been sent yet."""

    async def failed(self, attempt: Attempt_contra, error: UpstreamError) -> None:
        """Replace an attempt that failed, or end the race."""

    def sent_without(self, attempt: Attempt_contra, paths: Sequence[str]) -> None:
        """Note the fields (``paths``) that ``attempt`` was sent without, as its deployment refuses them."""

    def ask_again(self, attempt: Attempt_contra, again: RetryForm) -> bool:
        """Ask the deployment of ``attempt`` again in another form; return whether it was asked."""

    def keeps_last_for_another(self) -> bool:
        """Whether the call may make one request more, and there is another deployment for that request."""

    def client_gone(self, attempt: Attempt_contra) -> None:
        """End the race: the client has disconnected."""

    def crashed(self, attempt: Attempt_contra, defect: Exception) -> None:
        """End the race because of a bug in the gateway."""


# How an attempt asks, and how its answer is read.


class AnswerProgress(Protocol):
    """How far an answer has been read."""

    @property
    def done(self) -> bool:
        """Whether nothing of the answer is left."""

    @property
    def finished(self) -> bool:
        """Whether the answer is complete, whatever may follow."""

    @property
    def held(self) -> Sized:
        """Data that were read, but are of no use before more has come: the beginning of an event."""

    async def read_long(self, data: bytes, now: float) -> Block:
        """Parse a long read, so that other calls go on meanwhile."""


class Answer(Protocol):
    """One answer: read as it arrives, kept until the win, then written to the sink."""

    announced: bool  # whether its first token was reported

    @property
    def status(self) -> int:
        """The status of the response to the client."""

    @property
    def reader(self) -> AnswerProgress:
        """How far the answer has been read."""

    @property
    def clocks(self) -> AttemptClocks:
        """The clocks of the answer's attempt."""

    @property
    def waits(self) -> bool:
        """Whether the answer may bid only at its end."""

    @property
    def flaw(self) -> Flaw | None:
        """The answer's flaw, if the answer is complete and every answer is checked."""

    @property
    def kept(self) -> Sequence[Block]:
        """The blocks that are kept until the win."""

    def read(
        self,
        data: bytes,
        now: float,
        *,
        finishing: bool = False,
        block: Block | None = None,
        broken: UpstreamError | None = None,
    ) -> Block:
        """Read on with these data (``b""`` at the end); return the part that may be forwarded."""

    def keep(self, block: Block, *, has_token: bool) -> None:
        """Keep a block until the win."""

    def drop_kept(self) -> None:
        """Drop the kept blocks: another attempt answers."""

    async def begin(self, sink: Sink, forward: Forward | None, now: float) -> None:
        """Write the kept blocks."""

    async def write(self, block: Block, sink: Sink, now: float) -> None:
        """Forward a block, but for the last one, which is sent after the call is recorded."""

    def forward(self, data: bytes) -> bool:
        """Forward data at once, if that is possible."""

    def check_whole(self) -> None:
        """Check an answer that has ended."""

    def take_last(self, call: Call) -> Block:
        """Return the last block."""

    def judgement(self, call: Call, outcome: Outcome, *, had_won: bool) -> Judgement:
        """Return the judgement of the answer."""


class Reading(Protocol[Attempt_contra]):
    """How the attempts of one race ask, and how their answers are read."""

    @property
    def form(self) -> Form | None:
        """The form that is sent in place of the call's fields."""

    @property
    def is_compared(self) -> bool:
        """Whether a win counts as the call's first token, though no delta was read."""

    @property
    def has_tokens(self) -> bool:
        """Whether answers are read token by token; if not, a whole answer cannot break, and no answer has a speed."""

    @property
    def priced_as(
        self,
    ) -> Callable[[Mapping[str, Deployment], Sequence[AttemptRecord]], Mapping[str, Deployment]] | None:
        """A function that returns deployments with the prices of the attempts; None: each has its own price."""

    def begin(self, attempt: Attempt_contra, at: float) -> tuple[bool, Measurement]:
        """Return whether a whole answer must be asked for, and the measurement of an attempt launched ``at``."""

    def clocks(self, attempt: Attempt_contra) -> AttemptClocks:
        """Start the clocks of an attempt whose task runs."""

    async def open(self, attempt: Attempt_contra, clocks: AttemptClocks) -> tuple[Exchange, Answer]:
        """Send the request; return the exchange, and what reads its answer."""

    async def instead(self, attempt: Attempt_contra, error: UpstreamError) -> tuple[RetryForm | None, UpstreamError]:
        """Return how to ask the deployment again after its refusal (``error``), None for not at all; and the error."""

    def record(self, attempt: Attempt_contra, ending: Ending, judgement: Judgement) -> AttemptRecord:
        """Return the record of an attempt that has ended, without its cost."""


_ENDS = kinds(lambda facts: facts.may_be_whole)


class Attempt:
    """A running upstream request. The model's entry lets the attempt win, or cuts it."""

    __slots__ = (
        "__weakref__", "_ahead", "_hold_over", "_watch", "again", "answer", "claimed_at", "deployment", "ending",
        "entry", "exchange", "failed_at", "lacks", "measurement", "overtaken", "record", "refused", "seat", "sendings",
        "start", "state", "still", "task", "whole",
    )  # fmt: skip

    def __init__(
        self,
        entry: "EntryHandle[Attempt]",
        deployment: Deployment,
        start: AttemptStart,
        at: float,
        refused: "Attempt | None" = None,
    ) -> None:
        self.deployment = deployment
        self.refused = refused  # the attempt whose request this one repeats, in another form or with another key
        self.again: RetryForm | None = None  # how the deployment was asked again after this attempt
        self.lacks: ApiRefusal | None = None  # what the API of this attempt lacks, such as tools
        self.start = start
        self.state = AttemptState.ASKED
        entry.open_call.running += 1
        self.task: asyncio.Task[None] | None = None
        self.still = False  # whether the answer has stopped in its middle for longer than is usual at the deployment
        self.ending: Ending | None = None  # set once; nothing is measured after that
        self.record: AttemptRecord | None = None  # built from ``ending`` when it is reported to recorders
        self.failed_at: float | None = None
        self.claimed_at: float | None = None  # when this attempt bid, whether it won, is held or has lost
        self.overtaken: OvertakeTimes | None = None
        self.exchange: Exchange | None = None
        self.seat: Seat | None = None  # if there is a limit; kept until the task ends: the provider may work on
        self.sendings = Sendings(of_call=entry.open_call.sent)
        self.entry = entry
        self.whole, self.measurement = entry.reading.begin(self, at)
        self.answer: Answer | None = None  # set when the request is sent
        self._hold_over: asyncio.Future[None] | None = None  # done when the attempt's hold is over
        self._ahead: asyncio.Future[bytes] | None = None  # the read of a held attempt: in a task of its own
        self._watch: WatchEnd | None = None  # set in state WATCHED

    @property
    def first_asked(self) -> "Attempt":
        """The first attempt with this request, before it was repeated with another key or in another form."""
        first = self
        while first.start.role in REPEATING and first.refused is not None:
            first = first.refused
        return first

    @property
    def waiting_since(self) -> float | None:
        """When the clocks began to run, if that was before this attempt: another key, form or API gets no new time."""
        first = self.first_asked
        if first.refused is not None:
            return first.refused.measurement.started
        return None if first is self else first.measurement.started

    async def run(self) -> None:
        """Send the request, bid, and forward the answer. Raises nothing but ``CancelledError``."""
        assert self.task is not None  # no local variable: a task in its own frame is a reference cycle
        entry, reading = self.entry, self.entry.reading
        clocks = reading.clocks(self)
        try:
            try:
                exchange, answer = await reading.open(self, clocks)
                if await self._read(exchange, answer, clocks):
                    await self._end(exchange, answer)
            except UpstreamError as error:
                clocks.stop()
                await self._failed(error.without_frames())
            except asyncio.CancelledError:
                expiry = clocks.take_expiry()
                if expiry is None or self.ending is not None:
                    raise
                self._drop()
                await self._failed(expiry)
            except MemoryError:  # the body is too large for what is left: not a defect, and not the provider's fault
                clocks.stop()
                await self._failed(
                    UpstreamError(ErrorKind.LOCAL_RESOURCES, "the gateway has no memory for this request or its answer")
                )
        except ClientGone:
            entry.client_gone(self)
        except Exception as defect:  # noqa: BLE001 - the race raises it, after all attempts are stopped
            entry.crashed(self, defect)
        finally:
            clocks.forget()
            self._conclude()

    def started(self, task: asyncio.Task[None]) -> None:
        """Set the task of the attempt, which may be cancelled before it begins."""
        self.task = task
        task.add_done_callback(self._ended)

    def cut(self, outcome: Outcome, error: UpstreamError | None = None) -> None:
        """Stop with ``outcome``. The provider notices at once; the cancelled task ends on its own."""
        self.end(outcome, error)
        if self.task is not None:
            self.task.cancel()

    def end_hold(self) -> None:
        """Wake an attempt whose hold is over: a winner sends the kept blocks at once."""
        if self._hold_over is not None and not self._hold_over.done():
            self._hold_over.set_result(None)

    def audit(self, *, speed: bool, limit_s: float) -> None:
        """Lose, but read on: until a first token or the age ``limit_s``; with ``speed``, then some tokens more."""
        self._go_to(AttemptState.WATCHED)
        self._watch = WatchEnd(AUDIT_TOKENS if speed and self.entry.reading.has_tokens else 1)
        if self.answer is not None:
            self.answer.drop_kept()
        self.end_hold()
        age_s = self.entry.open_call.services.clock() - self.measurement.started
        left_s = max(0.0, limit_s - age_s) if self.token_at() is None else AUDIT_TOKENS_S
        self._watch.cut_in(left_s, self.cut, self.entry.loop)

    def end(self, outcome: Outcome, error: UpstreamError | None = None) -> None:
        """Drop the exchange, and set the attempt's ending, unless it has one."""
        self._drop()
        if self._ahead is not None and self.ending is None:
            self._note_read(self._ahead)
        self._settle(Outcome.SUPERSEDED if outcome is Outcome.LOST and self.token_at() is not None else outcome, error)

    def token_at(self) -> float | None:
        """Return the time of the delta that the attempt can bid with; None before that delta."""
        win_on, measurement = self.entry.call.decision.win_on, self.measurement  # the common case: no call
        return measurement.first_at if win_on is WinOn.ANY else measurement.claims_at(win_on)

    def stands_still(self) -> bool:
        """Note a silence in the middle of the answer; return whether another deployment was asked beside this one."""
        self.still = True
        return self.entry.stands_still(self)

    def goes_on(self) -> None:
        """Note that the answer has gone on."""
        self.still = False
        self.entry.goes_on(self)

    def so_far(self) -> AttemptRecord:
        """Return the record that the attempt would have if it were cut now."""
        now, sendings = self.entry.open_call.services.clock(), self.sendings
        ending = Ending(Outcome.SUPERSEDED, now, sendings.times, sendings.key_name, had_won=True)
        return self.entry.reading.record(self, ending, UNJUDGED)

    def flaw(self) -> Flaw | None:
        """Return the flaw of the answer, if the answer is complete and ``win_on`` is VALID."""
        return None if self.answer is None else self.answer.flaw

    def _go_to(self, state: AttemptState) -> None:
        assert state in FOLLOWING[self.state], f"{self.state} is never followed by {state}"
        if (state in RUNNING) is not (self.state in RUNNING):
            self.entry.open_call.running += 1 if state in RUNNING else -1
        self.state = state

    def _ended(self, _task: asyncio.Task[None]) -> None:
        """Handle the end of the task, which may have been cancelled before it began."""
        if self.task is not None:
            self._conclude()
        if self.seat is not None:
            self.seat.give_back()

    def _conclude(self) -> None:
        """Release everything but the attempt's record."""
        if self.ending is None:
            self.end(Outcome.INTERRUPTED)
        else:
            self._drop()
        if self.state is not AttemptState.OVER:
            self._go_to(AttemptState.OVER)
        if self._watch is not None:
            self._watch.stop()
        self.task = None

    def _drop(self) -> None:
        if self.exchange is not None:
            self.exchange.abort()

    def _note_read(self, ahead: asyncio.Future[bytes]) -> None:
        """Count data that came in the turn of the loop in which a held attempt is cut, whose task runs no more."""
        answer = self.answer
        if answer is None or self.state is AttemptState.ANSWERING or not ahead.done() or ahead.cancelled():
            return
        data = b"" if ahead.exception() is not None else ahead.result()
        if data and len(data) + len(answer.reader.held) <= LONG_BYTES:
            with suppress(UpstreamError):
                answer.read(data, self.entry.open_call.services.clock())

    def _learn_calls(self, calls: ToolCalls, answer: Answer) -> None:
        """Learn in what pieces the deployment sends tool calls; not by a translation, which may join pieces."""
        is_own = self.deployment.spoken_to(self.entry.call.request.dialect) is self.entry.call.request.dialect
        if is_own and not self.whole and self.deployment.upstream_stream:
            answer.clocks.learn_calls(*calls.sizes())

    async def _read(self, exchange: Exchange, answer: Answer, clocks: AttemptClocks) -> bool:
        """Read events until the answer is complete or useless; return whether it is complete."""
        clock, reader = self.entry.open_call.services.clock, answer.reader
        while not reader.done:
            broken: UpstreamError | None = None
            try:
                data = await (
                    exchange.read()
                    if self._hold_over is None
                    else self._read_held(self._hold_over, exchange, answer, clocks)
                )
            except UpstreamError as error:
                data, broken = _taken_before(error)
            now, over, is_large, n_before = clock(), not data, len(data) > LARGE_READ_BYTES, self.measurement.meaningful
            long = await reader.read_long(data, now) if len(data) + len(reader.held) > LONG_BYTES else None
            block, long = answer.read(data, now, finishing=exchange.finishing, block=long, broken=broken), None
            rest_s = RESTS * (clock() - now) if is_large and self.measurement.meaningful == n_before else 0
            data = b""  # for a slow client only the data that it has not received stay in memory
            if self.state is AttemptState.ANSWERING:
                await answer.write(block, self.entry.sink, now)
            elif block.error is None:
                if not await self._keep_or_bid(block, answer, now):
                    return False
            elif self.token_at() is not None:  # before the commit the client sees no error, even after a token
                self._announce(answer)
            if block.error is not None:
                raise block.error
            del block  # later data may bypass this task, which would keep the block in memory for all that time
            if over:
                break
            if is_large:  # more data may wait already, and each such read takes some milliseconds
                await asyncio.sleep(rest_s)
        clocks.complete()
        return True

    async def _end(self, exchange: Exchange, answer: Answer) -> None:
        """Check the answer whose stream has ended; complete the race if it wins."""
        answer.check_whole()
        if (calls := self.measurement.reported.tool_calls) is not None:
            self._learn_calls(calls, answer)
        if self.state is not AttemptState.WATCHED and self._hold_over is not None:
            await self._send_held(self._hold_over, answer)
        if self.state is AttemptState.WATCHED:
            self.end(Outcome.LOST)  # or superseded, if it had a token
            return
        if self.state is not AttemptState.ANSWERING:  # the answer had no delta to bid with
            self._go_to(AttemptState.EMPTY)
            await self.entry.wait_until_last(self)
            if self.entry.bid(self, now := self.entry.open_call.services.clock()) is not Bid.WON:
                return
            await self._begin(answer, now)
        await self._won(answer)
        if not exchange.ended:
            self._go_to(AttemptState.DRAINING)
            await drain(exchange)

    async def _keep_or_bid(self, block: Block, answer: Answer, now: float) -> bool:
        """Keep data before a win, and bid at the first token. Returns whether to read on."""
        is_first = not answer.announced and self.token_at() is not None
        if self._watch is None:
            answer.keep(block, has_token=is_first or answer.announced)
        if is_first:
            self._announce(answer)
            if self._watch is None:
                return await self._bid(answer, now)
            self._watch.cut_in(AUDIT_TOKENS_S, self.cut, self.entry.loop)
        if self._watch is not None and answer.announced and max(1, self.measurement.meaningful) >= self._watch.tokens:
            self.end(Outcome.SUPERSEDED)
            return False
        return True

    async def _bid(self, answer: Answer, now: float) -> bool:
        """Bid for the win; return whether to read on: as the winner, held, or watched."""
        self.claimed_at = now
        if (bid := self.entry.bid(self, now)) is Bid.WON:
            await self._begin(answer, now)
        elif bid is Bid.HELD:
            self._go_to(AttemptState.HELD)
            self._hold_over = self.entry.loop.create_future()
        return bid is not Bid.LOST or self.state is AttemptState.WATCHED

    async def _begin(self, answer: Answer, now: float) -> None:
        """Start to answer with the data that was kept."""
        self._hold_over = None
        self._go_to(AttemptState.ANSWERING)
        forward = await self.entry.begin(self, now)
        await answer.begin(self.entry.sink, forward, now)
        if forward is not None and self.exchange is not None:
            self.exchange.offer_to(answer.forward)

    async def _send_held(self, hold_over: asyncio.Future[None], answer: Answer) -> None:
        """Start sending a held answer that is complete. A backup first waits until the winner fails."""
        if self.entry.is_standing_by(self):
            self._leave_seat()
            await hold_over
        else:
            self.entry.release(self)
        if self.state is AttemptState.HELD:
            await self._begin(answer, self.entry.open_call.services.clock())

    async def _read_held(
        self, hold_over: asyncio.Future[None], exchange: Exchange, answer: Answer, clocks: AttemptClocks
    ) -> bytes:
        """Read on while held, so that token times are correct; begin as soon as the hold is over.

        Raises:
            UpstreamError: a timeout, in the same turn of the loop as data; its ``before`` has the data.

        """
        read, begins = asyncio.ensure_future(exchange.read()), False
        self._ahead = read
        try:
            waiting: set[asyncio.Future[Any]] = {read, hold_over}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if hold_over.done():
                self._hold_over = None
                if self.state is not AttemptState.WATCHED:
                    begins = True
                    await self._begin(answer, self.entry.open_call.services.clock())
                    begins = False
                await asyncio.wait({read})  # unlike ``await read``: a cancellation of this task lets the read end
            return read.result()
        except asyncio.CancelledError:
            if begins or self.ending is not None or (expiry := clocks.take_expiry()) is None:
                raise
            await asyncio.sleep(0)  # one turn for the reading task: data that came are not lost with the task
            if read.done() and not read.cancelled() and read.exception() is None:
                expiry.before = read.result()
            self._drop()
            raise expiry from None
        finally:
            self._ahead = None
            if not read.done():
                read.cancel()
                await asyncio.wait({read})
            retrieve(read)

    def _announce(self, answer: Answer) -> None:
        """Report the first token, once."""
        if answer.announced or (at := self.token_at()) is None:
            return
        answer.announced = True
        open_call = self.entry.open_call
        if self.refused is not None and self.refused.exchange is not None:
            open_call.services.forms.answered(self, self.entry.call)
        first_token = partial(open_call.first_token, whole=True) if self.whole else open_call.first_token
        open_call.services.outbox.add(first_token, self.entry.call, self.start, self.measurement.started, at)

    async def _failed(self, error: UpstreamError) -> None:
        """Handle an error of the stream: after a finish reason the answer still counts as complete."""
        now, measurement = self.entry.open_call.services.clock(), self.measurement
        if error.read_s is not None and measurement.headers_at is None:
            measurement.headers_at = max(measurement.started, now - error.read_s)
        mark_words(error, self.entry.call, self.deployment, self.entry.reading.form)
        if self.exchange is not None and measurement.first_at is None:  # an answer that has begun was not refused
            decide_within(error, self.entry.call, self.deployment)
        if self.sendings.failed is not None:
            self.sendings.failed(error)
        try:
            if error.kind in _ENDS and await self._finish_if_whole(now):
                return
        except UpstreamError as useless:  # the last events do not continue the answer
            error = useless.without_frames()
        again, error = await self.entry.reading.instead(self, error)
        is_last = again is not None and self.sendings.noted_as_last(error, NOT_AGAIN)
        if again is not None and (is_last or self.entry.keeps_last_for_another()):
            again = None
        self.again, error = again, recorded(error, again)
        self.failed_at, was_in_race = now, self.state is not AttemptState.WATCHED
        self._settle(outcome_of(error), error)
        if was_in_race and not (again is not None and self.entry.ask_again(self, again)):  # a watched one has lost
            await self.entry.failed(self, error)

    async def _finish_if_whole(self, now: float) -> bool:
        """Win, or lose, with an answer whose stream broke after its finish reason; return whether the answer is whole.

        Raises:
            UpstreamError: the end of the answer is unusable.

        """
        answer, exchange = self.answer, self.exchange
        if answer is None or exchange is None:
            return False
        finishing = exchange.finishing
        is_whole = answer.reader.finished or finishing
        if self.state is AttemptState.WATCHED and is_whole:
            if not answer.reader.finished:
                answer.read(exchange.conclude(), now)
                self._announce(answer)
            answer.check_whole()
            self.end(Outcome.LOST)  # or superseded, if it had a token
            return True
        if self.state is AttemptState.ASKED and answer.waits and is_whole:
            finishing = False  # the end of the answer is read here
            await self._keep_or_bid(answer.read(exchange.conclude(), now), answer, now)
        if self.state is AttemptState.HELD and self._hold_over is not None and is_whole:
            await self._send_held(self._hold_over, answer)
        if self.state is AttemptState.ANSWERING and finishing:  # a translation held the finish reason back
            await answer.write(answer.read(exchange.conclude(), now), self.entry.sink, now)
        if self.state is not AttemptState.ANSWERING or not answer.reader.finished:
            return False
        await self._won(answer)
        return True

    async def _won(self, answer: Answer) -> None:
        self._settle(Outcome.WON)
        self._leave_seat()
        await self.entry.complete(answer.take_last(self.entry.call))

    def _leave_seat(self) -> None:
        """Give the seat back if the provider has finished, however slowly the client reads."""
        if self.seat is not None and self.exchange is not None and self.exchange.ended:
            self.seat.give_back()

    def _settle(self, outcome: Outcome, error: UpstreamError | None = None) -> None:
        """Set how and when the attempt ends, once; its record is built later."""
        if error is not None:
            keep_words(error, self.entry.call, self.deployment, self.entry.reading.form)
        if self.ending is not None:
            return
        had_won, open_call = self.state is AttemptState.ANSWERING, self.entry.open_call
        self._go_to(AttemptState.ANSWERED if outcome is Outcome.WON else AttemptState.OVER)
        services, sendings = open_call.services, self.sendings
        self.ending = Ending(outcome, services.clock(), sendings.times, sendings.key_name, error, had_won)
        if services.seats.preexisting:
            services.seats.ended(self.start.id, self.entry.loop)
        services.outbox.add(self._report, self.ending)
        if open_call.record is not None:  # an audited loser after its call: limits count its cost at once
            services.outbox.drain()

    def _report(self, ending: Ending) -> None:
        """Build the record and report it. Its cost is added later, when the winner's usage is known."""
        answer, call, had_won = self.answer, self.entry.call, ending.had_won
        judgement = UNJUDGED if answer is None else answer.judgement(call, ending.outcome, had_won=had_won)
        self.record = self.entry.reading.record(self, ending, judgement)
        self.entry.open_call.ended(self.record, ending.at, whole=self.whole)


def _taken_before(error: UpstreamError) -> tuple[bytes, UpstreamError]:
    """Return, once, the events that a translation has made before its ``error``, and the error.

    Raises:
        UpstreamError: ``error``, if there are no such events.

    """
    if not error.before:
        raise error
    before, error.before = error.before, b""
    return before, error.without_frames()
