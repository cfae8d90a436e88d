"""Reads an answer as it streams: measures each read, and decides what is forwarded and when the answer is complete.

Most events are plain: they add text and nothing else. A pattern recognises plain events, so these are never parsed. All
other events are parsed one by one.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import msgspec

from gateway.racing.measurement import Measurement
from gateway.racing.thoughts import AnswersThoughts, ClassifiedEvent, Thoughts, may_begin
from gateway.racing.timeouts import AttemptClocks, DeltaKind, came
from providers import (
    BACKSLASH,
    LARGE_BYTES,
    UNREADABLE,
    ErrorKind,
    Event,
    EventSplitter,
    Exchange,
    HalfCharacters,
    Masking,
    UpstreamError,
    aside,
    broken_within,
    check_values,
    complains,
    cut_within_event,
    end_of_event,
    error_in,
    events,
    lacks_data,
    masked,
    masked_block,
    named_error,
    sent_forms,
    set_apart,
)
from providers.dialects import DONE, AnswerFormat, Chunk, Pattern, Run, failed_by

# The text of an answer that must be JSON, kept until it has been judged.

MOST_CHARS = 256 * 1024  # longer answers are not judged


class AnswerText:
    """Collects the text of one choice, item or block; several together would not be JSON."""

    def __init__(self, texts: Callable[[bytes], Iterable[tuple[int, str]]]) -> None:
        """``texts``: returns the texts of one event's data, each with the index of its choice, item or block."""
        self._texts = texts
        self._pieces: list[str] = []
        self._chars = 0
        self._place: int | None = None
        self._lost = False

    def add(self, texts: Iterable[str]) -> None:
        """Append text to the current place."""
        if self._lost:
            return
        for text in texts:
            self._chars += len(text)
            self._pieces.append(text)
        if self._chars > MOST_CHARS:
            self._lose()

    def take(self, data: bytes) -> None:
        """Add the texts in the data of an event."""
        if self._lost:
            return
        try:
            for place, text in self._texts(data):
                self.put(place, text)
        except UNREADABLE:
            self._lose()

    @property
    def is_too_long(self) -> bool:
        """Whether the text was too long, or came from several places, and so is not judged."""
        return self._lost

    def whole(self) -> str | None:
        """Return the text; None if the text was too long, or came from several places."""
        return None if self._lost else "".join(self._pieces)

    def restart(self) -> None:
        """Drop the text so far, which was thoughts."""
        self._pieces, self._chars, self._place = [], 0, None

    def put(self, place: int, text: str) -> None:
        """Append text of one choice, item or block."""
        if self._lost:
            return
        if self._place is None:
            self._place = place
        if place == self._place:
            self.add((text,))
        else:
            self._lose()

    def _lose(self) -> None:
        self._lost = True
        self._pieces = []


MANY_BYTES = 1_000  # a block of several events: once the pattern is known, plain events are looked for in the block
HEAD_EVENTS = (2, 1, 1)  # the first text, after others in some APIs, should be among these; it shows the pattern
MOST_COMPLAINTS = 100  # events with nothing but the text of what seems to be an error
LESSONS = 8  # after so many useless patterns, no more are tried
LONG_BYTES = 256 * 1024  # of data, more than a socket gives at once; more is looked at in a thread
_END = b"\n\n"


class WholeEvents(msgspec.Struct, frozen=True, gc=False):
    """Whole events: parsed, or, if ``chunks`` is None, a ``run`` of plain ones that match ``pattern``."""

    data: bytes | memoryview
    chunks: Sequence[Chunk] | None
    run: Run | None = None
    pattern: Pattern | None = None


class Block(msgspec.Struct, frozen=True, gc=False):
    """Whole events that arrived together: the bytes to forward, and the parts that were parsed from these bytes."""

    forward: bytes
    parts: tuple[WholeEvents, ...]
    error: UpstreamError | None = None  # the error with which the stream breaks off after ``forward``


def joined(blocks: Sequence[Block]) -> Block:
    """Join several blocks."""
    if len(blocks) == 1:
        return blocks[0]
    return Block(b"".join(block.forward for block in blocks), tuple(part for block in blocks for part in block.parts))


# A block in which the gateway's keys are masked: its bytes; each event as received, as shown and as read (None: a
# comment); and the error of the event after these.
_Looked = tuple[bytes, list[tuple[Event, Event, Chunk | None]], UpstreamError | None]


class AnswerReader:
    """Turns reads into blocks, and updates measurement and clocks."""

    def __init__(
        self,
        measurement: Measurement,
        clocks: AttemptClocks,
        *,
        answers: AnswerFormat,
        drop_usage: bool,
        text: AnswerText | None = None,
        asked: int = 1,
        runs_on: bool = False,
        thoughts: Thoughts | None = None,
        may_think: bool = False,
    ) -> None:
        """``asked``: how many choices. Each of several has to finish; for one the first finish reason counts.

        ``runs_on``: in the background. ``may_think``: the text may begin with thoughts. ``thoughts``: marks of thoughts
        that are looked for in every text.
        """
        self.finished = False  # a finish reason was seen, of each choice
        self.done = False  # the last event was seen: [DONE], or the dialect's equivalent
        self._measurement = measurement
        self._clocks = clocks
        self._secrets: Sequence[str]
        self._sent_secrets: Sequence[bytes]
        self._masking: Masking
        self._read_event = (answers.read_begun if runs_on else None) or answers.read_event
        self._with_answer = answers.with_answer
        self._learned = answers.learned
        self._ending = answers.ending
        self._text = text  # of an answer that must be JSON
        self._choices = answers.choices if asked > 1 else None
        self._asked = asked
        self._begun: set[int] = set()  # of several choices
        self._ended: set[int] = set()
        self._drop_usage = drop_usage  # drop the chunk with usage alone that only the gateway asked for
        self._splitter = EventSplitter()
        self.held = self._splitter.held  # the beginning of an event whose rest has not come
        self._halves = HalfCharacters()
        self._complaints = 0
        self._latest_complaint: UpstreamError | None = None  # the latest text, if it is the text of an error
        self._has_sound = False
        self._looks = may_think  # whether the answer may not have begun, though there is text
        self._answers = answers
        self.thoughts = None if thoughts is None else AnswersThoughts(answers, thoughts, is_one=asked <= 1)
        self._pattern: Pattern | None = None
        self._lessons = LESSONS
        self._lesson: tuple[bytes, Chunk] | None = None  # the latest event with a delta, to learn the pattern from

    def mask(self, secrets: Sequence[str]) -> None:
        """Mask ``secrets`` in the data. To be called before the first read."""
        self._secrets = secrets
        self._sent_secrets = sent_forms(secrets)
        self._masking = Masking(secrets)

    def read(self, data: bytes, now: float, run: Run | None = None) -> Block:
        """Parse one read (``b""`` at the end of the stream). Data after the end of the answer are dropped.

        ``run``: the same data as plain events, if all of the data are plain.
        """
        if run is not None and self.spliced(run) is not None:
            self.take(run, now)
            return Block(data, (WholeEvents(data, None),))
        return self._read(self._splitter.feed(data), now) if data else self._read_end(now)

    async def read_long(self, data: bytes, now: float) -> Block:
        """Do as ``read``, but parse long events in a thread, so that other calls go on.

        The clocks stand meanwhile. After a cancellation the thread ends on its own, and its result is dropped.
        """
        block = self._splitter.feed(data) if data else b""
        if len(block) <= LONG_BYTES:
            return self._read(block, now) if data else self._read_end(now)
        pattern = self._pattern
        self._clocks.pause(now)
        try:
            looked = await aside(self._look_at_long, block, pattern)
        finally:
            self._clocks.resume()
        if isinstance(looked, Run):
            self.take(looked, now)
            return Block(bytes(looked.data), (WholeEvents(looked.data, None, looked, pattern),))
        draft = _Draft()
        self._parse(looked, now, draft)
        return draft.block()

    def _read(self, block: bytes, now: float) -> Block:
        """Parse whole events."""
        if len(block) > LARGE_BYTES:
            check_values(block)
        # The first look costs a tenth of the second.
        if (BACKSLASH in block and block.find(b"\\u") >= 0) or self._halves.held:
            block = self._halves.mend(block)
        draft = _Draft()
        at = 0
        if self._lesson is not None:
            self._learn(self._lesson)
        if self._pattern is None and self._learned is not None and len(block) >= MANY_BYTES:
            at = self._parse_head(block, now, draft)
            if self.done or draft.error is not None:
                return draft.block()
        pattern = self._pattern
        run = pattern.find(block, at) if pattern is not None else None
        if run is not None:
            self._lessons = LESSONS
            if run.start > at and not self._parse(self._look(block[at : run.start]), now, draft):
                return draft.block()
            self.take(run, now)
            draft.forward.append(run.data)
            draft.parts.append(WholeEvents(run.data, None, run, pattern))
            at = run.end
        if at < len(block):
            self._parse(self._look(block[at:]), now, draft)
        elif not block:
            self._clocks.alive_at = now  # by a piece of an event
        return draft.block(block)

    def _read_end(self, now: float) -> Block:
        """Parse the rest of an ended stream: an event without a blank line after it, or the beginning of one."""
        draft = _Draft()
        rest = self._end_of_stream()
        if lacks_data(rest):  # not passed on: some clients cannot read an event that has only a name
            draft.error = cut_within_event()
        elif block := self._halves.mend(rest):
            self._parse(self._look(block), now, draft)
        if draft.error is not None:
            draft.error = broken_within(draft.error)
        return draft.block()

    def plain(self, data: bytes) -> Run | None:
        """Return a read that has only whole, plain events as a run, which ``take`` accepts in place of ``read``.

        None: ``read`` must have the data.
        """
        if self._lesson is not None:
            self._learn(self._lesson)
        if self._pattern is None or self.finished or self.done or self._halves.held or self._splitter.holds_back:
            return None
        run = self._pattern.find(data)
        return run if run is not None and not run.start and run.end == len(data) else None

    def spliced(self, run: Run) -> Run | None:
        """Return plain events translated from another dialect, to pass to ``take``; None: the result must be read."""
        is_open = not (self.finished or self.done or self._halves.held or self._splitter.holds_back)
        return run if is_open and (not self._looks or self._pattern is not None) else None

    def take(self, run: Run, now: float) -> None:
        """Update measurement and clocks with plain events."""
        self._latest_complaint = None
        self._clocks.event(now, DeltaKind.TEXT, meaningful=True)
        self._measurement.plain(len(run.raw_texts), run.chars, now)
        if self._looks and self.thoughts is not None:
            self._note_thoughts(self.thoughts, self.thoughts.look_at_more(run.text(), now))
        elif self._text is not None:
            self._text.add(run.texts())

    def _parse_head(self, block: bytes, now: float, draft: "_Draft") -> int:
        """Parse single events until the pattern is learnt; return where the last of them ends."""
        at = 0
        for number in HEAD_EVENTS:
            begin = at
            for _ in range(number):
                at = end_of_event(block, at)
            if not self._parse(self._look(block[begin:at]), now, draft) or at == len(block):
                break
            if self._lesson is not None:
                self._learn(self._lesson)
                if self._pattern is not None:
                    break
        return at

    def _look_at_long(self, block: bytes, pattern: Pattern | None) -> _Looked | Run:
        """Look at a long block, without a change of measurement or clocks."""
        check_values(block)
        block = self._halves.mend(block)
        run = pattern.find(block) if pattern is not None else None
        return run if run is not None and not run.start and run.end == len(block) else self._look(block)

    def _look(self, block: bytes) -> _Looked:
        """Read events, with the gateway's keys masked, up to the end of the answer or an error."""
        for secret in self._sent_secrets:
            # A key outside the texts. Plain events are not searched: outside their text they are like a parsed event.
            if block.find(secret) >= 0:
                block = masked_block(block, self._secrets)
                break
        block = set_apart(block)
        single_events: list[tuple[Event, Event, Chunk | None]] = []
        for sent in events(block):
            chunk = None
            try:
                event = sent if sent.is_one_line else self._masking.masked(sent)
                if event.data:
                    chunk = (
                        self._read_event(event.data, self._secrets) if event.is_one_line else self._read_named(event)
                    )
                    if chunk.meaningful:
                        self._latest_complaint = None
                    elif not (chunk.finished or chunk.done or chunk.usage) and complains(event.data):
                        event, chunk = self._complaint(event, chunk)
            except UpstreamError as broken:
                return block, single_events, broken.without_frames()
            single_events.append((sent, event, chunk))
            if chunk is not None and (chunk.done or chunk.error is not None):
                break
        return block, single_events, None

    def _parse(self, looked: _Looked, now: float, draft: "_Draft") -> bool:
        """Count and pass on the parsed events; return whether the stream may continue."""
        chunks: list[Chunk] = []
        forward: list[bytes] = []
        latest: Chunk | None = None  # the latest that is not idle
        block, single_events, error = looked
        texts_taken = (  # events whose text the search took; most streams begin with text that can be no thought
            self._look_for_thoughts(single_events, now)
            if self._looks and (self.thoughts is not None or may_begin(block) is not None)
            else 0
        )
        dropped, ended, meaningful = error is not None, False, False
        is_alone, counts = self._choices is None, self._measurement.event  # else another choice may answer
        for sent, shown, chunk in single_events:
            if chunk is None:
                dropped = dropped or shown is not sent
                forward.append(shown.raw)
                continue
            event = shown if chunk.data is shown.data else Event(b"data: " + chunk.data + _END, chunk.data)
            dropped = dropped or event is not sent
            chunk = self._last(chunk, meaningful=self._measurement.meaningful) if chunk.done else chunk  # noqa: PLW2901
            failed = self._missing_end(chunk) if chunk.done else chunk.error
            if chunk.failed and (is_alone or chunk.refused) and self._measurement.answer_at is None:
                failed = failed_by(chunk, event.raw)
            if failed is not None:
                error, dropped = failed, True
                if chunk.usage is not None:
                    self._measurement.reported.use(chunk.usage)
                break
            counts(chunk, now)
            chunks.append(chunk)
            self.finished = self.finished or chunk.finished if is_alone else self._each_finished(chunk)
            if chunk.usage_only and self._drop_usage:
                dropped = True
            else:
                forward.append(event.raw)
            if chunk.done:
                self.done = ended = True
                forward[-1] = self._own_end(event)
                dropped = dropped or forward[-1] is not event.raw
                break
            latest = latest if chunk.idle else chunk
            if chunk.meaningful:
                meaningful, self._looks = True, self._looks and self.thoughts is not None
                self._has_sound = self._has_sound or chunk.sound
                self._lesson = event.raw, chunk
        if latest is not None:
            self._clocks.event(now, came(latest) if latest.meaningful else DeltaKind.BOUNDARY, meaningful=meaningful)
        else:
            self._clocks.alive_at = now
        self._take_text(chunks[texts_taken:])
        # Events may follow the end, and are not forwarded. A long block without such events is not copied.
        ended = ended and (len(block) <= LONG_BYTES or sum(map(len, forward)) < len(block))
        forwarded = b"".join(forward) if dropped or ended else block
        draft.forward.append(forwarded)
        draft.parts.append(WholeEvents(forwarded, chunks))
        draft.error = error
        return error is None and not self.done

    def complaint(self) -> UpstreamError | None:
        """Return, once, the error that the stream sent last, as plain text: probably why the end is missing."""
        complaint, self._latest_complaint = self._latest_complaint, None  # a traceback will refer to this reader
        return complaint

    def _end_of_stream(self) -> bytes:
        """Handle the end; return the data that are left."""
        self._asked = 0  # choices that have not begun will not come: the provider gives fewer than were asked for
        self.finished = self.finished or self._all_ended()
        return self._splitter.rest()

    def _all_ended(self) -> bool:
        """Whether all of several choices have ended: a provider may send one choice after the other."""
        return bool(self._ended) and self._ended == self._begun and len(self._begun) >= self._asked

    def _each_finished(self, chunk: Chunk) -> bool:
        """Return whether each of several choices has ended."""
        choices = None if chunk.done else self._choices
        if choices is not None:
            with suppress(*UNREADABLE):
                for place, is_ended in choices(chunk.data):
                    self._begun.add(place)
                    if is_ended:
                        self._ended.add(place)
        if self._begun:
            return self._all_ended()
        # There is no choice, as the prompt was refused, or the choices cannot be told apart.
        return self.finished or chunk.finished

    def _read_named(self, event: Event) -> Chunk:
        """Read an event that may have a name: an event named ``error`` is an error, whatever its data."""
        try:
            chunk = self._read_event(event.data, self._secrets)
        except UpstreamError as broken:
            raise named_error(event.raw, event.data, self._secrets) or broken from None
        if chunk.error is None and (error := named_error(event.raw, event.data, self._secrets)) is not None:
            return msgspec.structs.replace(chunk, error=error)
        return chunk

    def _complaint(self, event: Event, chunk: Chunk) -> tuple[Event, Chunk]:
        """Return an event whose only text is that of an error, without keys.

        Raises:
            UpstreamError: there are more than ``MOST_COMPLAINTS`` (invalid_response).

        """
        self._complaints += 1
        if self._complaints > MOST_COMPLAINTS:
            message = f"more than {MOST_COMPLAINTS} events of the stream have the text of an error, and nothing else"
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, message)
        self._latest_complaint = error_in(event.data, self._secrets, otherwise=ErrorKind.SERVER_ERROR)
        event = masked(event, self._secrets, is_error=True)
        return event, msgspec.structs.replace(chunk, data=event.data)

    def _last(self, chunk: Chunk, *, meaningful: int) -> Chunk:
        """Return the last event, with the whole answer in it if no part of the answer came before.

        Sound ends without a finish reason in OpenAI's own streams: there the last event is the end.
        """
        if self._has_sound and not (self.finished or self._ended or chunk.finished):
            return msgspec.structs.replace(chunk, finished=True, finish_reason="stop")
        if self._with_answer is None or meaningful:
            return chunk
        return self._with_answer(chunk)

    def _own_end(self, last: Event) -> bytes:
        """Return the dialect's own last event in place of OpenAI's, which some proxies send in every dialect."""
        is_foreign = self._ending.find(DONE) < 0 and last.data.strip() == DONE
        return self._ending if is_foreign else last.raw

    def _missing_end(self, last: Chunk) -> UpstreamError | None:
        """Return the error of an answer without a finish reason; its client must not see the ``last`` event, [DONE].

        Each of several choices needs a finish reason, unless the choice has not begun.
        """
        self._asked = 0  # as at the end of the stream
        is_whole = last.finished or self.finished or self._all_ended()
        is_whole = is_whole or not self._measurement.meaningful  # an empty one is reported later
        return None if is_whole else self.complaint() or truncated()

    def _take_text(self, chunks: Iterable[Chunk]) -> None:
        if self._text is not None:
            for chunk in chunks:
                if chunk.answer:
                    self._text.take(chunk.data)

    def _look_for_thoughts(self, single_events: list[tuple[Event, Event, Chunk | None]], now: float) -> int:
        """Count thoughts within texts as thoughts until the answer has begun; return of how many events this is so."""
        n_taken, meaningful = 0, self._measurement.meaningful  # these events are counted only later
        for number, (sent, shown, chunk) in enumerate(single_events):
            if chunk is None:
                continue
            if not self._looks or chunk.error is not None:
                break
            n_taken += 1
            whole = self._last(chunk, meaningful=meaningful) if chunk.done else chunk
            meaningful += whole.meaningful
            if not (whole.meaningful or whole.finished or whole.done):
                continue
            self.thoughts = self.thoughts or AnswersThoughts(self._answers, None, is_one=self._choices is None)
            sorted_out = self.thoughts.look(whole, now)
            single_events[number] = sent, shown, sorted_out.chunk
            self._note_thoughts(self.thoughts, sorted_out)
        return n_taken

    def _note_thoughts(self, thoughts: AnswersThoughts, classified: ClassifiedEvent) -> None:
        measurement = self._measurement
        if classified.answer_at is not None and (measurement.answer_at is None or classified.is_later):
            measurement.answer_at = classified.answer_at
        measurement.reasoning_chars -= classified.answer_chars
        if self._text is not None:
            if classified.is_restarted:
                self._text.restart()
            for place, text in classified.said:
                self._text.put(place, text)
        self._looks = not thoughts.is_over
        if self._looks and not thoughts.allows_plain:
            self._pattern = None

    def _learn(self, lesson: tuple[bytes, Chunk]) -> None:
        """Learn the pattern of the following events from this one. Some streams change their pattern from time to time.

        The pattern is learnt late, when the second event needs it: the first event is on its way to the client by then.
        """
        self._lesson = None
        if self._looks and not (self.thoughts is not None and self.thoughts.allows_plain):
            return  # plain events would count as an answer
        learned, (raw, chunk) = self._learned, lesson
        if learned is None or not self._lessons or len(raw) > LARGE_BYTES:
            return
        if self._pattern is not None and raw.startswith(self._pattern.before):
            return
        pattern = learned(raw, chunk)
        if pattern is not None:
            self._pattern = pattern
            self._lessons -= 1


def truncated() -> UpstreamError:
    """Return the error for an answer without an end. The gateway never invents an end."""
    return UpstreamError(ErrorKind.UPSTREAM_TRUNCATED, "the stream ended without a finish reason")


class _Draft(msgspec.Struct):
    """A block that is being built."""

    forward: list[bytes | memoryview] = []
    parts: list[WholeEvents] = []
    error: UpstreamError | None = None

    def block(self, whole: bytes = b"") -> Block:
        """Return the block. If ``whole`` was read, its bytes are used without a copy."""
        at = 0
        for each in self.forward:
            if not whole.startswith(each, at):
                return Block(b"".join(self.forward), tuple(self.parts), self.error)
            at += len(each)
        return Block(whole if at == len(whole) else whole[:at], tuple(self.parts), self.error)


# The reads of an exchange to its end, after the answer.

DRAIN_S = 0.25  # maximum wait for the end of the body after [DONE]; then the connection is dropped


async def drain(exchange: Exchange) -> None:
    """Read to the end of the body, so that the connection can be reused. After ``DRAIN_S`` drop the connection."""
    try:
        async with asyncio.timeout(DRAIN_S):  # an abort alone does not wake a reader
            while await exchange.read():
                pass
    except (UpstreamError, TimeoutError):
        exchange.abort()
