"""The listening socket, or one for each worker, between which the kernel distributes connections."""

import errno
import socket
import sys
from typing import Any

BACKLOG = 4096  # a burst of new connections is not rejected; the kernel may limit it (somaxconn)
_LEAST_FREE_PORT = 1024
_SPREADS = sys.platform == "linux"  # elsewhere one of several sockets on a port gets all connections


class ListenError(OSError):
    """The gateway cannot listen there; ``strerror`` has the reason and the remedy."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address; connections wait until they are served.

    It listens at once: two sockets may be bound to one address, but the second one to listen is refused, and uvloop
    would close that one silently.

    Raises:
        ListenError: the address is in use, not of this machine, or not permitted.
        OSError: there are no file descriptors, or no memory.

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
    """The port of several workers, in their parent process.

    With one shared socket, one worker would take most connections, above all when the others are busy. So each
    worker has its own socket (SO_REUSEPORT), and the kernel selects one for each connection by its addresses and ports,
    however busy they are.
    """

    def __init__(self, host: str, port: int) -> None:
        """Start to listen.

        Raises:
            ListenError: the address is in use, not of this machine, or not permitted.
            OSError: there are no file descriptors, or no memory.

        """
        claim = bind(host, port)  # refused while another process listens there, with or without SO_REUSEPORT
        self.address: Any = claim.getsockname()
        self._family, self._kind, self._protocol = claim.family, claim.type, claim.proto
        self._next: socket.socket | None = claim
        if _SPREADS:
            with claim:
                _share(claim)
                self._next = self._another()

    def make_socket(self) -> socket.socket:
        """Return the socket for the next worker; the parent closes it after the fork.

        Raises:
            OSError: no worker was left, and the port is now in use by another process.

        """
        if not _SPREADS:
            assert self._next is not None
            return self._next.dup()
        made, self._next = self._next or self._another(), None
        return made

    def close(self) -> None:
        """Close the parent's sockets. The port is free when the last worker has closed its own."""
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
    """Return what is wrong with the address, in one sentence; None if the address is not the cause."""
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
