"""Detects a shortage of file descriptors, ports or memory on this machine, which is not the provider's failure."""

import errno
import os
import socket
import ssl

_LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
# A resolver or OpenSSL that cannot open a file reports another error: "no such name", "not trusted".
_VAGUE = (socket.gaierror, ssl.SSLError)
_VAGUE_NUMBERS = frozenset({None, errno.EBUSY})  # glibc's resolver says EBUSY when it cannot read its configuration


def is_shortage(error: BaseException) -> bool:
    """Whether ``error``, which was just raised while connecting, is caused by this machine."""
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, OSError):
        return False
    if error.errno in _LACKING and not isinstance(error, _VAGUE):
        return True
    return (error.errno in _VAGUE_NUMBERS or isinstance(error, _VAGUE)) and out_of_descriptors()


def out_of_descriptors() -> bool:
    """Whether no file descriptor can be opened at this moment."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in _LACKING
    return False
