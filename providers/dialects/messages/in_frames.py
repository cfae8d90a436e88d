"""Messages as Bedrock's InvokeModel streams them: each event in a frame, an error as an exception."""

import base64

import msgspec

from providers.dialects.converse.frames import framed
from providers.dialects.messages.events import STATUS_OF_TYPE


class _Told(msgspec.Struct, frozen=True):
    type: str = ""
    message: str = ""


class _ErrorEvent(msgspec.Struct):
    type: str = ""
    error: _Told = _Told()


_IN_FRAME = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
_errors = msgspec.json.Decoder(_ErrorEvent)
# The exceptions with which a stream of InvokeModel may end, by the status that the same error has in Messages:
# ResponseStream in docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ResponseStream.html, read on 2026-11-30.
_EXCEPTIONS = {
    400: "validationException",
    413: "validationException",
    429: "throttlingException",
    504: "modelTimeoutException",
    529: "serviceUnavailableException",
}


def in_frame(data: bytes) -> bytes:
    """Return an event of Messages as InvokeModel streams it; an error is an exception there."""
    if b'"error"' in data and (error := exception_in_frame(data)):
        return error
    return framed(b'{"bytes":"%b"}' % base64.b64encode(data), _IN_FRAME)


def exception_in_frame(data: bytes) -> bytes:
    """Return the exception that stands for an event with an error; ``b""``: the event has no error."""
    try:
        event = _errors.decode(data)
    except msgspec.DecodeError:
        return b""
    if event.type != "error":
        return b""
    name = _EXCEPTIONS.get(STATUS_OF_TYPE.get(event.error.type, 0), "modelStreamErrorException")
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return framed(msgspec.json.encode({"message": event.error.message}), headers)
