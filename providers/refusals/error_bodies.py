"""Makes the error of a provider's answer: its kind, what is found of it, and what the client reads."""

import codecs
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from providers.refusals.accounts import is_certain, is_spent
from providers.refusals.enclosed import unwrapped
from providers.refusals.error_kinds import FORBIDDEN, QUOTAS_OF_AWS, is_bound, is_outsized, kind_of, speaks_of_limits
from providers.refusals.error_shapes import (
    decode_error,
    error_object_in,
    message_of,
    objects,
    says_error,
    status_in_words,
    status_of,
)
from providers.refusals.errors import UNREADABLE, ErrorKind, Findings, UpstreamError, identifier
from providers.refusals.one_request import RefusedPart, refused
from providers.refusals.rate_limits import (
    google_retry_delay_s,
    headroom,
    is_of_day,
    is_of_days,
    retry_after_s,
    told_delay_s,
)
from providers.refusals.redaction import redact, redact_json, redact_word
from providers.refusals.texts import LONGEST_TEXT, is_page, message_of_text, presentable, without_tags
from providers.refusals.words import names_of

LARGE_BYTES = 2**20  # of an answer: larger answers are long lists of numbers, which take a tenth of a second to read
_REQUEST_IDS = (
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "x-generation-id",
    "x-ms-request-id",
    "apim-request-id",
)
_LONGEST_ID = 128  # characters
_LONGEST_CODE = 500  # characters of each field beside the message of a large error
# Likewise, of a key: docs.aws.amazon.com/bedrock/latest/userguide/troubleshooting-api-error-codes.html, on 2026-11-29.
_KEYS_OF_AWS = ("UnrecognizedClient", "ExpiredToken", "InvalidClientTokenId", "IncompleteSignature", "InvalidSignature")
_OF_ALIBABA = "x-dashscope-"  # how Alibaba's headers begin
_OF_LARGE_ERRORS = ("type", "param", "code")  # beside an error's message
_NAMED_ERROR = re.compile(rb"(?:\A|[\r\n])event: ?error[\r\n]")


def error_of_response(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    secrets: Sequence[str],
    now_s: float,
    *,
    own: Callable[[str], str] | None = None,
) -> UpstreamError:
    """Return the error of a response. ``headers`` have lower-case names; ``now_s`` is Unix time.

    ``own`` returns the vendor's own words in a message (``quotes``): these words alone decide the kind.
    """
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        body = body.decode("utf-16", errors="replace").encode()
    closed = error_object_in(decode_error(body))
    error_object = closed if closed is None or own is None else unwrapped(closed, own)
    whole = message_of(error_object) if error_object else message_of_text(body)
    error, message = (error_object, whole) if own is None else _unquoted(error_object, whole, own)
    if not message and refused(status, error_object or {}, whole) is not None:
        error, message = error_object, whole  # words that cannot be told from the client's blame nobody, but excuse
    wait_s = told_delay_s(headers, now_s)
    meters_quota = any(name.startswith(_OF_ALIBABA) for name in headers)
    kind = kind_of(status, error or {}, meters_quota=meters_quota, wait_s=wait_s)
    if status == FORBIDDEN and error is None and is_page(body):
        kind = ErrorKind.SERVER_ERROR  # a firewall's, which may dislike one text: the key is good for all others
    elif kind is ErrorKind.BAD_REQUEST and headers.get("x-amzn-errortype", "").startswith(QUOTAS_OF_AWS):
        kind = ErrorKind.RATE_LIMITED
    elif not error and is_spent({"message": message}, any_words=speaks_of_limits(kind, wait_s)):
        kind = ErrorKind.PROVIDER_AUTH
    retry = None
    if kind in (ErrorKind.RATE_LIMITED, ErrorKind.SERVER_ERROR):
        retry = retry_after_s(headers, now_s)
        if retry is None and error:
            retry = google_retry_delay_s(error)
    words = presentable(whole, secrets) or None
    about = refused(status, error or {}, message)
    refusal = UpstreamError(
        kind,
        words or f"answered {status} without a message",
        words=words,
        names=names_of(error or {}),
        status=status,
        retry_after_s=retry,
        body=_client_body(error_object or {"message": whole}, secrets) if kind is ErrorKind.BAD_REQUEST else None,
        findings=Findings(
            is_bound=kind is ErrorKind.BAD_REQUEST and is_bound(error or {}),
            is_outsized=kind is ErrorKind.BAD_REQUEST and (about is RefusedPart.SIZE or is_outsized(error or {})),
            is_declined=kind is ErrorKind.BAD_REQUEST and about is RefusedPart.TERMS,
            # JSON in a message may be the client's.
            is_certain=(error_object is closed and is_certain(kind, status, error or {"message": message}))
            or (kind is ErrorKind.RATE_LIMITED and headroom(headers) == 0.0)
            or (kind is ErrorKind.PROVIDER_AUTH and headers.get("x-amzn-errortype", "").startswith(_KEYS_OF_AWS)),
            is_of_day=is_of_days(wait_s) or (error is not None and is_of_day(error)),
        ),
    )
    if (id_of_request := request_id(headers)) is not None:
        refusal.request_id = redact_word(id_of_request, secrets)[:_LONGEST_ID]
    if own is not None:
        is_refused_page = kind is ErrorKind.BAD_REQUEST and error is None and is_page(body)
        read = presentable(without_tags(body), secrets) if is_refused_page else refusal.message
        refusal.said = own(read) if words else read
    return refusal


def request_id(headers: Mapping[str, str]) -> str | None:
    """Return the provider's id of a request from the headers of its answer; None without one."""
    for name in _REQUEST_IDS:
        if name in headers:
            return headers[name] or None
    return None


def _unquoted(
    error: dict[str, Any] | None, message: str, own: Callable[[str], str]
) -> tuple[dict[str, Any] | None, str]:
    """Return an error object, and its message, without quotes of the request."""
    unquoted = own(message)
    if error is None or unquoted == message:
        return error, unquoted
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
        error = {**error, "metadata": {**metadata, "raw": ""}}  # the raw text is a part of the message
    return {**error, "message": unquoted}, unquoted


def error_in(data: bytes, secrets: Sequence[str], *, otherwise: ErrorKind) -> UpstreamError:
    """Return the error in a JSON object with status 200, of the code's kind; ``otherwise`` if the code is unknown."""
    error_object = error_object_in(decode_error(data)) or {}
    words = presentable(message_of(error_object), secrets) or None
    error = UpstreamError(
        otherwise,
        words or "sent an error without a message",
        words=words,
        names=names_of(error_object),
        status=status_of(error_object),
        retry_after_s=google_retry_delay_s(error_object),
    )
    _judge(error, error_object, error_object, secrets, otherwise)

    def judge(error: UpstreamError, own: Callable[[str], str]) -> None:
        opened = unwrapped(error_object, own)
        unquoted, message = _unquoted(opened, message_of(opened), own)
        # Words that cannot be told from the client's blame nobody, but excuse.
        if (
            unquoted is not error_object
            and unquoted is not None
            and (message or error.kind is not ErrorKind.BAD_REQUEST)
        ):
            _judge(error, unquoted, opened, secrets, otherwise, may_be_certain=opened is error_object)

    error.judge = judge
    return error


def _judge(
    error: UpstreamError,
    unquoted: Mapping[str, Any],
    error_object: Mapping[str, Any],
    secrets: Sequence[str],
    otherwise: ErrorKind,
    *,
    may_be_certain: bool = True,
) -> None:
    """Decide the kind of an error within an answer by ``unquoted``; the client reads all of ``error_object``."""
    status = status_of(unquoted)
    meant_status = status_in_words(unquoted) if status is None else status
    error.meant = meant_status
    kind = kind_of(meant_status, unquoted, kind=otherwise if meant_status is None else None)
    error.turn_into(kind)
    about, is_own = refused(meant_status, unquoted, message_of(unquoted)), kind is ErrorKind.BAD_REQUEST
    error.body = _client_body(error_object, secrets) if is_own else None
    error.findings = Findings(
        is_bound=is_own and is_bound(unquoted),
        is_outsized=is_own and (about is RefusedPart.SIZE or is_outsized(unquoted)),
        is_declined=is_own and about is RefusedPart.TERMS,
        is_certain=may_be_certain and is_certain(kind, meant_status, unquoted),
        is_of_day=is_of_day(unquoted),
    )


def named_error(raw: bytes, data: bytes, secrets: Sequence[str]) -> UpstreamError | None:
    """Return the error in an event named ``error``, with any data; None if it has another name."""
    if not (b"event: error" in raw or b"event:error" in raw) or _NAMED_ERROR.search(raw) is None:
        return None
    error = error_in(data, secrets, otherwise=ErrorKind.STREAM_ERROR)
    if error_object_in(decode_error(data)) is None and data.strip():
        error.message = error.words = presentable(message_of_text(data), secrets) or error.message
    return error


def _client_body(error: Mapping[str, Any], secrets: Sequence[str]) -> bytes:
    message = presentable(message_of(error), secrets) or "the provider refused the request"
    if len(msgspec.json.encode(error)) > LONGEST_TEXT:
        shown = {name: value for name in _OF_LARGE_ERRORS if isinstance(value := error.get(name), str | int)}
        error = {name: value[:_LONGEST_CODE] if isinstance(value, str) else value for name, value in shown.items()}
    if isinstance(kind := error.get("type"), str) and identifier(kind) is None:  # an address (RFC 9457)
        error = {name: value for name, value in error.items() if name != "type"}
    shaped = {"type": "invalid_request_error", "param": None, "code": None, **redact_json(dict(error), secrets)}
    return msgspec.json.encode({"error": {**shaped, "message": message}})


# Reads the top level of a whole JSON answer, which may be an error.

_lists = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])

_LONGEST_QUOTE = 200  # characters


def read_answer(body: bytes, secrets: Sequence[str] = ()) -> dict[str, msgspec.Raw]:
    """Read the top level of a JSON object sent with a 2xx status, values still raw.

    Raises:
        UpstreamError: the body is empty (upstream_empty), not a JSON object (invalid_response), or an error (of the
            kind of the code, else server_error).

    """
    if not body.strip():
        raise UpstreamError(ErrorKind.UPSTREAM_EMPTY, "answered with an empty body")
    try:
        answer = objects.decode(body)
    except msgspec.ValidationError:  # Gemini sends errors in an array
        answer = _first_of_array(body)
    except UNREADABLE:
        quote = " ".join(redact(message_of_text(body[:4096]), secrets).split())[:_LONGEST_QUOTE]
        brief = "answered with text that is not JSON"
        message = f"{brief}: {quote!r}"
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, message, words=message, brief=brief) from None
    if says_error(answer):
        raise error_in(body, secrets, otherwise=ErrorKind.SERVER_ERROR)
    return answer


def _first_of_array(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _lists.decode(body)[0]
    except (*UNREADABLE, IndexError):
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "answered with JSON that is not an object") from None
