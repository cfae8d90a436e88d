"""Reading an answer as it streams: what each read says, what of it to forward, and when it is over.

Nearly all of a stream is plain: events that add text and say nothing else. Those are found by their pattern and never
parsed; whatever is not provably plain goes through the parser, event by event.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gateway.racing.answer_text import AnswerText
from gateway.racing.clocks import AttemptClocks
from gateway.racing.measurement import Measurement
from providers.dialects.chunk import Chunk
from providers.dialects.dialect import AnswerFormat
from providers.dialects.pattern import Pattern, Run
from providers.errors import UpstreamError
from providers.event_masks import complains, masked
from providers.sse import EventSplitter, events

MANY_BYTES = 1_000  # a block of some events: worth looking for plain ones as soon as the first has taught the pattern
HEAD_EVENTS = 3  # among these there should be a first text to learn from
LESSONS = 8  # patterns learned in vain until it is clear that this stream has none
_END = b"\n\n"


class Part(msgspec.Struct, frozen=True, gc=False):
    """Whole events, parsed; or, where ``chunks`` is None, plain ones: a ``run`` of those that follow ``pattern``."""

    data: bytes
    chunks: Sequence[Chunk] | None
    run: Run | None = None
    pattern: Pattern | None = None


class Block(msgspec.Struct, frozen=True, gc=False):
    """Whole events that arrived together: the bytes to forward, and the same in parts as they were understood."""

    forward: bytes
    parts: tuple[Part, ...]
    error: UpstreamError | None = None  # how the stream breaks off after ``forward``

    def events(self) -> Iterator[bytes]:
        """Return the data of every event, those included that were not parsed."""
        for part in self.parts:
            if part.chunks is None:
                yield from (event.data for event in events(part.data))
            else:
                yield from (chunk.data for chunk in part.chunks)


def joined(blocks: Sequence[Block]) -> Block:
    """Return several blocks as one."""
    if len(blocks) == 1:
        return blocks[0]
    return Block(b"".join(block.forward for block in blocks), tuple(part for block in blocks for part in block.parts))


class AnswerReader:
    """Turns reads into blocks, and keeps measurement and clocks up to date with them."""

    def __init__(
        self,
        measurement: Measurement,
        clocks: AttemptClocks,
        secrets: Sequence[str],
        *,
        answers: AnswerFormat,
        drop_usage: bool,
        text: AnswerText | None = None,
    ) -> None:
        self.finished = False  # a finish reason was seen
        self.done = False  # the event that ends an answer was seen: [DONE], or what the dialect has for it
        self._measurement = measurement
        self._clocks = clocks
        self._secrets = secrets
        self._read_event = answers.read_event
        self._learned = answers.learned
        self._text = text  # of an answer that is to be JSON
        self._drop_usage = drop_usage  # a chunk of usage alone that we asked for, not the client
        self._splitter = EventSplitter()
        self._pattern: Pattern | None = None
        self._lessons = LESSONS

    def read(self, data: bytes, now: float) -> Block:
        """Understand one read, ``b""`` at the end of the stream. What comes after the end of the answer is left out."""
        block = self._splitter.feed(data) if data else self._splitter.rest()
        draft = _Draft()
        at = 0
        if self._pattern is None and self._learned is not None and len(block) >= MANY_BYTES:
            at = self._parse_head(block, now, draft)
            if self.done or draft.error is not None:
                return draft.block()
        pattern = self._pattern
        run = pattern.find(block, at) if pattern is not None else None
        if run is not None:
            self._lessons = LESSONS
            if run.start > at and not self._parse(block[at : run.start], now, draft):
                return draft.block()
            self.take(run, now)
            draft.forward.append(run.data)
            draft.parts.append(Part(run.data, None, run, pattern))
            at = run.end
        if at < len(block):
            self._parse(block[at:], now, draft)
        return draft.block()

    def plain(self, data: bytes) -> Run | None:
        """Return what one read adds if it is whole, plain events and nothing else; then ``take`` it instead of reading.

        It changes nothing; None: it is to be ``read``.
        """
        if self._pattern is None or self.finished or self.done or self._splitter.holds_back:
            return None
        run = self._pattern.find(data)
        return run if run is not None and not run.start and run.end == len(data) else None

    def take(self, run: Run, now: float) -> None:
        """Keep measurement and clocks up to date with plain events."""
        self._clocks.event(now, meaningful=True)
        self._measurement.plain(len(run.raw_texts), run.chars, now)
        if self._text is not None:
            self._text.add(run.texts())

    def _parse_head(self, block: bytes, now: float, draft: "_Draft") -> int:
        """Understand events one by one until one has taught the pattern; return where they end."""
        at = 0
        for _ in range(HEAD_EVENTS):
            begin, at = at, _end_of_event(block, at)
            if not self._parse(block[begin:at], now, draft) or self._pattern is not None or at == len(block):
                break
        return at

    def _parse(self, block: bytes, now: float, draft: "_Draft") -> bool:
        """Understand a block event by event; return whether the stream may go on after it."""
        chunks: list[Chunk] = []
        forward: list[bytes] = []
        dropped = meaningful = False
        error: UpstreamError | None = None
        for came in events(block):
            event = came if came.is_one_line else masked(came, self._secrets)
            dropped = dropped or event is not came
            if not event.data:
                forward.append(event.raw)
                continue
            try:
                chunk = self._read_event(event.data, self._secrets)
            except UpstreamError as broken:
                error, dropped = broken.without_frames(), True
                break
            if chunk.error is not None:
                error, dropped = chunk.error, True
                break
            if not (chunk.meaningful or chunk.finished or chunk.done or chunk.usage) and complains(event.data):
                event, dropped = masked(event, self._secrets, is_error=True), True
                chunk = msgspec.structs.replace(chunk, data=event.data)
            self._measurement.event(chunk, now)
            chunks.append(chunk)
            self.finished = self.finished or chunk.finished
            if chunk.usage_only and self._drop_usage:
                dropped = True
            else:
                forward.append(event.raw)
            if chunk.done:
                self.done = dropped = True
                break
            if chunk.meaningful:
                meaningful = True
                self._learn(event.raw, chunk)
        if chunks:
            self._clocks.event(now, meaningful=meaningful)
            self._take_text(chunks)
        kept = b"".join(forward) if dropped else block
        draft.forward.append(kept)
        draft.parts.append(Part(kept, chunks))
        draft.error = error
        return error is None and not self.done

    def _take_text(self, chunks: Iterable[Chunk]) -> None:
        if self._text is not None:
            for chunk in chunks:
                if chunk.answer:
                    self._text.take(chunk.data)

    def _learn(self, raw: bytes, chunk: Chunk) -> None:
        """Take an event as the pattern of those that follow: some streams change theirs from time to time."""
        learned = self._learned
        if learned is None or not self._lessons:
            return
        if self._pattern is not None and raw.startswith(self._pattern.before):
            return
        pattern = learned(raw, chunk)
        if pattern is not None:
            self._pattern = pattern
            self._lessons -= 1


class _Draft:
    """A block in the making."""

    __slots__ = ("error", "forward", "parts")

    def __init__(self) -> None:
        self.forward: list[bytes] = []
        self.parts: list[Part] = []
        self.error: UpstreamError | None = None

    def block(self) -> Block:
        return Block(b"".join(self.forward), tuple(self.parts), self.error)


def _end_of_event(block: bytes, at: int) -> int:
    """Return where the event that begins at ``at`` ends, the end of the block where that cannot be told."""
    found = block.find(_END, at)
    return len(block) if found < 0 else found + len(_END)
