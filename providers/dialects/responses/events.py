"""Reads one event of a Responses stream: its text, reasoning, tool call, usage, end or error.

Nearly every event is a delta and is decoded straight into a type with few fields; the others are skipped. Of events
that repeat the whole response only usage, error and the like are read. Where a provider sends other types, the event
is decoded again without types, and fields that do not fit are ignored.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from providers.dialects.chunk import DONE, Chunk
from providers.dialects.responses.errors import upstream_error
from providers.dialects.responses.reading import lenient, read
from providers.dialects.responses.usage import usage_of_response
from providers.errors import UpstreamError
from providers.usage import Usage

_ANSWERS = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
        "response.mcp_call_arguments.delta",
        "response.code_interpreter_call_code.delta",
        "response.audio.transcript.delta",
    }
)
_REASONING = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_REFUSAL = "response.refusal.delta"
_CALLS = frozenset({"function_call", "custom_tool_call"})  # of the client's own tools
_ARGUMENTS = "response.function_call_arguments.delta"
_NULL = msgspec.Raw(b"null")


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    delta: str | None = None
    item: msgspec.Raw = _NULL
    response: msgspec.Raw = _NULL
    error: Any = None
    output_index: int | None = None
    partial_image_b64: str | None = None


class _Item(msgspec.Struct, gc=False):
    type: str | None = None
    name: str | None = None
    result: str | None = None  # an image in base64


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | str | None = None
    model: str | None = None
    id: str | None = None
    status: str | None = None
    incomplete_details: _Incomplete | None = None


_events = msgspec.json.Decoder(_Event)
_objects = msgspec.json.Decoder(dict[str, Any])


def read_event(data: bytes, secrets: Sequence[str] = ()) -> Chunk:
    """Read one event's data. An event without data (a comment, a ping) gives an empty chunk.

    Raises:
        UpstreamError: the data is not a JSON object (invalid_response).

    """
    try:
        event = _events.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        said = data.strip()
        if said in {b"", DONE}:
            return Chunk(data, done=said == DONE)
        event = read(data, _Event)
    delta = event.delta
    if delta:
        if event.type == _ARGUMENTS:
            piece = (event.output_index or 0, delta)
            return Chunk(data, meaningful=True, answer=True, text_chars=len(delta), tools=(piece,))
        if event.type in _ANSWERS:
            refused = event.type == _REFUSAL
            return Chunk(data, meaningful=True, answer=True, text_chars=len(delta), refused=refused)
        if event.type in _REASONING:
            return Chunk(data, meaningful=True, reasoning=True, text_chars=len(delta))
    return _read_other(data, event, secrets)


def _read_other(data: bytes, event: _Event, secrets: Sequence[str]) -> Chunk:
    """Read an event that has no text."""
    match event.type:
        case "response.completed" | "response.incomplete":
            told = lenient(event.response, _Response)
            reason = (told.incomplete_details and told.incomplete_details.reason) or told.status
            return Chunk(
                data,
                finished=True,
                done=True,
                usage=_usage(event.response),
                model=told.model,
                id=told.id,
                finish_reason=reason,
            )
        case "error" | "response.failed" | "response.cancelled":
            return Chunk(data, error=_error(data, event, secrets), usage=_usage(event.response))
        case "response.output_item.added":
            # Of a new item only a call's name counts here: deltas bring everything else.
            added = lenient(event.item, _Item)
            name = added.name or ""
            tools = ((event.output_index or 0, ""),) if added.type == "function_call" else ()
            names = (name,) if name and added.type in _CALLS else ()
            said = bool(name)
            return Chunk(data, meaningful=said, answer=said, text_chars=len(name), tools=tools, names=names)
        case "response.output_item.done":
            item = lenient(event.item, _Item)
            is_seen = item.type == "image_generation_call" and bool(item.result)
        case _:
            is_seen = bool(event.partial_image_b64) or (event.type == "response.audio.delta" and bool(event.delta))
    error = _error(data, event, secrets) if event.error else None
    is_idle = not event.delta and (event.type in _ANSWERS or event.type in _REASONING)
    return Chunk(data, meaningful=is_seen, answer=is_seen, error=error, idle=is_idle)


def _usage(response: msgspec.Raw) -> Usage | None:
    usage = lenient(response, _Response).usage
    return None if usage is None else usage_of_response(usage)


def _error(data: bytes, event: _Event, secrets: Sequence[str]) -> UpstreamError:
    """Return the error from the response, from an object in the event, or from the event itself."""
    error = event.error
    if not error:
        error = lenient(event.response, _Response).error
    if isinstance(error, str):
        error = {"message": error}
    if not isinstance(error, dict) or not error:
        told = _objects.decode(data)
        error = {name: told[name] for name in ("code", "message", "param") if name in told}
    if not error and event.type == "response.cancelled":
        error = {"message": "the provider cancelled the response"}
    return upstream_error(error, secrets)
