"""Reads providers' errors in all their shapes: OpenAI's, vLLM's, FastAPI's, an array, plain text, a web page."""

import codecs
import html
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from providers.refusals.accounts import REFUSED, alone, is_certain, is_key_refused, is_spent
from providers.refusals.enclosed import enclosed_in, issues_in
from providers.refusals.errors import FAILED, UNREADABLE, ErrorKind, Findings, UpstreamError, identifier, kind_of_status
from providers.refusals.one_request import RefusedPart, refused
from providers.refusals.rate_limits import (
    LONGEST_BELIEVED_S,
    believable,
    duration_s,
    headroom,
    is_of_a_rate,
    retry_after_s,
    told_delay_s,
)
from providers.refusals.redaction import redact, redact_json, redact_word
from providers.refusals.refused_fields import refuses_marks
from providers.refusals.words import names_of
from providers.refusals.wrong_api import kind_of_404

LARGE_BYTES = 2**20  # of an answer: larger answers are long lists of numbers, which take a tenth of a second to read
# vLLM, Mistral; FastAPI; Cloudflare; zod; Anthropic; Baidu; AWS's Lambda
COMPLAINTS = ("message", "detail", "errors", "issues", "msg", "error_message", "error_msg", "errorMessage")
# Of each in a list of these: Cloudflare; JSON:API; Writer; RFC 7807; pydantic.
_TEXTS = ("message", "detail", "description", "title", "reason", "msg")
# Of an entry: Java's validators; zod; RFC 9457; pydantic; RFC 7807.
_PLACES = ("field", "property", "propertyPath", "param", "path", "pointer", "loc", "name")
# Lists of these, beside a message, or beside the error itself.
_PLACED = ("detail", "details", "errors", "issues", "validation", "violations", "invalid_params", "invalid-params")
_OPENED = ("code", "type", "param", "details")  # what an error that another one quotes has instead
_MOST_ENCLOSED = 3  # errors inside errors
_UNQUOTED = str.maketrans("'\"`", "   ")
# Of an error with one field: the names that others have for OpenAI's ``param``.
_PARAMS = ("param", "parameter", "field", "property", "target", "argument")
_PHRASES = frozenset(status.phrase for status in HTTPStatus)

_LONGEST_MESSAGE = 4096  # characters that the caller sees; fewer are kept (``MOST_KEPT``)
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
_UNSAFE_END = 100  # last characters of a text that was cut: perhaps the beginning of a key, too short to be noticed
_LONGEST_TEXT = _LONGEST_MESSAGE + _UNSAFE_END  # characters of an error's text, before anything is searched for in it
_LARGEST_ERROR_BYTES = 64 * 1024  # of JSON; of a larger one only the fields that an error has are read
_UNAUTHORIZED, _PAYMENT_REQUIRED, _FORBIDDEN, _TOO_LARGE = 401, 402, 403, 413
_OF_FILTERS = frozenset({"flagged_input", "reasons", "patterns"})  # in OpenRouter's metadata
_QUOTAS_OF_AWS = ("ServiceQuotaExceeded", "Throttling")  # types of AWS's errors, some of them with status 400
# Likewise, of a key: docs.aws.amazon.com/bedrock/latest/userguide/troubleshooting-api-error-codes.html, on 2026-11-29.
_KEYS_OF_AWS = ("UnrecognizedClient", "ExpiredToken", "InvalidClientTokenId", "IncompleteSignature", "InvalidSignature")
_OF_ALIBABA = "x-dashscope-"  # how Alibaba's headers begin
_LOWEST_ERROR_STATUS, _HIGHEST_ERROR_STATUS = 400, 599
_STATUS_OF_WORD: Mapping[str, int] = {  # a word in an error's code or type; the first match counts
    "rate_limit": 429,
    "too_many_requests": 429,
    "quota": 429,
    "Throttling": 429,  # AWS
    "credit_balance": 402,
    "authentication": 401,
    "api_key": 401,
    "permission": 403,
    "model_not_found": 404,
    "server_error": 500,
    "overloaded": 503,
    "vector_store_timeout": 504,
    "context_length": 400,
    "invalid_request": 400,
    "validation_error": 400,
    "invalid_prompt": 400,
    "policy": 400,
    "data_residency": 400,
    "image": 400,
}

# MiniMax answers 200 with ``base_resp`` and a code of its own: platform.minimax.io/docs/api-reference/errorcode, read
# on 2026-11-27. Any other code is a failure of MiniMax: 500.
_STATUS_AT_MINIMAX: Mapping[int, int] = {
    1002: 429,
    1004: 401,
    1008: 402,
    1026: 400,
    1027: 400,
    1039: 429,
    1041: 429,
    2013: 400,
    2049: 401,
    2056: 429,
}
_SERVER_ERROR = 500
# Codes of a tool call, or of JSON, that the model wrote and its server could not read, whatever the status. Another
# sample, or another deployment, may be right. Groq's: github.com/groq/groq-typescript/issues/28,
# pydantic/pydantic-ai/pull/4354, HunorLaczko/ha-groq-cloud-api/issues/20, tashfeenahmed/freellmapi/pull/291, read on
# 2026-11-29.
_OF_WHAT_IT_WROTE = frozenset({"tool_use_failed", "json_validate_failed", "output_parse_failed"})
# Likewise in words, of vLLM and servers made of it, where gpt-oss has written no Harmony: also with status 200
# (tenstorrent/vllm/issues/386, ovh/public-cloud-roadmap/issues/993, openai/harmony/issues/60), and of Bedrock and
# others of a call; read on 2026-12-01.
_WROTE_BADLY = re.compile(
    r"\bunexpected token \d+ while expecting start token\b|\bunexpected tokens remaining in message header\b"
    r"|\bunknown role: <\|start\|>|\bchannel marker present but no channel value\b|\bSee 'failed_generation' for\b"
    r"|\bmodel (?:generated|produced|output|returned) an? (?:invalid|malformed) (?:tool|function|sequence|json)\b"
    r"|\bmodel produced invalid sequence\b|^tool call validation failed\b",
    re.IGNORECASE,
)
_CODES_OF_OVERLOAD = frozenset({"overloaded_error", "server_is_overloaded", "engine_overloaded_error"})
FIELDS_OF_ERRORS = ("error", "base_resp", *COMPLAINTS, "type", "error_type", "param", "code", "status_code")
_OF_LARGE_ERRORS = ("type", "param", "code")  # beside an error's message

_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])

_NULL = msgspec.Raw(b"null")
_NOTHING = (b"null", b"{}", b'""', b"false")

# Each pattern stops at the next tag, so a text full of ``<title`` takes no longer than any other.
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)
_HEADING = re.compile(r"<h1[^<>]*>([^<]*)", re.IGNORECASE)
_NAMED_ERROR = re.compile(rb"(?:\A|[\r\n])event: ?error[\r\n]")
_TAG = re.compile(r"<[^<>]*>")


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
    closed = _error_object(_decode(body))
    error_object = closed if closed is None or own is None else _opened(closed, own)
    whole = _message(error_object) if error_object else message_of_text(body)
    error, message = (error_object, whole) if own is None else _unquoted(error_object, whole, own)
    if not message and refused(status, error_object or {}, whole) is not None:
        error, message = error_object, whole  # words that cannot be told from the client's blame nobody, but excuse
    wait_s = told_delay_s(headers, now_s)
    kind = _kind(status, error or {}, meters_quota=any(name.startswith(_OF_ALIBABA) for name in headers), wait_s=wait_s)
    if status == _FORBIDDEN and error is None and _is_page(body):
        kind = ErrorKind.SERVER_ERROR  # a firewall's, which may dislike one text: the key is good for all others
    elif kind is ErrorKind.BAD_REQUEST and headers.get("x-amzn-errortype", "").startswith(_QUOTAS_OF_AWS):
        kind = ErrorKind.RATE_LIMITED
    elif not error and is_spent({"message": message}, any_words=_speaks_of_limits(kind, wait_s)):
        kind = ErrorKind.PROVIDER_AUTH
    retry = None
    if kind in (ErrorKind.RATE_LIMITED, ErrorKind.SERVER_ERROR):
        retry = retry_after_s(headers, now_s)
        if retry is None and error:
            retry = _google_retry_delay_s(error)
    words = _presentable(whole, secrets) or None
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
            is_bound=kind is ErrorKind.BAD_REQUEST and _is_bound(error or {}),
            is_outsized=kind is ErrorKind.BAD_REQUEST and (about is RefusedPart.SIZE or _is_outsized(error or {})),
            is_declined=kind is ErrorKind.BAD_REQUEST and about is RefusedPart.TERMS,
            # JSON in a message may be the client's.
            is_certain=(error_object is closed and is_certain(kind, status, error or {"message": message}))
            or (kind is ErrorKind.RATE_LIMITED and headroom(headers) == 0.0)
            or (kind is ErrorKind.PROVIDER_AUTH and headers.get("x-amzn-errortype", "").startswith(_KEYS_OF_AWS)),
            is_of_day=error is not None and _is_of_day(error),
        ),
    )
    if (id_of_request := request_id(headers)) is not None:
        refusal.request_id = redact_word(id_of_request, secrets)[:_LONGEST_ID]
    if own is not None:
        is_refused_page = kind is ErrorKind.BAD_REQUEST and error is None and _is_page(body)
        read = _presentable(_without_tags(body), secrets) if is_refused_page else refusal.message
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
    error_object = _error_object(_decode(data)) or {}
    words = _presentable(_message(error_object), secrets) or None
    error = UpstreamError(
        otherwise,
        words or "sent an error without a message",
        words=words,
        names=names_of(error_object),
        status=_status(error_object),
        retry_after_s=_google_retry_delay_s(error_object),
    )
    _judge(error, error_object, error_object, secrets, otherwise)

    def judge(error: UpstreamError, own: Callable[[str], str]) -> None:
        opened = _opened(error_object, own)
        unquoted, message = _unquoted(opened, _message(opened), own)
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
    status = _status(unquoted)
    meant_status = _meant_status(unquoted) if status is None else status
    error.meant = meant_status
    kind = _kind(meant_status, unquoted, kind=otherwise if meant_status is None else None)
    error.turn_into(kind)
    about, is_own = refused(meant_status, unquoted, _message(unquoted)), kind is ErrorKind.BAD_REQUEST
    error.body = _client_body(error_object, secrets) if is_own else None
    error.findings = Findings(
        is_bound=is_own and _is_bound(unquoted),
        is_outsized=is_own and (about is RefusedPart.SIZE or _is_outsized(unquoted)),
        is_declined=is_own and about is RefusedPart.TERMS,
        is_certain=may_be_certain and is_certain(kind, meant_status, unquoted),
        is_of_day=_is_of_day(unquoted),
    )


def named_error(raw: bytes, data: bytes, secrets: Sequence[str]) -> UpstreamError | None:
    """Return the error in an event named ``error``, with any data; None if it has another name."""
    if not (b"event: error" in raw or b"event:error" in raw) or _NAMED_ERROR.search(raw) is None:
        return None
    error = error_in(data, secrets, otherwise=ErrorKind.STREAM_ERROR)
    if _error_object(_decode(data)) is None and data.strip():
        error.message = error.words = _presentable(message_of_text(data), secrets) or error.message
    return error


def says_error(answer: Mapping[str, msgspec.Raw]) -> bool:
    """Whether the top level of a JSON answer shows that it is an error."""
    error = bytes(answer.get("error", _NULL))
    if error not in _NOTHING or bytes(answer.get("object", _NULL)) == b'"error"':
        return True
    if bytes(answer.get("success", _NULL)) == b"false":
        return True
    return "base_resp" in answer and base_code(_decode(answer["base_resp"])) != 0


def base_code(base_resp: object) -> int:
    """Return the code in MiniMax's ``base_resp``, which good answers have, too; 0 without an error."""
    code = base_resp.get("status_code") if isinstance(base_resp, dict) else None
    return code if isinstance(code, int) else 0


def message_of_text(body: bytes) -> str:
    """Return the message of a body that is not a JSON error: the title of a web page, or the text's beginning."""
    if not _is_page(body):
        return _without_tags(body)
    text = body[:_LONGEST_TEXT].decode(errors="replace")
    title = _TITLE.search(text) or _HEADING.search(text)
    return html.unescape(_TAG.sub(" ", f"a web page: {title[1]}" if title else "a web page"))


def _without_tags(body: bytes) -> str:
    return html.unescape(_TAG.sub(" ", body[:_LONGEST_TEXT].decode(errors="replace")))


def _is_page(body: bytes) -> bool:
    """Whether a body is a web page."""
    begin = body[:1000].lower()
    return b"<html" in begin or b"<!doctype" in begin


def _presentable(message: str, secrets: Sequence[str]) -> str:
    # Redacted before it is shortened, so that no part of a key is left at the end.
    # Control characters could write to the terminal in which the log is read.
    shown = redact(message[:_LONGEST_TEXT], secrets)
    shown = shown if len(message) <= _LONGEST_TEXT else shown[:-_UNSAFE_END]
    message = " ".join("".join(each if each.isprintable() else " " for each in shown).split())
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"


def _decode(body: bytes) -> Any:
    """Return a decoded answer, of a large one only what may be an error; None if it cannot be read."""
    try:
        if len(body) <= _LARGEST_ERROR_BYTES:
            return msgspec.json.decode(body)
        large = _objects.decode(body)
        return {
            name: msgspec.json.decode(large[name])
            for name in FIELDS_OF_ERRORS
            if name in large and len(bytes(large[name])) <= _LARGEST_ERROR_BYTES
        }
    except UNREADABLE:
        return None


def _error_object(answer: Any) -> dict[str, Any] | None:
    """Return the error of a decoded answer as an object in OpenAI's shape, with ``message``; None if there is none."""
    if isinstance(answer, list):  # Gemini
        answer = answer[0] if answer else None
    if not isinstance(answer, dict):
        return None
    if code := base_code(answer.get("base_resp")):
        message = answer["base_resp"].get("status_msg")
        error_object = {"code": code, "status": _STATUS_AT_MINIMAX.get(code, _SERVER_ERROR)}
        answer = {"error": {**_openai_error(message if isinstance(message, str) else "", {}), **error_object}}
    for holder in (answer, *_list(answer.get("choices"))):  # OpenRouter puts it into the choice
        match holder:
            case {"error": dict(error) | [dict(error), *_]} if error:
                around = _error_around(error)
                beside = {name: holder[name] for name in (*_PLACED, "metadata") if name in holder}
                return _with_message({**beside, **error}) if around is None else around
            case {"error": str(message)} if message:
                return _error_object(_decode(message.encode())) or _with_text(message, answer)
            case {"finish_reason": str(reason)} if reason in FAILED:
                return _openai_error(f"the answer ended with finish_reason '{reason}'", {})
    return _without_name(answer)


def _error_around(error: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the error in a proxy's error that says nothing itself: ``{"type": …, "upstream_error": {"error": …}}``."""
    if any(error.get(name) for name in COMPLAINTS):
        return None
    inner = (_error_object(each) for each in error.values() if isinstance(each, dict))
    return next(filter(None, inner), None)


def _opened(error: dict[str, Any], own: Callable[[str], str]) -> dict[str, Any]:
    """Return an error in which the JSON of its message is read: the words, code and type of a proxy's vendor.

    JSON that the request has stays as it is.
    """
    for _ in range(_MOST_ENCLOSED):
        if (found := enclosed_in(_message(error))) is None:
            break
        issues = issues_in(found.value)
        inner = {"message": _words_of(issues)} if issues else _error_object(found.value)
        said = "" if inner is None else _message(inner)
        quoted = f'got "{said.translate(_UNQUOTED)}"'
        if inner is None or " " not in said or own(quoted) != quoted:
            break
        named = {name: value for name in _OPENED if (value := inner.get(name))}
        if (status := _status(error)) is not None:
            named["http_status"] = status
        if isinstance(metadata := error.get("metadata"), dict):
            named["metadata"] = {**metadata, "raw": ""}  # the raw text is a part of the message
        error = {**error, **named, "message": f"{found.before}{said}{found.after}"}
    return error


def _with_message(error: dict[str, Any]) -> dict[str, Any]:
    """Return an error whose message also has zod's issues, and the fields that a google.rpc.BadRequest names."""
    message = error.get("message") or next((_words_of(said) for name in COMPLAINTS if (said := error.get(name))), "")
    if not message and error.keys().isdisjoint({"code", "type", "status"}):  # ``{"error": {"verbosity": ["unknown"]}}``
        message = _words_of(error)
    if isinstance(message, str):
        message = _with_places(message, error)
    if "param" not in error and (param := _param_of(error)):
        error = {**error, "param": param}
    return error if not message or message == error.get("message") else {**error, "message": message}


def _param_of(error: Mapping[str, Any]) -> str | None:
    """Return the name of the field that an error is about, if the error has one; not a sentence."""
    named = (_written(error.get(name)) for name in (*_PARAMS, "loc"))
    return next((each for each in named if each and " " not in each), None)


def _written(place: Any) -> str:
    """Return a path, which may be a list, as a text."""
    return ".".join(map(str, place)) if isinstance(place, list) else place if isinstance(place, str) else ""


def _with_places(message: str, error: Mapping[str, Any]) -> str:
    """Return ``message`` with the fields named in lists beside the message: Fastify's ``validation``, zod's issues."""
    entries = [each for name in _PLACED for each in _entries(error.get(name)) if isinstance(each, dict)]
    violations = [each for entry in entries for each in _list(entry.get("fieldViolations")) if isinstance(each, dict)]
    own = [error] if _extra_in(error) else []
    for entry in (*violations, *own, *(each for each in entries if _place_in(each))):
        if len(message) >= _LONGEST_TEXT:  # nobody reads more
            break
        said, place = _said_of(entry), _place_in(entry)
        is_told = bool(said) and said in message and re.split("[./]", place)[-1] in message
        about = f"{place}: {said}" if place and said and place not in said else said or place
        if about and not is_told:
            message = f"{message}; {about}" if message else about
    return message


def _with_text(said: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error that is a text: often a status's name or a code, while ``message`` says what is wrong.

    For example, of Spring and NestJS (from memory): ``{"error": "Bad Request", "message": "model must be a string"}``.
    """
    beside = _without_name(answer)
    if beside is None:
        return _openai_error(_with_places(said, answer), answer)
    is_name = said in _PHRASES or " " not in said
    return {**beside, "message": beside["message"] if is_name else f"{said}: {beside['message']}"}


def _without_name(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the error in an object that only a message shows to be an error; None: the object is no error."""
    match answer.get("error_message"):  # github.com/vercel/ai/issues/18303, read on 2026-11-27
        case str(message) if message:  # the text may itself be the JSON of an error
            error = _error_object(_decode(message.encode())) or _openai_error(message, answer)
            return {**error, "type": error.get("type") or answer.get("error_type")}
    for name in COMPLAINTS:
        if error_type := answer.get(name):
            return _openai_error(_with_places(_words_of(error_type), answer), answer)
    return None


def _words_of(error_object: Any) -> str:
    """Return a complaint as a text: ``{"errors": [{"code": 7000, "message": "No such model"}]}`` is Cloudflare's."""
    if isinstance(error_object, str):
        return error_object
    texts = [text for each in _entries(error_object) if (text := _text_of(each))]
    return "; ".join(texts) if texts else msgspec.json.encode(error_object).decode()


def _entries(complaints: Any) -> list[Any]:
    """Return the entries of a list of complaints, of zod's those that come nearest; also of zod's ``fieldErrors``."""
    match complaints:
        case {"fieldErrors": dict(fields)}:
            return [{"path": name, "message": said} for name, texts in fields.items() for said in _list(texts)]
    return issues_in(complaints) or _list(complaints)


def _text_of(told: Any) -> str:
    """Return the text in an entry of a list of complaints, and its place; "" if FastAPI's, or without a text."""
    if not isinstance(told, dict):
        return told if isinstance(told, str) else ""
    said, place = _said_of(told), _place_in(told)
    if not told.keys().isdisjoint({"loc", "msg"}) or not said:
        return ""
    return f"{place}: {said}" if place and place not in said else said


def _said_of(told: Mapping[str, Any]) -> str:
    return next((text for name in _TEXTS if isinstance(text := told.get(name), str)), "")


def _place_in(told: Mapping[str, Any]) -> str:
    """Return the field that a complaint is about: JSON:API's pointer, Ajv's property, zod's keys or path; "": none."""
    match told:
        case {"source": {"pointer": str(place)}}:
            return place
        case {"keys": [str(place), *_]}:
            return place
    places = (_extra_in(told), *(_written(told.get(name)).removeprefix("body.") for name in _PLACES))
    return next(filter(None, places), "")


def _extra_in(told: Mapping[str, Any]) -> str:
    """Return the path of a property that Ajv does not allow; "": none."""
    match told:
        case {"params": {"additionalProperty": str(name)}}:
            around = _written(told.get("instancePath")).strip("/").replace("/", ".")
            return f"{around}.{name}" if around else name
    return ""


def _openai_error(message: str, source: Mapping[str, Any]) -> dict[str, Any]:
    kind = source.get("type") or _type_of_aws(source)
    told = {"message": message, "param": _param_of(source), "code": source.get("code", source.get("status_code"))}
    return {**told, "type": kind} if kind else told


def _type_of_aws(source: Mapping[str, Any]) -> str | None:
    """Return the type in a body of AWS: of ``com.amazon.coral.availability#ThrottlingException`` what is behind #."""
    error_type = source.get("__type")
    return error_type.rpartition("#")[2] if isinstance(error_type, str) else None


def _message(error: Mapping[str, Any]) -> str:
    message = error.get("message") or error.get("code") or error.get("type") or ""
    message = str(message) if isinstance(message, int) else message
    match error.get("metadata"):
        case {"raw": str(raw)} if raw:  # OpenRouter: the message of its vendor
            return f"{message}: {raw}"
    return message if isinstance(message, str) else msgspec.json.encode(message).decode()


def _status(error: Mapping[str, Any]) -> int | None:
    for name in ("code", "status", "status_code", "http_status"):
        value = error.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        if isinstance(value, int) and _LOWEST_ERROR_STATUS <= value <= _HIGHEST_ERROR_STATUS:
            return value
    return None


def _meant_status(error: Mapping[str, Any]) -> int | None:
    """Return the status that an error's code or type stands for; None if that is unknown."""
    named = [value for name in ("code", "type") if isinstance(value := error.get(name), str)]
    return next((status for value in named for word, status in _STATUS_OF_WORD.items() if word in value), None)


def _google_retry_delay_s(error: Mapping[str, Any]) -> float | None:
    """Return the delay in a google.rpc.RetryInfo, which Gemini sends instead of a ``retry-after`` header."""
    delay = _google_wait_s(error)
    return None if delay is None else believable(delay)


def _google_wait_s(error: Mapping[str, Any]) -> float | None:
    for detail in _list(error.get("details")):
        match detail:
            case {"retryDelay": str(delay)}:
                return duration_s(delay.strip())
    return None


def _is_of_day(error: Mapping[str, Any]) -> bool:
    """Whether a google.rpc.QuotaFailure names a limit of a day (google-gemini/gemini-cli/issues/8437)."""
    return any(
        isinstance(violation, dict) and "PerDay" in str(violation.get("quotaId"))
        for detail in _list(error.get("details"))
        if isinstance(detail, dict)
        for violation in _list(detail.get("violations"))
    )


def _kind(
    status: int | None,
    error: Mapping[str, Any],
    *,
    kind: ErrorKind | None = None,
    meters_quota: bool = False,
    wait_s: float | None = None,
) -> ErrorKind:
    """Return the kind of an error by the status, unless the words are known to be of another kind.

    ``kind``: of an error without a status. ``meters_quota``: the vendor calls a minute's tokens a quota. ``wait_s``:
    after how long the headers say to come back.

    A 402 or 403 may be about one request, while the key works for all others: the text was flagged, or blocked by a
    guardrail (OpenRouter); or ``max_tokens`` is more than the account can pay (OpenRouter, 402) or than the model's
    context (Together, 403). A 404 may be about what one request needs or names, while the model is there for all
    others. A 429 may be about one request's size (OpenAI), while smaller ones have room. ``one_request`` has more of
    these. Many statuses may be about a spent account.
    """
    kind = kind or kind_of_status(status or _SERVER_ERROR)
    if _is_badly_written(kind, error):
        return ErrorKind.INVALID_ANSWER
    if kind is ErrorKind.BAD_REQUEST and any(name.startswith(_QUOTAS_OF_AWS) for name in names_of(error)):
        kind = ErrorKind.RATE_LIMITED
    about = refused(status, error, _message(error))
    if about is not None or (kind is ErrorKind.RATE_LIMITED and _is_outsized(error)):
        return ErrorKind.BAD_REQUEST
    any_words = _speaks_of_limits(kind, _google_wait_s(error) if wait_s is None else wait_s)
    meant = _kind_in_words(kind, status, error, meters_quota=meters_quota, any_words=any_words)
    if meant is not kind:
        return meant
    if kind is ErrorKind.NOT_FOUND:
        return kind_of_404(_message(error), names_of(error))
    if kind is ErrorKind.PROVIDER_AUTH and status != _UNAUTHORIZED:
        return _kind_of_refusal(status, error)
    return kind


def _is_badly_written(kind: ErrorKind, error: Mapping[str, Any]) -> bool:
    """Whether an error is about what the model wrote, and not about the request."""
    code = error.get("code")
    is_said = kind is ErrorKind.BAD_REQUEST and _WROTE_BADLY.search(_message(error)) is not None
    return is_said or (isinstance(code, str) and code in _OF_WHAT_IT_WROTE)


def _kind_in_words(
    kind: ErrorKind, status: int | None, error: Mapping[str, Any], *, meters_quota: bool, any_words: bool
) -> ErrorKind:
    """Return the kind that an error's codes and words have, whatever its status: of a key, an account, a rate.

    ``any_words``: as of ``is_spent``. For example, 400 "Invalid API key" is ``provider_auth``. Within a stream the
    words may be those of a tool that runs at the provider, or the model's.
    """
    if kind is ErrorKind.PROVIDER_AUTH:
        return kind
    may_say = kind is ErrorKind.BAD_REQUEST or (kind is ErrorKind.SERVER_ERROR and status is None)
    said = alone(_message(error)) if may_say and status != _TOO_LARGE else ""
    any_codes = kind in (ErrorKind.RATE_LIMITED, ErrorKind.STREAM_ERROR, ErrorKind.BAD_REQUEST)
    if (may_say and (_refuses_key(error) or is_key_refused(error, said))) or is_spent(
        error, meters_quota=meters_quota, any_codes=any_codes, any_words=any_words or bool(said)
    ):
        return ErrorKind.PROVIDER_AUTH
    if is_of_a_rate(names_of(error), said) and not _is_outsized(error):
        return ErrorKind.RATE_LIMITED
    is_overloaded = may_say and not _CODES_OF_OVERLOAD.isdisjoint(names_of(error))
    return ErrorKind.SERVER_ERROR if is_overloaded else kind


def _speaks_of_limits(kind: ErrorKind, wait_s: float | None) -> bool:
    """Whether an error is about a limit that may last longer than a minute."""
    return kind is ErrorKind.RATE_LIMITED and (wait_s is None or wait_s > LONGEST_BELIEVED_S)


# OpenRouter, with 402: the possible costs of running requests fill the account until these end, or one request alone
# would. openrouter.ai/docs/api_reference/limits, read on 2026-11-28.
_IN_FLIGHT, _ALONE_TOO_DEAR = "openrouter_in_flight_budget", "weight_exceeds_budget"


def _kind_of_refusal(status: int | None, error: Mapping[str, Any]) -> ErrorKind:
    """Return the kind of a 402 or 403. Such an error may be about one request, or pass by itself."""
    if _is_flagged(error) or refuses_marks(_message(error)):
        return ErrorKind.BAD_REQUEST
    if (reason := _budget_in_flight(error)) is not None:
        return ErrorKind.SERVER_ERROR if reason == _ALONE_TOO_DEAR else ErrorKind.RATE_LIMITED
    if is_of_a_rate((), alone(_message(error))):
        return ErrorKind.RATE_LIMITED
    if "max_tokens" in _message(error):  # others may give as many
        return ErrorKind.SERVER_ERROR if status == _PAYMENT_REQUIRED else ErrorKind.BAD_REQUEST
    return ErrorKind.PROVIDER_AUTH


def _budget_in_flight(error: Mapping[str, Any]) -> str | None:
    """Return why a request is refused though the account has money left; None for other reasons."""
    match error.get("metadata"):
        case {"reason": str(reason)} if reason in {"in_flight_budget_exhausted", _ALONE_TOO_DEAR}:
            return reason
        case {"limit_source": str(source)} if source == _IN_FLIGHT:
            return source
    return None


def _is_flagged(error: Mapping[str, Any]) -> bool:
    """Whether an error is of a filter that looked at the request's text."""
    metadata, code = error.get("metadata"), error.get("code")
    is_moderated = isinstance(metadata, dict) and not _OF_FILTERS.isdisjoint(metadata)
    is_blocked = _message(error).startswith("Request blocked")
    return is_moderated or is_blocked or (isinstance(code, str) and "content_policy" in code)


def _is_bound(error: Mapping[str, Any]) -> bool:
    """Whether a 400 is about reasoning that another key's organisation made: encrypted, or signed."""
    return error.get("code") == "invalid_encrypted_content" or _OF_REASONING.search(_message(error)) is not None


def _is_outsized(error: Mapping[str, Any]) -> bool:
    """Whether an error is about more tokens than a key may use in a minute: 429 at OpenAI, 413 at Groq."""
    return error.get("code") == "rate_limit_exceeded" and _message(error).startswith("Request too large")


def _refuses_key(error: Mapping[str, Any]) -> bool:
    """Whether a 400 is about the key or its account, by its message or, at Gemini, by a google.rpc.ErrorInfo."""
    return _message(error).startswith(REFUSED) or any(
        isinstance(each, dict) and each.get("reason") == "API_KEY_INVALID" for each in _list(error.get("details"))
    )


# OpenAI, and servers with its Responses API; Anthropic (github.com/anthropics/claude-code/issues/10627, /56708, read on
# 2026-11-26); Google (google-gemini/gemini-cli/issues/13467, decolua/9router/issues/301,
# lbjlaq/Antigravity-Manager/pull/3342, BigPizzaV3/CodexPlusPlus/issues/367, likewise), where others made the signature;
# xAI (hackerai-tech/hackerai/pull/996), and proxies (anomalyco/opencode/issues/48864).
_OF_REASONING = re.compile(
    r"encrypted.content .{0,200}could not be|not decrypt the provided encrypted|encrypted.content`? was not issued to"
    r"|invalid `(?:signature|data)` in `(?:redacted_)?thinking` block|thinking` blocks .{0,80}cannot be modified"
    r"|(?:corrupted|invalid) thought.?signature|thought.?signature'? (?:is not valid|is invalid|\(TYPE_BYTES\))"
    r"|missing a `?thought_signature",
    re.IGNORECASE,
)


def _client_body(error: Mapping[str, Any], secrets: Sequence[str]) -> bytes:
    message = _presentable(_message(error), secrets) or "the provider refused the request"
    if len(msgspec.json.encode(error)) > _LONGEST_TEXT:
        shown = {name: value for name in _OF_LARGE_ERRORS if isinstance(value := error.get(name), str | int)}
        error = {name: value[:_LONGEST_CODE] if isinstance(value, str) else value for name, value in shown.items()}
    if isinstance(kind := error.get("type"), str) and identifier(kind) is None:  # an address (RFC 9457)
        error = {name: value for name, value in error.items() if name != "type"}
    shaped = {"type": "invalid_request_error", "param": None, "code": None, **redact_json(dict(error), secrets)}
    return msgspec.json.encode({"error": {**shaped, "message": message}})


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


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
        answer = _objects.decode(body)
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
