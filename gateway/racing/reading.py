"""Reading an answer as it streams: what each read says, what of it to forward, and when it is over.

Nearly all of a stream is plain: events that add text and say nothing else. A block of those is known by a few byte
searches and never parsed; whatever is not provably plain goes through the parser, event by event.
"""

from collections.abc import Iterator, Sequence

import msgspec

from gateway.racing.clocks import AttemptClocks
from gateway.racing.measurement import Measurement
from providers.chunks import Chunk, read_chunk
from providers.errors import UpstreamError
from providers.sse import EventSplitter, events

MANY_BYTES = 2_000  # about ten events: below, parsing costs no more than looking for a plain middle
HEAD_EVENTS = 3  # a role, and the first text to learn from, are among these
_END = b"\n\n"

# As compact JSON writes them, and as Python's json module does.
_STYLES = tuple(
    (
        b'"content":' + space + b'"',
        b'"content":' + space + b'""',
        b'"finish_reason":' + space + b'"',
        b'"usage":' + space + b"{",
    )
    for space in (b"", b" ")
)


class Part(msgspec.Struct, frozen=True, gc=False):
    """Whole events. ``chunks`` is None where all are plain: each adds text, no more, and none was parsed."""

    data: bytes
    chunks: Sequence[Chunk] | None


class Block(msgspec.Struct, frozen=True, gc=False):
    """Whole events that arrived together: the bytes to forward, and the same in parts as they were understood."""

    forward: bytes
    parts: tuple[Part, ...]
    error: UpstreamError | None = None  # how the stream breaks off after ``forward``

    def chunks(self) -> Iterator[Chunk]:
        """Say what every event says, those included that were not parsed."""
        for part in self.parts:
            if part.chunks is None:
                yield from (read_chunk(event.data) for event in events(part.data))
            else:
                yield from part.chunks


def joined(blocks: Sequence[Block]) -> Block:
    """Return several blocks as one."""
    if len(blocks) == 1:
        return blocks[0]
    return Block(b"".join(block.forward for block in blocks), tuple(part for block in blocks for part in block.parts))


class AnswerReader:
    """Turns reads into blocks, and keeps measurement and clocks up to date with them."""

    def __init__(
        self, measurement: Measurement, clocks: AttemptClocks, secrets: Sequence[str], *, drop_usage: bool
    ) -> None:
        self.finished = False  # a finish reason was seen
        self.done = False  # [DONE] was seen
        self._measurement = measurement
        self._clocks = clocks
        self._secrets = secrets
        self._drop_usage = drop_usage  # a chunk of usage alone that we asked for, not the client
        self._splitter = EventSplitter()
        self._style: tuple[bytes, bytes, bytes, bytes] | None = None
        self._envelope = 0  # bytes of a plain event that are not text

    def read(self, data: bytes, now: float) -> Block:
        """Understand one read, ``b""`` at the end of the stream.

        [DONE] is never forwarded: the call is recorded first, then the sink writes it.
        """
        block = self._splitter.feed(data) if data else self._splitter.rest()
        if len(block) < MANY_BYTES:
            return self._plain(block, now) or self._parse(block, now)
        return self._read_many(block, now)

    def _read_many(self, block: bytes, now: float) -> Block:
        """Read a long block: parse what comes before and after the plain events in its middle."""
        begin = self._end_of(block, 0, HEAD_EVENTS) if self._style is None else 0
        head = self._parse(block[:begin], now) if begin else None
        if head is not None and (head.error is not None or self.done):
            return head
        end = self._end_of_plain(block, begin)
        read = [head] if head is not None else []
        if end > begin and (middle := self._plain(block[begin:end], now)):
            read.append(middle)
            begin = end
        if begin < len(block):
            read.append(self._parse(block[begin:], now))
        whole = joined(read)
        return Block(whole.forward, whole.parts, read[-1].error)

    def _plain(self, block: bytes, now: float) -> Block | None:
        """Take a block of plain events; None if it is not."""
        if self._style is None or not (number := self._count_plain(block, self._style)):
            return None
        self._clocks.event(now, meaningful=True)
        self._measurement.plain(number, max(0, len(block) - number * self._envelope), now)
        return Block(block, (Part(block, None),))

    def _parse(self, block: bytes, now: float) -> Block:
        """Understand a block event by event."""
        chunks: list[Chunk] = []
        forward: list[bytes] = []
        dropped = False
        error: UpstreamError | None = None
        for event in events(block):
            if not event.data:
                forward.append(event.raw)
                continue
            try:
                chunk = read_chunk(event.data, self._secrets)
            except UpstreamError as broken:
                error, dropped = broken, True
                break
            if chunk.error is not None:
                error, dropped = chunk.error, True
                break
            self._clocks.event(now, meaningful=chunk.meaningful)
            self._measurement.event(chunk, now)
            chunks.append(chunk)
            if chunk.finished:
                self.finished = True
                self._clocks.finish()
            if chunk.done:
                self.done = dropped = True
                break
            if chunk.usage_only and self._drop_usage:
                dropped = True
            else:
                forward.append(event.raw)
            if self._style is None and chunk.meaningful:
                self._learn(event.raw, chunk)
        kept = b"".join(forward) if dropped else block
        return Block(kept, (Part(kept, chunks),), error)

    @staticmethod
    def _end_of(block: bytes, start: int, number: int) -> int:
        """Return where the ``number``-th event from ``start`` ends, the end of the block where there are fewer."""
        for _ in range(number):
            found = block.find(_END, start)
            if found < 0:
                return len(block)
            start = found + len(_END)
        return start

    def _end_of_plain(self, block: bytes, start: int) -> int:
        """Return where the first event ends that comes before any that may not be plain."""
        if self._style is None:
            return start
        marks = (block.find(mark, start) for mark in (*self._style[1:], b"[DONE]"))
        first = min((found for found in marks if found >= 0), default=len(block))
        return max(start, block.rfind(_END, start, first) + len(_END)) if first < len(block) else len(block)

    def _learn(self, raw: bytes, chunk: Chunk) -> None:
        """Take the first plain event as the pattern of the others."""
        for style in _STYLES:
            if self._count_plain(raw, style) == 1:
                self._style = style
                self._envelope = len(raw) - chunk.text_chars

    @staticmethod
    def _count_plain(block: bytes, style: tuple[bytes, bytes, bytes, bytes]) -> int:
        """Return how many events there are if every one is plain, otherwise 0.

        Quotes inside a JSON string are escaped, so no text can look like a field. Comments and unusual line ends do not
        add up; a chunk of several choices, of reasoning or of tool calls does not either.
        """
        text, empty, finish, usage = style
        number = block.count(b"\n\ndata: ") + 1
        plain = (
            block.startswith(b"data: ")
            and block.count(b"\n") == 2 * number
            and block.count(text) == number
            and empty not in block
            and finish not in block
            and usage not in block
            and b'"reasoning' not in block
            and b'"tool_calls":[' not in block
        )
        return number if plain else 0
