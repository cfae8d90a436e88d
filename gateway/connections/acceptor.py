"""Accepts connections in batches: at most ``BATCH`` in each turn of the event loop, however busy it is.

libuv, and so uvloop's own servers, accepts one connection per turn: under load a turn takes long, and a new
connection waits for as many turns as there are connections before it.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from gateway.connections.ports import BACKLOG

BATCH = 64  # connections accepted in one turn; opening them blocks the event loop for about 5 ms
PAUSE_S = 0.1  # pause after the process or the machine ran out of file descriptors or memory

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# Errors of accept() about a connection that it does not return: its client or network failed, or a firewall blocks it.
_GONE = frozenset(
    {errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN}
    | {errno.EHOSTUNREACH, errno.ENOPROTOOPT, errno.EOPNOTSUPP}
)


class Acceptor:
    """Accepts connections on a listening, non-blocking socket, from ``start`` to ``stop``.

    ``take`` is called with each accepted socket and its remote address. ``on_exhausted`` is called for each connection
    that is refused for lack of a file descriptor.
    """

    def __init__(
        self, sock: socket.socket, take: Callable[[socket.socket, str], None], *, on_exhausted: Callable[[], None]
    ) -> None:
        self.batches = 0  # turns in which connections were accepted
        self._sock = sock
        self._take = take
        self._on_exhausted = on_exhausted
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._spare: int | None = None  # a reserve descriptor: closed so that a connection can be accepted and refused

    def start(self) -> None:
        """Start accepting."""
        self._spare = _spare()
        self._loop.add_reader(self._sock, self._accept)

    def stop(self) -> None:
        """Accept the connections that are waiting, then close the socket. Accepted connections stay open."""
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
        """Accept a batch; return whether there may be more."""
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
        """Close the next connection instead of letting it wait."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            try:
                self._sock.accept()[0].close()
            except OSError:
                pass  # it has gone, or the descriptor was taken
            else:
                self._on_exhausted()

    def _rest(self) -> None:
        """Pause accepting: a socket with waiting connections is always readable."""
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
