"""The port: the socket that listens on it, or one for each worker, over which the kernel spreads connections."""

import socket
import sys
from typing import Any

BACKLOG = 4096  # a crowd that calls at once is not made to knock again; the kernel may cap it (somaxconn)
_SPREADS = sys.platform == "linux"  # elsewhere one of several sockets on a port gets everything


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address: who connects from now on waits until it is served.

    It listens at once because two sockets may be bound to one address, and only the second one to listen is refused;
    uvloop would close that one without a word.

    Raises:
        OSError: the address is taken or not of this machine.

    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return _listening(socket.socket(family, kind, protocol), address)


class SharedPort:
    """The port of several workers, as their parent has it.

    Connections that wait on one socket go to whoever comes first, and one worker takes most of them, above all when
    the others work. So each worker listens with a socket of its own (SO_REUSEPORT), and the kernel chooses one of them
    for each connection by its addresses and ports, however busy they are.
    """

    def __init__(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            OSError: the address is taken or not of this machine.

        """
        claim = bind(host, port)  # which is refused while anybody else listens there, whether they would share or not
        self.address: Any = claim.getsockname()
        self._family, self._kind, self._protocol = claim.family, claim.type, claim.proto
        self._next: socket.socket | None = claim
        if _SPREADS:
            with claim:
                _share(claim)
                self._next = self._another()

    def make_socket(self) -> socket.socket:
        """Return the socket of the next worker, for the parent to close once it has forked.

        Raises:
            OSError: it is taken by now, as no worker was left.

        """
        if not _SPREADS:
            assert self._next is not None
            return self._next.dup()
        made, self._next = self._next or self._another(), None
        return made

    def close(self) -> None:
        """Keep nothing of the port: it is closed once the last worker has closed its own."""
        if self._next is not None:
            self._next.close()

    def _another(self) -> socket.socket:
        made = socket.socket(self._family, self._kind, self._protocol)
        _share(made)
        return _listening(made, self.address)


def _share(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def _listening(sock: socket.socket, address: Any) -> socket.socket:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)  # noqa: FBT003 - its only argument
    return sock
