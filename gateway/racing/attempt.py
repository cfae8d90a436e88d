"""One attempt: a single upstream request, from its launch to its record.

An attempt is one task. It opens the exchange, keeps what arrives until the first meaningful delta, claims the win,
and if it gets it pumps the rest into the sink itself. It is the only one to touch its exchange, except that being
cut aborts it.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from gateway.calls import AnswerKind, AttemptRecord, AttemptStart, Call, Outcome, WinOn
from gateway.fleet import Deployment
from gateway.racing.answer_text import AnswerText
from gateway.racing.clocks import AttemptClocks
from gateway.racing.judging import UNJUDGED, judge
from gateway.racing.measurement import Measurement
from gateway.racing.reading import AnswerReader, Block, joined
from gateway.racing.recording import attempt_record, outcome_of
from gateway.racing.seats import Line
from gateway.racing.sink import ClientGone, Forward
from providers.dialects.event_codecs import CODECS, translations
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Exchange, Request
from providers.http_exchange import TranslatedExchange
from providers.sendings import Sendings

if TYPE_CHECKING:
    from gateway.racing.race import Race

UNCLAIMED_BYTES = 8 * 2**20  # a provider that sends this much before its first token is broken
AUDIT_S = 30.0  # so long after its launch, or as its first-token clock says, an audited loser may have its first token
AUDIT_TOKENS = 32  # and is in an exploring race then watched for so many, for its speed,
AUDIT_TOKENS_S = 10.0  # but no longer than this
DRAIN_S = 0.25  # how long after [DONE] the end of the body may take before its connection is given up

_ENDS = frozenset({ErrorKind.DISCONNECTED, ErrorKind.STALL_TIMEOUT})


class Attempt:
    """An upstream request under way, seen by its race as something that may claim, fail or be cut."""

    __slots__ = (
        "_announced",
        "_call",
        "_claimed",
        "_clock",
        "_forward",
        "_held",
        "_kept",
        "_kept_bytes",
        "_last",
        "_loop",
        "_race",
        "_reader",
        "_sendings",
        "_text",
        "_watch_timer",
        "_watched",
        "_watched_tokens",
        "deployment",
        "draining",
        "error",
        "exchange",
        "failed_at",
        "line",
        "measurement",
        "overtaken_at",
        "predicted_s",
        "record",
        "start",
        "task",
        "watch_s",
    )

    def __init__(
        self, race: "Race", call: Call, deployment: Deployment, start: AttemptStart, launched_at: float
    ) -> None:
        self.deployment = deployment
        self.start = start
        self.record: AttemptRecord | None = None
        self.error: UpstreamError | None = None
        self.measurement = Measurement(launched_at)
        self.failed_at: float | None = None
        self.overtaken_at: float | None = None  # another one won then, before its own first token
        self.predicted_s: float | None = None  # when that was to be expected, since the launch
        self.exchange: Exchange | None = None
        self._sendings = Sendings()
        self.task: asyncio.Task[None] | None = None
        self.line: Line | None = None  # in which it has a seat
        self._race = race
        self._call = call
        self._clock = race.clock
        self._loop = race.loop
        self._kept: list[Block] = []  # what came before the claim
        self._kept_bytes = 0
        self._last: Block | None = None  # sent together with the end of the answer, as it came
        self._announced = False  # its first token was told of
        self._claimed = False
        self._held: asyncio.Future[None] | None = None  # done when the hold is over, one way or the other
        self._watched = False  # a loser, audited
        self._watched_tokens = AUDIT_TOKENS
        self._watch_timer: asyncio.TimerHandle | None = None
        self.watch_s = AUDIT_S  # since its launch
        self._reader: AnswerReader | None = None
        self._text = AnswerText() if call.answer_kind is AnswerKind.JSON else None
        self._forward: Forward | None = None
        self.draining = False  # answered; only its connection is still busy

    async def run(self) -> None:
        """Be the attempt's task: ask, claim, pump. Never raises but when cancelled."""
        assert self.task is not None
        clocks = AttemptClocks(self.deployment.clocks, self.task, self._clock, self._loop)
        try:
            await self._run(clocks)
        except ClientGone:
            self._race.client_gone(self)
        except Exception as defect:  # noqa: BLE001 - the race raises it, once everybody is stopped
            self._race.crashed(self, defect)
        finally:
            clocks.forget()
            self._drop()
            self.end(Outcome.INTERRUPTED)  # of no effect unless nobody has said how it ended
            if self._watched:
                self._watch_until(None)
                self._race.audited(self)
            self.task = self._forward = None

    def sit_down(self, line: Line | None) -> None:
        """Take a seat where there is a limit, until the task has ended: the provider may be at work on it so long."""
        self.line = line
        if line is not None:
            line.take()

    def stand_up(self, _task: object = None) -> None:
        """Give the seat back, once."""
        line, self.line = self.line, None
        if line is not None:
            line.give_back()

    def cut(self, outcome: Outcome) -> None:
        """Stop as ``outcome``. The provider sees it at once; the task, cancelled, ends on its own."""
        self.end(outcome)
        if self.task is not None:
            self.task.cancel()

    def released(self) -> None:
        """Have won after being held: what was kept goes out at once."""
        if self._held is not None and not self._held.done():
            self._held.set_result(None)

    def overtaken(self, now: float) -> bool:
        """Take that another attempt has won; return whether that was before this one's first token."""
        if self.token_at() is not None:
            return False
        self.overtaken_at = now
        return True

    def audit(self, *, speed: bool) -> None:
        """Lose, but be watched: for the first token, then for some more if its ``speed`` is to be learned too."""
        self._watched = True
        self._watched_tokens = AUDIT_TOKENS if speed else 1
        self._kept = []
        self.released()
        if self.token_at() is None:
            self._watch_until(max(0.0, self.measurement.started + self.watch_s - self._clock()))
        else:
            self._watch_until(AUDIT_TOKENS_S)

    def end(self, outcome: Outcome) -> None:
        """Fix the attempt's record, unless it is fixed, and let go of the provider."""
        had_token = self.token_at() is not None
        self._finish(Outcome.SUPERSEDED if outcome is Outcome.LOST and had_token else outcome)
        self._drop()

    def _drop(self) -> None:
        if self.exchange is not None:
            self.exchange.abort()

    async def _run(self, clocks: AttemptClocks) -> None:
        try:
            await self._ask(clocks)
        except UpstreamError as error:
            clocks.stop()
            await self._broke(error)
        except asyncio.CancelledError:
            expiry = clocks.take_expiry()
            if expiry is None or self.record is not None:
                raise
            self._drop()
            await self._broke(expiry)

    async def _ask(self, clocks: AttemptClocks) -> None:
        call, deployment, measurement = self._call, self.deployment, self.measurement
        spoken = deployment.spoken_to(call.dialect)
        request = Request(
            model=deployment.model,
            fields=call.wordings.get(deployment.name, call.fields),
            dialect=spoken,
            headers=call.headers,
            own_headers=deployment.extra_headers,
            extra_body=deployment.extra_body,
            upstream_stream=deployment.upstream_stream,
            connect_timeout_s=deployment.clocks.connect_s,
            drop_params=deployment.drop_params,
            once=call.stateful,
            sendings=self._sendings,
        )
        exchange = self.exchange = await deployment.upstream.stream(request)
        if spoken is not call.dialect:
            steps = translations(spoken, call.dialect, call.fields, exchange.secrets)
            exchange = self.exchange = TranslatedExchange(exchange, steps)
        measurement.headers_at = self._clock()
        measurement.connect_ms = exchange.connect_ms
        await self._pump(exchange, clocks)

    async def _pump(self, exchange: Exchange, clocks: AttemptClocks) -> None:
        """Read events until the answer is whole: kept until the claim, then passed to the sink."""
        call = self._call
        reader = self._reader = AnswerReader(
            self.measurement,
            clocks,
            exchange.secrets,
            read_event=CODECS[call.dialect].read_event,
            drop_usage=call.streamed and not call.wants_usage,
            text=self._text,
        )
        while not reader.done:
            data = await (exchange.read() if self._held is None else self._read_held(exchange, clocks))
            now = self._clock()
            block = reader.read(data, now)
            over, data = not data, b""  # a slow client holds up no more than what it is to get
            if reader.finished and not reader.done:
                clocks.finish()
            if self._claimed:
                if not self._race.sink.understands:
                    block = Block(block.forward, (), block.error)
                await self._write(block, now, clocks)
            elif block.error is not None:
                raise block.error  # before commit a failure is invisible, even if a token came with it
            elif not await self._stay(block, now, clocks):
                return
            if block.error is not None:
                raise block.error
            del block  # what is pushed past this task may be all that follows: nothing is to be kept for so long
            if over:
                break
        await self._end(exchange, clocks)

    async def _end(self, exchange: Exchange, clocks: AttemptClocks) -> None:
        """Judge the stream that has ended; win with it if it is whole."""
        clocks.stop()
        if self._watched:
            self.end(Outcome.SUPERSEDED)
            return
        if self._held is not None:
            self._race.release(self)  # the whole answer is here: there is nothing left to wait for
            await self._begin(clocks, self._clock())
        if not self._claimed:
            await self._claim_at_end(clocks)
        elif not self._is_whole:
            raise UpstreamError(ErrorKind.UPSTREAM_TRUNCATED, "the stream ended without a finish reason or [DONE]")
        if self._claimed:
            await self._won()
            await self._drain(exchange)

    async def _stay(self, block: Block, now: float, clocks: AttemptClocks) -> bool:
        """Go on without having won: keep what came, bid at the first token. Return False when there is no point."""
        if not self._watched:
            self._keep(block)
        if not self._announced and self.token_at() is not None:
            self._announce()
            if not self._watched:
                return await self._bid(now, clocks)
            self._watch_until(AUDIT_TOKENS_S)
        if self._watched and self._announced and self.measurement.meaningful >= self._watched_tokens:
            self.end(Outcome.SUPERSEDED)
            return False
        return True

    def _keep(self, block: Block) -> None:
        self._kept.append(block)
        self._kept_bytes += len(block.forward)
        if self._kept_bytes > UNCLAIMED_BYTES:
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, f"{self._kept_bytes} bytes without a first token")

    async def _bid(self, now: float, clocks: AttemptClocks) -> bool:
        """Claim the win; return whether to go on: as the winner, held, or watched."""
        won = self._race.bid(self, now)
        if won:
            await self._begin(clocks, now)
        elif won is None:
            self._held = self._loop.create_future()
        return won is not False or self._watched

    async def _begin(self, clocks: AttemptClocks, now: float) -> None:
        """Start to answer, with what was kept."""
        self._held = None
        self._claimed = True
        self._forward = await self._race.begin(self, now)
        kept, self._kept = self._kept, []
        await self._write(joined(kept), now, clocks)
        if self._forward is not None and self.exchange is not None:
            self.exchange.offer_to(self._pass_on)

    def _pass_on(self, data: bytes) -> bool:
        """Forward what only adds text while the task waits for more; the task reads everything else."""
        assert self._reader is not None
        assert self._forward is not None
        run = self._reader.plain(data)
        if run is None:
            return False
        now = self._clock()
        if not self._forward(data):
            return False
        self._reader.take(run, now)
        return True

    async def _read_held(self, exchange: Exchange, clocks: AttemptClocks) -> bytes:
        """Read on while held, so that the times of its tokens are right; begin as soon as the hold is over."""
        assert self._held is not None
        reading = asyncio.ensure_future(exchange.read())
        try:
            waiting: set[asyncio.Future[Any]] = {reading, self._held}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._held.done():
                self._held = None
                if not self._watched:
                    await self._begin(clocks, self._clock())
            return await reading
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})

    async def _claim_at_end(self, clocks: AttemptClocks) -> None:
        """Judge an answer that ended before it could claim: broken, or complete but empty of what wins."""
        reader = self._reader
        assert reader is not None
        if not (reader.finished or self.measurement.meaningful):
            message = "[DONE] without an answer" if reader.done else "the answer is empty"
            raise UpstreamError(ErrorKind.UPSTREAM_EMPTY, message)
        if not self._is_whole:
            raise UpstreamError(ErrorKind.UPSTREAM_TRUNCATED, "the stream ended without a finish reason or [DONE]")
        await self._race.alone(self)
        now = self._clock()
        if self._race.bid(self, now):
            await self._begin(clocks, now)

    def _watch_until(self, seconds: float | None) -> None:
        """Be cut in so many seconds; None: never."""
        if self._watch_timer is not None:
            self._watch_timer.cancel()
            self._watch_timer = None
        if seconds is not None:
            self._watch_timer = self._loop.call_later(seconds, self.cut, Outcome.LOST)

    async def _write(self, block: Block, now: float, clocks: AttemptClocks) -> None:
        sink = self._race.sink
        if sink.streams and self._reader is not None and self._reader.done:
            self._last = block  # the call is recorded before its client sees the end
        elif block.forward:
            clocks.pause(now)  # a slow reader must not look like a silent provider
            await sink.write(block)
            clocks.resume()

    async def _drain(self, exchange: Exchange) -> None:
        """Read to the end of the body, so that the connection can be used again."""
        if exchange.ended:
            return
        self.draining = True
        timer = self._loop.call_later(DRAIN_S, exchange.abort)
        try:
            while await exchange.read():
                pass
        except UpstreamError:
            exchange.abort()
        finally:
            timer.cancel()

    @property
    def _is_whole(self) -> bool:
        return self._reader is not None and (self._reader.finished or self._reader.done)

    def token_at(self) -> float | None:
        """When the delta came that this call is won on."""
        measurement = self.measurement
        return measurement.answer_at if self._call.win_on is WinOn.ANSWER else measurement.first_at

    def _announce(self) -> None:
        """Tell of the first token."""
        at = self.token_at()
        assert at is not None
        self._announced = True
        call = self._call
        self._race.recorder.first_token(call.model, call.prompt_class, self.start, at - self.measurement.started)

    async def _broke(self, error: UpstreamError) -> None:
        """Take what ended the stream early: after the finish reason, the answer is whole all the same."""
        finished = self._reader is not None and self._reader.finished
        if self._claimed and finished and error.kind in _ENDS:
            await self._won()
        else:
            await self._failed(error)

    async def _won(self) -> None:
        self._finish(Outcome.WON)
        if self.line is not None and self.exchange is not None and self.exchange.ended:
            self.stand_up()  # the provider is done, however slowly the client reads
        last = self._last or Block(CODECS[self._call.dialect].ending, ())  # what the provider forgot
        await self._race.complete(self, last)

    async def _failed(self, error: UpstreamError) -> None:
        self.error = error.with_traceback(None)  # its frames know this attempt
        self.failed_at = self._clock()
        self._finish(outcome_of(error))
        await self._race.failed(self, error)

    def _finish(self, outcome: Outcome) -> None:
        """Fix the attempt's record; only its cost is added later, when the winner's usage is known."""
        if self.record is not None:
            return
        cut = (outcome is Outcome.LOST or outcome is Outcome.CLIENT_GONE) and self.token_at() is None
        self.record = attempt_record(
            self._call,
            self.start,
            outcome,
            self.measurement,
            exchange=self.exchange,
            sendings=self._sendings,
            error=self.error,
            censored_at=self._clock() if cut else None,
            overtaken_at=self.overtaken_at,
            predicted_s=self.predicted_s,
            judgement=judge(self._call, outcome, self.measurement, self._text) if self._claimed else UNJUDGED,
        )
        self._race.recorder.attempt_ended(self._call.model, self._call.prompt_class, self.record)
