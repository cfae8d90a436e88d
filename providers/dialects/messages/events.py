"""Reads one event of a Messages stream: its text, thinking, tool call, usage, stop reason or error.

As in chat, an event that does not fit the types is decoded again without types.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from providers.dialects.events import DONE, Chunk, fit, fit_fields, no_json_object
from providers.dialects.meanings import Details
from providers.dialects.stored import KEEPS_NONE
from providers.models import FAST, Usage, stated_usd, tier_of
from providers.refusals import UNREADABLE, ErrorKind, UpstreamError, error_in, kind_of_status

# Anthropic's errors: their types, the mapping to our kinds, and an error's body.

STATUS_OF_TYPE: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_TYPE_OF_STATUS: Mapping[int, str] = {
    **{status: type_ for type_, status in STATUS_OF_TYPE.items()},
    408: "timeout_error",
    424: "api_error",  # the gateway's configuration is wrong, not the request
    503: "overloaded_error",
}
_FIRST_SERVER_STATUS = 500

_TYPE_OF_KIND: Mapping[str, str] = {  # all other kinds are errors of the gateway or the provider: api_error
    kind: _TYPE_OF_STATUS[kind.status] for kind in ErrorKind if kind.status is not None
}


class _Error(msgspec.Struct, gc=False):
    type: str | None = None


class _ErrorEvent(msgspec.Struct, gc=False):
    error: _Error | None = None


def type_of_status(status: int) -> str:
    """Return Anthropic's error type for this HTTP status."""
    type_ = _TYPE_OF_STATUS.get(status)
    return type_ or ("api_error" if status >= _FIRST_SERVER_STATUS else "invalid_request_error")


def type_of_kind(kind: str) -> str:
    """Return Anthropic's error type for one of our kinds, or for Anthropic's own type; api_error for any other."""
    return kind if kind in STATUS_OF_TYPE else _TYPE_OF_KIND.get(kind, "api_error")


def error_body(status: int, type_: str, message: str, request_id: str | None, details: Details = ()) -> bytes:
    """Return an error's body in Anthropic's shape. A ``type_`` that is not Anthropic's gives way to the status's."""
    told = type_ if type_ in STATUS_OF_TYPE else type_of_status(status)
    error: dict[str, object] = {"type": told, "message": message}
    if more := details[0] if details else _details_of_thread(status, message):
        error["details"] = more
    body: dict[str, object] = {"type": "error", "error": error}
    if request_id is not None:
        body["request_id"] = request_id
    return msgspec.json.encode(body)


def _details_of_thread(status: int, message: str) -> Mapping[str, object] | None:
    """Return what Anthropic's SDKs look for in an error about a thread: their runners of tools ask for threads unasked.

    With these codes the SDKs send the whole conversation again, without a thread or in a new thread:
    lib/threads/_thread_state.py of https://github.com/anthropics/anthropic-sdk-python, 2.14, read on 2026-11-27.
    """
    if status == HTTPStatus.BAD_REQUEST and KEEPS_NONE in message:
        return {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    if status == HTTPStatus.NOT_FOUND and message.startswith("'thread.previous_message_id'"):
        return {"error_code": "thread_not_found"}
    return None


def error_of_event(data: bytes, secrets: Sequence[str], *, otherwise: ErrorKind) -> UpstreamError:
    """Return the error in Anthropic's error object, with the kind and status of its type.

    An unknown type gets the kind ``otherwise``. An error inside a stream has no HTTP status of its own:
    ``overloaded_error`` counts as 529.
    """
    try:
        event = msgspec.json.decode(data, type=_ErrorEvent)
    except UNREADABLE:
        event = _ErrorEvent()
    status = STATUS_OF_TYPE.get((event.error and event.error.type) or "")
    if status is None:
        return error_in(data, secrets, otherwise=otherwise)
    error = error_in(data, secrets, otherwise=kind_of_status(status))
    if error.status is None:
        error.status = status
    return error


class _Delta(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Block(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    name: str | None = None


class _Details(msgspec.Struct, gc=False):
    thinking_tokens: int | None = None


class _Written(msgspec.Struct, gc=False):
    ephemeral_1h_input_tokens: int | None = None


class _ToolUse(msgspec.Struct, gc=False):
    web_search_requests: int | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: _Details | None = None
    cache_creation: _Written | None = None
    server_tool_use: _ToolUse | None = None
    service_tier: str | None = None
    speed: str | None = None
    cost: Any = None
    is_byok: Any = None
    cost_details: Any = None


class _Message(msgspec.Struct, gc=False):
    usage: _Usage | None = None
    model: str | None = None
    id: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None
    error: Any = None
    index: int | None = None


_decoder = msgspec.json.Decoder(_Event)
_untyped = msgspec.json.Decoder(dict[str, Any])
_TEXTS = frozenset({"text_delta", "thinking_delta", "input_json_delta", None})
_SILENT_BLOCKS = frozenset({"text", "thinking"})  # blocks that begin empty


def read_event(data: bytes, secrets: Sequence[str] = ()) -> Chunk:
    """Read one event's data. An event without data, a ping and an unknown type give an empty chunk.

    Some proxies end streams of any API with ``[DONE]``, beside ``message_stop`` or in its place.

    Redacted thinking is meaningful, but has no characters. Usage at a message's start has no completion tokens and no
    cost: the counts that are sent there are not those of the answer.

    Raises:
        UpstreamError: the data is not a JSON object (invalid_response).

    """
    said = data.strip()
    if not said or said == DONE:
        return Chunk(data, done=said == DONE)
    try:
        event = _decoder.decode(data)
    except msgspec.ValidationError:
        event = _read_untyped(data)
    except UNREADABLE:
        raise no_json_object() from None
    if event.type == "error" or (event.type is None and event.error is not None):
        return Chunk(data, error=error_of_event(data, secrets, otherwise=ErrorKind.STREAM_ERROR))
    read = _READERS.get(event.type or "")
    return Chunk(data, idle=True) if read is None else read(data, event)


def _delta(data: bytes, event: _Event) -> Chunk:
    delta = event.delta or _Delta()
    if thought := delta.thinking:
        return Chunk(data, meaningful=True, reasoning=True, text_chars=len(thought))
    if part := delta.partial_json:
        return Chunk(data, meaningful=True, answer=True, text_chars=len(part), tools=((event.index or 0, part),))
    text = delta.text
    if text:
        return Chunk(data, meaningful=True, answer=True, text_chars=len(text))
    return Chunk(data, idle=delta.type in _TEXTS)


def _start_of_message(data: bytes, event: _Event) -> Chunk:
    usage = None
    if event.message is not None and event.message.usage is not None:
        told = _usage(event.message.usage)
        usage = (
            None
            if told.prompt_tokens is None
            else msgspec.structs.replace(told, completion_tokens=None, reasoning_tokens=None, stated_usd=None)
        )
    message = event.message or _Message()
    return Chunk(data, usage=usage, model=message.model, id=message.id)


def _change_of_message(data: bytes, event: _Event) -> Chunk:
    reason = (event.delta and event.delta.stop_reason) or None
    usage = None if event.usage is None else _usage(event.usage)
    return Chunk(data, finished=reason is not None, usage=usage, finish_reason=reason)


def _end_of_block(data: bytes, _event: _Event) -> Chunk:
    return Chunk(data)


def _end_of_message(data: bytes, _event: _Event) -> Chunk:
    return Chunk(data, done=True)


def _start_of_block(data: bytes, event: _Event) -> Chunk:
    """Read a block's start. Text and thinking begin empty, a tool call has its name, other blocks are complete."""
    block = event.content_block or _Block()
    if block.type in _SILENT_BLOCKS:
        chars = len(block.text or "") + len(block.thinking or "")
        thinks = block.type == "thinking"
        return Chunk(
            data,
            meaningful=chars > 0,
            answer=chars > 0 and not thinks,
            reasoning=chars > 0 and thinks,
            text_chars=chars,
        )
    if block.type == "redacted_thinking":
        return Chunk(data, meaningful=True, reasoning=True)
    if block.type is None:
        return Chunk(data, idle=True)
    name = block.name or ""
    if block.type != "tool_use":
        return Chunk(data, meaningful=True, answer=True, text_chars=len(name), of_tool=True)
    tools, names = ((event.index or 0, ""),), (name,) if name else ()
    return Chunk(data, meaningful=True, answer=True, text_chars=len(name), tools=tools, names=names)


_Count = TypeVar("_Count")


def add_usage(known: dict[str, _Count], told: Mapping[str, _Count], nothing: Collection[object]) -> None:
    """Note counts of tokens, the tier and the cost. Each is a total so far: the last one counts.

    Null and 0, the values of ``nothing``, do not replace a count. They replace a cost: a call may be free.
    """
    null, *_ = nothing
    for name, count in told.items():
        if name not in known or (count != null and (name == "cost" or count not in nothing)):
            known[name] = count


def told_usage(told: Mapping[str, Any]) -> Usage:
    """Return the counts of a decoded ``usage``, except counts of a wrong type."""
    usage: _Usage = fit_fields(told, _Usage)
    return _usage(usage)


def _usage(told: _Usage) -> Usage:
    """Return Anthropic's counts as ours: prompt tokens include cached tokens, and an answer of 0 tokens is unknown."""
    cached = told.cache_read_input_tokens
    prompt = None
    if told.input_tokens is not None:
        prompt = told.input_tokens + (cached or 0) + (told.cache_creation_input_tokens or 0)
    details = told.output_tokens_details
    thinking = None if details is None else details.thinking_tokens
    written, tier = told.cache_creation_input_tokens, None
    if told.service_tier is not None or told.speed is not None:
        tier = FAST if told.speed == FAST else tier_of(told.service_tier)
    units = None
    if told.cache_creation is not None or told.server_tool_use is not None:
        units = _units(told)
    usd = None
    if told.cost is not None:
        usd = stated_usd({"cost": told.cost, "is_byok": told.is_byok, "cost_details": told.cost_details})
    return Usage(prompt or None, told.output_tokens or None, thinking, cached, written, tier, units, usd)


def _units(told: _Usage) -> dict[str, int] | None:
    """Return the units with a price of their own: tokens that are cached for an hour, and searches."""
    counts = {
        "cache_write_1h": None if told.cache_creation is None else told.cache_creation.ephemeral_1h_input_tokens,
        "web_search": None if told.server_tool_use is None else told.server_tool_use.web_search_requests,
    }
    return {unit: count for unit, count in counts.items() if count is not None and count > 0} or None


_READERS: Mapping[str, Callable[[bytes, _Event], Chunk]] = {
    "content_block_delta": _delta,
    "content_block_start": _start_of_block,
    "content_block_stop": _end_of_block,
    "message_delta": _change_of_message,
    "message_start": _start_of_message,
    "message_stop": _end_of_message,
}


def _read_untyped(data: bytes) -> _Event:
    """Read an event that does not fit the types; fields that do not convert are left out."""
    try:
        value = _untyped.decode(data)
    except UNREADABLE:
        raise no_json_object() from None
    message = value.get("message")
    return _Event(
        fit(value.get("type"), str),
        fit_fields(value.get("delta"), _Delta),
        fit_fields(value.get("content_block"), _Block),
        _Message(fit_fields(message.get("usage"), _Usage)) if isinstance(message, dict) else None,
        fit_fields(value.get("usage"), _Usage),
        value.get("error"),
    )
