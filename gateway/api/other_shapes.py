"""Requests for chat completions in another API's shape, as Cursor sends them; the answer has chat's shape all the same.

Mistral's SDKs and Strands write pictures in a form of their own.

For OpenAI's models Cursor's agent sends the body of Responses (``input``), or tools of Responses among chat's; for
Claude's models Messages' tools, with their calls and results as blocks within chat's messages.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from gateway.core.errors import InvalidRequest
from providers import demanded
from providers.dialects import MESSAGES, RESPONSES, Malformed, Wording, raw_json

Fields = dict[str, msgspec.Raw]
_T = TypeVar("_T")

assert RESPONSES.pivoting is not None and MESSAGES.pivoting is not None  # noqa: PT018 - they are not chat
_OF_RESPONSES = RESPONSES.pivoting.to_chat
_OF_MESSAGES: Callable[..., Wording] = partial(MESSAGES.pivoting.to_chat, marks=True, signed="anthropic")

MOST_VALUES = 100_000  # JSON values of a body in another shape, as the body is read

_OBJECTS = msgspec.json.Decoder(list[Fields])
_FIELDS = msgspec.json.Decoder(Fields)
_FLAT = frozenset({b'"function"', b'"custom"'})
_CHOICES = frozenset({b'"auto"', b'"any"', b'"tool"', b'"none"'})  # as Messages has them, in an object
_CHOICE = ("tool_choice", "parallel_tool_calls")
_BLOCKS = frozenset({b'"tool_use"', b'"tool_result"', b'"thinking"', b'"redacted_thinking"'})
_SAY: Mapping[str, msgspec.Raw] = {"messages": raw_json([{"role": "user", "content": "-"}]), "max_tokens": raw_json(1)}
_ASK: Mapping[str, msgspec.Raw] = {"input": raw_json("-")}
_NULL = msgspec.Raw(b"null")
_ODD_PICTURE = re.compile(rb'"image_url"\s*:\s*"|"format"\s*:\s*"image/')
_ANY = raw_json({})  # with a thread, a result may stand without its call


def from_responses(fields: Fields, values: int | None) -> list[str]:
    """Turn ``fields``, a body of Responses, into a body of chat; return the fields with no counterpart in chat.

    Raises:
        InvalidRequest: not a body of Responses, or a request for something that chat completions do not do.

    """
    _check_room(values)
    options = fields.pop("stream_options", None)  # a field of chat: Cursor asks for the usage
    wording = _in_chat(fields, _OF_RESPONSES)
    fields.clear()
    fields.update(wording.fields)
    if options is not None:
        fields["stream_options"] = options
    return [loss.field for loss in wording.losses]


def with_chat_tools(fields: Fields, values: int | None) -> list[str]:
    """Turn tools of Responses' or Messages' shape into chat's shape, with their choice, calls and results.

    Returns the parts that have no place in chat, and affect no answer.

    Raises:
        InvalidRequest: a tool, a choice, a call or a result is not valid in its API, or has no form in chat.

    """
    _check_room(values)
    lost: list[str] = []
    tools: list[msgspec.Raw] = []
    has_messages = False
    tool_objects = _decoded(_OBJECTS, fields["tools"], "tools")
    for number, tool in enumerate(tool_objects):
        kind = bytes(tool.get("type", b'"function"'))
        if "input_schema" in tool:
            has_messages = True
            part, to_chat = {**_SAY, "tools": raw_json([tool])}, _OF_MESSAGES
        elif "name" in tool and kind in _FLAT and kind.decode().strip('"') not in tool:
            part, to_chat = {**_ASK, "tools": raw_json([{"type": "function"} | tool])}, _OF_RESPONSES
        else:
            tools.append(raw_json(tool))
            continue
        tools += _part(part, to_chat, "tools", number, lost)
    fields["tools"] = raw_json(tools)
    _choose(fields)
    if has_messages:
        fields["messages"] = _with_chat_calls(fields["messages"], lost)
    return lost


def with_chat_pictures(fields: Fields) -> None:
    """Put pictures into the form that every chat server takes.

    Mistral's SDKs give an address as a text, ``"image_url": "https://…"`` (mistralai 3.7.0 and @ai-sdk/mistral 3.0.69).
    Strands says beside data what these say themselves, ``"format": "image/png"`` (strands-agents 1.62.0). Read on
    2026-12-01.
    """
    if _ODD_PICTURE.search(fields["messages"]) is None:
        return
    messages = _decoded(_OBJECTS, fields["messages"], "messages")
    for message in messages:
        content = message.get("content", _NULL)
        if bytes(memoryview(content)[:1]) == b"[" and _ODD_PICTURE.search(content) is not None:
            message["content"] = raw_json([_with_picture(part) for part in _decoded(_OBJECTS, content, "messages")])
    fields["messages"] = raw_json(messages)


def _with_picture(part: Fields) -> Fields:
    picture = part.get("image_url", _NULL)
    begin = bytes(memoryview(picture)[:1])
    if bytes(part.get("type", _NULL)) != b'"image_url"' or begin not in {b'"', b"{"}:
        return part
    said = {"url": picture} if begin == b'"' else _decoded(_FIELDS, picture, "messages")
    if bytes(memoryview(said.get("url", _NULL))[:6]) == b'"data:':
        said.pop("format", None)
    return {**part, "image_url": raw_json(said)}


def _choose(fields: Fields) -> None:
    """Turn the choice of a tool into chat's form."""
    choice = fields.get("tool_choice")
    if choice is None or bytes(memoryview(choice)[:1]) != b"{":
        return
    chosen = _decoded(_FIELDS, choice, "tool_choice")
    if bytes(chosen.get("type", b"")) in _CHOICES:
        tools = raw_json([{"name": "-", "input_schema": {}}])
        wording = _in_chat({**_SAY, "tools": tools, "tool_choice": choice}, _OF_MESSAGES)
    elif "name" in chosen:
        tools = raw_json([{"type": "function", "name": "-", "parameters": {}}])
        wording = _in_chat({**_ASK, "tools": tools, "tool_choice": choice}, _OF_RESPONSES)
    else:
        return
    del fields["tool_choice"]
    fields.update({name: wording.fields[name] for name in _CHOICE if name in wording.fields})


def _with_chat_calls(messages: msgspec.Raw, lost: list[str]) -> msgspec.Raw:
    """Return the conversation with chat's calls and results in place of blocks of Messages."""
    messages_with_calls: list[object] = []
    message_objects = _decoded(_OBJECTS, messages, "messages")
    for number, message in enumerate(message_objects):
        content = message.get("content", msgspec.Raw(b"null"))
        is_list = bytes(memoryview(content)[:1]) == b"["
        blocks = _decoded(_OBJECTS, content, "messages") if is_list else ()
        if any(bytes(block.get("type", b"")) in _BLOCKS for block in blocks):
            turn = {"messages": raw_json([message]), "max_tokens": _SAY["max_tokens"], "thread": _ANY}
            messages_with_calls += _part(turn, _OF_MESSAGES, "messages", number, lost)
        else:
            messages_with_calls.append(message)
    return raw_json(messages_with_calls)


def _check_room(values: int | None) -> None:
    if values is not None and values > MOST_VALUES:
        raise InvalidRequest(f"a body in another API's shape may have {MOST_VALUES} JSON values; send it to that API")


def _part(fields: Fields, to_chat: Callable[[Fields], Wording], name: str, number: int, lost: list[str]) -> list[Any]:
    """Translate a request with one tool or message, number ``number`` of the body; return the items of chat.

    Parts that have no place in chat and affect no answer are added to ``lost``.
    """
    first, here = f"{name}[0]", f"{name}[{number}]"
    try:
        wording = _in_chat(fields, to_chat, but=("thread", first) if name == "messages" else ())
    except InvalidRequest as error:
        raise InvalidRequest(
            str(error).replace(first, here), param=error.param and error.param.replace(first, here)
        ) from None
    lost += [loss.field.replace(first, here) for loss in wording.losses]
    items: list[Any] = msgspec.json.decode(wording.fields[name], type=list[msgspec.Raw])
    return items


def _in_chat(fields: Fields, to_chat: Callable[[Fields], Wording], but: Sequence[str] = ()) -> Wording:
    """Translate a request or a part of one. Fields in ``but``, which the client did not send, are no losses."""
    try:
        wording = to_chat(fields)
    except Malformed as error:
        raise InvalidRequest(error.message, param=error.param) from None
    losses = tuple(loss for loss in wording.losses if loss.field not in but)
    for field, reason in [(loss.field, loss.reason) for loss in demanded(losses, fields)]:
        raise InvalidRequest(f"{field!r} cannot be asked for in chat completions: {reason}", param=field)
    return msgspec.structs.replace(wording, losses=losses)


def _decoded(decoder: msgspec.json.Decoder[_T], value: msgspec.Raw, name: str) -> _T:
    try:
        return decoder.decode(value)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{name!r}: {error}", param=name) from None
