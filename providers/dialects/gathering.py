"""Gathering the events of a stream into one whole answer, for clients that did not ask for a stream."""

from typing import Protocol

from providers.dialects.chunk import Chunk
from providers.dialects.pattern import Pattern, Run


class Gathering(Protocol):
    """Makes one whole answer of its events, as the dialect's API returns it."""

    def take(self, chunk: Chunk) -> None:
        """Add one event. It has data, which is not ``[DONE]``.

        Raises:
            UpstreamError: it is valid JSON, but not an event of the dialect (invalid_response).

        """

    def take_run(self, run: Run, pattern: Pattern) -> bool:  # noqa: ARG002 - for those that override it
        """Add plain events at once; False: not possible, read each and ``take`` it."""
        return False

    def body(self) -> bytes:
        """Return the whole answer as JSON."""
