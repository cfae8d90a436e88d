"""Where the winner's answer goes: forwarded as it comes, or gathered into one JSON body."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from gateway.calls import Call
from gateway.racing.reading import Block
from providers.errors import UpstreamError
from providers.exchange import Exchange

Forward = Callable[[bytes], bool]  # passes whole events on at once; False: not now, write them


class ClientGone(Exception):
    """Raised by a sink whose client cannot be written to any more."""


class Winner(msgspec.Struct, frozen=True):
    """What is known of the winner at its claim: the response headers tell the client."""

    provider: str
    deployment: str
    launched: int  # attempts started so far
    ttft_ms: float  # since the call was received
    overhead_ms: float
    exchange: Exchange
    call: Call
    is_last: bool = False  # once a sink that streams has begun, nobody and nothing needs the prompt any more


class Sink(Protocol):
    """The receiving end of a race. Only the attempt that holds the claim calls it.

    A sink that ``streams`` passes bytes on as they are written, and is committed by ``begin``: after it nobody else may
    answer. One that gathers is committed by ``end``, so that until then its winner can still be replaced. One that
    ``understands`` reads the parts of what it is given; for others they are not kept while their client is waited for.
    """

    streams: bool
    understands: bool

    async def begin(self, winner: Winner) -> Forward | None:
        """Take the winner. Called once for each claim, before its first ``write``.

        What a sink returns spares a task from being woken for each event, once something was written.
        """

    async def write(self, block: Block) -> None:
        """Take whole events."""

    async def end(self, last: Block) -> None:
        """Take the end of the answer, and with it the ``last`` events of a stream. The call is already recorded."""

    async def fail(self, error: UpstreamError) -> None:
        """Tell the client that a committed answer broke off."""
