"""The timers of an event loop: asyncio's loop has them, and so has the simulated one."""

from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call; no effect if it has been made."""


class Timers(Protocol):
    """Schedules calls."""

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Timer:
        """Call ``callback`` with ``args`` after ``delay_s`` seconds, or at once if that is negative."""
