"""What a client has of a streamed answer, kept so that somebody else can finish it if it breaks."""

from collections.abc import Iterator

from gateway.racing.open_call import OpenCall
from providers.errors import ErrorKind, UpstreamError
from providers.sse import events

MOST_BYTES = 256 * 1024  # of events; a longer answer ends where it breaks
MOST_TAKEOVERS = 2  # of one call
# Another provider may answer better, except where the request itself is wrong (400, 413, 422) or the call's time is up.
_ENDS = frozenset({ErrorKind.BAD_REQUEST, ErrorKind.TOTAL_TIMEOUT, ErrorKind.INVALID_ANSWER, ErrorKind.LOCAL_RESOURCES})


class Delivered:
    """The blocks that were sent to a client, by reference. ``obstacle``: why the answer could not be continued."""

    __slots__ = ("_blocks", "_bytes", "_obstacle", "_open_call")

    def __init__(self, open_call: OpenCall, obstacle: str | None) -> None:
        self._open_call = open_call
        self._obstacle = obstacle
        self._blocks: list[bytes] = []
        self._bytes = 0

    def add(self, block: bytes) -> None:
        """Keep whole events that were sent."""
        if self._obstacle is None:
            self._blocks.append(block)
            self._bytes += len(block)
            if self._bytes > MOST_BYTES:
                self._obstacle = "too_long"
                self._blocks.clear()

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Whether somebody else may finish the answer, which broke off with ``error``; if not, note the reason."""
        reason = self._obstacle
        if error.kind in _ENDS:
            reason = "kind_of_error"
        elif self._open_call.takeovers >= MOST_TAKEOVERS:
            reason = "broke_again"
        if reason is not None:
            self._open_call.takeover = reason
        return reason is None

    def events(self) -> Iterator[bytes]:
        """Yield the data of each event that was sent."""
        for block in self._blocks:
            yield from (event.data for event in events(block))
