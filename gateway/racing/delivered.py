"""What a client was sent of a streamed answer, kept so that another deployment can finish it."""

from typing import Protocol

import msgspec

from gateway.core.calls import Call
from gateway.fleet import Model
from gateway.racing.call import OpenCall
from gateway.racing.sinks import Sink
from gateway.settings import When
from providers import UpstreamError, events, kinds
from providers.dialects import Continuing, DeliveredPart

MOST_BYTES = 256 * 1024  # of events; a longer answer is not continued
MOST_TAKEOVERS = 2  # of one call
# Another provider may answer better, except where the request itself is wrong (400, 413, 422) or the call's time is up.
_ENDS = kinds(lambda facts: facts.is_final)


class DeliveredBlocks:
    """The blocks that were sent to a client, by reference. ``obstacle``: why the answer could not be continued."""

    __slots__ = ("_blocks", "_bytes", "_obstacle", "_open_call")

    def __init__(self, open_call: OpenCall, obstacle: str | None) -> None:
        self._open_call = open_call
        self._obstacle = obstacle
        self._blocks: list[bytes] = []
        self._bytes = 0

    @property
    def obstacle(self) -> str | None:
        """Why the answer could not be continued; None: nothing is in the way."""
        return self._obstacle

    def add(self, block: bytes) -> None:
        """Keep whole events that were sent."""
        if self._obstacle is None:
            self._blocks.append(block)
            self._bytes += len(block)
            if self._bytes > MOST_BYTES:
                self._obstacle = "too_long"
                self._blocks.clear()

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Whether another deployment may finish the answer, which broke off with ``error``; if not, note the reason."""
        reason = self._obstacle
        if error.kind in _ENDS:
            reason = "kind_of_error"
        elif self._open_call.takeovers >= MOST_TAKEOVERS:
            reason = "broke_again"
        if reason is not None:
            self._open_call.takeover = reason
        return reason is None

    def begun(self, continuing: Continuing) -> DeliveredPart:
        """Return the part of the answer that the client has."""
        try:
            return continuing.begun(event.data for block in self._blocks for event in events(block))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return DeliveredPart("", None, "format")


def delivered_of(call: Call, model: Model, open_call: OpenCall) -> DeliveredBlocks | None:
    """Return the store of a call's delivered answer; None if an answer that breaks off is not to be continued."""
    if model.takeover.when is not When.ALWAYS:
        return None
    continuing = call.request.dialect.continuing
    obstacle = "dialect" if continuing is None else continuing.obstacle(call.request.fields)
    return DeliveredBlocks(open_call, obstacle)


# The sinks of answers that may be continued.


class ContinuableSink(Sink, Protocol):
    """The sink of the answer that broke off."""

    def begun(self, continuing: Continuing) -> DeliveredPart:
        """Return the part of the answer that the client has."""

    def keep_alive(self, every_s: float) -> None:
        """Send a comment every ``every_s`` seconds until the answer goes on."""

    async def close(self) -> None:
        """Send comments as often as before: the answer goes on, or is not continued."""


class ClientSink(ContinuableSink, Protocol):
    """The sink of a client, which keeps the answer that was sent to it."""

    delivered: DeliveredBlocks | None = None  # for the current model; None: an answer that breaks off is not continued

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Whether another deployment may finish the answer."""
        return self.delivered is not None and self.delivered.may_be_continued(error)

    def begun(self, continuing: Continuing) -> DeliveredPart:
        """Return the part of the answer that the client has."""
        assert self.delivered is not None
        return self.delivered.begun(continuing)
