"""What of an event loop the parts of a race need that only wait: asyncio's has it, and so has a simulated time."""

from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    """Something that will be called."""

    def cancel(self) -> None:
        """Have it not called; harmless when it was."""

    def when(self) -> float:
        """Return the instant, by the loop's own clock, in seconds."""


class Timers(Protocol):
    """Who calls later."""

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Timer:
        """Have ``callback`` called with ``args`` after ``delay_s`` seconds, at once if that is past."""
