"""Where an answer that is not raced goes: passed on as it comes, to whoever asked."""

from typing import Protocol

import msgspec

from gateway.calls import Call
from providers.exchange import Answer


class Relayed(msgspec.Struct, frozen=True):
    """An answer, and whose it is."""

    call: Call
    provider: str
    deployment: str
    launched: int  # attempts so far
    ttft_ms: float  # since the call was received: to the first byte, or to all of it where it came whole
    answer: Answer


class Outlet(Protocol):
    """Where an answer goes that is passed on as it comes. Once it has begun, nobody else may answer."""

    async def begin(self, relayed: Relayed) -> None:
        """Take whose answer it is; what is there of it follows as the first ``write``."""

    async def write(self, data: bytes) -> None:
        """Take some bytes."""

    async def end(self, last: bytes) -> None:
        """Take the last bytes. The call is already recorded."""

    def drop(self) -> None:
        """Break the client's connection: the answer cannot be ended properly."""
