"""Has another deployment continue an answer that broke off, stands still or is slow: which one, who pays, and how.

However the answer stopped, the continuation is one race with the same client. The sink of the race drops the text that
is repeated at the seam: after "The capital of France", of "of France is Paris" only " is Paris" is sent. An answer that
still runs is cut by the first text that is new to the client.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum

import msgspec

from gateway.core.attempts import Role
from gateway.core.calls import AS_ASKED, Call, CallRecord, Mode
from gateway.fleet import Deployment, Model
from gateway.racing.call import FINISHED, BrokenAnswer, NoAnswer, OpenCall
from gateway.racing.delivered import ContinuableSink
from gateway.racing.measurement import estimated_tokens
from gateway.racing.race import Race
from gateway.racing.reader import Block, WholeEvents
from gateway.racing.seam import Seam, SeamMismatchError, again_tokens, is_blank, split
from gateway.racing.sinks import ClientGone, Winner
from gateway.steering import Launch, Plan
from providers import UNREADABLE, ErrorKind, UpstreamError, Usage, events
from providers.dialects import AnswerFormat, Chunk, ContinuationEnd, Continuing, DeliveredPart, Splice, continued

CANDIDATES = 2
COMMENT_S = 2.0  # between two comments while the client waits for more

# Which deployments continue.


class StopKind(Enum):
    """How the answer stopped."""

    BROKE = "broke"
    SILENT = "silent"  # the answer stands still, and still runs
    SLOW = "slow"  # the answer is slow, and still runs


class Continuer(msgspec.Struct, frozen=True):
    """A model whose deployments may continue an answer: its plan, and how the continuation is paid."""

    model: Model
    plan: Plan
    call: Call  # as built for this model
    reserve: Callable[[Launch], Awaitable[bool]]  # reserves the launch's expected use; whether limits allow it
    pay: Callable[[Launch, StopKind], bool]  # pays for the launch; whether it may start


class Continuers(msgspec.Struct, frozen=True):
    """The model whose answer has begun, and its fallbacks, each planned when it is needed."""

    own: Continuer
    fallbacks: Callable[[StopKind], Iterator[Continuer]]


class ContinuationCandidate(msgspec.Struct, frozen=True):
    """A deployment that may continue the answer."""

    deployment: Deployment
    of: Continuer

    @property
    def name(self) -> str:
        """The name of the deployment."""
        return self.deployment.name


class Continuation:
    """One continuation of an answer. ``plan`` first; then ``run``, or ``finish`` an answer that broke off."""

    def __init__(
        self,
        open_call: OpenCall,
        sink: ContinuableSink,
        continuers: Continuers,
        broken: BrokenAnswer,
        stopped: StopKind = StopKind.BROKE,
        *,
        among: Collection[str] | None = None,
        on_text: Callable[[], None] | None = None,
    ) -> None:
        """``broken``: the answer so far, in a dialect that has a form of continuing.

        ``among``: the only deployments that may continue; ``on_text`` as for ``ContinuingSink``.
        """
        self._open_call = open_call
        self._sink = sink
        self._own = continuers.own
        self._fallbacks = continuers.fallbacks
        self._broken = broken
        self._stopped = stopped
        self._among = among
        self._on_text = on_text
        continuing = continuers.own.call.request.dialect.continuing
        assert continuing is not None  # otherwise no answer is kept
        self._continuing: Continuing = continuing
        self._begun: DeliveredPart = sink.begun(continuing)
        self._candidates: Sequence[ContinuationCandidate] = ()
        self._race: Race | None = None
        self._is_counted = False  # whether ``broken`` is one of the call's parts
        self._repeated = ""  # the part of the delivered text that the continuing deployment repeats

    def plan(self) -> bool:
        """Choose the deployments; return whether one may continue and is paid. The answer so far becomes a part."""
        if self._begun.obstacle is not None:
            return False
        candidates = self._candidates = self._chosen()
        # Beside an answer that still runs, a continuation counts as a rescue, like one before the first token.
        if not candidates or not self._pay(Launch(candidates[0].name, 0.0, Role.FAILOVER)):
            return False
        # The answer as it is now: later text is held back, and dropped if another deployment continues.
        part = msgspec.structs.replace(self._broken, again_tokens=again_tokens(self._begun.text))
        self._open_call.broken.append(part)
        self._is_counted = True
        return True

    async def run(self) -> CallRecord | NoAnswer | BrokenAnswer:
        """Ask the chosen deployments until one has continued the answer."""
        sink, takeover = self._sink, self._own.model.takeover
        ending: CallRecord | NoAnswer | BrokenAnswer = NoAnswer()
        candidates = [each for each in self._candidates if await each.of.reserve(Launch(each.name, 0.0, Role.TAKEOVER))]
        if candidates and self._is_counted:
            with suppress(MemoryError):  # no memory for requests with the delivered text: the answer is not continued
                self._race = self._race_of(candidates)
        if self._race is not None:
            if self._stopped is StopKind.BROKE:
                self._open_call.takeover = FINISHED
            sink.keep_alive(min(COMMENT_S, self._own.model.keepalive_s or COMMENT_S))
            ending = await in_time(self._race, takeover.within_s)
            await sink.close()
        if isinstance(ending, NoAnswer):
            self.withdraw()
        return ending

    def by_rival(self, race: Race) -> "ContinuingSink":
        """Return the sink of a rival of ``race`` that goes on with the answer.

        The rival was sent the call's own request, and its text begins with the delivered text.
        """
        text, self._race = self._begun.text, race
        part = msgspec.structs.replace(self._broken, again_tokens=estimated_tokens(len(text)))
        self._open_call.broken.append(part)
        sink = self._sink_for(lambda _: text, self._spent(), sent=0)
        sink.streams = True  # no other attempt may go on in place of the rival, which is known to have the text
        return sink

    def withdraw(self) -> None:
        """End the continuation: no deployment has continued the answer, or the answer goes on by itself."""
        if self._is_counted:
            self._is_counted = False
            self._open_call.broken.pop()
            if self._race is not None:
                self._race.withdraw()

    async def finish(self) -> CallRecord | BrokenAnswer:
        """Finish an answer that broke off; if no deployment can, record the call, and send the error to the client."""
        open_call, broken = self._open_call, self._broken
        ending = await self.run() if self.plan() else NoAnswer()
        if not isinstance(ending, NoAnswer):
            return ending
        if self._race is None:
            open_call.takeover = self._begun.obstacle or "nobody"
        elif open_call.takeover == FINISHED:
            open_call.takeover = "failed"
        record = open_call.finish(
            broken.attempt,
            status_code=200,
            error_kind=broken.error.kind,
            times=broken.times,
        )
        with suppress(ClientGone):
            await self._sink.fail(broken.error)
        return record

    # Which deployments continue, in which order.

    def _chosen(self) -> list[ContinuationCandidate]:
        """Return the deployments that may continue, in the plan's order; those that failed in this call are last.

        These deployments are known to continue answers, unless the client has seen no text yet. If the model has too
        few, deployments of its fallbacks follow.
        """
        own, among = self._own, self._among
        failed = {attempt.deployment for attempt in self._open_call.attempts if attempt.error_kind is not None}
        failed |= {each.attempt.deployment for each in self._open_call.broken}
        able = self._able(own)
        others = self._fallbacks(self._stopped) if among is None else iter(())
        while len(able.keys() - failed) < CANDIDATES and (other := next(others, None)) is not None:
            fallbacks = self._able(other)
            able |= {name: each for name, each in fallbacks.items() if name not in {*able, *own.model.deployments}}
        in_order = sorted(able.values(), key=lambda each: each.name in failed)
        return [each for each in in_order if among is None or each.name in among][:CANDIDATES]

    def _able(self, of: Continuer) -> dict[str, ContinuationCandidate]:
        """Return the deployments of one model that may continue, by name, in the plan's order."""
        able = {}
        for name in [*(launch.deployment for launch in of.plan.launches), *of.plan.rest]:
            deployment = of.model.deployments[name]
            is_free = name != self._broken.attempt.deployment and name not in of.plan.tripped
            if is_free and (is_blank(self._begun.text) or deployment.can_continue(deployment.spoken_in(of.call))):
                able[name] = ContinuationCandidate(deployment, of)
        return able

    def _pay(self, launch: Launch) -> bool:
        """Pay for a launch; return whether it may start."""
        of = next((each.of for each in self._candidates if each.name == launch.deployment), self._own)
        return of.pay(launch, self._stopped)

    # How the deployments are asked.

    def _race_of(self, candidates: Sequence[ContinuationCandidate]) -> Race:
        """Return the race of ``candidates``: the first has the whole time; the next starts beside it after a share.

        The next one starts at once when the first has failed.
        """
        model, within_s = self._own.model, self._own.model.takeover.within_s
        spent = self._spent()
        self._word(candidates, spent)
        delays_s = (number * within_s / len(candidates) for number in range(len(candidates)))
        launches = (
            Launch(each.name, delay_s, Role.TAKEOVER) for each, delay_s in zip(candidates, delays_s, strict=True)
        )
        plan = Plan(launches=tuple(launches), rest=(), mode=Mode.SINGLE)
        own = self._continuing.own_prefix(self._own.call.request.fields)  # Mistral's answers begin with this
        text, (_, tail) = self._begun.text, split(self._begun.text)
        repeated = text if text.startswith(own.rstrip()) else own + text
        repeating = {each.name for each in candidates if _way(each) == "repeated_prefix"}
        sink = self._sink_for(lambda deployment: repeated if deployment in repeating else tail, spent, sent=spent)
        # A slow stream's continuation was paid as a whole when it was planned.
        may_launch = (lambda _: True) if self._stopped is StopKind.SLOW else self._pay
        return Race(self._open_call, _hurried(model, candidates, within_s), plan, sink, may_launch=may_launch)

    def _spent(self) -> int:
        """Return how many tokens of the call's limit the delivered text has used up."""
        # A token has at least one byte. A provider that reports more tokens than bytes must not use up a limit.
        text = self._begun.text
        most = 0 if is_blank(text) else len(text.encode())
        return min(sum(each.attempt.completion_tokens or 0 for each in self._open_call.broken), most)

    def _word(self, candidates: Sequence[ContinuationCandidate], spent: int) -> None:
        """Have the call ask each of ``candidates`` for what follows the delivered text."""
        call, going_on = self._own.call, self._open_call.call
        prefix, _ = split(self._begun.text)
        prefix = prefix.removeprefix(self._continuing.own_prefix(call.request.fields).rstrip())
        rendered = dict(going_on.rendered)
        for each in candidates:
            planned, its = each.of.call.rendered.get(each.name, AS_ASKED), each.of.call
            latest = going_on.rendered.get(each.name, planned) if its is call else planned  # with later refusals
            rendered[each.name] = msgspec.structs.replace(
                planned,
                fields=_wording(each, prefix, spent),
                dropped=latest.dropped,
                lowered=latest.lowered,
                model=None if its is call else its.decision.model,
            )
        self._open_call.continue_as(msgspec.structs.replace(going_on, rendered=rendered))

    def _sink_for(self, repeats: Callable[[str], str], spent: int, *, sent: int) -> "ContinuingSink":
        """Return the sink that joins the continuation to the delivered text.

        ``repeats`` takes a deployment, and returns the part of the delivered text that the deployment repeats;
        ``sent``: the tokens of the delivered text in the prompt.
        """
        call, begun, continuing, open_call = self._own.call, self._begun, self._continuing, self._open_call
        stops = continuing.stops(call.request.fields)

        def new_seam(deployment: str) -> Seam:
            self._repeated = repeats(deployment)
            return Seam(self._repeated, before=begun.text, stops=stops)

        def usage(counted: int | None, tokens: int) -> tuple[int, int] | None:
            if not (call.request.wants_usage or continuing.always_counts):
                return None
            prompt = open_call.broken[0].attempt.prompt_tokens
            if prompt is None:
                prompt = call.traits.prompt_tokens if counted is None else max(0, counted - sent)
            return prompt, spent + max(0, tokens - sum(each.again_tokens for each in open_call.broken))

        splice, answers = continuing.splice(begun), call.request.dialect.answers
        return ContinuingSink(
            self._sink, splice, new_seam, answers, usage, goes_on=self._goes_on, on_text=self._on_text
        )

    def _goes_on(self) -> None:
        """Have the listener hear the continuation's new text; the silence before that text is in the call's row."""
        winner = None if self._race is None else self._race.winner
        listener = None if winner is None else winner.measurement.listener
        if listener is not None and self._broken.heard is not None:
            from gateway.racing import speech  # noqa: PLC0415 - loaded already, by the speech of this answer

            now = self._open_call.services.clock()
            listener.go_on(now, self._broken.heard, speech.spoken_s(self._repeated))


async def in_time(race: Race, within_s: float) -> CallRecord | NoAnswer | BrokenAnswer:
    """Run the race; end it after ``within_s`` if no deployment has continued the answer by then."""
    error = UpstreamError(ErrorKind.TTFT_TIMEOUT, f"did not continue the answer within {within_s:g} s")
    timer = race.loop.call_later(within_s, race.time_out, error)
    try:
        return await race.run()
    finally:
        timer.cancel()


def _way(candidate: ContinuationCandidate) -> object:
    deployment = candidate.deployment
    return deployment.way_to_continue(deployment.spoken_in(candidate.of.call))


def _wording(candidate: ContinuationCandidate, prefix: str, spent: int) -> Mapping[str, msgspec.Raw]:
    """Return the fields that are sent to a deployment, in the dialect of that deployment."""
    deployment, call = candidate.deployment, candidate.of.call
    fields = call.sent_to(deployment.name)
    dialect = deployment.spoken_in(call)
    if dialect.continuing is None:
        return fields
    return continued(dialect.continuing, fields, prefix, deployment.way_to_continue(dialect), spent)


def _hurried(model: Model, candidates: Sequence[ContinuationCandidate], within_s: float) -> Model:
    """Return the model with timeouts of at most ``within_s``: a client waits in the middle of its answer."""
    hurried = {}
    for each in candidates:
        clocks = each.deployment.clocks
        clocks = msgspec.structs.replace(
            clocks,
            connect_s=min(clocks.connect_s, within_s),
            ttft_s=min(clocks.ttft_s, within_s),
            first_call_s=0.0,
        )
        hurried[each.name] = msgspec.structs.replace(each.deployment, clocks=clocks)
    return msgspec.structs.replace(model, deployments={**model.deployments, **hurried})


# The sink of an attempt that continues an answer: it adds the text that is new to the client to the running stream.


class ContinuingSink:
    """The sink of a continuation. Before the seam nothing is sent, and another attempt may take over."""

    understands = True

    def __init__(
        self,
        running: ContinuableSink,
        splice: Splice,
        new_seam: Callable[[str], Seam],
        answers: AnswerFormat,
        usage: Callable[[int | None, int], tuple[int, int] | None],
        *,
        goes_on: Callable[[], None],
        on_text: Callable[[], None] | None = None,
    ) -> None:
        """``new_seam`` takes a deployment. ``usage`` turns the tokens of a continuation into the whole answer's.

        ``goes_on`` is called when the seam is passed.
        ``on_text``: cuts the continued answer, which still runs; called before the first new text. A continuation
        without new text counts as failed.
        """
        self.streams = False
        self._on_text = on_text
        self._running = running
        self._splice = splice
        self._new_seam = new_seam
        self._answers = answers
        self._usage = usage
        self._goes_on = goes_on
        self._forget()

    def _forget(self) -> None:
        """Reset the state of an earlier attempt that did not continue the answer."""
        self._seam = Seam("")
        self._prompt_tokens: int | None = None  # as counted by the provider
        self._tokens: int | None = None
        self._chars = 0
        self._finish: bytes | None = None

    async def begin(self, winner: Winner) -> None:
        """Start to look for the seam. The client has its headers already."""
        self._forget()
        self._seam = self._new_seam(winner.deployment)
        if self.streams:
            self._goes_on()

    async def write(self, block: Block) -> None:
        """Send the text that follows the seam.

        Raises:
            UpstreamError: the attempt does not continue the answer; before the seam another can replace it.

        """
        try:
            text = "".join(map(self._seam.take, self._texts(block)))
        except SeamMismatchError:
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, "does not continue the answer that broke off") from None
        if self._on_text is not None and not self.streams and not text:
            if self._finish is not None:
                raise UpstreamError(ErrorKind.INVALID_RESPONSE, "adds nothing to the answer that it was to continue")
        elif self._seam.passed and not self.streams:
            self.streams = True
            self._goes_on()
            if self._on_text is not None:
                self._on_text()
            await self._running.close()
        if text:
            await self._running.write(Block(self._splice.text(text), ()))

    async def end(self, last: Block) -> None:
        """End the running stream."""
        text = "".join(map(self._seam.take, self._texts(last))) + self._seam.held_back()
        added = self._splice.text(text) if text else b""
        tokens = estimated_tokens(self._chars) if self._tokens is None else self._tokens
        ended = ContinuationEnd(self._finish, self._seam.stopped, self._usage(self._prompt_tokens, tokens))
        await self._running.end(Block(added + self._splice.end(ended), ()))

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Whether yet another deployment may finish the answer if this one breaks off."""
        return self._running.may_be_continued(error)

    async def fail(self, error: UpstreamError) -> None:
        """Tell the client that the answer broke off."""
        await self._running.fail(error)

    def _texts(self, block: Block) -> Iterator[str]:
        for part in block.parts:
            for chunk in self._chunks(part):
                if chunk.reasoning or chunk.tools or chunk.names or chunk.refused:
                    raise UpstreamError(
                        ErrorKind.INVALID_RESPONSE, "continued the answer with something else than text"
                    )
                if chunk.usage is not None:
                    self._count(chunk.usage)
                if chunk.answer:
                    self._chars += chunk.text_chars
                    yield from self._deltas(chunk)
                if chunk.finish_reason is not None:
                    self._finish = chunk.data
                    self._seam.end(is_cut_short=chunk.finish_reason in self._answers.cut_short)
                elif chunk.done:
                    self._seam.end()

    def _deltas(self, chunk: Chunk) -> Sequence[str]:
        """Return the texts of an event that has only text: no typed parts, pictures or sound."""
        with suppress(*UNREADABLE):
            texts = [text for _, text in self._answers.texts(chunk.data)]
            if texts and sum(map(len, texts)) == chunk.text_chars:
                return texts
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "continued the answer with text that is no delta")

    def _count(self, usage: Usage) -> None:
        if usage.completion_tokens is not None:
            self._tokens = usage.completion_tokens
        if usage.prompt_tokens is not None:
            self._prompt_tokens = usage.prompt_tokens

    def _chunks(self, part: WholeEvents) -> Sequence[Chunk]:
        if part.chunks is not None:
            return part.chunks
        return [self._answers.read_event(event.data, ()) for event in events(bytes(part.data))]
