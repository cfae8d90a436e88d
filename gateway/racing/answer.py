"""One answer: sends the request, parses data as they arrive, keeps data until the win, then writes them to the sink."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from gateway.core.attempts import AnswerKind, Flaw, Outcome, WinOn
from gateway.core.calls import AS_ASKED, Call, Maker, RenderedRequest
from gateway.fleet import Deployment
from gateway.racing.measurement import Measurement
from gateway.racing.reader import AnswerReader, AnswerText, Block, joined, truncated
from gateway.racing.sinks import Forward, Sink
from gateway.racing.thoughts import Habit, Thoughts
from gateway.racing.timeouts import AttemptClocks, came
from gateway.racing.validation import UNJUDGED, Judgement, Validity, answers_asked, judge
from providers import ErrorKind, Exchange, Facts, Request, Sendings, TranslatedExchange, UpstreamError, events
from providers.dialects import Splicer, UnshownThought, as_call, bound_reasoning, texts_called, translations

if TYPE_CHECKING:
    from gateway.racing.services import Makers
    from gateway.racing.speech import Speech

# The exchange of an attempt, and how an exchange is opened.

_CACHE_KEY = "prompt_cache_key"
_UNSAID = msgspec.Raw(b"null")
_STORE = "store"
_STORE_ADDED = frozenset({_STORE})
_OF_ONE_CALL = frozenset({"parallel_tool_calls", "tool_choice", "tool_choice.disable_parallel_tool_use"})
_KEY_ADDED = frozenset({_CACHE_KEY})


def request_of(
    deployment: Deployment, call: Call, attempt_id: str, sendings: Sendings, *, whole: bool = False, taught: Facts = ()
) -> Request:
    """Return the request of ``call`` to ``deployment``, as the upstream gets it."""
    client_request, caller, traits = call.request, call.caller, call.traits
    rendered = call.rendered.get(deployment.name, AS_ASKED)
    dialect = client_request.dialect if rendered.spoken is None else rendered.spoken
    if rendered.spoken is None and dialect not in deployment.speaks:  # the common case is read without a call
        dialect = deployment.spoken_in(call)
    client_headers = caller.envelope.headers
    headers = dialect.headers_of(client_headers) if client_headers else client_headers
    fields, added = client_request.fields, client_request.added
    if rendered.fields is not None:
        fields = rendered.fields
        if dialect is not client_request.dialect and _STORE not in client_request.fields:
            added = _STORE_ADDED  # what the translation says of storing, the client has not said
    if traits.cache_key is not None and dialect.name in deployment.cache_keys and _CACHE_KEY not in fields:
        fields, added = {**fields, _CACHE_KEY: traits.cache_key}, added | _KEY_ADDED
    if deployment.store is not None and (deployment.stores_own or dialect is not client_request.dialect):
        field = dialect.requests.storing
        if field is not None and fields.get(field, _UNSAID) == _UNSAID:
            fields, added = {**fields, field: deployment.store}, added | {field}
    if deployment.marks_from is not None and rendered.marks is not None:
        requests = dialect.requests
        with_marks = requests.marks.with_breakpoints if deployment.traits.breakpoints else requests.marks.with_marks
        fields = fields if with_marks is None else with_marks(fields, deployment.marks_from, rendered.marks)
    apart = rendered.apart
    if apart is not None:  # with all that is added here
        other = call.rendered_as(deployment.name, fields=apart.fields, apart=None)
        alike = request_of(deployment, other, attempt_id, sendings, whole=whole, taught=taught)
        apart = msgspec.structs.replace(apart, fields=alike.fields)
    return Request(  # ten not by name: with more names CPython would make a dict of them first
        deployment.model,
        fields,
        dialect,
        deployment.drop_params,
        headers if caller.trace is None else caller.trace.sent_with(headers, attempt_id),
        deployment.extra_headers,
        deployment.extra_body,
        added,
        deployment.keeps,
        deployment.upstream_stream and (client_request.stream or not whole),
        takes_whole=not client_request.stream,
        connect_timeout_s=deployment.clocks.connect_s,
        first_key=None if traits.maker is None else traits.maker.key_at(deployment.provider),
        conversation=traits.conversation,
        is_ceiling=client_request.dialect.requests.with_limit is not None,
        unchosen=client_request.dialect.requests.omissible.unchosen,
        once=client_request.stateful,
        client=caller.client,
        key_name=traits.key_name,
        apart=apart,
        taught=taught,
        may_have_refused=rendered.fields is not None or bool(rendered.dropped),  # else planning has found nothing
        sendings=sendings,
    )


def translated(
    exchange: Exchange,
    request: Request,
    deployment: Deployment,
    call: Call,
    clocks: AttemptClocks,
    *,
    makers: "Makers | None" = None,
    bound: Sequence[bytes] | None = None,
    told: Callable[[Sequence[UnshownThought]], object] | None = None,
) -> Exchange:
    """Return the ``exchange`` of ``request`` with events in the client's dialect.

    ``clocks`` are told of thoughts, pieces of tool calls and ends that the client does not get (yet). ``makers`` are
    told of reasoning. ``bound``: the hashes of the reasoning in the request; None: not looked for yet. ``told`` is
    called with the reasoning of the request that the vendor did not show to the model.
    """
    source = request.dialect
    if makers is not None and (source.answers.binds or makers.hears_all):
        key_name, same_as = request.sendings.key_name, deployment.same_as
        maker = Maker(deployment.name, key_name, deployment.tenant, deployment.account, same_as=same_as)
        if bound is None:
            bound = bound_reasoning(bytes(request.fields.get(source.requests.prompt, b"")))
        # In a conversation that the vendor keeps, the vendor may drop reasoning that the request does not have.
        learnt, drops = deployment.learnt, bool(deployment.traits.bound)
        may_tell = told if bound or drops else None
        exchange = makers.watched(exchange, request, maker, learnt, bound=bound, told=may_tell, refuses=not drops)
    called, learnt, rendered = None, deployment.learnt, call.rendered.get(deployment.name, AS_ASKED)
    sendings = request.sendings
    if source.requests.tools.choice in request.fields and (
        not deployment.traits.takes_forced or (learnt is not None and learnt.steers)
    ):
        called = as_call(call.request.dialect, call.request.fields, source, request.fields)
    texts: Collection[str] = ()
    if "tools" in request.fields and rendered.fields is not None and call.request.dialect.requests.tools.custom_names:
        texts = texts_called(call.request.dialect, call.request.fields, source, deployment.habits[source.name].beyond)
    one_call = bool(sendings.left_out or rendered.dropped) and _may_call_more(request, rendered)
    most = sendings.most
    if source is call.request.dialect and called is None and not texts and not one_call and not most:
        return exchange
    read_event, secrets = source.answers.read_event, exchange.secrets

    def unsaid(block: bytes, finishing: bool) -> None:
        clocks.alive_at = clocks.now()
        with suppress(UpstreamError):  # after the answer's end any data may follow
            for event in events(block):
                if event.data and not (chunk := read_event(event.data, secrets)).idle:
                    clocks.heard(came(chunk), meaningful=chunk.meaningful)
        if finishing:
            clocks.finish()

    steps = translations(
        source,
        call.request.dialect,
        call.request.fields,
        secrets,
        called=called,
        texts=texts,
        one_call=one_call,
        most=most,
        seal=deployment.seal,
    )
    # If JSON becomes a call, the text becomes arguments, and is never plain.
    splicer = Splicer(source, call.request.dialect, steps) if called is None else None
    return TranslatedExchange(exchange, steps, unsaid, splicer=splicer)


def _may_call_more(request: Request, rendered: RenderedRequest) -> bool:
    """Whether the deployment was not told that the client may want one tool call at a time."""
    return not _OF_ONE_CALL.isdisjoint((*request.sendings.left_out, *rendered.dropped))


# How an answer is read and forwarded.

UNCLAIMED_BYTES = 8 * 2**20  # a provider that sends this much before its first token is broken
BLOCKED_S = 0.05  # a write that takes longer waits for the client


class AnswerStream:
    """Reads and forwards one answer.

    ``text`` is set if the answer must be JSON; ``speech`` and ``validity`` if the win depends on them (``win_on``).
    """

    status = 200  # of the response to the client

    __slots__ = (
        "_clock",
        "_forward",
        "_keeps_last",
        "_kept",
        "_kept_bytes",
        "_last",
        "_measurement",
        "announced",
        "clocks",
        "reader",
        "speech",
        "text",
        "translated",
        "validity",
    )

    def __init__(
        self,
        call: Call,
        measurement: Measurement,
        clocks: AttemptClocks,
        clock: Callable[[], float],
        habit: Habit | None = None,
    ) -> None:
        """``habit``: how this deployment marks thoughts within texts; None: its texts have no thoughts."""
        self.announced = False  # whether the first token was reported
        client_request, decision, dialect = call.request, call.decision, call.request.dialect
        texts = dialect.answers.texts
        self.translated: TranslatedExchange | None = None  # the exchange, if it translates
        self.text = AnswerText(texts) if decision.answer_kind is AnswerKind.JSON else None
        self.speech: Speech | None = None
        if decision.win_on is WinOn.SENTENCE and self.text is None:
            from gateway.racing import speech  # noqa: PLC0415 - Unicode's properties take 1.5 MB, and few calls ask

            self.speech = speech.Speech(texts, decision.sentence_words)
        self.validity = Validity(call, measurement, self.text) if decision.win_on is WinOn.VALID else None
        requests = dialect.requests
        may_be_several = requests.batched or requests.choices in client_request.fields
        thoughts: Thoughts | None = None
        if habit is not None:
            habit.left -= 1
            if habit.left < 0 or habit.opened:  # without a call, as this runs for each answer
                thoughts = habit.begin(client_request.fields, keeps=self.text is not None)
        self.reader = AnswerReader(
            measurement,
            clocks,
            answers=dialect.answers,
            runs_on=client_request.runs_on,
            drop_usage=client_request.stream and not client_request.wants_usage,
            text=self.text or self.speech,
            asked=answers_asked(client_request.fields, dialect) if may_be_several else 1,
            thoughts=thoughts,
            may_think=habit is not None,
        )
        self._measurement = measurement
        self.clocks = clocks
        self._clock = clock
        self._kept: list[Block] = []
        self._kept_bytes = 0
        self._last: Block | None = None
        self._keeps_last = False  # whether the last events are sent after the call is recorded
        self._forward: Forward | None = None

    def read(
        self,
        data: bytes,
        now: float,
        *,
        finishing: bool = False,
        block: Block | None = None,
        broken: UpstreamError | None = None,
    ) -> Block:
        """Parse one read (``b""`` at the end). After a finish reason, even a held-back one, the rest has a time limit.

        ``block``: the read, if its ``reader`` has parsed it already. ``broken``: the error that came behind the data.

        Raises:
            UpstreamError: only valid answers win, and this one calls a tool that was not offered.

        """
        if block is None:
            translated = self.translated
            block = self.reader.read(data, now, None if translated is None else translated.run)
        if broken is not None and block.error is None and not self.reader.done:
            block = Block(block.forward, block.parts, broken)
        if self.speech is not None:
            self._note_speech(self.speech, now)
        elif self.validity is not None:
            over = self.reader.finished and (self.reader.done or not data)
            self.validity.look(now, finished=self.reader.finished, over=over, kept_bytes=self._kept_bytes)
        if (self.reader.finished or finishing) and not self.reader.done:
            self.clocks.finish()
        return block

    def _note_speech(self, speech: "Speech", now: float) -> None:
        reader, measurement = self.reader, self._measurement
        is_over = reader.finished or reader.done
        is_text = measurement.answer_at is None or speech.has_text  # otherwise the answer is a refusal, or sound
        is_spoken = is_text and measurement.reported.tool_calls is None
        speech.came(now, is_over=is_over, is_spoken=is_spoken)
        if speech.began_at is not None:
            measurement.spoken_at, measurement.listener = speech.began_at, speech.listener

    def check_whole(self) -> None:
        """Check an answer that has ended.

        Raises:
            UpstreamError: the answer is empty (upstream_empty, or the error that it states), incomplete
                (upstream_truncated) or invalid (invalid_answer).

        """
        reader = self.reader
        if not (reader.finished or self._measurement.meaningful):
            message = "[DONE] without an answer" if reader.done else "the answer is empty"
            raise reader.complaint() or UpstreamError(ErrorKind.UPSTREAM_EMPTY, message)
        if not reader.finished:
            raise reader.complaint() or truncated()
        if self.validity is not None and self._measurement.valid_at is None:
            self.validity.check()

    @property
    def waits(self) -> bool:
        """Whether the answer may bid only when it is complete, because only valid answers win."""
        return self.validity is not None

    @property
    def flaw(self) -> Flaw | None:
        """The flaw of the answer, if it is complete and every answer is checked."""
        return None if self.validity is None else self.validity.judgement.flaw

    def judgement(self, call: Call, outcome: Outcome, *, had_won: bool) -> Judgement:
        """Return the judgement of the answer; only the winner's is judged, unless every answer is checked."""
        measurement, thoughts = self._measurement, self.reader.thoughts
        is_over = call.decision.win_on is WinOn.ANY or not (outcome is Outcome.LOST or outcome is Outcome.CLIENT_GONE)
        if measurement.answer_at is None and thoughts is not None and is_over:  # no mark came: the text is the answer
            measurement.answer_at = thoughts.undecided_since()
        if had_won:
            return judge(call, outcome, measurement, self.text)
        return UNJUDGED if self.validity is None else self.validity.judgement

    def keep(self, block: Block, *, has_token: bool) -> None:
        """Keep a block until the win; ``has_token``: this block or an earlier one has the first token.

        Raises:
            UpstreamError: no first token within ``UNCLAIMED_BYTES``.

        """
        self._kept.append(block)
        self._kept_bytes += len(block.forward)
        if self._kept_bytes > UNCLAIMED_BYTES and not has_token:
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, f"{self._kept_bytes} bytes without a first token")

    @property
    def kept(self) -> Sequence[Block]:
        """The blocks that are kept until the win."""
        return self._kept

    def drop_kept(self) -> None:
        """Drop the kept data: another attempt answers."""
        self._kept = []

    async def begin(self, sink: Sink, forward: Forward | None, now: float) -> None:
        """Write the kept data. From then on ``forward`` can send plain events without ``write``."""
        self._forward = forward
        self._keeps_last = sink.streams  # a sink that starts to stream later may still refuse the last events
        blocks, self._kept = self._kept, []
        await self.write(joined(blocks), sink, now)

    async def write(self, block: Block, sink: Sink, now: float) -> None:
        """Forward a block, except for a stream's last events, which are sent after the call is recorded."""
        if not sink.understands:
            block = Block(block.forward, (), block.error)
        if self._keeps_last and self.reader.done:
            self._last = block
        elif block.forward:
            self.clocks.pause(now)  # a slow client must not look like a silent provider
            await sink.write(block)
            if (blocked_s := self.clocks.resume()) > BLOCKED_S:
                self._measurement.blocked(blocked_s)

    def forward(self, data: bytes) -> bool:
        """Forward data at once if the data only add text; return False if they must be parsed instead."""
        last_run = None if self.translated is None else self.translated.run
        run = self.reader.plain(data) if last_run is None else self.reader.spliced(last_run)
        if run is None or self._forward is None:
            return False
        now = self._clock()
        if not self._forward(data):
            return False
        self.reader.take(run, now)
        if self.speech is not None:
            self._note_speech(self.speech, now)
        return True

    def take_last(self, call: Call) -> Block:
        """Return the last events of the answer, or the dialect's ending if no events followed the finish reason."""
        self._forward = None
        return self._last or Block(call.request.dialect.answers.ending, ())
