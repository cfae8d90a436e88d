"""The interface of a race that its attempts use."""

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
    """The result of an attempt's bid with its first token."""

    WON = "won"
    LOST = "lost"
    HELD = "held"  # for now: another attempt is predicted to be better


class Course(Protocol[Attempt_contra]):
    """A race as its attempts see it."""

    call: Call  # as built for this model: an audited loser may outlive the change to a fallback
    open_call: OpenCall
    sink: Sink
    loop: asyncio.AbstractEventLoop

    def bid(self, attempt: Attempt_contra, now: float) -> Bid:
        """Decide about an attempt that has its first token. If it wins, all others are cut."""

    def release(self, attempt: Attempt_contra) -> None:
        """Let a held attempt win."""

    def is_behind(self, attempt: Attempt_contra) -> bool:
        """Whether it runs on behind the winner, and answers if that breaks."""

    def was_kept(self, attempt: Attempt_contra) -> bool | None:
        """Whether it has run on behind a winner; None: nobody may."""

    async def begin(self, attempt: Attempt_contra, now: float) -> Forward | None:
        """Start the answer of an attempt that has won with a first token at ``now``."""

    async def alone(self, attempt: Attempt_contra) -> None:
        """Wait until only attempts with empty answers are left."""

    async def complete(self, last: Block) -> None:
        """End the race with the winner's complete answer; its ``last`` events have not been sent yet."""

    async def failed(self, attempt: Attempt_contra, error: UpstreamError) -> None:
        """Replace an attempt that failed, or end the race."""

    def client_gone(self, attempt: Attempt_contra) -> None:
        """End the race: the client has disconnected."""

    def crashed(self, attempt: Attempt_contra, defect: Exception) -> None:
        """End the race because of a bug in the gateway."""
