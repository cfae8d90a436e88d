"""One JSON answer out of another dialect's events, for clients that did not ask for a stream."""

from collections.abc import Callable

from gateway.racing.gather import GatheringSink
from gateway.racing.reading import Block
from gateway.racing.sink import Winner
from providers.dialects.completions.answers import CompletionGathering
from providers.dialects.dialect import Dialect, Gathering
from providers.dialects.messages.answers import MessageGathering
from providers.dialects.responses.answers import ResponseGathering
from providers.errors import UpstreamError


class EventGatheringSink:
    """A sink that leaves it to the dialect what its events add up to, as ``GatheringSink`` does for chat."""

    streams = False
    understands = True

    def __init__(self, gathering: Callable[[], Gathering]) -> None:
        self.winner: Winner | None = None
        self._start = gathering
        self._gathering = gathering()

    async def begin(self, winner: Winner) -> None:
        """Start over: an earlier winner's beginning is forgotten."""
        self.winner = winner
        self._gathering = self._start()

    async def write(self, block: Block) -> None:
        """Take what the events say.

        Raises:
            UpstreamError: they are not what the dialect has; another attempt may still answer.

        """
        for data in block.events():
            if data and data != b"[DONE]":
                self._gathering.take(data)

    async def end(self, last: Block) -> None:
        """Take the end: an answer that is gathered was written before."""

    async def fail(self, error: UpstreamError) -> None:
        """Never called: an answer that is being gathered is not committed."""
        raise error

    def body(self) -> bytes:
        """Return the whole answer as JSON."""
        return self._gathering.body()


def gathering_sink(dialect: Dialect) -> GatheringSink | EventGatheringSink:
    """Return a sink that makes one JSON answer, as ``dialect`` has it."""
    gathering = _GATHERINGS.get(dialect)
    return GatheringSink() if gathering is None else EventGatheringSink(gathering)


_GATHERINGS: dict[Dialect, Callable[[], Gathering]] = {
    Dialect.COMPLETIONS: CompletionGathering,
    Dialect.MESSAGES: MessageGathering,
    Dialect.RESPONSES: ResponseGathering,
}
