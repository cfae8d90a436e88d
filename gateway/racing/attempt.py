"""One attempt: a single upstream request, from its launch to its record.

An attempt is one task. It opens the exchange, keeps what arrives until the first meaningful delta, claims the win,
and if it gets it pumps the rest into the sink itself. It is the only one to touch its exchange, except that being
cut aborts it.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.calls import AttemptRecord, AttemptStart, Call, Outcome, WinOn
from gateway.fleet import Deployment
from gateway.racing.clocks import AttemptClocks
from gateway.racing.measurement import Measurement
from gateway.racing.reading import AnswerReader, Block
from gateway.racing.sink import ClientGone
from providers.chunks import Chunk
from providers.errors import ErrorKind, UpstreamError
from providers.exchange import Exchange, Request

if TYPE_CHECKING:
    from gateway.racing.race import Race

UNCLAIMED_BYTES = 8 * 2**20  # a provider that sends this much before its first token is broken
DRAIN_S = 0.25  # how long after [DONE] the end of the body may take before its connection is given up

_ENDS = frozenset({ErrorKind.DISCONNECTED, ErrorKind.STALL_TIMEOUT})
_TIMEOUTS = frozenset({ErrorKind.CONNECT_TIMEOUT, ErrorKind.TTFT_TIMEOUT, ErrorKind.TOTAL_TIMEOUT})


class Attempt:
    """An upstream request under way, seen by its race as something that may claim, fail or be cut."""

    def __init__(
        self, race: "Race", call: Call, deployment: Deployment, start: AttemptStart, launched_at: float
    ) -> None:
        self.deployment = deployment
        self.start = start
        self.record: AttemptRecord | None = None
        self.error: UpstreamError | None = None
        self.measurement = Measurement(launched_at)
        self.exchange: Exchange | None = None
        self.task: asyncio.Task[None] | None = None
        self._race = race
        self._call = call
        self._clock = race.clock
        self._clocks: AttemptClocks | None = None
        self._kept: list[bytes] = []  # what came before the claim
        self._kept_chunks: list[Chunk] = []
        self._kept_bytes = 0
        self._claimed = False
        self._reader: AnswerReader | None = None

    async def run(self) -> None:
        """Be the attempt's task: ask, claim, pump. Never raises but when cancelled."""
        task = asyncio.current_task()
        assert task is not None
        clocks = self._clocks = AttemptClocks(self.deployment.clocks, task, self._clock)
        try:
            await self._run(clocks)
        except ClientGone:
            self._race.client_gone(self)
        except Exception as defect:  # noqa: BLE001 - the race raises it, once everybody is stopped
            self._race.crashed(self, defect)
        finally:
            clocks.stop()
            self._drop()

    def cut(self, outcome: Outcome) -> None:
        """Stop as ``outcome``. The provider sees it at once; the task, cancelled, ends on its own."""
        self.end(outcome)
        if self.task is not None:
            self.task.cancel()

    def end(self, outcome: Outcome) -> None:
        """Fix the attempt's record, unless it is fixed, and let go of the provider."""
        had_token = self._token_at() is not None
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
        request = Request(
            model=deployment.model,
            fields=call.fields,
            headers=call.headers,
            extra_body=deployment.extra_body,
            upstream_stream=deployment.upstream_stream,
            connect_timeout_s=deployment.clocks.connect_s,
        )
        exchange = self.exchange = await deployment.upstream.stream(request)
        measurement.headers_at = self._clock()
        measurement.connect_ms = exchange.connect_ms
        await self._pump(exchange, clocks)

    async def _pump(self, exchange: Exchange, clocks: AttemptClocks) -> None:
        """Read events until the answer is whole: kept until the claim, then passed to the sink."""
        reader = self._reader = AnswerReader(
            self.measurement, clocks, exchange.secrets, drop_usage=self._call.streamed and not self._call.wants_usage
        )
        while not reader.done:
            data = await exchange.read()
            now = self._clock()
            block = reader.read(data, now)
            if self._claimed:
                if block.forward:
                    await self._write(block.forward, block.chunks, clocks)
            elif not await self._keep(block, now, exchange, clocks):
                return
            if block.error is not None:
                raise block.error
            if not data:
                break
        await self._end(exchange, clocks)

    async def _keep(self, block: Block, now: float, exchange: Exchange, clocks: AttemptClocks) -> bool:
        """Keep what came before the claim; claim at the first token. Return False when that is lost."""
        self._kept.append(block.forward)
        self._kept_chunks += block.chunks or ()
        self._kept_bytes += len(block.forward)
        if self._token_at() is not None:
            self._first_token()
            return await self._claim(now, exchange, clocks)
        if self._kept_bytes > UNCLAIMED_BYTES:
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, f"{self._kept_bytes} bytes without a first token")
        return True

    async def _end(self, exchange: Exchange, clocks: AttemptClocks) -> None:
        """Judge the stream that has ended; win with it if it is whole."""
        clocks.stop()
        if not self._claimed:
            await self._claim_at_end(exchange, clocks)
        elif not self._is_whole:
            raise UpstreamError(ErrorKind.UPSTREAM_TRUNCATED, "the stream ended without a finish reason or [DONE]")
        if self._claimed:
            await self._won()
            await self._drain(exchange)

    async def _claim(self, now: float, exchange: Exchange, clocks: AttemptClocks) -> bool:
        """Claim the win, and if it is ours write what was kept."""
        self._claimed = await self._race.claim(self, now, exchange)
        if self._claimed:
            kept, chunks = b"".join(self._kept), self._kept_chunks
            self._kept, self._kept_chunks = [], []
            await self._write(kept, chunks, clocks)
        return self._claimed

    async def _claim_at_end(self, exchange: Exchange, clocks: AttemptClocks) -> None:
        """Judge an answer that ended before it could claim: broken, or complete but empty of what wins."""
        reader = self._reader
        assert reader is not None
        if not (reader.finished or self.measurement.meaningful):
            message = "[DONE] without an answer" if reader.done else "the answer is empty"
            raise UpstreamError(ErrorKind.UPSTREAM_EMPTY, message)
        if not self._is_whole:
            raise UpstreamError(ErrorKind.UPSTREAM_TRUNCATED, "the stream ended without a finish reason or [DONE]")
        await self._race.alone(self)
        await self._claim(self._clock(), exchange, clocks)

    async def _write(self, block: bytes, chunks: Sequence[Chunk] | None, clocks: AttemptClocks) -> None:
        clocks.pause()  # a slow reader must not look like a silent provider
        await self._race.sink.write(block, chunks)
        clocks.resume()

    async def _drain(self, exchange: Exchange) -> None:
        """Read to the end of the body, so that the connection can be used again."""
        try:
            async with asyncio.timeout(DRAIN_S):
                while await exchange.read():
                    pass
        except (TimeoutError, UpstreamError):
            exchange.abort()

    @property
    def _is_whole(self) -> bool:
        return self._reader is not None and (self._reader.finished or self._reader.done)

    def _token_at(self) -> float | None:
        """When the delta came that this call is won on."""
        measurement = self.measurement
        return measurement.answer_at if self._call.win_on is WinOn.ANSWER else measurement.first_at

    def _first_token(self) -> None:
        at = self._token_at()
        assert at is not None
        self._race.recorder.first_token(
            self._call.model, self._call.prompt_class, self.deployment.name, at - self.measurement.started
        )

    async def _broke(self, error: UpstreamError) -> None:
        """Take what ended the stream early: after the finish reason, the answer is whole all the same."""
        finished = self._reader is not None and self._reader.finished
        if self._claimed and finished and error.kind in _ENDS:
            await self._won()
        else:
            await self._failed(error)

    async def _won(self) -> None:
        self._finish(Outcome.WON)
        await self._race.complete(self)

    async def _failed(self, error: UpstreamError) -> None:
        self.error = error
        if error.kind is ErrorKind.STALL_TIMEOUT:
            outcome = Outcome.STALLED
        else:
            outcome = Outcome.TIMEOUT if error.kind in _TIMEOUTS else Outcome.FAILED
        self._finish(outcome)
        await self._race.failed(self, error)

    def _finish(self, outcome: Outcome) -> None:
        """Fix the attempt's record; only its cost is added later, when the winner's usage is known."""
        if self.record is not None:
            return
        measurement, exchange, error = self.measurement, self.exchange, self.error
        tokens = measurement.tokens()
        itl_p50_ms, itl_p95_ms, itl_max_ms = measurement.itl_ms()
        cut = outcome in {Outcome.LOST, Outcome.CLIENT_GONE} and self._token_at() is None
        self.record = AttemptRecord(
            id=self.start.id,
            call_id=self._call.id,
            number=self.start.number,
            started_at=self.start.started_at,
            role=self.start.role,
            provider=self.start.provider,
            deployment=self.start.deployment,
            launch_offset_ms=self.start.launch_offset_ms,
            outcome=outcome,
            connect_ms=measurement.connect_ms,
            headers_ms=measurement.since_start_ms(measurement.headers_at),
            first_event_ms=measurement.since_start_ms(measurement.first_event_at),
            ttft_ms=measurement.since_start_ms(measurement.first_at),
            ttft_answer_ms=measurement.since_start_ms(measurement.answer_at),
            last_token_ms=measurement.since_start_ms(measurement.last_at),
            censored_at_ms=measurement.since_start_ms(self._clock()) if cut else None,
            status_code=exchange.status if exchange is not None else (error.status if error else None),
            error_kind=error.kind if error else None,
            error_message=error.message if error else None,
            retry_after_s=error.retry_after_s if error else None,
            prompt_tokens=tokens.prompt if tokens else None,
            completion_tokens=tokens.completion if tokens else None,
            reasoning_tokens=tokens.reasoning if tokens else None,
            cached_tokens=tokens.cached if tokens else None,
            tokens_source=tokens.source if tokens else None,
            decode_tps=measurement.decode_tps(tokens),
            e2e_tps=measurement.e2e_tps(tokens),
            itl_p50_ms=itl_p50_ms,
            itl_p95_ms=itl_p95_ms,
            itl_max_ms=itl_max_ms,
        )
        self._race.recorder.attempt_ended(self._call.model, self._call.prompt_class, self.record)
