"""The receiver of a probe's answer: nobody reads it."""

from gateway.racing.reading import Block
from gateway.racing.sink import ClientGone, Forward, Winner
from providers.errors import UpstreamError

BYTES_PER_TOKEN = 2048  # of an event with one token, generously
SPARE_BYTES = 16_384


class DiscardingSink:
    """Takes the answer and drops it; one much longer than was asked for is cut, as it costs money."""

    streams = True
    understands = False

    def __init__(self, max_tokens: int) -> None:
        self._room = SPARE_BYTES + BYTES_PER_TOKEN * max_tokens

    async def begin(self, winner: Winner) -> Forward | None:
        """Do nothing."""

    def may_be_continued(self, error: UpstreamError) -> bool:  # noqa: ARG002 - as a Sink
        """Nobody waits for the rest of a probe."""
        return False

    async def write(self, block: Block) -> None:
        """Count the bytes.

        Raises:
            ClientGone: it is too long: ``max_tokens`` was not heeded.

        """
        self._room -= len(block.forward)
        if self._room < 0:
            raise ClientGone

    async def end(self, last: Block) -> None:
        """Do nothing."""

    async def fail(self, error: UpstreamError) -> None:
        """Do nothing: the attempt's record has the error."""
