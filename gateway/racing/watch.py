"""How long a loser is watched that is audited, and what is noted of one that was overtaken."""

import asyncio
from collections.abc import Callable

import msgspec

from gateway.attempt_records import Outcome

AUDIT_S = 30.0  # so long after its launch, or as its first-token clock says, an audited loser may have its first token
AUDIT_TOKENS = 32  # and is in an exploring race then watched for so many, for its speed,
AUDIT_TOKENS_S = 10.0  # but no longer than this


class Overtaken(msgspec.Struct, frozen=True):
    """When another attempt won before this one's first token, and after how long that was to be expected."""

    at: float
    expected_s: float | None = None  # since the launch; of a primary


class Watch:
    """The end of watching: so many tokens, or a time."""

    __slots__ = ("timer", "tokens")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.timer: asyncio.TimerHandle | None = None

    def cut_in(self, seconds: float, cut: Callable[[Outcome], None], loop: asyncio.AbstractEventLoop) -> None:
        """Have the attempt cut in so many seconds."""
        self.stop()
        self.timer = loop.call_later(seconds, cut, Outcome.LOST)

    def stop(self) -> None:
        """Leave no timer behind."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
