"""The events of a stream, gathered into the whole answer that a client gets who did not ask for a stream."""

from typing import Protocol

from providers.dialects.chunk import Chunk
from providers.dialects.pattern import Pattern, Run


class Gathering(Protocol):
    """Makes one whole answer, as the dialect's API returns it, out of its events."""

    def take(self, chunk: Chunk) -> None:
        """Take one event, as it was read. It has data, which is not ``[DONE]``.

        Raises:
            UpstreamError: it is valid JSON, but not what the dialect says (invalid_response).

        """

    def take_run(self, run: Run, pattern: Pattern) -> bool:  # noqa: ARG002 - for those that can
        """Take plain events in one go; False, where each is to be read and taken by itself."""
        return False

    def body(self) -> bytes:
        """Return the whole answer as JSON."""
