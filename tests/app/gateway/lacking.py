"""Runs the command line as on a system that lacks something: ``python lacking.py uvloop,prctl serve``."""

import errno
import fcntl
import itertools
import os
import pathlib
import resource
import selectors
import signal
import socket
import sys
import sysconfig
import termios
import urllib.request
from collections.abc import Callable
from typing import Any, NoReturn


def refusing(error: int) -> Callable[..., NoReturn]:
    """Return a system call that fails with ``error``."""

    def call(*arguments: Any, **options: Any) -> NoReturn:
        raise OSError(error, os.strerror(error))

    return call


def _no_proc() -> None:
    opened = pathlib.Path.open

    def without(path: pathlib.Path, *arguments: Any, **options: Any) -> Any:
        if path.is_relative_to("/proc") or path.is_relative_to("/sys"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return opened(path, *arguments, **options)

    pathlib.Path.open = without  # type: ignore[assignment, method-assign] # as of a system without these folders


def _no_figures_of_memory() -> None:
    asked = os.sysconf

    def without(name: str | int) -> int:
        if name == "SC_PHYS_PAGES":
            raise ValueError("unrecognized configuration name")
        return asked(name)

    os.sysconf = without


def _no_epoll() -> None:
    sys.modules["uvloop"] = None  # type: ignore[assignment] # it has one of its own
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc, assignment] # all that every system has


def _sockets_refuse(option: str) -> None:
    class Socket(socket.socket):
        def setsockopt(self, level: int, number: int, *value: Any) -> None:
            if level == socket.SOL_SOCKET and number == getattr(socket, option):
                raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
            super().setsockopt(level, number, *value)

    socket.socket = Socket  # type: ignore[misc] # as of a kernel that refuses the option


def _forks_refused(*numbers: int) -> None:
    """Refuse these forks of the process, the first of which is 1, as where it may have no more processes."""
    fork, made = os.fork, itertools.count(1)
    os.fork = lambda: refusing(errno.EAGAIN)() if next(made) in numbers else fork()


def _no_affinity() -> None:
    del os.sched_getaffinity
    os.process_cpu_count = os.cpu_count  # type: ignore[attr-defined] # Python 3.13's own, which it would have chosen


def _macos() -> None:
    """Take away what macOS does not have, and say that this is it."""
    for name in ("proc", "tcp_info", "pidfd", "affinity"):
        LACKS[name]()
    termios.TIOCOUTQ = 0  # type: ignore[misc] # as of macOS: no request of a socket
    resource.setrlimit = refusing(errno.EINVAL)  # beyond OPEN_MAX
    # Python's own files that are there for one platform are looked for before it seems to be another one.
    sysconfig.get_config_vars()
    urllib.request.getproxies_environment()
    sys.platform = "darwin"


LACKS: dict[str, Callable[[], object]] = {
    "uvloop": lambda: sys.modules.update({"uvloop": None}),  # type: ignore[dict-item] # importing it fails
    "fork": lambda: delattr(os, "fork"),
    "first_fork": lambda: _forks_refused(1),
    "later_forks": lambda: _forks_refused(2, 4),
    "prctl": lambda: sys.modules.update({"ctypes": None}),  # type: ignore[dict-item] # importing it fails
    "pthread_sigmask": lambda: delattr(signal, "pthread_sigmask"),
    "reuseport": lambda: delattr(socket, "SO_REUSEPORT"),
    "reuseport_refused": lambda: _sockets_refuse("SO_REUSEPORT"),
    "tcp_info": lambda: delattr(socket, "TCP_INFO"),
    "tiocoutq": lambda: setattr(fcntl, "ioctl", refusing(errno.ENOTTY)),
    "proc": _no_proc,
    "phys_pages": _no_figures_of_memory,
    "setrlimit": lambda: setattr(resource, "setrlimit", refusing(errno.EPERM)),
    "flock": lambda: setattr(fcntl, "flock", refusing(errno.ENOTSUP)),
    "link": lambda: setattr(os, "link", refusing(errno.ENOTSUP)),
    "epoll": _no_epoll,
    "pidfd": lambda: delattr(os, "pidfd_open"),
    "affinity": _no_affinity,
    "macos": _macos,
}


def command(what: str) -> tuple[str, ...]:
    """Return the command line of a system without ``what``."""
    return (sys.executable, "-P", __file__, what)


def main() -> None:
    """Take away what the first argument names, then run the others."""
    for name in sys.argv.pop(1).split(","):
        LACKS[name]()
    from gateway.cli.main import main as run  # noqa: PLC0415 - only now, as files ask when they are imported

    run()


if __name__ == "__main__":
    main()
