"""Answers that pass unread: embeddings, ranks, judgements, speech, transcripts, pictures, counts.

Attempts at such answers race like all others. What differs is how a provider is asked, what the answer costs, and when
the answer has begun: a whole answer at its end, a streamed answer with the first bytes, a sound with the first bytes
after the header of its container.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import ClassVar

import msgspec

from gateway.core.attempts import AttemptRecord, Flaw, Outcome, TokensSource
from gateway.core.calls import Call
from gateway.fleet import Deployment
from gateway.racing.attempt import Answer, Attempt
from gateway.racing.ladder import BY_UPSTREAM, RefusedStep, climbed
from gateway.racing.measurement import CountedTokens, Measurement
from gateway.racing.other_forms import After
from gateway.racing.plausibility import most_tokens, plausible, without_too_few
from gateway.racing.reader import Block, joined
from gateway.racing.records import Ending, attempt_record
from gateway.racing.sinks import Forward, Sink
from gateway.racing.timeouts import AttemptClocks, DeltaKind, Pauses
from gateway.racing.validation import UNJUDGED, Judgement
from providers import (
    NOTHING,
    Exchange,
    Form,
    ReportedUsage,
    Request,
    UpstreamAnswer,
    UpstreamError,
    reported,
    sound_has_begun,
)
from providers.dialects import PIVOT, Dialect


class RelayedExchange:
    """The exchange of an answer that passes unread: a whole body, or a body's beginning and its rest."""

    finishing = False
    usage_so_far = None

    def __init__(self, answer: UpstreamAnswer) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.connect_ms = answer.connect_ms
        self.secrets = answer.secrets
        self.is_whole = answer.rest is None
        self._body = answer.body
        self._is_taken = False  # whether the body has been read
        self._rest = answer.rest

    @property
    def ended(self) -> bool:
        """Whether the provider has sent everything, and all of it was read."""
        return self._is_taken and (self._rest is None or self._rest.ended)

    @property
    def error(self) -> UpstreamError | None:
        """The error that the answer itself reports; its bytes are passed on as well."""
        return None if self._rest is None else self._rest.error

    async def read(self) -> bytes:
        """Return the next bytes unchanged, ``b""`` at the end.

        Raises:
            UpstreamError: the connection broke.

        """
        rest = self._rest
        if not self._is_taken:
            self._is_taken = True
            if self._body or rest is None:
                return self._body
        while rest is not None and not rest.ended:
            if data := await rest.read():
                return data
        return b""

    def conclude(self) -> bytes:
        """Return nothing: no end is held back."""
        return b""

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Do nothing: each read wakes the attempt."""

    def abort(self) -> None:
        """Drop the connection, so that the provider notices. Does nothing after the end."""
        if self._rest is not None:
            self._rest.abort()

    def reported(self) -> ReportedUsage:
        """Return what the answer has reported so far."""
        return reported(self._body) if self._rest is None else ReportedUsage(self._rest.usage, self._rest.model)


class RelayedMeasurement(Measurement):
    """The measurement of an answer that passes unread: when the answer began, and which usage it reported."""

    __slots__ = ()

    def tokens(self) -> CountedTokens | None:
        """Return the reported token counts without impossible ones; None if none were reported."""
        usage = self.reported.usage
        if usage is None:
            return None
        usage, fewest = without_too_few(usage, self.prompt_bytes, 0)
        usage, beyond = plausible(usage, self.most_tokens, self.prompt_bytes)
        source = TokensSource.REPORTED if beyond is None else TokensSource.IMPLAUSIBLE
        if fewest is not None:
            source, beyond = TokensSource.ESTIMATED, fewest
        return CountedTokens(*msgspec.structs.astuple(usage), source=source, reported=beyond)


class RelayedAnswer:
    """An answer that passes unread, and its own reader."""

    waits = False
    flaw: Flaw | None = None
    finished = False  # the bytes do not say that an answer is finished
    held = b""

    def __init__(
        self, exchange: RelayedExchange, measurement: Measurement, clocks: AttemptClocks, *, is_sound: bool
    ) -> None:
        self.announced = False
        self.done = False
        self.clocks = clocks
        self.status = exchange.status
        self._exchange = exchange
        self._measurement = measurement
        self._head: bytes | None = b"" if is_sound and not exchange.is_whole else None  # until the sound begins
        self._kept: list[Block] = []
        self._last = Block(b"", ())
        self._keeps_last = False  # whether the last bytes are sent after the call is recorded

    @property
    def reader(self) -> "RelayedAnswer":
        """The reader of the answer: this."""
        return self

    async def read_long(self, data: bytes, now: float) -> Block:
        """Return a long read at once: its bytes are not parsed."""
        return self.read(data, now)

    def read(
        self,
        data: bytes,
        now: float,
        *,
        finishing: bool = False,  # noqa: ARG002 - as of other answers
        block: Block | None = None,
        broken: UpstreamError | None = None,
    ) -> Block:
        """Pass on one read (``b""`` at the end). If the answer reports an error, its bytes go before the error."""
        if block is not None:
            return block
        exchange, measurement = self._exchange, self._measurement
        self.done = exchange.ended
        if measurement.first_at is None and (self.done or not data or self._has_begun(data)):
            measurement.first_at = now
        self.clocks.event(now, DeltaKind.BOUNDARY, meaningful=measurement.first_at is not None)
        return Block(data, (), broken or exchange.error)

    def _has_begun(self, data: bytes) -> bool:
        if self._head is None:
            return True
        self._head += data
        return sound_has_begun(self._exchange.headers.get("content-type", ""), self._head)

    def check_whole(self) -> None:
        """Do nothing: the connection has compared the body with its length, where one was stated."""

    def keep(self, block: Block, *, has_token: bool) -> None:  # noqa: ARG002 - as of other answers
        """Keep a block until the win."""
        self._kept.append(block)

    @property
    def kept(self) -> Sequence[Block]:
        """The blocks that wait for the win."""
        return self._kept

    def drop_kept(self) -> None:
        """Drop what is kept: another attempt answers."""
        self._kept = []

    async def begin(self, sink: Sink, forward: Forward | None, now: float) -> None:  # noqa: ARG002 - as of other answers
        """Write what is kept."""
        self._keeps_last, self._head = sink.streams, None
        blocks, self._kept = self._kept, []
        await self.write(joined(blocks), sink, now)

    async def write(self, block: Block, sink: Sink, now: float) -> None:
        """Forward a block, but for the last one, which is sent after the call is recorded."""
        if self._keeps_last and self.done and block.error is None:
            self._last = block
        elif block.forward:
            self.clocks.pause(now)  # a slow client must not look like a silent provider
            await sink.write(block)
            self.clocks.resume()

    def forward(self, data: bytes) -> bool:  # noqa: ARG002 - as of other answers
        """Return False: only the attempt's own task forwards these bytes."""
        return False

    def take_last(self, call: Call) -> Block:  # noqa: ARG002 - as of other answers
        """Return the last block."""
        return self._last

    def judgement(self, call: Call, outcome: Outcome, *, had_won: bool) -> Judgement:  # noqa: ARG002 - as of other answers
        """Return no judgement: the answer was not parsed."""
        return UNJUDGED


# Who pays: a loser that was cut before its request was sent costs nothing, and the cost of a failed one is unknown.
_PAID = frozenset({Outcome.WON, Outcome.CLIENT_GONE, Outcome.INTERRUPTED, Outcome.LOST, Outcome.SUPERSEDED})


class RelayedRequest(msgspec.Struct, frozen=True):
    """How deployments are asked for an answer that passes unread, and how that answer is passed on."""

    path: str  # at the provider: audio/speech
    dialect: Dialect = PIVOT  # headers of this dialect's vendor are sent along
    form: Form | None = None  # instead of the fields
    is_priced: bool = True  # False: the tokens are not text, so the price table does not apply
    cost_usd: Mapping[str, float] = {}  # deployment → cost of an answer that is not billed by tokens
    unpriced: Collection[str] = ()  # deployments with no known price: limits alone count the vendor's dearest
    takes_extra_body: bool = True  # a deployment's ``extra_body`` is meant for this API too
    is_sound: bool = False  # of the API ``audio``: a sound answers only behind the header of its container
    is_compared: bool = False  # short answers that are raced: the call's row says when one came, and what racing saved
    has_tokens: ClassVar[bool] = False

    @property
    def priced_as(self) -> Callable[[Mapping[str, Deployment], Sequence[AttemptRecord]], Mapping[str, Deployment]]:
        """A function that returns the deployments with the prices by which their attempts are billed."""
        return partial(billed, is_priced=self.is_priced)

    def begin(self, attempt: Attempt, at: float) -> tuple[bool, Measurement]:
        """Return False, as the provider decides whether to stream, and the measurement of an attempt from ``at`` on."""
        deployment = attempt.deployment
        prompt_bytes = None if deployment.extra_body else attempt.entry.call.traits.inline_bytes
        return False, RelayedMeasurement(at, most_tokens(deployment.capabilities), prompt_bytes)

    def clocks(self, attempt: Attempt) -> AttemptClocks:
        """Start the clocks of an attempt whose task runs. Such an answer is never continued, so no pause is learnt."""
        assert attempt.task is not None
        entry = attempt.entry
        return AttemptClocks(
            attempt.deployment.clocks,
            attempt.task,
            entry.open_call.services.clock,
            entry.loop,
            Pauses(),
            awaited="answer",
            started=None if attempt.refused is None else attempt.waiting_since,
        )

    async def open(self, attempt: Attempt, clocks: AttemptClocks) -> tuple[Exchange, Answer]:
        """Send the request; return the exchange, and the answer that passes its bytes on."""
        entry, deployment, measurement = attempt.entry, attempt.deployment, attempt.measurement
        call, headers = entry.call, self.dialect.headers_of(entry.call.caller.envelope.headers)
        request = Request(
            model=deployment.model,
            fields=call.sent_to(deployment.name),
            dialect=self.dialect,
            headers=headers if call.caller.trace is None else call.caller.trace.sent_with(headers, attempt.start.id),
            own_headers=deployment.extra_headers,
            extra_body=deployment.extra_body if self.takes_extra_body else {},
            connect_timeout_s=deployment.clocks.connect_s,
            form=self.form,
            client=call.caller.client,
            key_name=call.traits.key_name,
            sendings=attempt.sendings,
        )
        answer = await deployment.upstream.send(self.path, request)
        exchange = RelayedExchange(answer)
        attempt.exchange = exchange
        measurement.headers_at = measurement.started + answer.headers_ms / 1000
        measurement.connect_ms = exchange.connect_ms
        if attempt.sendings.left_out:
            entry.sent_without(attempt, attempt.sendings.left_out)
        passed = RelayedAnswer(exchange, measurement, clocks, is_sound=self.is_sound)
        attempt.answer = passed
        return exchange, passed

    async def instead(self, attempt: Attempt, error: UpstreamError) -> After:
        """Ask again as the upstream has chosen: it knows in which other forms such requests can be sent."""
        return await climbed(RefusedStep(attempt, attempt.entry.call, error), BY_UPSTREAM)

    def record(self, attempt: Attempt, ending: Ending, judgement: Judgement) -> AttemptRecord:
        """Return the record of an ended attempt, with its cost if the answer is not billed by tokens."""
        measurement, exchange, outcome = attempt.measurement, attempt.exchange, ending.outcome
        usage = exchange.reported() if isinstance(exchange, RelayedExchange) else NOTHING
        measurement.reported.usage, measurement.reported.model_version = usage.usage, usage.model
        is_cut = outcome in {Outcome.CLIENT_GONE, Outcome.LOST} and measurement.first_at is None
        record = attempt_record(
            attempt.entry.call,
            attempt.start,
            ending,
            measurement,
            exchange=exchange,
            censored_at=ending.at if is_cut else None,
            overtaken=attempt.overtaken,
            judgement=judgement,
        )
        usd = self.cost_usd.get(record.deployment)
        if usd is None or outcome not in _PAID or (outcome is Outcome.LOST and record.sends == 0):
            return record
        if record.deployment in self.unpriced:
            return msgspec.structs.replace(record, limit_usd=usd)
        low_usd = 0.0 if outcome is Outcome.LOST else usd  # a cut one perhaps had not begun to speak
        return msgspec.structs.replace(record, cost_usd=usd, cost_low_usd=low_usd, cost_high_usd=usd)


def billed(
    deployments: Mapping[str, Deployment], attempts: Sequence[AttemptRecord], *, is_priced: bool
) -> Mapping[str, Deployment]:
    """Return the deployments of the ``attempts``, without a price where the price is not of such tokens."""
    having = {}
    for attempt in attempts:
        deployment = deployments[attempt.deployment]
        # The table has prices of text: without an output price, images would look nearly free.
        is_unknown = (
            bool(attempt.completion_tokens) and deployment.price is not None and not deployment.price.output_usd
        )
        if is_unknown or not is_priced:
            deployment = msgspec.structs.replace(deployment, price=None, listed=None)
        having[attempt.deployment] = deployment
    return having
