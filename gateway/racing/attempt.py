"""One attempt: a single upstream request, from its launch to its record.

An attempt is one task. It keeps the data until the first meaningful delta, bids for the win, and if it wins it forwards
the rest to the sink. Nobody else uses its exchange, except that a cut aborts it. ``course``: the interface of its race.
"""

import asyncio
from typing import TYPE_CHECKING

from gateway.attempt_records import AttemptRecord, AttemptStart, Flaw, Outcome, WinOn
from gateway.fleet.deployment import Deployment
from gateway.racing.attempt_recording import Ending, attempt_record, outcome_of
from gateway.racing.attempt_state import FOLLOWING, State
from gateway.racing.clocks import AttemptClocks
from gateway.racing.course import Bid, Course
from gateway.racing.exchanges import drain, open_exchange, reading
from gateway.racing.judging import UNJUDGED, Judgement
from gateway.racing.measurement import Measurement, most_tokens
from gateway.racing.pace import FOR_S, NONE, UNKNOWN
from gateway.racing.passage import Passage
from gateway.racing.reading import Block
from gateway.racing.sink import ClientGone
from gateway.racing.watch import AUDIT_TOKENS, AUDIT_TOKENS_S, Overtaken, Watch
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Exchange
from providers.sendings import Sendings

if TYPE_CHECKING:
    from gateway.racing.seats import Seat

_ENDS = frozenset({ErrorKind.DISCONNECTED, ErrorKind.STALL_TIMEOUT, ErrorKind.TOTAL_TIMEOUT})


class Attempt:
    """A running upstream request, which its race sees as something that may claim, fail or be cut."""

    __slots__ = (
        "__weakref__", "_passage", "_sendings", "_turn", "_watch", "claimed_at", "deployment", "ending", "exchange",
        "failed_at", "measurement", "overtaken", "race", "record", "seat", "start", "state", "task",
    )  # fmt: skip

    def __init__(self, race: "Course[Attempt]", deployment: Deployment, start: AttemptStart, at: float) -> None:
        self.deployment = deployment
        self.start = start
        self.state = State.ASKED
        self.task: asyncio.Task[None] | None = None
        self.ending: Ending | None = None  # set when it is settled; nothing is measured after that
        self.record: AttemptRecord | None = None  # made of ``ending`` when recorders are told
        self.failed_at: float | None = None
        self.claimed_at: float | None = None  # by the first token, which may be held or be too late
        self.measurement = Measurement(at, most_tokens(deployment.capabilities))
        self.overtaken: Overtaken | None = None
        self.exchange: Exchange | None = None
        self.seat: Seat | None = None  # if there is a limit; the provider may work until the task ends
        self._sendings = Sendings()
        self.race = race
        self._passage: Passage | None = None  # set when there is an answer
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
        self.end(Outcome.INTERRUPTED)  # unless an outcome was set
        if self.state is not State.OVER:
            self._go_to(State.OVER)
        if self._watch is not None:
            self._watch.stop()
        self.task = None

    def _drop(self) -> None:
        if self.exchange is not None:
            self.exchange.abort()

    async def _ask(self, clocks: AttemptClocks) -> tuple[Exchange, Passage]:
        """Send the request; return the exchange and the passage of the answer."""
        clock, call, measurement = self.race.open_call.services.clock, self.race.call, self.measurement
        exchange = self.exchange = await open_exchange(self.deployment, call, self.start.id, self._sendings)
        measurement.headers_at, measurement.connect_ms = clock(), exchange.connect_ms
        passage = self._passage = Passage(call, measurement, clocks, exchange.secrets, clock)
        return exchange, passage

    async def _read(self, exchange: Exchange, passage: Passage, clocks: AttemptClocks) -> bool:
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

    async def _end(self, exchange: Exchange, passage: Passage) -> None:
        """Check the stream that has ended; win with it if it is complete."""
        if self.state is not State.WATCHED:
            passage.check_whole()
            if self._turn is not None:
                await self._take_turn(self._turn, passage)
        if self.state is State.WATCHED:
            self.end(Outcome.SUPERSEDED)
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
            await drain(exchange, self.race.loop)

    async def _stay(self, block: Block, passage: Passage, now: float) -> bool:
        """Continue without a win: keep the data, bid at the first token. Returns False if there is no reason to."""
        if self._watch is None:
            passage.keep(block)
        if not passage.announced and self.token_at() is not None:
            self._announce(passage)
            if self._watch is None:
                return await self._bid(passage, now)
            self._watch.cut_in(AUDIT_TOKENS_S, self.cut, self.race.loop)
        if self._watch is not None and passage.announced and self.measurement.meaningful >= self._watch.tokens:
            self.end(Outcome.SUPERSEDED)
            return False
        return True

    async def _bid(self, passage: Passage, now: float) -> bool:
        """Claim the win; return whether to continue: as the winner, held, or watched."""
        self.claimed_at = now
        if (bid := self.race.bid(self, now)) is Bid.WON:
            await self._begin(passage, now)
        elif bid is Bid.HELD:
            self._go_to(State.HELD)
            self._turn = self.race.loop.create_future()
        return bid is not Bid.LOST or self.state is State.WATCHED

    async def _begin(self, passage: Passage, now: float) -> None:
        """Start to answer, with what was kept."""
        self._turn = None
        self._go_to(State.ANSWERING)
        forward = await self.race.begin(self, now)
        await passage.begin(self.race.sink, forward, now)
        if forward is not None and self.exchange is not None:
            self.exchange.offer_to(passage.pass_on)

    async def _take_turn(self, turn: asyncio.Future[None], passage: Passage) -> None:
        """Answer with what was held, as it is whole: at once, or a rival when its winner has broken."""
        if self.race.is_behind(self):
            self._leave_seat()
            await turn
        else:
            self.race.release(self)
        if self.state is State.HELD:
            await self._begin(passage, self.race.open_call.services.clock())

    async def _read_held(self, turn: asyncio.Future[None], exchange: Exchange, passage: Passage) -> bytes:
        """Read on while held, so that token times are correct; begin as soon as the hold is over."""
        async with reading(exchange, until=turn) as data:
            if turn.done():
                self._turn = None
                if self.state is not State.WATCHED:
                    await self._begin(passage, self.race.open_call.services.clock())
            return await data

    def _announce(self, passage: Passage) -> None:
        """Report the first token, once."""
        if passage.announced or (at := self.token_at()) is None:
            return
        passage.announced = True
        open_call = self.race.open_call
        open_call.services.outbox.add(open_call.first_token, self.race.call, self.start, self.measurement.started, at)

    async def _broke(self, error: UpstreamError) -> None:
        """Handle an early end of the stream: after a finish reason the answer still counts as complete."""
        passage, exchange, now = self._passage, self.exchange, self.race.open_call.services.clock()
        if passage is not None and exchange is not None and error.kind in _ENDS:
            is_whole, finishing = passage.reader.finished or exchange.finishing, exchange.finishing
            if self.state is State.ASKED and passage.waits and is_whole:
                finishing = False  # its end is read here
                await self._stay(passage.read(exchange.conclude(), now), passage, now)
            if self.state is State.HELD and self._turn is not None and is_whole:
                await self._take_turn(self._turn, passage)
            if self.state is State.ANSWERING and finishing:  # a translation has held the finish reason back
                await passage.write(passage.read(exchange.conclude(), now), self.race.sink, now)
            if self.state is State.ANSWERING and passage.reader.finished:
                await self._won(passage)
                return
        self.failed_at, is_rival = now, self.state is not State.WATCHED
        self._settle(outcome_of(error), error)
        if is_rival:  # else its race goes on without it anyway
            await self.race.failed(self, error)

    async def _won(self, passage: Passage) -> None:
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
