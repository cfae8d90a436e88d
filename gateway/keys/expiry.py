"""Ends keys at their instant, with one timer: for the one that ends next."""

import asyncio
from collections.abc import Callable
from typing import Any

from gateway.keys.table import KeyTable

LONGEST_S = 60.0  # then the wall clock is asked again: it may have been set, and a laptop may have slept


class Expiry:
    """Calls ``table.end_expired`` when the next of its keys ends, from ``arm`` to ``close``."""

    def __init__(self, table: KeyTable[Any], unix_clock: Callable[[], float]) -> None:
        self._table = table
        self._unix_clock = unix_clock
        self._timer: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        """Set the timer, also after each change of the table."""
        self.close()
        if (end := self._table.next_end) is not None:
            wait_s = min(max(0.0, end - self._unix_clock()), LONGEST_S)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._fire)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._table.end_expired()
        self.arm()
