"""How long an audited loser is watched, and what is recorded about an overtaken one."""

import asyncio
from collections.abc import Callable

import msgspec

from gateway.attempt_records import Outcome

AUDIT_S = 30.0  # seconds after its launch in which an audited loser may have its first token; at most its own timeout
AUDIT_TOKENS = 32  # in an exploring race it is then watched for this many tokens, for its speed,
AUDIT_TOKENS_S = 10.0  # but no longer than this


class Overtaken(msgspec.Struct, frozen=True):
    """When another attempt won before this one's first token, and when that token was predicted."""

    at: float
    expected_s: float | None = None  # since the launch; only for a primary


class Watch:
    """The end of a watch: a number of tokens, or a time."""

    __slots__ = ("timer", "tokens")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.timer: asyncio.TimerHandle | None = None

    def cut_in(self, seconds: float, cut: Callable[[Outcome], None], loop: asyncio.AbstractEventLoop) -> None:
        """Cut the attempt after ``seconds``."""
        self.stop()
        self.timer = loop.call_later(seconds, cut, Outcome.LOST)

    def stop(self) -> None:
        """Cancel the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
