"""Reads one event of a chat-completions stream: its text, reasoning, tool calls, usage, finish reason or error.

Nearly every chunk fits the types below and is decoded straight into them. Where a provider sends other types (a number
for a string, a string for an object), the event is decoded again without types, and fields that do not fit are ignored.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from providers.dialects.chat.deltas import texts_in, unsigned_in, with_deltas
from providers.dialects.events import (
    DONE,
    MOST_OF_ANSWER,
    SAME_CALL,
    WHOLE_CALL,
    Chunk,
    few,
    is_unread,
    no_json_object,
    untyped,
)
from providers.models import usage_of
from providers.refusals import FAILED, UNREADABLE, ErrorKind, base_code, error_in


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _Custom(msgspec.Struct, gc=False):
    name: str | None = None
    input: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    id: str | None = None
    index: int | None = None
    function: _Function | None = None
    custom: _Custom | None = None


class _Audio(msgspec.Struct, gc=False):
    data: str | None = None
    transcript: str | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | list[Any] | dict[str, Any] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_text: str | None = None
    thinking: str | None = None
    reasoning_details: Any = None
    thinking_blocks: Any = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | _ToolCall | None = None
    function_call: _Function | None = None
    audio: _Audio | None = None
    images: list[Any] | None = None  # OpenRouter


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None  # some servers send this instead of a delta
    finish_reason: str | None = None
    error: Any = None  # OpenRouter
    index: int | None = None
    usage: dict[str, Any] | None = None  # Moonshot
    native_finish_reason: Any = None  # OpenRouter: the word of the vendor behind it


class _Groq(msgspec.Struct, gc=False):
    usage: dict[str, Any] | None = None


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    x_groq: _Groq | None = None
    error: Any = None
    object: str | None = None
    model: str | None = None
    id: str | None = None
    system_fingerprint: str | None = None
    service_tier: Any = None
    base_resp: Any = None  # MiniMax, even where there is no error


EACH_CHOICE = 10_000  # the tool calls of choice n have the places from n * EACH_CHOICE on
_S = TypeVar("_S", bound=msgspec.Struct)
_decoder = msgspec.json.Decoder(_Event)
_NESTED: Mapping[str, type[msgspec.Struct]] = {
    "choices": _Choice,
    "delta": _Delta,
    "message": _Delta,
    "tool_calls": _ToolCall,
    "function": _Function,
    "function_call": _Function,
    "custom": _Custom,
    "audio": _Audio,
    "x_groq": _Groq,
}


def read_event(data: bytes, secrets: Sequence[str] = ()) -> Chunk:
    """Read one event's data. An event without data (a comment, a ping) gives an empty chunk.

    The chunk's data are ``data`` itself, unless clients need deltas where the server has messages.

    Raises:
        UpstreamError: the data is not a JSON object (invalid_response).

    """
    said = data.strip()
    if said == DONE:
        return Chunk(data, done=True)
    if not said:
        return Chunk(data, idle=True)
    try:
        event = _decoder.decode(data)
    except msgspec.ValidationError:
        event = read_untyped(data, _Event, _NESTED)
    except UNREADABLE:
        raise no_json_object() from None
    if event.error or event.object == "error" or (event.base_resp is not None and base_code(event.base_resp)):
        return Chunk(data, error=error_in(data, secrets, otherwise=ErrorKind.STREAM_ERROR))
    if event.choices and event.choices[MOST_OF_ANSWER:]:  # without a call, as this runs for each event
        few(event.choices, "choices")
    return _chunk(data, event, secrets)


class _End(msgspec.Struct, gc=False):
    index: int | None = None
    finish_reason: str | None = None


class _Ends(msgspec.Struct, gc=False):
    choices: list[_End] | None = None


_ends = msgspec.json.Decoder(_Ends)


def choices(data: bytes) -> Iterator[tuple[int, bool]]:
    """Yield the index of each choice in an event, and whether the choice has its finish reason.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the event has another format.

    """
    for choice in _ends.decode(data).choices or ():
        yield choice.index or 0, bool(choice.finish_reason)


_USUAL_ENDS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})


def _chunk(data: bytes, event: _Event, secrets: Sequence[str]) -> Chunk:
    answer = False
    finish_reason = error = None
    sound = failed = False
    tools: Sequence[tuple[int | str, str]] = ()
    names: Sequence[str] = ()
    refused = False
    answer_chars = reasoning_chars = 0
    for choice in event.choices or ():
        if choice.finish_reason:
            finish_reason = choice.finish_reason
            odd = finish_reason not in _USUAL_ENDS or choice.native_finish_reason is not None
            failed = failed or (odd and is_unread(finish_reason, choice.native_finish_reason))
        if choice.error or choice.finish_reason in FAILED:
            error = error_in(data, secrets, otherwise=ErrorKind.STREAM_ERROR)
        delta = choice.delta or choice.message
        if delta is None:
            continue
        data = data if choice.delta else with_deltas(data)
        content = delta.content
        if isinstance(content, str):
            answer_chars += len(content)
            content = None
        if thought := delta.reasoning or delta.reasoning_content or delta.reasoning_text or delta.thinking:
            reasoning_chars += len(thought)  # some servers send the same text under two names
        if content or delta.reasoning_details or delta.thinking_blocks:
            thoughts, text = _in_parts(delta, content, thought)
            reasoning_chars += thoughts
            answer_chars += text
        if delta.tool_calls or delta.refusal or delta.audio or delta.function_call or delta.images:
            given = delta.tool_calls
            calls = few([given] if isinstance(given, _ToolCall) else given or (), "tool calls")
            chars = _other_chars(delta, calls)
            tools = (*tools, *_tool_pieces(delta, calls, (choice.index or 0) * EACH_CHOICE))
            names = (*names, *_tool_names(delta, calls))
            refused = refused or bool(delta.refusal)
            answer_chars += chars
            answer = answer or chars > 0 or _is_heard_or_seen(delta)
            sound = sound or delta.audio is not None
    answer = answer or answer_chars > 0
    usage = event.usage or None  # an empty usage tells nothing
    if usage is None and (finish_reason is not None or event.x_groq is not None):
        usage = next((place.usage for place in (event.x_groq, *(event.choices or ())) if place and place.usage), None)
    return Chunk(
        data,
        answer or reasoning_chars > 0,
        answer,
        reasoning_chars > 0,
        finish_reason is not None,
        False,  # noqa: FBT003  # by position: ten keyword arguments would double the cost of the most frequent call
        None if usage is None else usage_of(usage, event.service_tier),
        event.usage is not None and not event.choices,
        error,
        answer_chars + reasoning_chars,
        event.model,
        event.id,
        finish_reason,
        tools,
        names,
        refused,
        not (answer or reasoning_chars or finish_reason) and (bool(event.choices) or usage is None),
        event.system_fingerprint,
        False,  # noqa: FBT003  # by position, as above
        sound,
        False,  # noqa: FBT003  # by position, as above
        failed,
    )


def _in_parts(delta: _Delta, content: Any, named: str | None) -> tuple[int, int]:
    """Count the characters of thinking and text in typed parts; of thinking, also those that are not ``named``."""
    thought, text = texts_in(content)
    thought = thought or unsigned_in(delta.reasoning_details, delta.thinking_blocks)
    return 0 if named else len(thought), len(text)


def _other_chars(delta: _Delta, calls: Sequence[_ToolCall]) -> int:
    """Count a delta's characters that are neither content nor reasoning; audio and images have no characters."""
    functions = [call.function for call in calls]
    functions.append(delta.function_call)
    chars = sum(len(function.name or "") + len(function.arguments or "") for function in functions if function)
    chars += sum(len(call.custom.name or "") + len(call.custom.input or "") for call in calls if call.custom)
    return chars + len(delta.refusal or "")


def _tool_pieces(delta: _Delta, calls: Sequence[_ToolCall], first: int) -> Sequence[tuple[int | str, str]]:
    """Return what a delta adds to the arguments of each call; places count from ``first``.

    A custom tool's input is no JSON, so it is left out: its call has empty arguments.
    """
    pieces = [
        (_place(call, first), "" if call.function is None else call.function.arguments or "")
        for call in calls
        if call.function is not None or call.custom is not None
    ]
    if delta.function_call is not None:
        pieces.append((first, delta.function_call.arguments or ""))
    return pieces


def _place(call: _ToolCall, first: int) -> int | str:
    """Return the place of a call. Some servers send no index: then the id counts, or where it stands in the stream."""
    if call.index is not None:
        return first + call.index
    if call.id:
        return f"{first} {call.id}"
    called = call.function or call.custom
    return WHOLE_CALL if called is not None and called.name else SAME_CALL


def _tool_names(delta: _Delta, calls: Sequence[_ToolCall]) -> list[str]:
    called = [call.function or call.custom for call in calls]
    return [each.name for each in (*called, delta.function_call) if each is not None and each.name]


def _is_heard_or_seen(delta: _Delta) -> bool:
    audio = delta.audio
    return bool(delta.images) or (audio is not None and bool(audio.data or audio.transcript))


def read_untyped(data: bytes, struct: type[_S], nested: Mapping[str, type[msgspec.Struct]]) -> _S:
    """Read an event that does not fit the types, one field at a time. ``nested``: the types of objects, by field.

    Raises:
        UpstreamError: the data are not a JSON object (invalid_response).

    """
    return _fit(untyped(data), struct, nested)


def _fit(value: dict[str, Any], struct: type[_S], nested: Mapping[str, type[msgspec.Struct]]) -> _S:
    """Return ``value`` as ``struct``; fields that do not convert are left out, in nested objects too."""
    fitting = {}
    for field in msgspec.structs.fields(struct):
        try:
            fitting[field.name] = msgspec.convert(_pruned(field.name, value.get(field.name), nested), field.type)
        except msgspec.ValidationError:
            continue
    return struct(**fitting)


def _pruned(name: str, value: Any, nested: Mapping[str, type[msgspec.Struct]]) -> Any:
    """Return the nested objects of field ``name`` with only the fields that convert."""
    struct = nested.get(name)
    if struct is None:
        return value
    if isinstance(value, list):
        return [_fit(item, struct, nested) for item in value if isinstance(item, dict)]
    return _fit(value, struct, nested) if isinstance(value, dict) else value
