"""Accepting: a bounded batch of connections in each turn of the loop that finds some, however busy it is.

libuv, and so uvloop's own servers, accepts one connection per turn: under load a turn takes long, and a new connection
waits for as many turns as others came before.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from gateway.connections.ports import BACKLOG

BATCH = 64  # connections accepted in one turn; with all it takes to open them they hold the loop for some 5 ms
PAUSE_S = 0.1  # without accepting, after the process or the machine ran out of descriptors or of memory

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# What accept() says of a connection that it does not return: its client has gone, or its network; a firewall's rule.
_GONE = frozenset(
    {errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN}
    | {errno.EHOSTUNREACH, errno.ENOPROTOOPT, errno.EOPNOTSUPP}
)


class Acceptor:
    """Accepts on a non-blocking socket that listens, from ``start`` to ``stop``.

    ``take`` is given each accepted socket, and the host it comes from. ``on_exhausted`` hears of each one that was
    refused because there was no descriptor for it.
    """

    def __init__(
        self, sock: socket.socket, take: Callable[[socket.socket, str], None], *, on_exhausted: Callable[[], None]
    ) -> None:
        self.batches = 0  # turns that accepted any
        self._sock = sock
        self._take = take
        self._on_exhausted = on_exhausted
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._spare: int | None = None  # a descriptor to give up, so that a connection can be refused without another

    def start(self) -> None:
        """Accept from now on."""
        self._spare = _spare()
        self._loop.add_reader(self._sock, self._accept)

    def stop(self) -> None:
        """Accept who has knocked already, and listen no more. What was accepted goes on."""
        if self._sock.fileno() == -1:
            return
        for _ in range(BACKLOG // BATCH):
            if not self._accept():
                break
        if self._pause is None:
            self._loop.remove_reader(self._sock)
        else:
            self._pause.cancel()
        self._sock.close()
        if self._spare is not None:
            os.close(self._spare)

    def _accept(self) -> bool:
        """Accept a batch, or fewer; tell whether there may be more."""
        for number in range(BATCH):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                if error.errno in _GONE:
                    continue
                if error.errno in _EXHAUSTED:
                    self._refuse()
                self._rest()
                return False
            self.batches += number == 0
            sock.setblocking(False)  # noqa: FBT003 - its only argument
            self._take(sock, address[0])
        return True

    def _refuse(self) -> None:
        """Close the next connection instead of leaving it to wait."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            try:
                self._sock.accept()[0].close()
            except OSError:
                pass  # it has gone, or somebody else took the descriptor
            else:
                self._on_exhausted()

    def _rest(self) -> None:
        """Accept none for a while: a socket that has connections to accept is readable all the time."""
        if self._pause is None:
            self._loop.remove_reader(self._sock)
            self._pause = self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._pause = None
        if self._spare is None:
            self._spare = _spare()
        self._loop.add_reader(self._sock, self._accept)


def _spare() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
