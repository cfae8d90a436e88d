"""Reads the top level of a whole JSON answer, which may be an error."""

from collections.abc import Sequence

import msgspec

from providers.error_bodies import error_in, message_of_text, says_error
from providers.errors import ErrorKind, UpstreamError
from providers.redaction import redact

_Object = dict[str, msgspec.Raw]

_objects = msgspec.json.Decoder(_Object)
_lists = msgspec.json.Decoder(list[_Object])

_LONGEST_QUOTE = 200  # characters


def read_answer(body: bytes, secrets: Sequence[str] = ()) -> dict[str, msgspec.Raw]:
    """Read the top level of a JSON object sent with a 2xx status, values still raw.

    Raises:
        UpstreamError: it is empty (upstream_empty), not a JSON object (invalid_response), or an error (of the kind of
            its code, else server_error).

    """
    if not body.strip():
        raise UpstreamError(ErrorKind.UPSTREAM_EMPTY, "answered with an empty body")
    try:
        answer = _objects.decode(body)
    except msgspec.ValidationError:  # Gemini sends its errors in an array
        answer = _first_of_array(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        quote = " ".join(redact(message_of_text(body[:4096]), secrets).split())[:_LONGEST_QUOTE]
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, f"answered with text that is not JSON: {quote!r}") from None
    if says_error(answer):
        raise error_in(body, secrets, otherwise=ErrorKind.SERVER_ERROR)
    return answer


def _first_of_array(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _lists.decode(body)[0]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError):
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "answered with JSON that is not an object") from None
