"""The sink for answers that are not streamed: it gathers the winner's events into one JSON body.

Such calls are streamed upstream as well, so that they can be raced and measured.
"""

from typing import TYPE_CHECKING

from gateway.racing.reading import Block, Part
from gateway.racing.sink import Winner
from providers.dialects.chunk import DONE
from providers.dialects.dialect import Dialect
from providers.errors import UpstreamError
from providers.sse import events

if TYPE_CHECKING:
    from providers.dialects.gathering import Gathering


class GatheringSink:
    """A sink that makes one body. ``winner`` and ``body()`` are available after the race."""

    streams = False
    understands = True

    def __init__(self, dialect: Dialect) -> None:
        self.winner: Winner | None = None
        self._answers = dialect.answers
        self._gathering: Gathering  # set by ``begin``

    async def begin(self, winner: Winner) -> None:
        """Start a new body; that of an earlier winner is dropped."""
        self.winner = winner
        self._gathering = self._answers.gathering()

    async def write(self, block: Block) -> None:
        """Add events to the body.

        Raises:
            UpstreamError: they are not valid in the dialect; another attempt may still answer.

        """
        take = self._gathering.take
        for part in block.parts:
            if part.chunks is None:
                self._take_plain(part)
            else:
                for chunk in part.chunks:
                    if not (chunk.done and chunk.data.strip() == DONE):
                        take(chunk)

    async def end(self, last: Block) -> None:
        """Do nothing: all events were passed to ``write`` before."""

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Return False: until its end another answer replaces it."""
        del error
        return False

    async def fail(self, error: UpstreamError) -> None:
        """Never called: a gathered answer is not committed before its end."""
        raise error

    def body(self) -> bytes:
        """Return the complete answer as JSON."""
        return self._gathering.body()

    def _take_plain(self, part: Part) -> None:
        if part.run is not None and part.pattern is not None and self._gathering.take_run(part.run, part.pattern):
            return
        for event in events(part.data):
            self._gathering.take(self._answers.read_event(event.data, ()))
