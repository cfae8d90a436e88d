"""The port: the socket that listens on it, or one for each worker, over which the kernel spreads connections."""

import errno
import socket
import sys
from typing import Any

BACKLOG = 4096  # a crowd that calls at once is not made to knock again; the kernel may cap it (somaxconn)
_LEAST_FREE_PORT = 1024
_SPREADS = sys.platform == "linux"  # elsewhere one of several sockets on a port gets everything


class ListenError(OSError):
    """The gateway cannot listen there; ``strerror`` says why, and what to do."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address: who connects from now on waits until it is served.

    It listens at once because two sockets may be bound to one address, and only the second one to listen is refused;
    uvloop would close that one without a word.

    Raises:
        ListenError: the address is taken, not of this machine, or not for this user.
        OSError: there are no descriptors, or no memory.

    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a valid host name"
        unknown = f"there is no address for the host {host!r} ({why}): give one with --host"
        raise ListenError(errno.EADDRNOTAVAIL, unknown) from None
    family, kind, protocol, _, address = found[0]
    try:
        return _listening(socket.socket(family, kind, protocol), address)
    except OSError as error:
        explained = _explained(error, host, port)
        if explained is None:
            raise
        raise ListenError(error.errno, explained) from None


class SharedPort:
    """The port of several workers, as their parent has it.

    Connections that wait on one socket go to whoever comes first, and one worker takes most of them, above all when
    the others work. So each worker listens with a socket of its own (SO_REUSEPORT), and the kernel chooses one of them
    for each connection by its addresses and ports, however busy they are.
    """

    def __init__(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            ListenError: the address is taken, not of this machine, or not for this user.
            OSError: there are no descriptors, or no memory.

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


def _explained(error: OSError, host: str, port: int) -> str | None:
    """Return what is wrong with the address, in a sentence; None where it is not the address."""
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} on {host} is already in use: stop what listens there, or choose another with --port"
        case errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine: set one with --host, or 0.0.0.0 for all of them"
        case errno.EACCES if port < _LEAST_FREE_PORT:
            return (
                f"port {port} needs privileges, as all ports below 1024: choose another with --port,"
                " or give the gateway the capability CAP_NET_BIND_SERVICE"
            )
        case errno.EACCES | errno.EPERM:
            return f"the system does not let this user listen on port {port} of {host}: choose another with --port"
        case errno.EAFNOSUPPORT:
            return f"this machine has no IPv6, which {host} needs: give another address with --host"
        case _:
            return None
