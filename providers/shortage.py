"""A shortage on this machine, of descriptors, ports or memory, told from a failure of whom it keeps us from asking."""

import errno
import os
import socket
import ssl

_LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
# What a resolver or OpenSSL makes of a file that it cannot open does not say so: "no such name", "not trusted".
_VAGUE = (socket.gaierror, ssl.SSLError)


def is_shortage(error: BaseException) -> bool:
    """Tell whether ``error``, met just now while connecting, is this machine's own."""
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, OSError):
        return False
    if error.errno in _LACKING and not isinstance(error, _VAGUE):
        return True
    return (error.errno is None or isinstance(error, _VAGUE)) and out_of_descriptors()


def out_of_descriptors() -> bool:
    """Tell whether not one descriptor can be had at this instant."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in _LACKING
    return False
