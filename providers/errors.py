"""Errors of requests to providers: one exception with a kind.

UpstreamError
└── its ``kind``
    ├── connect_error, connect_timeout       no connection (DNS, TCP, TLS)
    ├── local_resources                      this machine has no more file descriptors, ports or memory
    ├── disconnected                         the connection broke
    ├── ttft_timeout, stall_timeout, total_timeout   a clock of the gateway ran out
    ├── provider_auth (401, 403), not_found (404)    the operator has to correct the configuration
    ├── no_such_api (404 of a path)          the provider does not have this API
    ├── rate_limited (429)
    ├── bad_request (400, 413, 422)          the client's own fault
    ├── server_error (5xx, and everything else)
    ├── invalid_response                     HTML, broken JSON, not an event stream
    ├── stream_error                         an error object inside a stream that began well
    ├── upstream_empty, upstream_truncated   the answer is empty, or incomplete
    └── invalid_answer                       it is not in the form that was asked for (win_on: valid)
"""

import errno
import os
import socket
import ssl
from enum import StrEnum


class ErrorKind(StrEnum):
    """Why an upstream request failed. The values appear in SQL, metrics and messages."""

    CONNECT_ERROR = "connect_error"
    CONNECT_TIMEOUT = "connect_timeout"
    LOCAL_RESOURCES = "local_resources"
    DISCONNECTED = "disconnected"
    TTFT_TIMEOUT = "ttft_timeout"
    STALL_TIMEOUT = "stall_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    PROVIDER_AUTH = "provider_auth"
    NOT_FOUND = "not_found"
    NO_SUCH_API = "no_such_api"
    RATE_LIMITED = "rate_limited"
    BAD_REQUEST = "bad_request"
    SERVER_ERROR = "server_error"
    INVALID_RESPONSE = "invalid_response"
    STREAM_ERROR = "stream_error"
    UPSTREAM_EMPTY = "upstream_empty"
    UPSTREAM_TRUNCATED = "upstream_truncated"
    INVALID_ANSWER = "invalid_answer"


class UpstreamError(Exception):
    """A request to a provider failed.

    ``message`` can be shown and stored: secrets were removed. ``body`` is the provider's own JSON error object,
    redacted. It exists only for ``bad_request``, where it is returned to the client.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        body: bytes | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        self.retry_after_s = retry_after_s
        self.body = body

    def without_frames(self) -> "UpstreamError":
        """Remove the traceback and the causes, which would make reference cycles if it is stored; return it."""
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


def kind_of_status(status: int) -> ErrorKind:
    """Return the kind of error for an HTTP status, of a response or inside an error object."""
    match status:
        case 400 | 413 | 422:
            return ErrorKind.BAD_REQUEST
        case 401 | 403:
            return ErrorKind.PROVIDER_AUTH
        case 404:
            return ErrorKind.NOT_FOUND
        case 429:
            return ErrorKind.RATE_LIMITED
        case _:
            return ErrorKind.SERVER_ERROR


# Detects a shortage of file descriptors, ports or memory on this machine, which is not the provider's failure.

_LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
# What the network says itself. Beside these, a resolver or OpenSSL that cannot open a file reports any other error: "no
# such name", "not trusted", or whatever number the C library's resolver has left behind (EBUSY, EINVAL).
_SAID_BY_NETWORK = frozenset(
    {
        *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT),
        *(errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EACCES, errno.EPERM),
    }
)


def is_shortage(error: BaseException) -> bool:
    """Whether ``error``, which was just raised while connecting, is caused by this machine."""
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, OSError):
        return False
    is_numbered = not isinstance(error, socket.gaierror | ssl.SSLError)  # these have numbers of their own
    if is_numbered and error.errno in _LACKING:
        return True
    return not (is_numbered and error.errno in _SAID_BY_NETWORK) and out_of_descriptors()


def out_of_descriptors() -> bool:
    """Whether no file descriptor can be opened at this moment."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in _LACKING
    return False
