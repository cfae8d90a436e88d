"""The sink of an attempt that finishes an answer: it adds to the running stream what the client does not have yet."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from gateway.racing.measurement import CHARS_PER_TOKEN
from gateway.racing.reading import Block, Part
from gateway.racing.seam import Seam, SeamMismatchError
from gateway.racing.sink import Sink, Winner
from providers.dialects.chunk import Chunk
from providers.dialects.continuing import Ended, Splice
from providers.dialects.dialect import AnswerFormat
from providers.errors import ErrorKind, UpstreamError
from providers.sse import events
from providers.usage import Usage


class Running(Sink, Protocol):
    """The sink of the answer that broke off."""

    async def close(self) -> None:
        """Stop sending comments."""


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
    ) -> None:
        """``new_seam`` takes a deployment; ``usage`` the tokens of a continuation, and returns the whole answer's."""
        self.streams = False
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
            UpstreamError: it does not continue the answer; before the seam somebody else may.

        """
        try:
            text = "".join(map(self._seam.take, self._texts(block)))
        except SeamMismatchError:
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, "does not continue the answer that broke off") from None
        if self._seam.passed and not self.streams:
            self.streams = True
            await self._running.close()
        if text:
            await self._running.write(Block(self._splice.text(text), ()))

    async def end(self, last: Block) -> None:
        """End the running stream."""
        text = "".join(map(self._seam.take, self._texts(last))) + self._seam.held_back()
        added = self._splice.text(text) if text else b""
        tokens = -(-self._chars // CHARS_PER_TOKEN) if self._tokens is None else self._tokens
        ended = Ended(self._finish, self._seam.stopped, self._usage(self._prompt_tokens, tokens))
        await self._running.end(Block(added + self._splice.end(ended), ()))

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Whether somebody else may finish it after this one too."""
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
                    texts = [text for _, text in self._answers.texts(chunk.data)]
                    if sum(map(len, texts)) != chunk.text_chars:
                        raise UpstreamError(
                            ErrorKind.INVALID_RESPONSE, "continued the answer with text that is no delta"
                        )
                    self._chars += chunk.text_chars
                    yield from texts
                if chunk.finish_reason is not None:
                    self._finish = chunk.data
                    self._seam.end(is_cut_short=chunk.finish_reason in self._answers.cut_short)
                elif chunk.done:
                    self._seam.end()

    def _count(self, usage: Usage) -> None:
        if usage.completion_tokens is not None:
            self._tokens = usage.completion_tokens
        if usage.prompt_tokens is not None:
            self._prompt_tokens = usage.prompt_tokens

    def _chunks(self, part: Part) -> Sequence[Chunk]:
        if part.chunks is not None:
            return part.chunks
        return [self._answers.read_event(event.data, ()) for event in events(part.data)]
