"""The receiver of the winner's answer, which forwards it or gathers it into one JSON body."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from gateway.calls import Call
from gateway.racing.reading import Block
from providers.errors import UpstreamError
from providers.exchange import Exchange

Forward = Callable[[bytes], bool]  # forwards whole events at once; False: not possible now, use ``write``


class ClientGone(Exception):
    """Raised by a sink whose client has disconnected."""


class Winner(msgspec.Struct, frozen=True):
    """The facts about the winner at its claim, for the response headers."""

    provider: str
    deployment: str
    launched: int  # attempts started so far
    ttft_ms: float  # since the call was received
    overhead_ms: float
    exchange: Exchange
    call: Call
    is_last: bool = False  # if the sink streams, nothing needs the prompt any more


class Sink(Protocol):
    """The receiver of a race's answer. Only the attempt that holds the claim calls it.

    A sink that ``streams`` sends bytes as they are written, and is committed by ``begin``: after it no other attempt
    may answer. One that gathers is committed by ``end``: until then its winner can be replaced. One that
    ``understands`` needs the parsed parts of its blocks; for others they are dropped while the client is slow.
    """

    streams: bool
    understands: bool

    async def begin(self, winner: Winner) -> Forward | None:
        """Start the winner's answer. Called once for each claim, before its first ``write``.

        Returns a function that can forward later events without waking the attempt's task; None if it has none.
        """

    async def write(self, block: Block) -> None:
        """Take whole events."""

    async def end(self, last: Block) -> None:
        """End the answer with its ``last`` events. The call is already recorded."""

    def may_be_continued(self, error: UpstreamError) -> bool:
        """Whether somebody else may finish a committed answer that broke off; then ``fail`` is not called."""

    async def fail(self, error: UpstreamError) -> None:
        """Tell the client that a committed answer broke off."""
