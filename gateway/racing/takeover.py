"""Where an answer that broke off is continued by another deployment, so that no character is wrong.

Of the text that was delivered all but the last, perhaps unfinished word is sent as the beginning of the answer. The
continuation must begin with that word: it is swallowed, as the client has it. If it begins otherwise, it is
not this answer's. Before the first visible character nothing is continued: the request is asked again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec
import regex

from gateway.core.attempts import Role
from gateway.core.calls import Call, CallRecord, Mode
from gateway.fleet.models import Deployment, Model
from gateway.racing.call import FINISHED, Broken, OpenCall, Unanswered
from gateway.racing.measurement import estimated_tokens
from gateway.racing.race import Race
from gateway.racing.reader import Block, Part
from gateway.racing.sinks import ClientGone, Sink, Winner
from gateway.settings import When
from gateway.steering import Launch, Plan
from providers import ErrorKind, UpstreamError, Usage, events
from providers.dialects import AnswerFormat, Begun, Chunk, Continuing, Ended, Splice

_TAIL = regex.compile(r"\s*\S*\s*\Z")
MOST_TAIL = 20  # characters of a word; beyond, the text has no spaces (Chinese, an address), and a few must do
FEW = 6
MOST_SPACES = 100  # that a continuation may put before the tail; a server that sends nothing else is not waited for
MOST_STOPS, LONGEST_STOP = 64, 1_000  # characters; to look for more of them would block the event loop


class SeamMismatchError(Exception):
    """The continuation does not begin with the last word that was delivered."""


def split(text: str) -> tuple[str, str]:
    """Return what is sent as the answer's beginning, and the tail that the continuation must repeat."""
    found = _TAIL.search(text)
    at = len(text) if found is None else found.start()
    word = text[at:].strip()
    if len(word) > MOST_TAIL:
        at = len(text.rstrip()) - FEW
    return text[:at], text[at:]


def is_blank(text: str) -> bool:
    """Whether a client sees nothing of a text: then another answer takes its place, and does not go on with it."""
    return not text or text.isspace()


def again_tokens(text: str) -> int:
    """Return how many of a text's tokens its continuation has to repeat, estimated: those of its tail."""
    if is_blank(text):
        return 0
    return estimated_tokens(len(text)) - estimated_tokens(len(split(text)[0]))


class Seam:
    """Swallows the tail. ``stops`` are the request's stop strings: one may begin before the seam and end after it."""

    def __init__(self, tail: str, *, before: str = "", stops: Sequence[str] = ()) -> None:
        """``before`` is the text that was delivered, with the tail."""
        self.passed = not tail
        self.stopped: str | None = None  # the stop string across the seam, after which nothing follows
        self._tail = tail
        self._came = ""
        self._stops = [stop for stop in stops if 0 < len(stop) <= LONGEST_STOP][:MOST_STOPS]
        longest = max(map(len, self._stops), default=0)
        self._window = before[-(longest - 1) :] if longest > 1 else ""
        self._behind = len(self._window)  # of the window, what was delivered before the seam

    def take(self, text: str) -> str:
        """Compare text of the continuation; return what of it the client does not have yet.

        Raises:
            SeamMismatchError: it does not begin with the tail.

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
        """Note the end of the continuation. One that its limit has cut short within the tail adds nothing.

        Raises:
            SeamMismatchError: it has ended within the tail.

        """
        if not (self.passed or is_cut_short) and self._came.strip() != self._tail.strip():
            raise SeamMismatchError
        is_spaces = not self.passed and self._came.startswith(self._tail) and is_blank(self._came)
        if is_spaces and (added := self._until_stop(self._came[len(self._tail) :])):
            self._window, self._behind = added, 0
        self.passed = True

    def held_back(self) -> str:
        """Return what was held back, at the end: it was no stop string."""
        held = "" if self.stopped is not None else self._window[self._behind :]
        self._window = ""
        return held

    def _rest(self) -> str | None:
        """Return what follows the tail; None while that cannot be told."""
        came, tail = self._came, self._tail
        if is_blank(tail):
            return self._first_line()
        if came.startswith(tail):
            return came[len(tail) :]
        if tail.startswith(came):
            return None
        if tail[:1].isspace():
            # A template may strip the space at the seam, or put one there. All other spaces are the text's own.
            bare_came, bare_tail = came.lstrip(), tail.lstrip()
            if bare_came.startswith(bare_tail) and (bare_tail or bare_came == came):
                return bare_came[len(bare_tail) :]
            if bare_tail.startswith(bare_came) and len(came) <= len(tail) + MOST_SPACES:
                return None
        raise SeamMismatchError

    def _first_line(self) -> str | None:
        """Return what an answer of its own adds to spaces; None while there is nothing to be seen.

        It may begin with other empty lines, but its first line is indented as it says.
        """
        came, tail, said = self._came, self._tail, self._came.lstrip()
        if not said and len(came) <= len(tail) + MOST_SPACES:
            return None
        indent, has = (each.rpartition("\n")[2] for each in (came[: len(came) - len(said)], tail))
        if not said or not (came.startswith((tail, said)) or indent.startswith(has)):
            raise SeamMismatchError
        return came[len(tail) :] if came.startswith(tail) else indent[len(has) :] + said

    def _until_stop(self, text: str) -> str:
        """Cut the text at a stop string that began before the seam; hold back what may be the rest of one.

        Stop strings that begin after the seam are the provider's.
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


# What a client has of a streamed answer, kept so that somebody else can finish it if it breaks.

MOST_BYTES = 256 * 1024  # of events; a longer answer ends where it breaks
MOST_TAKEOVERS = 2  # of one call
# Another provider may answer better, except where the request itself is wrong (400, 413, 422) or the call's time is up.
_ENDS = frozenset({ErrorKind.BAD_REQUEST, ErrorKind.TOTAL_TIMEOUT, ErrorKind.INVALID_ANSWER, ErrorKind.LOCAL_RESOURCES})


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
        """Return what the client has of the answer."""
        try:
            return continuing.begun(event.data for block in self._blocks for event in events(block))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return Begun("", None, "format")


# The sink of an attempt that finishes an answer: it adds to the running stream what the client does not have yet.


class Running(Sink, Protocol):
    """The sink of the answer that broke off."""

    def begun(self, continuing: Continuing) -> Begun:
        """Return what the client has of the answer."""

    def keep_alive(self, every_s: float) -> None:
        """Send a comment every ``every_s`` seconds until the answer goes on."""

    async def close(self) -> None:
        """Stop sending comments."""


class ClientSink(Running, Protocol):
    """The sink of a client, which keeps what it was sent."""

    delivered: Delivered | None = None  # of the model that is asked; None: if the answer breaks, it ends there

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Whether another deployment may finish the answer."""
        return self.delivered is not None and self.delivered.may_be_continued(error)

    def begun(self, continuing: Continuing) -> Begun:
        """Return what the client has of the answer."""
        assert self.delivered is not None
        return self.delivered.begun(continuing)


class ContinuingSink:
    """Until the seam is passed nothing is sent, and another attempt may take its place: it does not stream yet."""

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
        """``new_seam`` takes a deployment; ``usage`` the tokens of a continuation, and returns the whole answer's.

        ``needs_text``: one that adds nothing does not continue it, as the answer that it is to go on with still runs.
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
        """Forget an attempt that did not continue the answer."""
        self._seam = Seam("")
        self._prompt_tokens: int | None = None  # as the provider has counted them
        self._tokens: int | None = None
        self._chars = 0
        self._finish: bytes | None = None

    async def begin(self, winner: Winner) -> None:
        """Begin to look for the seam; the client has had its headers."""
        self._forget()
        self._seam = self._new_seam(winner.deployment)

    async def write(self, block: Block) -> None:
        """Send the text that follows the seam.

        Raises:
            UpstreamError: it does not continue the answer; before the seam another deployment may.

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
        """Whether another deployment may finish it after this one too."""
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
        """Return the texts of an event that has nothing else: no parts with types, no picture and no sound."""
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            texts = [text for _, text in self._answers.texts(chunk.data)]
            if texts and sum(map(len, texts)) == chunk.text_chars:
                return texts
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "continued the answer with text that is no delta")

    def _count(self, usage: Usage) -> None:
        if usage.completion_tokens is not None:
            self._tokens = usage.completion_tokens
        if usage.prompt_tokens is not None:
            self._prompt_tokens = usage.prompt_tokens

    def _chunks(self, part: Part) -> Sequence[Chunk]:
        if part.chunks is not None:
            return part.chunks
        return [self._answers.read_event(event.data, ()) for event in events(part.data)]


# Has another deployment finish an answer that breaks, so that its client sees one answer.

CANDIDATES = 2
COMMENT_S = 2.0  # between two comments while the client waits for more


def delivered_of(call: Call, model: Model, open_call: OpenCall) -> Delivered | None:
    """Return what keeps a call's answer until it is whole; None if it is to end where it breaks."""
    if model.takeover.when is not When.ALWAYS:
        return None
    continuing = call.dialect.continuing
    obstacle = "dialect" if continuing is None else continuing.obstacle(call.fields)
    return Delivered(open_call, obstacle)


class Takeover:
    """Finishes one call's answer as often as it breaks. ``plan`` says who may, and in which order."""

    def __init__(self, call: Call, model: Model, plan: Plan, open_call: OpenCall, sink: Running) -> None:
        self._call = call
        self._model = model
        self._plan = plan
        self._open_call = open_call
        self._sink = sink

    async def finish(self, broken: Broken) -> CallRecord | Broken:
        """Have another deployment finish an answer; if none does, tell its client that it broke off."""
        model, open_call, sink = self._model, self._open_call, self._sink
        continuing = self._call.dialect.continuing
        assert continuing is not None  # else the answer would not have been kept
        begun = sink.begun(continuing)
        open_call.broken.append(msgspec.structs.replace(broken, again_tokens=again_tokens(begun.text)))
        candidates = self.candidates(broken, begun)
        ending: CallRecord | Unanswered | Broken = Unanswered()
        if begun.obstacle is not None or not candidates:
            open_call.takeover = begun.obstacle or "nobody"
        else:
            open_call.takeover = FINISHED
            await sink.close()
            sink.keep_alive(min(COMMENT_S, model.keepalive_s or COMMENT_S))
            ending = await in_time(self.race(begun, candidates), model.takeover.within_s)
            await sink.close()
        if isinstance(ending, Unanswered):
            open_call.broken.pop()  # nobody went on from here
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

    def candidates(self, broken: Broken, begun: Begun, most: int = CANDIDATES) -> list[Deployment]:
        """Return who may go on, in the plan's order: only those that are known to, unless nothing is to be seen yet.

        Those that have failed in this call are last.
        """
        plan, dialect = self._plan, self._call.dialect
        names = dict.fromkeys([*(launch.deployment for launch in plan.launches), *plan.rest])
        found = []
        for name in names:
            deployment = self._model.deployments[name]
            is_free = name != broken.attempt.deployment and name not in plan.tripped
            if is_free and (is_blank(begun.text) or deployment.can_continue(dialect)):
                found.append(deployment)
        failed = {attempt.deployment for attempt in self._open_call.attempts if attempt.error_kind is not None}
        failed |= {each.attempt.deployment for each in self._open_call.broken}
        return sorted(found, key=lambda each: each.name in failed)[:most]

    def race(self, begun: Begun, candidates: list[Deployment], *, needs_text: bool = False) -> Race:
        """Return the race of those who may go on. ``needs_text``: as for ``ContinuingSink``."""
        call, model, open_call = self._call, self._model, self._open_call
        continuing = call.dialect.continuing
        assert continuing is not None
        # A token has at least one byte: a provider that reports more than it has sent must not use up the call's limit.
        most_spent = 0 if is_blank(begun.text) else len(begun.text.encode())
        spent = min(sum(each.attempt.completion_tokens or 0 for each in open_call.broken), most_spent)
        prefix, tail = split(begun.text)
        wordings = {each.name: _wording(each, call, prefix, spent) for each in candidates}
        within_s = model.takeover.within_s
        going_on = open_call.call
        open_call.continue_as(msgspec.structs.replace(going_on, wordings={**call.wordings, **wordings}))
        # The first has all of the call's time; the next starts beside it after half of it, or as soon as it has failed.
        delays_s = (number * within_s / len(candidates) for number in range(len(candidates)))
        launches = (
            Launch(each.name, delay_s, Role.TAKEOVER) for each, delay_s in zip(candidates, delays_s, strict=True)
        )
        plan = Plan(launches=tuple(launches), rest=(), mode=Mode.SINGLE)
        stops = continuing.stops(call.fields)
        answers = call.dialect.answers
        repeating = {each.name for each in candidates if each.way_to_continue(call.dialect) == "repeated_prefix"}

        def new_seam(deployment: str) -> Seam:
            repeated = begun.text if deployment in repeating else tail
            return Seam(repeated, before=begun.text, stops=stops)

        def usage(sent: int | None, tokens: int) -> tuple[int, int] | None:
            if not (call.wants_usage or continuing.always_counts):
                return None
            prompt = open_call.broken[0].attempt.prompt_tokens
            if prompt is None:  # the others were sent what was delivered as well
                prompt = call.prompt_tokens if sent is None else max(0, sent - spent)
            return prompt, spent + max(0, tokens - sum(each.again_tokens for each in open_call.broken))

        ending = ContinuingSink(self._sink, continuing.splice(begun), new_seam, answers, usage, needs_text=needs_text)
        return Race(open_call, _hurried(model, candidates, within_s), plan, ending, permit=lambda _: True)


async def in_time(race: Race, within_s: float) -> CallRecord | Unanswered | Broken:
    """Run the race; give it up if no deployment continues in time: it waits for a seat, or a word does not end."""
    error = UpstreamError(ErrorKind.TTFT_TIMEOUT, f"did not continue the answer within {within_s:g} s")
    timer = race.loop.call_later(within_s, race.give_up, error)
    try:
        return await race.run()
    finally:
        timer.cancel()


def _wording(deployment: Deployment, call: Call, prefix: str, spent: int) -> Mapping[str, msgspec.Raw]:
    """Return what a deployment is sent, in the dialect that it is asked in."""
    fields = call.wordings.get(deployment.name, call.fields)
    continuing = deployment.spoken_to(call.dialect).continuing
    if continuing is None:
        return fields
    return continuing.request(fields, prefix, deployment.way_to_continue(call.dialect), spent)


def _hurried(model: Model, candidates: list[Deployment], within_s: float) -> Model:
    """Return the model with so little time for a first token: a client is waiting in the middle of an answer."""
    hurried = {}
    for each in candidates:
        clocks = msgspec.structs.replace(
            each.clocks, connect_s=min(each.clocks.connect_s, within_s), ttft_s=min(each.clocks.ttft_s, within_s)
        )
        hurried[each.name] = msgspec.structs.replace(each, clocks=clocks)
    return msgspec.structs.replace(model, deployments={**model.deployments, **hurried})
