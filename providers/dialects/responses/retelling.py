"""One item of a whole response as the events that would have streamed it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.responses.fields import Object
from providers.dialects.responses.telling import Telling

_NULL = msgspec.Raw(b"null")
_NO_PARTS = msgspec.Raw(b"[]")
_EMPTY = msgspec.Raw(b'""')
_IN_PROGRESS = msgspec.Raw(b'"in_progress"')

_TEXTS: Mapping[bytes, tuple[str, str]] = {  # by a part's type: the field of its text, and the name of its events
    b'"output_text"': ("text", "response.output_text"),
    b'"refusal"': ("refusal", "response.refusal"),
    b'"reasoning_text"': ("text", "response.reasoning_text"),
    b'"summary_text"': ("text", "response.reasoning_summary_text"),
}
_ARGUMENTS: Mapping[bytes, tuple[str, str]] = {  # likewise by an item's type
    b'"function_call"': ("arguments", "response.function_call_arguments"),
    b'"mcp_call"': ("arguments", "response.mcp_call_arguments"),
    b'"custom_tool_call"': ("input", "response.custom_tool_call_input"),
}

_objects = msgspec.json.Decoder(Object)
_lists = msgspec.json.Decoder(list[msgspec.Raw] | None)


def retell(telling: Telling, output_index: int, raw: msgspec.Raw) -> None:
    """Send an item: its beginning, one delta for each of its texts, and its end.

    Raises:
        msgspec.ValidationError: it is not an item.

    """
    item = _objects.decode(raw)
    place = {"item_id": item.get("id", _NULL), "output_index": output_index}
    argument, events = _ARGUMENTS.get(bytes(item.get("type", _NULL)), ("", ""))
    begun = {**item, **{name: _NO_PARTS for name in ("summary", "content") if item.get(name, _NULL) != _NULL}}
    begun |= {name: _EMPTY for name in (argument,) if name in item}
    begun |= {name: _IN_PROGRESS for name in ("status",) if name in item}
    telling.say("response.output_item.added", output_index=output_index, item=begun)
    for number, part in enumerate(_lists.decode(item.get("summary", _NULL)) or ()):
        _retell_part(telling, "response.reasoning_summary_part", {**place, "summary_index": number}, part)
    for number, part in enumerate(_lists.decode(item.get("content", _NULL)) or ()):
        _retell_part(telling, "response.content_part", {**place, "content_index": number}, part)
    if argument in item:
        telling.say(f"{events}.delta", **place, delta=item[argument])
        named = {name: item[name] for name in ("name",) if name in item and argument == "arguments"}
        telling.say(f"{events}.done", **place, **named, **{argument: item[argument]})
    telling.say("response.output_item.done", output_index=output_index, item=raw)


def _retell_part(telling: Telling, events: str, place: Mapping[str, Any], raw: msgspec.Raw) -> None:
    part = _objects.decode(raw)
    name, text_events = _TEXTS.get(bytes(part.get("type", _NULL)), ("", ""))
    begun = {**part, **{field: _EMPTY for field in (name,) if field in part}}
    begun |= {field: _NO_PARTS for field in ("annotations", "logprobs") if part.get(field, _NULL) != _NULL}
    telling.say(f"{events}.added", **place, part=begun)
    if name in part:
        logprobs = {"logprobs": part.get("logprobs", _NO_PARTS)} if text_events == "response.output_text" else {}
        telling.say(f"{text_events}.delta", **place, delta=part[name], **logprobs)
        telling.say(f"{text_events}.done", **place, **{name: part[name]}, **logprobs)
    telling.say(f"{events}.done", **place, part=raw)
