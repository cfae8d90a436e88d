"""A call's wait for a seat at any of several deployments."""

import asyncio
from collections.abc import Callable, Iterable

from gateway.racing.seats import Seats


class Wait:
    """The waits of one call, for at most ``patience_s`` seconds in all.

    While another attempt of the call runs, waiting has no time limit: the seat would only be a rescue. ``seated`` is
    called with the deployment that has a seat for the call, and takes it; ``timed_out`` if there was none in time.
    """

    def __init__(
        self,
        seats: Seats,
        model: str,
        patience_s: float,
        *,
        seated: Callable[[str], None],
        timed_out: Callable[[], None],
        clock: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.waited_s = 0.0
        self._seats = seats
        self._model = model
        self._patience_s = patience_s
        self._seated: Callable[[str], None] | None = seated
        self._timed_out: Callable[[], None] | None = timed_out
        self._clock = clock
        self._loop = loop
        self._names: tuple[str, ...] = ()  # the deployments in whose lines it waits
        self._since: float | None = None  # when the time limit began to count
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_timed(self) -> bool:
        """Whether the time limit counts: no attempt of the call runs."""
        return self._timer is not None

    def line_up(self, names: Iterable[str]) -> None:
        """Wait in the lines of ``names``, all of which exist and are full. Existing places in lines are kept."""
        if self._names:
            return
        self._names = tuple(names)
        for name in self._names:
            self._seats.lines[name].waiting[self] = None

    def start_clock(self) -> bool:
        """Start the time limit: no attempt runs any more. Returns False, and leaves all lines, if no time is left."""
        if self._timer is not None:
            return True
        left_s = self._patience_s - self.waited_s
        if left_s <= 0:
            self.leave()
            return False
        self._since = self._clock()
        self._timer = self._loop.call_later(left_s, self._expire)
        return True

    def called(self, name: str) -> None:
        """Take the seat that has become free at ``name``."""
        seated = self._seated
        self.leave("seated")
        if seated is not None:
            seated(name)

    def leave(self, how: str = "left") -> None:
        """End the wait. ``how`` is reported: seated, timed_out or left."""
        names, self._names = self._names, ()
        for name in names:
            self._seats.lines[name].waiting.pop(self, None)
        if self._timer is not None and self._since is not None:
            self._timer.cancel()
            self._timer = None
            seconds = self._clock() - self._since
            self.waited_s += seconds
            self._seats.waited(self._model, how, seconds)

    def forget(self) -> None:
        """End the wait and release the callbacks: the call is over."""
        self.leave()
        self._seated = self._timed_out = None

    def _expire(self) -> None:
        timed_out = self._timed_out
        self.leave("timed_out")
        if timed_out is not None:
            timed_out()
