"""Has another deployment continue an answer that broke off, so that no character is wrong at the seam.

All of the delivered text but its last, perhaps unfinished word is sent as the beginning of the answer. The
continuation must begin with that word, which is not sent again; if it begins otherwise, it does not continue this
answer. Before the first visible character nothing is continued: the request is sent again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from gateway.core.attempts import Role
from gateway.core.calls import Call, CallRecord, Mode
from gateway.fleet.models import Deployment, Model
from gateway.racing.call import FINISHED, Broken, OpenCall, Unanswered
from gateway.racing.measurement import estimated_tokens
from gateway.racing.race import Race
from gateway.racing.reader import Block, WholeEvents
from gateway.racing.sinks import ClientGone, Sink, Winner
from gateway.settings import When
from gateway.steering import Launch, Plan
from providers import UNREADABLE, ErrorKind, UpstreamError, Usage, events
from providers.dialects import AnswerFormat, Begun, Chunk, Continuing, Ended, Splice

MOST_TAIL = 20  # characters of a word; longer text has no spaces (Chinese, an address): ``FEW`` of it suffice
FEW = 6
MOST_SPACES = 100  # that a continuation may put before the tail; a server that sends more has failed
MOST_STOPS, LONGEST_STOP = 64, 1_000  # strings, and characters of one; a search for more would block the event loop


class SeamMismatchError(Exception):
    """The continuation does not begin with the last word that was delivered."""


def split(text: str) -> tuple[str, str]:
    """Return the part of ``text`` that is sent as the answer's beginning, and the tail that must be repeated."""
    shown = text.rstrip()
    word = shown.rsplit(maxsplit=1)[-1] if shown else ""
    at = len(shown[: len(shown) - len(word)].rstrip())
    if len(word) > MOST_TAIL:
        at = len(shown) - FEW
    return text[:at], text[at:]


def is_blank(text: str) -> bool:
    """Whether a text has nothing visible: then a new answer replaces it instead of continuing it."""
    return not text or text.isspace()


def again_tokens(text: str) -> int:
    """Return the estimated number of tokens in the tail of a text, which its continuation repeats."""
    if is_blank(text):
        return 0
    return estimated_tokens(len(text)) - estimated_tokens(len(split(text)[0]))


class Seam:
    """Removes the repeated tail from a continuation.

    ``stops`` are the request's stop strings: one may begin before the seam and end after it.
    """

    def __init__(self, tail: str, *, before: str = "", stops: Sequence[str] = ()) -> None:
        """``before`` is the text that was delivered, with the tail."""
        self.passed = not tail
        self.stopped: str | None = None  # the stop string across the seam, after which nothing follows
        self._tail = tail
        self._came = ""
        self._stops = [stop for stop in stops if 0 < len(stop) <= LONGEST_STOP][:MOST_STOPS]
        longest = max(map(len, self._stops), default=0)
        self._window = before[-(longest - 1) :] if longest > 1 else ""
        self._behind = len(self._window)  # length of the part of the window that was delivered before the seam

    def take(self, text: str) -> str:
        """Compare text of the continuation with the tail; return the part that is new to the client.

        Raises:
            SeamMismatchError: the continuation does not begin with the tail.

        """
        if self.stopped is not None:
            return ""
        if not self.passed:
            self._came += text
            rest = self._rest()
            if rest is None:
                return ""
            self.passed, text = True, rest
        return self._until_stop(text)

    def end(self, *, is_cut_short: bool = False) -> None:
        """Handle the end of the continuation. If its limit cut it short within the tail, it adds nothing.

        Raises:
            SeamMismatchError: the continuation ended within the tail.

        """
        if not (self.passed or is_cut_short) and self._came.strip() != self._tail.strip():
            raise SeamMismatchError
        is_spaces = not self.passed and self._came.startswith(self._tail) and is_blank(self._came)
        if is_spaces and (added := self._until_stop(self._came[len(self._tail) :])):
            self._window, self._behind = added, 0
        self.passed = True

    def held_back(self) -> str:
        """Return, at the end, the text that was held back: it was not part of a stop string."""
        held = "" if self.stopped is not None else self._window[self._behind :]
        self._window = ""
        return held

    def _rest(self) -> str | None:
        """Return the text after the tail; None as long as that is undecided."""
        came, tail = self._came, self._tail
        if is_blank(tail):
            return self._first_line()
        if came.startswith(tail):
            return came[len(tail) :]
        if tail.startswith(came):
            return None
        if tail[:1].isspace():
            # A template may strip or add a space at the seam. All other spaces belong to the text.
            bare_came, bare_tail = came.lstrip(), tail.lstrip()
            if bare_came.startswith(bare_tail) and (bare_tail or bare_came == came):
                return bare_came[len(bare_tail) :]
            if bare_tail.startswith(bare_came) and len(came) <= len(tail) + MOST_SPACES:
                return None
        raise SeamMismatchError

    def _first_line(self) -> str | None:
        """Return what a new answer adds to delivered white space; None as long as nothing of it is visible.

        It may begin with other empty lines, but the indent of its first line is kept.
        """
        came, tail, said = self._came, self._tail, self._came.lstrip()
        if not said and len(came) <= len(tail) + MOST_SPACES:
            return None
        indent, has = (each.rpartition("\n")[2] for each in (came[: len(came) - len(said)], tail))
        if not said or not (came.startswith((tail, said)) or indent.startswith(has)):
            raise SeamMismatchError
        return came[len(tail) :] if came.startswith(tail) else indent[len(has) :] + said

    def _until_stop(self, text: str) -> str:
        """Cut the text at a stop string that began before the seam; hold back a possible rest of one.

        Stop strings that begin after the seam are left to the provider.
        """
        if not (self._window and text):
            return text
        joined, behind = self._window + text, self._behind
        places = [(at, stop) for at in range(behind) for stop in self._stops if at + len(stop) > behind]
        self.stopped = next((stop for at, stop in places if joined.startswith(stop, at)), None)
        if self.stopped is not None:
            return ""
        if any(stop.startswith(joined[at:]) for at, stop in places):
            self._window = joined
            return ""
        self._window = ""
        return joined[behind:]


# The delivered part of a streamed answer, kept so that another deployment can finish it if it breaks off.

MOST_BYTES = 256 * 1024  # of events; a longer answer is not continued
MOST_TAKEOVERS = 2  # of one call
# Another provider may answer better, except where the request itself is wrong (400, 413, 422) or the call's time is up.
_ENDS = frozenset({
    *(ErrorKind.BAD_REQUEST, ErrorKind.TOTAL_TIMEOUT, ErrorKind.INVALID_ANSWER, ErrorKind.LOCAL_RESOURCES),
    ErrorKind.NO_PLACE,
})  # fmt: skip


class Delivered:
    """The blocks that were sent to a client, by reference. ``obstacle``: why the answer could not be continued."""

    __slots__ = ("_blocks", "_bytes", "_obstacle", "_open_call")

    def __init__(self, open_call: OpenCall, obstacle: str | None) -> None:
        self._open_call = open_call
        self._obstacle = obstacle
        self._blocks: list[bytes] = []
        self._bytes = 0

    @property
    def obstacle(self) -> str | None:
        """Why the answer could not be continued; None if it could."""
        return self._obstacle

    def add(self, block: bytes) -> None:
        """Keep whole events that were sent."""
        if self._obstacle is None:
            self._blocks.append(block)
            self._bytes += len(block)
            if self._bytes > MOST_BYTES:
                self._obstacle = "too_long"
                self._blocks.clear()

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Whether another deployment may finish the answer, which broke off with ``error``; if not, note the reason."""
        reason = self._obstacle
        if error.kind in _ENDS:
            reason = "kind_of_error"
        elif self._open_call.takeovers >= MOST_TAKEOVERS:
            reason = "broke_again"
        if reason is not None:
            self._open_call.takeover = reason
        return reason is None

    def begun(self, continuing: Continuing) -> Begun:
        """Return the part of the answer that the client has."""
        try:
            return continuing.begun(event.data for block in self._blocks for event in events(block))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return Begun("", None, "format")


# The sink of an attempt that finishes an answer: it adds the text that is new to the client to the running stream.


class Running(Sink, Protocol):
    """The sink of the answer that broke off."""

    def begun(self, continuing: Continuing) -> Begun:
        """Return the part of the answer that the client has."""

    def keep_alive(self, every_s: float) -> None:
        """Send a comment every ``every_s`` seconds until the answer goes on."""

    async def close(self) -> None:
        """Stop sending comments."""


class ClientSink(Running, Protocol):
    """The sink of a client, which keeps the answer that was sent to it."""

    delivered: Delivered | None = None  # for the current model; None: an answer that breaks off is not continued

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Whether another deployment may finish the answer."""
        return self.delivered is not None and self.delivered.may_be_continued(error)

    def begun(self, continuing: Continuing) -> Begun:
        """Return the part of the answer that the client has."""
        assert self.delivered is not None
        return self.delivered.begun(continuing)


class ContinuingSink:
    """The sink of a continuation. Until the seam is passed it sends nothing, and another attempt may replace it."""

    understands = True

    def __init__(
        self,
        running: Running,
        splice: Splice,
        new_seam: Callable[[str], Seam],
        answers: AnswerFormat,
        usage: Callable[[int | None, int], tuple[int, int] | None],
        *,
        needs_text: bool = False,
    ) -> None:
        """``new_seam`` takes a deployment. ``usage`` turns the tokens of a continuation into the whole answer's.

        ``needs_text``: a continuation without new text counts as failed, as the answer it continues still runs.
        """
        self.streams = False
        self._needs_text = needs_text
        self._running = running
        self._splice = splice
        self._new_seam = new_seam
        self._answers = answers
        self._usage = usage
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

    async def write(self, block: Block) -> None:
        """Send the text that follows the seam.

        Raises:
            UpstreamError: it does not continue the answer; before the seam another deployment can replace it.

        """
        try:
            text = "".join(map(self._seam.take, self._texts(block)))
        except SeamMismatchError:
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, "does not continue the answer that broke off") from None
        if self._needs_text and not self.streams and not text:
            if self._finish is not None:
                raise UpstreamError(ErrorKind.INVALID_RESPONSE, "adds nothing to the answer that it was to continue")
        elif self._seam.passed and not self.streams:
            self.streams = True
            await self._running.close()
        if text:
            await self._running.write(Block(self._splice.text(text), ()))

    async def end(self, last: Block) -> None:
        """End the running stream."""
        text = "".join(map(self._seam.take, self._texts(last))) + self._seam.held_back()
        added = self._splice.text(text) if text else b""
        tokens = estimated_tokens(self._chars) if self._tokens is None else self._tokens
        ended = Ended(self._finish, self._seam.stopped, self._usage(self._prompt_tokens, tokens))
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


# Has another deployment finish an answer that broke off, so that the client sees one answer.

CANDIDATES = 2
COMMENT_S = 2.0  # between two comments while the client waits for more


def delivered_of(call: Call, model: Model, open_call: OpenCall) -> Delivered | None:
    """Return the store of a call's delivered answer; None if an answer that breaks off is not to be continued."""
    if model.takeover.when is not When.ALWAYS:
        return None
    continuing = call.dialect.continuing
    obstacle = "dialect" if continuing is None else continuing.obstacle(call.fields)
    return Delivered(open_call, obstacle)


class Planned(Protocol):
    """A fallback of the model whose answer began, and the call as built and planned for it."""

    @property
    def call(self) -> Call:
        """The call."""

    @property
    def model(self) -> Model:
        """The fallback."""

    @property
    def plan(self) -> Plan:
        """The order of its deployments."""


class Fallbacks(Protocol):
    """The fallbacks of the model whose answer began, which may continue it."""

    def to_continue(self, *, beside: bool) -> Iterator[Planned]:
        """Yield them in their order; ``beside``: without those that are asked only after a failure."""

    async def hold(self, model: str, deployment: str) -> bool:
        """Hold the expected use of the limits of the fallback ``model``; return whether they allow it."""


class Candidate(msgspec.Struct, frozen=True):
    """A deployment that may continue an answer; ``call`` is as built for its model."""

    deployment: Deployment
    call: Call


class Takeover:
    """Finishes one call's answer each time it breaks off: by the deployments of ``plan``, then those of fallbacks."""

    def __init__(
        self,
        call: Call,
        model: Model,
        plan: Plan,
        open_call: OpenCall,
        sink: Running,
        *,
        fallbacks: Fallbacks | None = None,
    ) -> None:
        self._fallbacks = fallbacks
        self._call = call
        self._model = model
        self._plan = plan
        self._open_call = open_call
        self._sink = sink

    async def finish(self, broken: Broken) -> CallRecord | Broken:
        """Have another deployment finish an answer; if none does, send the client its error."""
        model, open_call, sink = self._model, self._open_call, self._sink
        continuing = self._call.dialect.continuing
        assert continuing is not None  # otherwise no answer is kept
        begun = sink.begun(continuing)
        open_call.broken.append(msgspec.structs.replace(broken, again_tokens=again_tokens(begun.text)))
        candidates = [] if begun.obstacle is not None else await self.held(self.candidates(broken, begun))
        ending: CallRecord | Unanswered | Broken = Unanswered()
        if not candidates:
            open_call.takeover = begun.obstacle or "nobody"
        else:
            open_call.takeover = FINISHED
            await sink.close()
            sink.keep_alive(min(COMMENT_S, model.keepalive_s or COMMENT_S))
            ending = await in_time(self.race(begun, candidates), model.takeover.within_s)
            await sink.close()
        if isinstance(ending, Unanswered):
            open_call.broken.pop()  # no deployment continued it
            if open_call.takeover == FINISHED:
                open_call.takeover = "failed"
            ending = open_call.finish(
                broken.attempt,
                status_code=200,
                error_kind=broken.error.kind,
                ttft_ms=broken.times.ttft_ms,
                overhead_ms=broken.times.overhead_ms,
                alone=broken.times.alone,
                held=broken.times.held,
            )
            with suppress(ClientGone):
                await sink.fail(broken.error)
        return ending

    def candidates(
        self, broken: Broken, begun: Begun, most: int = CANDIDATES, *, beside: bool = False
    ) -> list[Candidate]:
        """Return the deployments that may continue, in the plan's order; those that failed in this call are last.

        They must be known to continue answers, unless nothing is visible yet. If the model has too few, those of its
        fallbacks follow; ``beside``: while the answer runs.
        """
        failed = {attempt.deployment for attempt in self._open_call.attempts if attempt.error_kind is not None}
        failed |= {each.attempt.deployment for each in self._open_call.broken}
        found = self._able(self._call, self._model, self._plan, broken, begun)
        others = iter(()) if self._fallbacks is None else self._fallbacks.to_continue(beside=beside)
        while len(found.keys() - failed) < most and (other := next(others, None)) is not None:
            known = self._able(other.call, other.model, other.plan, broken, begun)
            found |= {name: each for name, each in known.items() if name not in {*found, *self._model.deployments}}
        return sorted(found.values(), key=lambda each: each.deployment.name in failed)[:most]

    @staticmethod
    def _able(call: Call, model: Model, plan: Plan, broken: Broken, begun: Begun) -> dict[str, Candidate]:
        """Return the deployments of one model that may continue, by name, in the plan's order."""
        found = {}
        for name in [*(launch.deployment for launch in plan.launches), *plan.rest]:
            deployment = model.deployments[name]
            is_free = name != broken.attempt.deployment and name not in plan.tripped
            if is_free and (is_blank(begun.text) or deployment.can_continue(deployment.spoken_in(call))):
                found[name] = Candidate(deployment, call)
        return found

    async def held(self, candidates: list[Candidate]) -> list[Candidate]:
        """Return the candidates without those of fallbacks whose limits leave too little for them."""
        fallbacks = self._fallbacks
        if fallbacks is None:
            return candidates
        return [
            each
            for each in candidates
            if each.call is self._call or await fallbacks.hold(each.call.model, each.deployment.name)
        ]

    def race(
        self,
        begun: Begun,
        candidates: list[Candidate],
        *,
        needs_text: bool = False,
        may_launch: Callable[[Launch], bool] = lambda _: True,
    ) -> Race:
        """Return a race of ``candidates`` that continues the answer. ``needs_text``: as for ``ContinuingSink``."""
        call, model, open_call = self._call, self._model, self._open_call
        continuing = call.dialect.continuing
        assert continuing is not None
        # A token has at least one byte: a provider that reports more than it has sent must not use up the call's limit.
        most_spent = 0 if is_blank(begun.text) else len(begun.text.encode())
        spent = min(sum(each.attempt.completion_tokens or 0 for each in open_call.broken), most_spent)
        prefix, tail = split(begun.text)
        own = continuing.own_prefix(call.fields)  # Mistral's answers repeat it
        repeats, prefix = begun.text.startswith(own.rstrip()), prefix.removeprefix(own.rstrip())
        deployments = [each.deployment for each in candidates]
        wordings = {each.deployment.name: _wording(each.deployment, each.call, prefix, spent) for each in candidates}
        others = {each.deployment.name: each.call for each in candidates if each.call is not call}
        dropped = {name: its.dropped[name] for name, its in others.items() if name in its.dropped}
        spoken = {name: its.spoken[name] for name, its in others.items() if name in its.spoken}
        within_s = model.takeover.within_s
        going_on = open_call.call
        open_call.continue_as(
            msgspec.structs.replace(
                going_on,
                wordings={**call.wordings, **wordings},
                dropped={**going_on.dropped, **dropped},
                spoken={**call.spoken, **spoken},
                models={name: its.model for name, its in others.items()},
            )
        )
        # The first has all of the time; the second starts beside it after half of it, or when the first has failed.
        delays_s = (number * within_s / len(candidates) for number in range(len(candidates)))
        launches = (
            Launch(each.name, delay_s, Role.TAKEOVER) for each, delay_s in zip(deployments, delays_s, strict=True)
        )
        plan = Plan(launches=tuple(launches), rest=(), mode=Mode.SINGLE)
        stops = continuing.stops(call.fields)
        answers = call.dialect.answers
        repeating = {
            each.deployment.name
            for each in candidates
            if each.deployment.way_to_continue(each.deployment.spoken_in(each.call)) == "repeated_prefix"
        }

        def new_seam(deployment: str) -> Seam:
            repeated = begun.text if repeats else own + begun.text
            return Seam(repeated if deployment in repeating else tail, before=begun.text, stops=stops)

        def usage(sent: int | None, tokens: int) -> tuple[int, int] | None:
            if not (call.wants_usage or continuing.always_counts):
                return None
            prompt = open_call.broken[0].attempt.prompt_tokens
            if prompt is None:  # the prompts of the others include the delivered text
                prompt = call.prompt_tokens if sent is None else max(0, sent - spent)
            return prompt, spent + max(0, tokens - sum(each.again_tokens for each in open_call.broken))

        ending = ContinuingSink(self._sink, continuing.splice(begun), new_seam, answers, usage, needs_text=needs_text)
        return Race(open_call, _hurried(model, deployments, within_s), plan, ending, may_launch=may_launch)


async def in_time(race: Race, within_s: float) -> CallRecord | Unanswered | Broken:
    """Run the race; end it after ``within_s`` if no deployment has continued: it waits for a seat, or within a word."""
    error = UpstreamError(ErrorKind.TTFT_TIMEOUT, f"did not continue the answer within {within_s:g} s")
    timer = race.loop.call_later(within_s, race.time_out, error)
    try:
        return await race.run()
    finally:
        timer.cancel()


def _wording(deployment: Deployment, call: Call, prefix: str, spent: int) -> Mapping[str, msgspec.Raw]:
    """Return the fields that are sent to a deployment, in the dialect it is sent."""
    fields = call.wordings.get(deployment.name, call.fields)
    spoken = deployment.spoken_in(call)
    if spoken.continuing is None:
        return fields
    return spoken.continuing.request(fields, prefix, deployment.way_to_continue(spoken), spent)


def _hurried(model: Model, candidates: list[Deployment], within_s: float) -> Model:
    """Return the model with timeouts of at most ``within_s``: a client waits in the middle of its answer."""
    hurried = {}
    for each in candidates:
        clocks = msgspec.structs.replace(
            each.clocks,
            connect_s=min(each.clocks.connect_s, within_s),
            ttft_s=min(each.clocks.ttft_s, within_s),
            first_call_s=0.0,
        )
        hurried[each.name] = msgspec.structs.replace(each, clocks=clocks)
    return msgspec.structs.replace(model, deployments={**model.deployments, **hurried})
