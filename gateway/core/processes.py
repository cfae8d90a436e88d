"""What holds for a whole process: its signals, its parent's end, its children, how often garbage is collected."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path


def mask_signals(numbers: Iterable[int], *, blocked: bool) -> None:
    """Block or unblock signals in this thread; a blocked signal reaches the main thread, or waits.

    Without pthread_sigmask this does nothing. Python's handlers run in the main thread all the same, and the
    interrupted thread, whichever it is, writes to the wakeup descriptor.
    """
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK if blocked else signal.SIG_UNBLOCK, numbers)


# Tells forked processes when their parent has ended, however it ended.

_PR_SET_PDEATHSIG = 1


class Lifeline:
    """A pipe with one end held by the parent alone: when the other end reads as closed, the parent has ended.

    This works wherever there are pipes, once the child's loop runs. On Linux the kernel also sends SIGINT, which ends a
    child before its loop runs.
    """

    def __init__(self) -> None:
        self._parent = os.getpid()
        self._ours, self._parents = os.pipe()

    def grasp(self) -> None:
        """Set up the child's side, directly after the fork; ends the process if the parent has ended already."""
        os.close(self._parents)
        if sys.platform == "linux":
            with suppress(ImportError, AttributeError):  # a Python without ctypes, a C library without prctl
                import ctypes  # noqa: PLC0415 - some builds have none

                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
        if os.getppid() != self._parent:  # the parent ended before prctl was called
            os._exit(1)

    def on_end(self, then: Callable[[], None]) -> None:
        """Have the running loop call ``then`` at the parent's end."""
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(self._ours)
            then()

        loop.add_reader(self._ours, ended)


# Runs other programs of the gateway as child processes: with the gateway's packages, never others of the same names.

_PACKAGES = Path(__file__).resolve().parents[2]  # the folder of ``gateway`` and ``providers``


def command(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command for running ``module``. Nothing is imported from the working directory."""
    return (sys.executable, "-P", "-m", module, *arguments)


def environment() -> dict[str, str]:
    """Return the environment of a child: this process's, with the gateway's packages before all others."""
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(_PACKAGES), *([path] if path else [])])}


GC_THRESHOLD = 20_000  # objects; neither imports nor calls leave many that only the collector can free


def collect_less() -> None:
    """Collect garbage less often in this process; by default the collector takes a seventh of a start's CPU."""
    gc.set_threshold(GC_THRESHOLD, 20, 20)
