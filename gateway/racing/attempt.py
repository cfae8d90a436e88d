"""One attempt: a single upstream request, from its launch to its record.

An attempt is one task. It keeps the data until the first meaningful delta, bids for the win, and if it wins it forwards
the rest to the sink. Nothing else uses its exchange, except that a cut aborts it. ``RaceHandle``: its race's interface.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gateway.core.attempts import AttemptRecord, AttemptStart, Flaw, Outcome, WinOn
from gateway.core.calls import Call
from gateway.fleet.models import Deployment
from gateway.racing.answer import AnswerStream
from gateway.racing.call import OpenCall
from gateway.racing.measurement import (
    AUDIT_TOKENS,
    AUDIT_TOKENS_S,
    FOR_S,
    NONE,
    UNKNOWN,
    Measurement,
    Overtaken,
    Watch,
    most_tokens,
)
from gateway.racing.reader import Block
from gateway.racing.records import Ending, attempt_record, outcome_of
from gateway.racing.sinks import ClientGone, Forward, Sink
from gateway.racing.timeouts import AttemptClocks
from gateway.racing.validation import UNJUDGED, Judgement
from providers import ErrorKind, Exchange, Request, SendCount, TranslatedExchange, UpstreamError
from providers.dialects import translations

if TYPE_CHECKING:
    from gateway.racing.slots import Seat

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


class State(Enum):
    """The state of an attempt."""

    ASKED = "asked"  # launched; no delta yet that can win the race
    HELD = "held"  # has its first token, but waits for another attempt that is predicted to be better
    EMPTY = "empty"  # its answer is complete but empty; it is used only if no other attempt is left
    ANSWERING = "answering"  # has won: its events are sent to the client
    ANSWERED = "answered"  # the answer is complete and recorded
    DRAINING = "draining"  # its body is read to the end, so that the connection can be reused
    WATCHED = "watched"  # has lost, and is audited: read until its first token, or a few more
    OVER = "over"  # its record is fixed and its exchange dropped

    __hash__ = object.__hash__  # Enum's own is a Python call for each set lookup


ACTIVE = frozenset({State.ASKED, State.HELD, State.EMPTY, State.ANSWERING})  # those that may answer, or do
UNAWAITED = frozenset({State.WATCHED, State.DRAINING})  # those whose end need not be awaited

FOLLOWING: Mapping[State, frozenset[State]] = {
    State.ASKED: frozenset({State.HELD, State.EMPTY, State.ANSWERING, State.WATCHED, State.OVER}),
    State.HELD: frozenset({State.ANSWERING, State.WATCHED, State.OVER}),
    State.EMPTY: frozenset({State.ANSWERING, State.OVER}),
    State.ANSWERING: frozenset({State.ANSWERED, State.OVER}),
    State.ANSWERED: frozenset({State.DRAINING, State.OVER}),
    State.DRAINING: frozenset({State.OVER}),
    State.WATCHED: frozenset({State.OVER}),
    State.OVER: frozenset(),
}


# Opens the exchange of an attempt, and reads the rest of its body after the answer.

DRAIN_S = 0.25  # maximum wait for the end of the body after [DONE]; then the connection is dropped


async def open_exchange(deployment: Deployment, call: Call, attempt_id: str, sendings: SendCount) -> Exchange:
    """Send ``call`` to ``deployment``; return the exchange, whose events are in the client's dialect.

    Raises:
        UpstreamError: as for ``Upstream.stream``.

    """
    spoken = deployment.spoken_to(call.dialect)
    request = Request(
        model=deployment.model,
        fields=call.wordings.get(deployment.name, call.fields),
        dialect=spoken,
        headers=call.headers if call.trace is None else call.trace.sent_with(call.headers, attempt_id),
        own_headers=deployment.extra_headers,
        extra_body=deployment.extra_body,
        upstream_stream=deployment.upstream_stream,
        connect_timeout_s=deployment.clocks.connect_s,
        drop_params=deployment.drop_params,
        once=call.stateful,
        sendings=sendings,
    )
    exchange = await deployment.upstream.stream(request)
    if spoken is call.dialect:
        return exchange
    return TranslatedExchange(exchange, translations(spoken, call.dialect, call.fields, exchange.secrets))


@asynccontextmanager
async def reading(exchange: Exchange, *, until: asyncio.Future[None]) -> AsyncIterator[asyncio.Future[bytes]]:
    """Yield the next read of ``exchange`` when it is done, or when ``until`` is; drop it if left before."""
    read = asyncio.ensure_future(exchange.read())
    try:
        waiting: set[asyncio.Future[Any]] = {read, until}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        yield read
    finally:
        if not read.done():
            read.cancel()
            await asyncio.wait({read})
        if not read.cancelled():
            read.exception()  # of a dropped exchange: retrieve its exception, as nothing else does


async def drain(exchange: Exchange) -> None:
    """Read to the end of the body, so that the connection can be reused; drop it after ``DRAIN_S``."""
    try:
        async with asyncio.timeout(DRAIN_S):  # an abort alone wakes nobody who reads
            while await exchange.read():
                pass
    except (UpstreamError, TimeoutError):
        exchange.abort()


# The interface of a race that its attempts use.

Attempt_contra = TypeVar("Attempt_contra", contravariant=True)


class Bid(Enum):
    """The result of an attempt's bid with its first token."""

    WON = "won"
    LOST = "lost"
    HELD = "held"  # for now: another attempt is predicted to be better


class RaceHandle(Protocol[Attempt_contra]):
    """A race as its attempts see it."""

    call: Call  # as built for this model: an audited loser may outlive the change to a fallback
    open_call: OpenCall
    sink: Sink
    loop: asyncio.AbstractEventLoop

    def bid(self, attempt: Attempt_contra, now: float) -> Bid:
        """Decide about an attempt that has its first token. If it wins, all others are cut."""

    def release(self, attempt: Attempt_contra) -> None:
        """Let a held attempt win."""

    def is_behind(self, attempt: Attempt_contra) -> bool:
        """Whether it runs on behind the winner, and answers if that breaks."""

    def was_kept(self, attempt: Attempt_contra) -> bool | None:
        """Whether it has run on behind a winner; None where none may."""

    async def begin(self, attempt: Attempt_contra, now: float) -> Forward | None:
        """Start the answer of an attempt that has won with a first token at ``now``."""

    async def alone(self, attempt: Attempt_contra) -> None:
        """Wait until only attempts with empty answers are left."""

    async def complete(self, last: Block) -> None:
        """End the race with the winner's complete answer; its ``last`` events have not been sent yet."""

    async def failed(self, attempt: Attempt_contra, error: UpstreamError) -> None:
        """Replace an attempt that failed, or end the race."""

    def client_gone(self, attempt: Attempt_contra) -> None:
        """End the race: the client has disconnected."""

    def crashed(self, attempt: Attempt_contra, defect: Exception) -> None:
        """End the race because of a bug in the gateway."""


_ENDS = frozenset({ErrorKind.DISCONNECTED, ErrorKind.STALL_TIMEOUT, ErrorKind.TOTAL_TIMEOUT})


class Attempt:
    """A running upstream request, which its race sees as something that may claim, fail or be cut."""

    __slots__ = (
        "__weakref__", "_passage", "_sendings", "_turn", "_watch", "claimed_at", "deployment", "ending", "exchange",
        "failed_at", "measurement", "overtaken", "race", "record", "seat", "start", "state", "task",
    )  # fmt: skip

    def __init__(self, race: "RaceHandle[Attempt]", deployment: Deployment, start: AttemptStart, at: float) -> None:
        self.deployment = deployment
        self.start = start
        self.state = State.ASKED
        self.task: asyncio.Task[None] | None = None
        self.ending: Ending | None = None  # set when it is settled; nothing is measured after that
        self.record: AttemptRecord | None = None  # made of ``ending`` when recorders are told
        self.failed_at: float | None = None
        self.claimed_at: float | None = None  # by the first token, which may be held or be too late
        # What is added to the client's prompt is of unknown length.
        prompt_bytes = None if start.continues or deployment.extra_body else race.open_call.call.inline_bytes
        self.measurement = Measurement(at, most_tokens(deployment.capabilities), prompt_bytes)
        self.overtaken: Overtaken | None = None
        self.exchange: Exchange | None = None
        self.seat: Seat | None = None  # if there is a limit; the provider may work until the task ends
        self._sendings = SendCount()
        self.race = race
        self._passage: AnswerStream | None = None  # set when it is asked
        self._turn: asyncio.Future[None] | None = None  # done when the hold is over, however it ends
        self._watch: Watch | None = None  # set when it is WATCHED

    async def run(self) -> None:
        """The attempt's task: ask, claim, forward. Raises nothing but a cancellation."""
        assert self.task is not None  # and no local name for it: a cycle
        race = self.race
        clocks = AttemptClocks(self.deployment.clocks, self.task, race.open_call.services.clock, race.loop)
        try:
            try:
                exchange, passage = await self._ask(clocks)
                if await self._read(exchange, passage, clocks):
                    await self._end(exchange, passage)
            except UpstreamError as error:
                clocks.stop()
                await self._broke(error.without_frames())
            except asyncio.CancelledError:
                expiry = clocks.take_expiry()
                if expiry is None or self.ending is not None:
                    raise
                self._drop()
                await self._broke(expiry)
        except ClientGone:
            race.client_gone(self)
        except Exception as defect:  # noqa: BLE001 - the race raises it, after all attempts are stopped
            race.crashed(self, defect)
        finally:
            clocks.forget()
            self._conclude()

    def started(self, task: asyncio.Task[None]) -> None:
        """Set the task that runs it; it may be cancelled before it begins."""
        self.task = task
        task.add_done_callback(self._ended)

    def cut(self, outcome: Outcome, error: UpstreamError | None = None) -> None:
        """Stop with ``outcome``. The provider notices at once; the cancelled task ends on its own."""
        self.end(outcome, error)
        if self.task is not None:
            self.task.cancel()

    def released(self) -> None:
        """Win after a hold: what was kept is sent at once."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def audit(self, *, speed: bool, limit_s: float) -> None:
        """Lose, but be watched: for a first token until the age ``limit_s``, then for more to learn the ``speed``."""
        self._go_to(State.WATCHED)
        self._watch = Watch(AUDIT_TOKENS if speed else 1)
        if self._passage is not None:
            self._passage.drop_kept()
        self.released()
        age_s = self.race.open_call.services.clock() - self.measurement.started
        left_s = max(0.0, limit_s - age_s) if self.token_at() is None else AUDIT_TOKENS_S
        self._watch.cut_in(left_s, self.cut, self.race.loop)

    def end(self, outcome: Outcome, error: UpstreamError | None = None) -> None:
        """Drop the exchange, and settle how the attempt ends, unless that is settled."""
        self._drop()
        self._settle(Outcome.SUPERSEDED if outcome is Outcome.LOST and self.token_at() is not None else outcome, error)

    def token_at(self) -> float | None:
        """The time of the delta that may win the call; None before it."""
        win_on, measurement = self.race.call.win_on, self.measurement  # the usual one needs no call
        return measurement.first_at if win_on is WinOn.ANY else measurement.claims_at(win_on)

    def so_far(self) -> AttemptRecord:
        """Return the record that it would have if it were cut now."""
        now, sendings = self.race.open_call.services.clock(), self._sendings
        ending = Ending(Outcome.SUPERSEDED, now, sendings.times, sendings.key_name, had_won=True)
        return _record_of(self, ending, UNJUDGED)

    def flaw(self) -> Flaw | None:
        """What is wrong with its answer, if that is complete and all are looked at."""
        return None if self._passage is None else self._passage.flaw

    def _go_to(self, state: State) -> None:
        assert state in FOLLOWING[self.state], f"{self.state} is never followed by {state}"
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
        if self.state is not State.OVER:
            self._go_to(State.OVER)
        if self._watch is not None:
            self._watch.stop()
        self.task = None

    def _drop(self) -> None:
        if self.exchange is not None:
            self.exchange.abort()

    async def _ask(self, clocks: AttemptClocks) -> tuple[Exchange, AnswerStream]:
        """Send the request; return the exchange and the passage of the answer."""
        clock, call, measurement = self.race.open_call.services.clock, self.race.call, self.measurement
        self.race.loop.call_soon(self._expect, clocks)  # while the provider works
        exchange = self.exchange = await open_exchange(self.deployment, call, self.start.id, self._sendings)
        measurement.headers_at, measurement.connect_ms = clock(), exchange.connect_ms
        passage = self._expect(clocks)
        passage.reader.mask(exchange.secrets)
        return exchange, passage

    def _expect(self, clocks: AttemptClocks) -> AnswerStream:
        """Make what reads the answer, unless there is one."""
        passage = self._passage
        if passage is None:
            clock = self.race.open_call.services.clock
            passage = self._passage = AnswerStream(self.race.call, self.measurement, clocks, clock)
        return passage

    async def _read(self, exchange: Exchange, passage: AnswerStream, clocks: AttemptClocks) -> bool:
        """Read events until the answer is complete or useless; return whether it is complete."""
        clock, reader = self.race.open_call.services.clock, passage.reader
        while not reader.done:
            data = await (exchange.read() if self._turn is None else self._read_held(self._turn, exchange, passage))
            now = clock()
            block = passage.read(data, now, finishing=exchange.finishing)
            over, data = not data, b""  # a slow client keeps only the data that it has not received in memory
            if self.state is State.ANSWERING:
                await passage.write(block, self.race.sink, now)
            elif block.error is None:
                if not await self._stay(block, passage, now):
                    return False
            elif self.token_at() is not None:  # before commit the client sees no failure, even if a token came with it
                self._announce(passage)
            if block.error is not None:
                raise block.error
            del block  # all later data may bypass this task: nothing must be kept for that long
            if over:
                break
        clocks.stop()
        return True

    async def _end(self, exchange: Exchange, passage: AnswerStream) -> None:
        """Check the stream that has ended; win with it if it is complete."""
        passage.check_whole()
        if self.state is not State.WATCHED and self._turn is not None:
            await self._take_turn(self._turn, passage)
        if self.state is State.WATCHED:
            self.end(Outcome.LOST)  # or superseded, if it had a token
            return
        if self.state is not State.ANSWERING:  # it had nothing to claim with
            self._go_to(State.EMPTY)
            await self.race.alone(self)
            if self.race.bid(self, now := self.race.open_call.services.clock()) is not Bid.WON:
                return
            await self._begin(passage, now)
        await self._won(passage)
        if not exchange.ended:
            self._go_to(State.DRAINING)
            await drain(exchange)

    async def _stay(self, block: Block, passage: AnswerStream, now: float) -> bool:
        """Continue without a win: keep the data, bid at the first token. Returns False if there is no reason to."""
        is_first = not passage.announced and self.token_at() is not None
        if self._watch is None:
            passage.keep(block, has_token=is_first or passage.announced)
        if is_first:
            self._announce(passage)
            if self._watch is None:
                return await self._bid(passage, now)
            self._watch.cut_in(AUDIT_TOKENS_S, self.cut, self.race.loop)
        if self._watch is not None and passage.announced and self.measurement.meaningful >= self._watch.tokens:
            self.end(Outcome.SUPERSEDED)
            return False
        return True

    async def _bid(self, passage: AnswerStream, now: float) -> bool:
        """Claim the win; return whether to continue: as the winner, held, or watched."""
        self.claimed_at = now
        if (bid := self.race.bid(self, now)) is Bid.WON:
            await self._begin(passage, now)
        elif bid is Bid.HELD:
            self._go_to(State.HELD)
            self._turn = self.race.loop.create_future()
        return bid is not Bid.LOST or self.state is State.WATCHED

    async def _begin(self, passage: AnswerStream, now: float) -> None:
        """Start to answer, with what was kept."""
        self._turn = None
        self._go_to(State.ANSWERING)
        forward = await self.race.begin(self, now)
        await passage.begin(self.race.sink, forward, now)
        if forward is not None and self.exchange is not None:
            self.exchange.offer_to(passage.pass_on)

    async def _take_turn(self, turn: asyncio.Future[None], passage: AnswerStream) -> None:
        """Start sending a held answer that is complete. A backup waits until the winner breaks."""
        if self.race.is_behind(self):
            self._leave_seat()
            await turn
        else:
            self.race.release(self)
        if self.state is State.HELD:
            await self._begin(passage, self.race.open_call.services.clock())

    async def _read_held(self, turn: asyncio.Future[None], exchange: Exchange, passage: AnswerStream) -> bytes:
        """Read on while held, so that token times are correct; begin as soon as the hold is over."""
        async with reading(exchange, until=turn) as data:
            if turn.done():
                self._turn = None
                if self.state is not State.WATCHED:
                    await self._begin(passage, self.race.open_call.services.clock())
            return await data

    def _announce(self, passage: AnswerStream) -> None:
        """Report the first token, once."""
        if passage.announced or (at := self.token_at()) is None:
            return
        passage.announced = True
        open_call = self.race.open_call
        open_call.services.outbox.add(open_call.first_token, self.race.call, self.start, self.measurement.started, at)

    async def _broke(self, error: UpstreamError) -> None:
        """Handle an early end of the stream: after a finish reason the answer still counts as complete."""
        now = self.race.open_call.services.clock()
        try:
            if error.kind in _ENDS and await self._was_whole(now):
                return
        except UpstreamError as useless:  # its last events do not continue the answer that it was to finish
            error = useless.without_frames()
        self.failed_at, is_rival = now, self.state is not State.WATCHED
        self._settle(outcome_of(error), error)
        if is_rival:  # else its race goes on without it anyway
            await self.race.failed(self, error)

    async def _was_whole(self, now: float) -> bool:
        """Win with a stream that broke after its finish reason, or take its turn; return whether it has won.

        Raises:
            UpstreamError: its end is of no use.

        """
        passage, exchange = self._passage, self.exchange
        if passage is None or exchange is None:
            return False
        is_whole, finishing = passage.reader.finished or exchange.finishing, exchange.finishing
        if self.state is State.ASKED and passage.waits and is_whole:
            finishing = False  # its end is read here
            await self._stay(passage.read(exchange.conclude(), now), passage, now)
        if self.state is State.HELD and self._turn is not None and is_whole:
            await self._take_turn(self._turn, passage)
        if self.state is State.ANSWERING and finishing:  # a translation has held the finish reason back
            await passage.write(passage.read(exchange.conclude(), now), self.race.sink, now)
        if self.state is not State.ANSWERING or not passage.reader.finished:
            return False
        await self._won(passage)
        return True

    async def _won(self, passage: AnswerStream) -> None:
        self._settle(Outcome.WON)
        if self.seat is not None:
            self._leave_seat()
        await self.race.complete(passage.take_last(self.race.call))

    def _leave_seat(self) -> None:
        """Give the seat back if the provider has finished, however slowly the client reads."""
        if self.seat is not None and self.exchange is not None and self.exchange.ended:
            self.seat.give_back()

    def _settle(self, outcome: Outcome, error: UpstreamError | None = None) -> None:
        """Note how and when it ends, once; its record is built later."""
        if self.ending is not None:
            return
        had_won, open_call = self.state is State.ANSWERING, self.race.open_call
        self._go_to(State.ANSWERED if outcome is Outcome.WON else State.OVER)
        services, sendings = open_call.services, self._sendings
        self.ending = Ending(outcome, services.clock(), sendings.times, sendings.key_name, error, had_won)
        if services.seats.strangers:
            services.seats.ended(self.start.id, self.race.loop)
        services.outbox.add(self._report, self.ending)
        if open_call.record is not None:  # audited, and its call is over: limits count its cost at once
            services.outbox.drain()

    def _report(self, ending: Ending) -> None:
        """Build the record, and tell recorders; only its cost is added later, when the winner's usage is known."""
        passage, call, had_won = self._passage, self.race.call, ending.had_won
        judgement = UNJUDGED if passage is None else passage.judgement(call, ending.outcome, had_won=had_won)
        self.record = _record_of(self, ending, judgement)
        self.race.open_call.ended(self.record, ending.at)


def _record_of(attempt: Attempt, ending: Ending, judgement: Judgement) -> AttemptRecord:
    """Return the record of an ``attempt`` that has ended."""
    race, measurement, deployment = attempt.race, attempt.measurement, attempt.deployment.name
    paces, streamed, outcome = race.open_call.services.paces, race.call.streamed, ending.outcome
    dribble = UNKNOWN
    if ending.had_won and streamed:
        first_at, last_at = measurement.first_at, measurement.last_at
        is_long = first_at is not None and last_at is not None and last_at - first_at >= FOR_S
        dribble = paces.dribble(deployment, measurement) if is_long else NONE
    cut = (outcome is Outcome.LOST or outcome is Outcome.CLIENT_GONE) and attempt.token_at() is None
    record = attempt_record(
        race.call,
        attempt.start,
        ending,
        measurement,
        exchange=attempt.exchange,
        censored_at=ending.at if cut else None,
        overtaken=attempt.overtaken,
        kept=None if streamed else race.was_kept(attempt),
        judgement=judgement,
        dribble=dribble,
    )
    if outcome is Outcome.WON and record.decode_tps is not None:
        paces.add(deployment, record.decode_tps)
    return record
