"""What an attempt may ask of its race."""

import asyncio
from enum import Enum
from typing import Protocol, TypeVar

from gateway.calls import Call
from gateway.racing.open_call import OpenCall
from gateway.racing.reading import Block
from gateway.racing.sink import Forward, Sink
from providers.errors import UpstreamError

Attempt_contra = TypeVar("Attempt_contra", contravariant=True)


class Bid(Enum):
    """The answer to an attempt that has its first token."""

    WON = "won"
    LOST = "lost"
    HELD = "held"  # for now: another one should be the better answer


class Course(Protocol[Attempt_contra]):
    """The race, as far as an attempt knows it."""

    call: Call  # as it is for this model: an audited loser may outlive that
    open_call: OpenCall
    sink: Sink
    loop: asyncio.AbstractEventLoop

    def bid(self, attempt: Attempt_contra, now: float) -> Bid:
        """Answer an attempt that has its first token. When it has won, everybody else is cut."""

    def release(self, attempt: Attempt_contra) -> None:
        """Let a held attempt win."""

    async def begin(self, attempt: Attempt_contra, now: float) -> Forward | None:
        """Commit to an attempt that has won, and whose first token was there at ``now``."""

    async def alone(self, attempt: Attempt_contra) -> None:
        """Wait until nobody but empty answers is left running."""

    async def complete(self, last: Block) -> None:
        """End the race with the winner's whole answer, of which the ``last`` events are still to be sent."""

    async def failed(self, attempt: Attempt_contra, error: UpstreamError) -> None:
        """Replace an attempt that failed, or end the race."""

    def client_gone(self, attempt: Attempt_contra) -> None:
        """End the race: the client cannot be written to any more."""

    def crashed(self, attempt: Attempt_contra, defect: Exception) -> None:
        """End the race: something in the gateway itself is at fault."""
