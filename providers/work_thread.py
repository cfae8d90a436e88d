"""The thread for work that takes long: of large requests and answers. It does one after the other.

Several threads would wait for one interpreter, and each turn of the event loop for all of them.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

_T = TypeVar("_T")
_SWITCH_S = 0.001  # in which a turn of the event loop gets the interpreter while the thread works; 0.005 by default
_RESTS_AFTER_S, _LONGEST_REST_S = 0.02, 0.1


class _Thread:
    """It rests after longer work as long as that took: what waits in the event loop is done then."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None  # None: not needed so far
        self._rests_until_s = 0.0

    def submit(self, work: Callable[[], _T]) -> "asyncio.Future[_T]":
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="work")
        return asyncio.get_running_loop().run_in_executor(self._pool, self._done, work)

    def _done(self, work: Callable[[], _T]) -> _T:
        if (rest_s := self._rests_until_s - time.monotonic()) > 0:
            time.sleep(rest_s)
        before, began_s = sys.getswitchinterval(), time.monotonic()
        sys.setswitchinterval(_SWITCH_S)
        try:
            return work()
        finally:
            sys.setswitchinterval(before)
            took_s = time.monotonic() - began_s
            if took_s > _RESTS_AFTER_S:
                self._rests_until_s = began_s + took_s + min(took_s, _LONGEST_REST_S)


_thread = _Thread()


def aside(work: Callable[..., _T], *given: object) -> "asyncio.Future[_T]":
    """Return the coming result of ``work(*given)``, done in the thread when its turn comes, so that other calls go on.

    If it is cancelled, the thread ends the work on its own, and its result is dropped.
    """
    return _thread.submit(partial(work, *given))


def check_room(size: int) -> None:
    """Check that so many bytes of memory can be had: msgspec 0.22 ends the process where it gets none for its result.

    Raises:
        MemoryError: they cannot.

    """
    bytearray(size)
