"""The receiver of an answer that is not raced, which is passed on as it arrives."""

from typing import Protocol

import msgspec

from gateway.calls import Call
from providers.exchange import Answer


class Relayed(msgspec.Struct, frozen=True):
    """An answer, and the deployment that gives it."""

    call: Call
    provider: str
    deployment: str
    launched: int  # attempts so far
    ttft_ms: float  # since the call was received: to the first byte, or to the whole answer if it is not streamed
    answer: Answer


class Outlet(Protocol):
    """The receiver of an answer that is passed on as it arrives. After ``begin`` no other deployment may answer."""

    async def begin(self, relayed: Relayed) -> None:
        """Start the response; the first data follow with ``write``."""

    async def write(self, data: bytes) -> None:
        """Forward some bytes."""

    async def end(self, last: bytes) -> None:
        """Forward the last bytes and end the response. The call is already recorded."""

    def drop(self) -> None:
        """Abort the client's connection: the answer cannot be completed."""
