"""Reading an answer as it streams: what each read says, what of it to forward, and when it is over.

Nearly all of a stream is plain: events that add text and say nothing else. A block of those is known by a few byte
searches and never parsed; whatever is not provably plain goes through the parser, event by event.
"""

from collections.abc import Sequence

import msgspec

from gateway.racing.clocks import AttemptClocks
from gateway.racing.measurement import Measurement
from providers.chunks import Chunk, read_chunk
from providers.errors import UpstreamError
from providers.sse import EventSplitter, events

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


class Block(msgspec.Struct, frozen=True, gc=False):
    """Whole events that arrived together. ``chunks`` is None where all are plain: each adds text, no more."""

    forward: bytes
    chunks: Sequence[Chunk] | None
    error: UpstreamError | None = None  # how the stream breaks off after ``forward``


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
        if self._style is not None and (number := self._count_plain(block, self._style)):
            self._clocks.event(now, meaningful=True)
            self._measurement.plain(number, max(0, len(block) - number * self._envelope), now)
            return Block(block, None)
        return self._parse(block, now)

    def _parse(self, block: bytes, now: float) -> Block:
        chunks: list[Chunk] = []
        forward: list[bytes] = []
        dropped = False
        for event in events(block):
            if not event.data:
                forward.append(event.raw)
                continue
            try:
                chunk = read_chunk(event.data, self._secrets)
            except UpstreamError as error:
                return Block(b"".join(forward), chunks, error)
            if chunk.error is not None:
                return Block(b"".join(forward), chunks, chunk.error)
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
        return Block(b"".join(forward) if dropped else block, chunks)

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
