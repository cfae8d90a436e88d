"""An event loop whose clock jumps to the next timer instead of waiting for it: a test of two minutes takes none."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    loop: "VirtualTimeLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everything waits, and no timer is left to end it")
        self.loop.now += max(0.0, timeout)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop that starts at second 1,000 and knows no waiting."""

    def __init__(self) -> None:
        self.now = 1000.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    @property
    def pending_timers(self) -> int:
        """Timers neither fired nor cancelled."""
        return sum(not timer.cancelled() for timer in self._scheduled)  # type: ignore[attr-defined] # BaseEventLoop's own list


def virtual_loop() -> VirtualTimeLoop:
    """Return the loop that runs ``main``, so that its clock can be moved."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` in virtual time, and see that it leaves nothing behind: no task, no timer."""
    loop = VirtualTimeLoop()
    try:
        result = loop.run_until_complete(main)
        left = asyncio.all_tasks(loop)
        assert not left, f"tasks left behind: {left}"
        assert loop.pending_timers == 0, "timers left behind"
        return result
    finally:
        loop.close()


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in virtual time, and see that it leaves nothing behind."""

    def in_no_time() -> None:
        run(test())

    in_no_time.__name__, in_no_time.__doc__ = test.__name__, test.__doc__
    return in_no_time
