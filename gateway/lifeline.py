"""A process's hold on those it forks: however it ends, they are told."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


class Lifeline:
    """A pipe whose one end only the parent holds: when it reads as ended, the parent has.

    It works wherever there are pipes, as soon as the child's loop runs. On Linux the kernel sends SIGINT, too, which
    ends a child that has not come that far.
    """

    def __init__(self) -> None:
        self._parent = os.getpid()
        self._ours, self._parents = os.pipe()

    def grasp(self) -> None:
        """Take the child's end, right after the fork; ends the process if the parent is no more."""
        os.close(self._parents)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
        if os.getppid() != self._parent:  # it ended before the kernel was asked
            os._exit(1)

    def on_end(self, then: Callable[[], None]) -> None:
        """Have the running loop call ``then`` when the parent has ended."""
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(self._ours)
            then()

        loop.add_reader(self._ours, ended)
