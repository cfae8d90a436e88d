"""Tells forked processes when their parent has ended, however it ended."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


class Lifeline:
    """A pipe of which only the parent holds one end: when the other end reads as closed, the parent has ended.

    It works wherever there are pipes, once the child's loop runs. On Linux the kernel also sends SIGINT, which ends a
    child that is not that far.
    """

    def __init__(self) -> None:
        self._parent = os.getpid()
        self._ours, self._parents = os.pipe()

    def grasp(self) -> None:
        """Take the child's end, directly after the fork; ends the process if the parent has ended already."""
        os.close(self._parents)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
        if os.getppid() != self._parent:  # it ended before the kernel was told to signal us
            os._exit(1)

    def on_end(self, then: Callable[[], None]) -> None:
        """Make the running loop call ``then`` when the parent has ended."""
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(self._ours)
            then()

        loop.add_reader(self._ours, ended)
