"""Finds the error in an answer of any shape, and its message and status: OpenAI's, FastAPI's, an array, a text."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from providers.refusals.complaints import COMPLAINTS, PLACED, as_list, param_named, with_message, with_places, words_of
from providers.refusals.errors import FAILED, UNREADABLE

_PHRASES = frozenset(status.phrase for status in HTTPStatus)
_LARGEST_ERROR_BYTES = 64 * 1024  # of JSON; of a larger one only the fields that an error has are read
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
    # Alibaba and Tencent
    "Arrearage": 402,
    "InvalidApiKey": 401,
    "AuthFailure": 401,
    "AccessDenied": 403,
    "Unauthorized": 403,
    "ModelNotFound": 404,
    "LimitExceeded": 429,
    "ResourceInsufficient": 503,
    "InternalError": 500,
    "InvalidParameter": 400,
    "MissingParameter": 400,
    "UnknownParameter": 400,
}
# Zhipu's own, where no status of HTTP is beside them: docs.z.ai/api-reference/api-code, from memory. Those of a spent
# account are in ``accounts.py``.
_STATUS_AT_ZHIPU: Mapping[str, int] = {
    **dict.fromkeys(("1000", "1001", "1002", "1003", "1004"), 401),
    **dict.fromkeys(("1210", "1212", "1213", "1214", "1215", "1261", "1301"), 400),
    **dict.fromkeys(("1220", "1311", "1313"), 403),
    **dict.fromkeys(("1211", "1221", "1222"), 404),
    **dict.fromkeys(("1302", "1303", "1304", "1305", "1308", "1310", "1312"), 429),
}
# Errors with a number of the vendor's own at the top, beside a member that only this vendor has: Baidu
# (cloud.baidu.com/doc/WENXINWORKSHOP/s/tlmyncueh) and Spark (xfyun.cn/doc/spark/HTTP调用文档.html), from memory. Any
# other number is a failure.
_STATUS_AT_BAIDU: Mapping[int, int] = {
    **dict.fromkeys((13, 14, 15, 110, 111, 336004), 401),
    6: 403,
    **dict.fromkeys((4, 17, 18, 19, 336501, 336502, 336503), 429),
    **dict.fromkeys((2, 336100), 503),
    **dict.fromkeys((336001, 336002, 336003, 336006, 336007, 336102, 336103, 336104, 336106), 400),
    336005: 404,
}
_STATUS_AT_SPARK: Mapping[int, int] = {
    **dict.fromkeys((10013, 10014, 10019, 10907), 400),
    **dict.fromkeys((10007, 11201, 11202, 11203), 429),
    11200: 403,
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
    1042: 400,
    2013: 400,
    2045: 429,
    2049: 401,
    2056: 429,
    2061: 403,
}
SERVER_ERROR = 500
FIELDS_OF_ERRORS = (
    "error",
    "base_resp",
    "error_code",
    "Response",
    *COMPLAINTS,
    "type",
    "error_type",
    "param",
    "code",
    "status_code",
)

objects = msgspec.json.Decoder(dict[str, msgspec.Raw])

_NULL = msgspec.Raw(b"null")
_NOTHING = (b"null", b"{}", b'""', b"false")


def says_error(answer: Mapping[str, msgspec.Raw]) -> bool:
    """Whether the top level of a JSON answer shows that it is an error."""
    error = bytes(answer.get("error", _NULL))
    if error not in _NOTHING or bytes(answer.get("object", _NULL)) == b'"error"':
        return True
    if bytes(answer.get("success", _NULL)) == b"false":
        return True
    return "base_resp" in answer and base_code(decode_error(answer["base_resp"])) != 0


def base_code(base_resp: object) -> int:
    """Return the code in MiniMax's ``base_resp``, which good answers have, too; 0 without an error."""
    code = base_resp.get("status_code") if isinstance(base_resp, dict) else None
    return code if isinstance(code, int) else 0


def decode_error(body: bytes) -> Any:
    """Return a decoded answer, of a large one only what may be an error; None if it cannot be read."""
    try:
        if len(body) <= _LARGEST_ERROR_BYTES:
            return msgspec.json.decode(body)
        large = objects.decode(body)
        return {
            name: msgspec.json.decode(large[name])
            for name in FIELDS_OF_ERRORS
            if name in large and len(bytes(large[name])) <= _LARGEST_ERROR_BYTES
        }
    except UNREADABLE:
        return None


def error_object_in(answer: Any) -> dict[str, Any] | None:
    """Return the error of a decoded answer as an object in OpenAI's shape, with ``message``; None if there is none."""
    if isinstance(answer, list):  # Gemini
        answer = answer[0] if answer else None
    if isinstance(answer, str) and answer:  # a proxy's, with its vendor's JSON in it: continuedev/continue/issues/11305
        return _openai_error(answer, {})
    if not isinstance(answer, dict):
        return None
    return _with_own_code(answer) or _error_of(answer)


def _error_of(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the error in an object, or in one of its choices, in the places of OpenAI and others."""
    for holder in (answer, *as_list(answer.get("choices"))):  # OpenRouter puts it into the choice
        match holder:
            case {"error": dict(error) | [dict(error), *_]} if error:
                around = _error_around(error)
                beside = {name: holder[name] for name in (*PLACED, "metadata") if name in holder}
                return with_message({**beside, **error}) if around is None else around
            case {"error": str(message)} if message:
                return error_object_in(decode_error(message.encode())) or _with_text(message, answer)
            case {"finish_reason": str(reason)} if reason in FAILED:
                return _openai_error(f"the answer ended with finish_reason '{reason}'", {})
    return _without_name(answer)


def _with_own_code(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the error in an object with its vendor's own code, in that vendor's own place; None: it has none."""
    match answer:
        case {"base_resp": {"status_code": int(code), **base}} if code:
            said, statuses = base.get("status_msg"), _STATUS_AT_MINIMAX
        case {"error_code": int(code), "error_msg": said} if code:
            statuses = _STATUS_AT_BAIDU
        case {"code": int(code), "sid": str(), "message": said} if code:
            statuses = _STATUS_AT_SPARK
        case {"Response": {"Error": {"Code": str(word), "Message": str(said)}}}:  # Tencent
            return _openai_error(said, {"code": word})
        case {"code": int(code), "msg": str(said), "success": False} if str(code) in _STATUS_AT_ZHIPU:
            return _openai_error(said, {"code": str(code)})
        case _:
            return None
    told = _openai_error(said if isinstance(said, str) else "", {})
    return {**told, "code": code, "status": statuses.get(code, SERVER_ERROR)}


def _error_around(error: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the error in a proxy's error that says nothing itself: ``{"type": …, "upstream_error": {"error": …}}``."""
    if any(error.get(name) for name in COMPLAINTS):
        return None
    inner = (error_object_in(each) for each in error.values() if isinstance(each, dict))
    return next(filter(None, inner), None)


def _with_text(said: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error that is a text: often a status's name or a code, while ``message`` says what is wrong.

    For example, of Spring and NestJS (from memory): ``{"error": "Bad Request", "message": "model must be a string"}``.
    """
    beside = _without_name(answer)
    if beside is None:
        return _openai_error(with_places(said, answer), answer)
    is_name = said in _PHRASES or " " not in said
    return {**beside, "message": beside["message"] if is_name else f"{said}: {beside['message']}"}


def _without_name(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the error in an object that only a message shows to be an error; None: the object is no error."""
    match answer.get("error_message"):  # github.com/vercel/ai/issues/18303, read on 2026-11-27
        case str(message) if message:  # the text may itself be the JSON of an error
            error = error_object_in(decode_error(message.encode())) or _openai_error(message, answer)
            return {**error, "type": error.get("type") or answer.get("error_type")}
    for name in COMPLAINTS:
        if error_type := answer.get(name):
            return _openai_error(with_places(words_of(error_type), answer), answer)
    return None


def _openai_error(message: str, source: Mapping[str, Any]) -> dict[str, Any]:
    kind = source.get("type") or _type_of_aws(source)
    told = {"message": message, "param": param_named(source), "code": source.get("code", source.get("status_code"))}
    return {**told, "type": kind} if kind else told


def _type_of_aws(source: Mapping[str, Any]) -> str | None:
    """Return the type in a body of AWS: of ``com.amazon.coral.availability#ThrottlingException`` what is behind #."""
    error_type = source.get("__type")
    return error_type.rpartition("#")[2] if isinstance(error_type, str) else None


def message_of(error: Mapping[str, Any]) -> str:
    """Return what an error object says; of OpenRouter with the words of its vendor."""
    message = error.get("message") or error.get("code") or error.get("type") or ""
    message = str(message) if isinstance(message, int) else message
    match error.get("metadata"):
        case {"raw": str(raw)} if raw:  # OpenRouter: the message of its vendor
            return f"{message}: {raw}"
    return message if isinstance(message, str) else msgspec.json.encode(message).decode()


def status_of(error: Mapping[str, Any]) -> int | None:
    """Return the status that an error object has as a number; None without one."""
    for name in ("code", "status", "status_code", "http_status", "http_code"):
        value = error.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value)
        if isinstance(value, int) and _LOWEST_ERROR_STATUS <= value <= _HIGHEST_ERROR_STATUS:
            return value
    return None


def status_in_words(error: Mapping[str, Any]) -> int | None:
    """Return the status that an error's code or type stands for; None if that is unknown."""
    named = [value for name in ("code", "type") if isinstance(value := error.get(name), str)]
    own = next((_STATUS_AT_ZHIPU[value] for value in named if value in _STATUS_AT_ZHIPU), None)
    return own or next((status for value in named for word, status in _STATUS_OF_WORD.items() if word in value), None)
