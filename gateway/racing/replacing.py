"""Who replaces a failed attempt: the next candidate, or the first for which a seat becomes free."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.racing.attempts import Attempts
from gateway.racing.grid import Grid
from gateway.racing.open_call import OpenCall

if TYPE_CHECKING:
    from gateway.racing.wait import Wait


class Replacing:
    """Launches replacements in one race, and waits for seats. ``fail`` is called if no seat became free in time."""

    __slots__ = ("_attempts", "_fail", "_grid", "_guarded", "_loop", "_open_call", "_wait")

    def __init__(
        self,
        open_call: OpenCall,
        grid: Grid,
        attempts: Attempts,
        *,
        fail: Callable[[], None],
        guarded: Callable[[Callable[[], object]], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """``guarded`` calls what a free seat starts, and takes its defects: the caller is another call."""
        self._open_call = open_call
        self._grid = grid
        self._attempts = attempts
        self._fail: Callable[[], None] | None = fail
        self._guarded: Callable[[Callable[[], object]], None] | None = guarded
        self._loop = loop
        self._wait: Wait | None = None  # for a seat; made when first needed

    def replace(self) -> bool:
        """Launch the next candidate to replace a failed attempt, or wait for one that is full."""
        name = self._grid.next()
        if name is None:
            return self.line_up()
        if self._attempts.is_late(name):
            return False
        self._attempts.launch_next(name)
        return True

    def line_up(self) -> bool:
        """Wait for the first free seat of any remaining deployment; return whether an attempt runs or waits."""
        names = self._grid.full()
        if not names:
            return False
        if self._wait is None:
            self._wait = self._open_call.wait(seated=self._seated, timed_out=self._timed_out, loop=self._loop)
        self._wait.line_up(names)
        return bool(self._attempts.active) or self._wait.start_clock() or self._take_last_resort()

    def leave(self) -> None:
        """Wait for no seat any more."""
        if self._wait is not None:
            self._wait.leave()

    def forget(self) -> None:
        """Release the callbacks: the race is over."""
        if self._wait is not None:
            self._open_call.waited(self._wait)
            self._wait = None
        self._fail = self._guarded = None

    def _take_last_resort(self) -> bool:
        if (name := self._grid.next(last_resort=True)) is not None:
            self._attempts.launch_next(name)
        return name is not None

    def _seated(self, name: str) -> None:
        """Launch ``name``, where a seat has become free for this call."""
        self._grid.called(name, first=not self._attempts.all)
        if self._guarded is not None:
            self._guarded(lambda: self._attempts.launch_next(name))

    def _timed_out(self) -> None:
        """End the wait: no seat became free in time."""
        if self._attempts.active:  # a rescue was launched meanwhile
            self.line_up()
        elif not self._take_last_resort() and self._fail is not None:
            self._fail()
