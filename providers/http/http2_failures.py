"""Which error an exchange on an HTTP/2 connection ends with, and whether its request may be sent again (``Unsent``)."""

from providers.errors import ErrorKind, UpstreamError
from providers.http.frames import Code, ConnectionFault, StreamFault, code_name
from providers.http.http2_stream import Stream
from providers.http.response import Unsent
from providers.redaction import redact


def lost(stream: Stream, exc: Exception | None, goaway: int | None) -> UpstreamError | Unsent:
    """Return the error of an exchange whose connection has ended; ``goaway`` is the server's code for it, if any."""
    if goaway is not None:
        message = f"the provider gave up the connection ({code_name(goaway)})"
    elif stream.begun:
        message = "the connection broke in the middle of the answer"
    elif stream.may_resend:
        return Unsent("kept connection lost")
    elif exc is not None:
        message = redact(f"the connection broke ({exc})")
    else:
        message = "the connection was closed before the answer"
    return UpstreamError(ErrorKind.DISCONNECTED, message)


def reset(stream: Stream, code: int) -> UpstreamError | Unsent:
    """Return the error of an exchange that the server reset."""
    if code == Code.REFUSED_STREAM and not stream.begun:
        return Unsent("the provider refused the stream")
    where = "in the middle of" if stream.begun else "before"
    message = f"the provider reset the stream {where} the answer ({code_name(code)})"
    return UpstreamError(ErrorKind.DISCONNECTED, message)


def no_http(fault: ConnectionFault | StreamFault) -> UpstreamError:
    """Return the error of an answer that violates the protocol."""
    return UpstreamError(ErrorKind.INVALID_RESPONSE, redact(f"its answer is not valid HTTP/2 ({fault.problem})"))
