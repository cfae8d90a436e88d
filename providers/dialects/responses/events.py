"""Reads one event of a Responses stream: its text, reasoning, tool call, usage, end or error.

Nearly every event is a delta, and is decoded straight into a type with few fields; other fields are skipped. Of events
that repeat the whole response only the usage, the error and the like are read. If a provider sends a field in another
type, the event is decoded again without types, and fields that do not fit are ignored.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from providers.bodies import events
from providers.dialects.chat.deltas import string, written_arguments
from providers.dialects.events import DONE, Chunk, Gathering, few, no_answer, no_json_object
from providers.dialects.reading import RawObject
from providers.dialects.responses.fields import EventWriter, upstream_error, usage_of_response
from providers.dialects.wording import raw_json
from providers.models import Usage
from providers.refusals import UNREADABLE, ErrorKind, UpstreamError, read_answer

# Reads JSON objects leniently: fields of another type than expected are ignored.

_S = TypeVar("_S", bound=msgspec.Struct)

_reading_objects = msgspec.json.Decoder(RawObject)


def read(data: bytes, struct: type[_S]) -> _S:
    """Read an event's data.

    Raises:
        UpstreamError: the data are not a JSON object (invalid_response).

    """
    try:
        return _fitting(_reading_objects.decode(data), struct)
    except UNREADABLE:
        raise no_json_object() from None


def lenient(raw: msgspec.Raw, struct: type[_S]) -> _S:
    """Read an object inside an event; anything else is read as an empty object."""
    try:
        return msgspec.json.decode(raw, type=struct)
    except UNREADABLE:  # also text that is not UTF-8: parts that stay raw were not checked
        pass
    try:
        return _fitting(_reading_objects.decode(raw), struct)
    except UNREADABLE:
        return struct()


def _fitting(value: RawObject, struct: type[_S]) -> _S:
    kept = {}
    for field in msgspec.structs.fields(struct):
        if (raw := value.get(field.name)) is None:
            continue
        try:
            kept[field.name] = msgspec.json.decode(raw, type=field.type)
        except UNREADABLE:
            continue
    return struct(**kept)


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
_TEXTS_OF_ANSWERS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REFUSAL = "response.refusal.delta"
# States of the response as a whole: some servers repeat these events while nothing happens.
_STATES = frozenset({"response.created", "response.queued", "response.in_progress"})
_CALLS = frozenset({"function_call", "custom_tool_call"})  # of the client's own tools
_BUILT_IN = frozenset(
    {"apply_patch_call", "computer_call", "local_shell_call", "shell_call"}
)  # the client may run the tools of these calls as well
_COMPACTION = "compaction"  # the only item of an answer to a request for a compaction
_HOSTED = "container_reference"  # a shell's environment at the provider
_SEARCHED = ("tool_search_call", "client")  # run by the client or by the provider
_CALL = b'"function_call"'
_SEARCHES = b'"web_search_call"'
_ARGUMENTS = "response.function_call_arguments.delta"
_OWN = "response."  # all of the API's event types begin so, except "error"
# The last type is Realtime's: the status says how the response ended. Some servers send it here as well (from memory).
ENDS = frozenset({"response.completed", "response.incomplete", "response.done"})
FAILED = frozenset({"failed", "cancelled"})  # a response has no answer, whatever its last event's type
_NULL = msgspec.Raw(b"null")


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    delta: str | None = None
    item: msgspec.Raw = _NULL
    response: msgspec.Raw = _NULL
    error: Any = None
    output_index: int | None = None
    partial_image_b64: str | None = None
    arguments: Any = None


class _Item(msgspec.Struct, gc=False):
    type: str | None = None
    name: str | None = None
    result: str | None = None  # an image in base64
    execution: str | None = None
    environment: Any = None
    arguments: Any = None  # some servers send the object and not a string

    @property
    def is_built_in(self) -> bool:
        """Whether the item calls a built-in tool that the client runs: the answer may be nothing else."""
        place = self.environment.get("type") if isinstance(self.environment, dict) else None
        return (self.type in _BUILT_IN and place != _HOSTED) or (self.type, self.execution) == _SEARCHED


class _Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | str | None = None
    model: str | None = None
    id: str | None = None
    status: str | None = None
    incomplete_details: _Incomplete | None = None
    service_tier: str | None = None


class _Told(msgspec.Struct, gc=False):
    code: Any = None
    message: Any = None
    param: Any = None


_events = msgspec.json.Decoder(_Event)


def read_event(data: bytes, secrets: Sequence[str] = ()) -> Chunk:
    """Read one event's data. An event without data (a comment, a ping) gives an empty chunk.

    Raises:
        UpstreamError: the data is not a JSON object (invalid_response).

    """
    try:
        event = _events.decode(data)
    except UNREADABLE:
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
            of_tool = event.type not in _TEXTS_OF_ANSWERS
            return Chunk(data, meaningful=True, answer=True, text_chars=len(delta), refused=refused, of_tool=of_tool)
        if event.type in _REASONING:
            return Chunk(data, meaningful=True, reasoning=True, text_chars=len(delta))
    return _read_other(data, event, secrets)


def read_begun(data: bytes, secrets: Sequence[str] = ()) -> Chunk:
    """Read an event of a response in the background: the client waits for the response's beginning, not for a token.

    Raises:
        UpstreamError: as of ``read_event``.

    """
    chunk = read_event(data, secrets)
    if chunk.meaningful or chunk.error is not None or not (chunk.finished or chunk.idle):
        return chunk
    if not chunk.finished and lenient(msgspec.Raw(data), _Event).type not in _STATES:
        return chunk
    return msgspec.structs.replace(chunk, meaningful=True, answer=True, idle=False)


def _read_other(data: bytes, event: _Event, secrets: Sequence[str]) -> Chunk:
    """Read an event that has no text."""
    match event.type:
        case "response.completed" | "response.incomplete" | "response.done":
            return _ended(data, event, secrets)
        case "error" | "response.failed" | "response.cancelled":
            return _failed(data, event, secrets)
        case "response.output_item.added":
            # A new item counts here only by a call's name: deltas bring everything else.
            added = lenient(event.item, _Item)
            name = added.name or ""
            tools = ((event.output_index or 0, ""),) if added.type in _CALLS else ()
            names = (name,) if name and added.type in _CALLS else ()
            said = bool(name) or added.is_built_in or added.type == _COMPACTION
            return Chunk(data, meaningful=said, answer=said, text_chars=len(name), tools=tools, names=names)
        case "response.output_item.done":
            item = lenient(event.item, _Item)
            if item.type == "function_call" and item.arguments:
                return Chunk(data, tools=((event.output_index or 0, written_arguments(item.arguments)),), whole=True)
            is_seen = (
                item.is_built_in
                or item.type == _COMPACTION
                or (item.type == "image_generation_call" and bool(item.result))
            )
        case "response.function_call_arguments.done" if event.arguments:
            return Chunk(data, tools=((event.output_index or 0, written_arguments(event.arguments)),), whole=True)
        case _:
            is_seen = bool(event.partial_image_b64) or (event.type == "response.audio.delta" and bool(event.delta))
    error = _error(data, event, secrets) if event.error else None
    is_empty = not event.delta and (event.type in _ANSWERS or event.type in _REASONING)
    is_idle = is_empty or event.type in _STATES or not (event.type or "").startswith(_OWN)
    return Chunk(data, meaningful=is_seen, answer=is_seen, error=error, idle=is_idle)


def _ended(data: bytes, event: _Event, secrets: Sequence[str]) -> Chunk:
    told = lenient(event.response, _Response)
    if told.status in FAILED:
        return _failed(data, event, secrets)
    reason = (told.incomplete_details and told.incomplete_details.reason) or told.status
    return Chunk(
        data,
        finished=True,
        done=True,
        usage=usage_in(data, event.response, told.usage, told.service_tier),
        model=told.model,
        id=told.id,
        finish_reason=reason,
        tools=_whole_calls(event.response) if _CALL in data else (),
        whole=True,
    )


def _failed(data: bytes, event: _Event, secrets: Sequence[str]) -> Chunk:
    told = lenient(event.response, _Response)
    usage = usage_in(data, event.response, told.usage, told.service_tier)
    return Chunk(data, error=_error(data, event, secrets), usage=usage)


def _whole_calls(response: msgspec.Raw) -> list[tuple[int, str]]:
    """Return the arguments of the function calls in a whole response, with their items' numbers."""
    items = [lenient(item, _Item) for item in lenient(response, _Output).output or ()]
    return [
        (index, written_arguments(item.arguments))
        for index, item in enumerate(items)
        if item.type in _CALLS and item.arguments
    ]


class _Action(msgspec.Struct, gc=False):
    type: str | None = None


class _Search(msgspec.Struct, gc=False):
    type: str | None = None
    action: _Action | None = None


def usage_in(data: bytes, response: msgspec.Raw, told: Mapping[str, Any] | None, tier: str | None) -> Usage | None:
    """Return the usage that an event with these data has ``told`` of its ``response``; None: no usage."""
    if told is None:
        return None
    usage = usage_of_response(told, tier)
    if _SEARCHES in data and (count := _searches(response)):
        usage = msgspec.structs.replace(usage, units={**(usage.units or {}), "web_search": count})
    return usage


def _searches(response: msgspec.Raw) -> int:
    """Return the number of searches in a response. Each search is billed; pages that a search opens are not."""
    items = [lenient(item, _Search) for item in lenient(response, _Output).output or ()]
    calls = [item for item in items if item.type == "web_search_call"]
    return sum(call.action is None or call.action.type in {None, "search"} for call in calls)


def _error(data: bytes, event: _Event, secrets: Sequence[str]) -> UpstreamError:
    """Return the error from the response, from an object in the event, or from the event itself."""
    error = event.error
    if not error:
        error = lenient(event.response, _Response).error
    if isinstance(error, str):
        error = {"message": error}
    if not isinstance(error, dict) or not error:
        told = read(data, _Told)
        named = {"code": told.code, "message": told.message, "param": told.param}
        error = {name: value for name, value in named.items() if value is not None}
    if not error and event.type == "response.cancelled":
        error = {"message": "the provider cancelled the response"}
    return upstream_error(error, secrets)


# One item of a whole response as the events that would have streamed it.

_NO_PARTS = msgspec.Raw(b"[]")
_RETELLING_EMPTY = msgspec.Raw(b'""')

_TEXTS: Mapping[bytes, tuple[str, str]] = {  # by a part's type: the field of the text, and the events' name
    b'"output_text"': ("text", "response.output_text"),
    b'"refusal"': ("refusal", "response.refusal"),
    b'"reasoning_text"': ("text", "response.reasoning_text"),
    b'"summary_text"': ("text", "response.reasoning_summary_text"),
}
_ARGUMENT_EVENTS: Mapping[bytes, tuple[str, str]] = {  # the same, by an item's type
    b'"function_call"': ("arguments", "response.function_call_arguments"),
    b'"mcp_call"': ("arguments", "response.mcp_call_arguments"),
    b'"custom_tool_call"': ("input", "response.custom_tool_call_input"),
}

_retelling_objects = msgspec.json.Decoder(RawObject)
_retelling_lists = msgspec.json.Decoder(list[msgspec.Raw] | None)


def write_item(writer: EventWriter, output_index: int, raw: msgspec.Raw) -> None:
    """Send an item: its beginning, one delta for each of its texts, and its end.

    Raises:
        msgspec.ValidationError: ``raw`` is no item.
        UpstreamError: the item has too many parts (invalid_response).

    """
    item = _retelling_objects.decode(raw)
    place = {"item_id": item.get("id", _NULL), "output_index": output_index}
    argument, argument_events = _ARGUMENT_EVENTS.get(bytes(item.get("type", _NULL)), ("", ""))
    begun = {**item, **{name: _NO_PARTS for name in ("summary", "content") if item.get(name, _NULL) != _NULL}}
    begun |= {name: _RETELLING_EMPTY for name in (argument,) if name in item}
    begun |= {name: _IN_PROGRESS for name in ("status",) if name in item}
    writer.say("response.output_item.added", output_index=output_index, item=begun)
    for number, part in enumerate(few(_retelling_lists.decode(item.get("summary", _NULL)) or (), "parts")):
        _write_part(writer, "response.reasoning_summary_part", {**place, "summary_index": number}, part)
    for number, part in enumerate(few(_retelling_lists.decode(item.get("content", _NULL)) or (), "parts")):
        _write_part(writer, "response.content_part", {**place, "content_index": number}, part)
    if argument in item:
        written = item[argument]
        if bytes(memoryview(written)[:1]) == b"{":  # some servers send the object and not a string
            written = raw_json(bytes(written).decode())
        writer.say(f"{argument_events}.delta", **place, delta=written)
        named = {name: item[name] for name in ("name",) if name in item and argument == "arguments"}
        writer.say(f"{argument_events}.done", **place, **named, **{argument: written})
    writer.say("response.output_item.done", output_index=output_index, item=raw)


def _write_part(writer: EventWriter, part_events: str, place: Mapping[str, Any], raw: msgspec.Raw) -> None:
    part = _retelling_objects.decode(raw)
    name, text_events = _TEXTS.get(bytes(part.get("type", _NULL)), ("", ""))
    begun = {**part, **{field: _RETELLING_EMPTY for field in (name,) if field in part}}
    begun |= {field: _NO_PARTS for field in ("annotations", "logprobs") if part.get(field, _NULL) != _NULL}
    writer.say(f"{part_events}.added", **place, part=begun)
    if name in part:
        logprobs = {"logprobs": part.get("logprobs", _NO_PARTS)} if text_events == "response.output_text" else {}
        writer.say(f"{text_events}.delta", **place, delta=part[name], **logprobs)
        writer.say(f"{text_events}.done", **place, **{name: part[name]}, **logprobs)
    writer.say(f"{part_events}.done", **place, part=raw)


# An answer that comes in its last event alone.


class _Output(msgspec.Struct, gc=False):
    output: list[msgspec.Raw] | None = None


def output_of_last(data: bytes) -> list[msgspec.Raw]:
    """Return the items in the last event of a response; none for other events."""
    event = read(data, _Event)
    return lenient(event.response, _Output).output or [] if event.type in ENDS else []


def with_answer(last: Chunk) -> Chunk:
    """Return the last event, with the response's output as new: no event before it had any output."""
    if not last.finished:  # [DONE]
        return last
    said: list[Chunk] = []
    for index, item in enumerate(few(output_of_last(last.data), "items")):
        writer = EventWriter()
        with suppress(*UNREADABLE):
            write_item(writer, index, item)
            said.extend(read_event(event.data) for event in events(writer.take()))
    is_answer = any(chunk.answer for chunk in said)
    return msgspec.structs.replace(
        last,
        meaningful=any(chunk.meaningful for chunk in said),
        answer=is_answer,
        reasoning=not is_answer and any(chunk.reasoning for chunk in said),
        text_chars=sum(chunk.text_chars for chunk in said),
        tools=tuple(piece for chunk in said if not chunk.whole for piece in chunk.tools),
        whole=False,
        names=tuple(name for chunk in said for name in chunk.names),
        refused=any(chunk.refused for chunk in said),
    )


# Whole responses: a whole response as an event stream, and an event stream gathered into a whole response.

ENDING = b""  # the last event contains the whole response, so the gateway cannot make one up

_FAILED = (msgspec.Raw(b'"failed"'), msgspec.Raw(b'"cancelled"'))
_INCOMPLETE = msgspec.Raw(b'"incomplete"')
_IN_PROGRESS = msgspec.Raw(b'"in_progress"')
_COMPLETED = msgspec.Raw(b'"completed"')


class _AnswersEvent(msgspec.Struct, gc=False):
    type: str = ""
    output_index: int = 0
    content_index: int = 0
    summary_index: int = 0
    item: msgspec.Raw = _NULL
    response: msgspec.Raw = _NULL
    delta: Any = ""
    arguments: Any = None
    input: str | None = None
    code: str | None = None
    text: str | None = None
    refusal: str | None = None


_answers_events = msgspec.json.Decoder(_AnswersEvent)
_answers_objects = msgspec.json.Decoder(RawObject)
_BEGUN = (msgspec.Raw(b'"queued"'), _IN_PROGRESS)  # in the background: no part of the answer is there yet
_lists = msgspec.json.Decoder(list[msgspec.Raw] | None)


def events_of_answer(body: bytes, secrets: Sequence[str] = ()) -> bytes:
    """Return a response as stream events: its items, with one delta for each text, and its end.

    Raises:
        UpstreamError: the body is empty (upstream_empty), not a response (invalid_response), or a failed response or an
            error (of the kind of its code).

    """
    answer = _read(body, secrets)
    writer = EventWriter()
    try:
        items = _lists.decode(answer.get("output", _NULL))
        if items is None and answer.get("status") not in _BEGUN:
            raise no_answer(body, "a response", secrets)
        began: dict[str, Any] = {**answer, "status": _IN_PROGRESS, "output": [], "usage": None}
        for state in ("created", "in_progress"):
            writer.say(f"response.{state}", response=began)
        for index, item in enumerate(few(items or (), "items")):
            write_item(writer, index, item)
    except UNREADABLE:
        raise no_answer(body, "a response", secrets) from None
    end = "incomplete" if answer.get("status") == _INCOMPLETE else "completed"
    writer.say(f"response.{end}", response=msgspec.Raw(body.strip()))
    return writer.take()


# How an event's addition joins an item, by the event's name without ``delta`` or ``done``: into a field of the item, or
# of a part in one of the item's lists. Deltas are pieces of a text. The event that ends a text has the whole text, and
# so has the event that ends the item.
ITEM: Mapping[str, tuple[str, str, str]] = {
    **{name: ("", "", field) for field, name in _ARGUMENT_EVENTS.values()},
    "response.code_interpreter_call_code": ("", "", "code"),
    "response.output_text": ("content", "output_text", "text"),
    "response.refusal": ("content", "refusal", "refusal"),
    "response.reasoning_text": ("content", "reasoning_text", "text"),
    "response.reasoning_summary_text": ("summary", "summary_text", "text"),
}


class _GatheredItem:
    """One item, from the events about it."""

    def __init__(self) -> None:
        self.is_ended = False
        self._item: RawObject = {}
        self._texts: dict[tuple[str, int, str, str], list[str]] = {}  # by list, place in it, and names of ``ITEM``

    def take(self, event: _AnswersEvent) -> None:
        name, _, what = event.type.rpartition(".")
        if name == "response.output_item" and event.item != _NULL:
            self.is_ended = self.is_ended or what == "done"
            self._item |= _answers_objects.decode(event.item)
        elif (place := ITEM.get(name)) is not None:
            list_, kind, field = place
            number = event.summary_index if list_ == "summary" else event.content_index if list_ else 0
            pieces = self._texts.setdefault((list_, number, kind, field), [])
            if what == "delta":
                pieces.append(string(event.delta))
            elif ended := written_arguments(getattr(event, field)):
                pieces[:] = [ended]

    def whole(self, status: msgspec.Raw) -> RawObject:
        """Return the item, with texts that only its events have. ``status``: of an item without an end."""
        item: dict[str, Any] = dict(self._item) if self.is_ended else {**self._item, "status": status}
        lists: dict[str, list[dict[str, Any]]] = {}
        for (list_, _, kind, field), pieces in sorted(self._texts.items()):
            text = "".join(pieces)
            if list_:
                part = {"type": kind, field: text}
                lists.setdefault(list_, []).append({**part, "annotations": []} if kind == "output_text" else part)
            elif text and item.get(field, _NULL) in _NO_TEXT:
                item[field] = raw_json(text)
        return item | {
            name: raw_json(parts) for name, parts in lists.items() if not _has_text(item.get(name, _NO_PARTS))
        }


class _Text(msgspec.Struct, gc=False):
    text: str | None = None
    refusal: str | None = None


_NO_TEXT = (_NULL, _RETELLING_EMPTY)
_SAYING: Mapping[bytes, Sequence[str]] = {  # by an item's type: its fields, of which one says something
    **{kind: (field,) for kind, (field, _) in _ARGUMENT_EVENTS.items()},
    b'"message"': ("content",),
    b'"reasoning"': ("content", "summary", "encrypted_content"),
    b'"image_generation_call"': ("result",),
}


def _has_text(raw: msgspec.Raw) -> bool:
    """Whether a value is a text or a list with a part that has one; true of any other value but null."""
    try:
        return any(part.text or part.refusal for part in msgspec.json.decode(raw, type=list[_Text]))
    except UNREADABLE:
        return raw not in _NO_TEXT


def _says(item: RawObject) -> bool:
    fields = _SAYING.get(_kind(item))
    return fields is None or any(_has_text(item[field]) for field in fields if field in item)


class ResponseGathering(Gathering):
    """Takes the response from the last event, and missing parts of its output from the events about items."""

    def __init__(self) -> None:
        self._response = msgspec.Raw(b"{}")
        self._fields: RawObject = {}  # fields of the response
        self._items: dict[int, _GatheredItem] = {}  # by index in the output

    def take(self, chunk: Chunk) -> None:
        """Translate one event.

        Raises:
            UpstreamError: the data are valid JSON, but no event of a response (invalid_response).

        """
        try:
            event = _answers_events.decode(chunk.data)
            if event.response != _NULL:
                self._fields = _answers_objects.decode(event.response)
                self._response = event.response
            elif event.type.startswith("response."):
                few(self._items, "items").setdefault(event.output_index, _GatheredItem()).take(event)
        except UNREADABLE as error:
            message = f"sent an invalid event: {type(error).__name__}"
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, message) from None

    def body(self) -> bytes:
        """Return the whole response as JSON, unchanged if the last event has all of it."""
        output: list[RawObject] = []
        with suppress(*UNREADABLE):
            output = [
                _answers_objects.decode(item) for item in _lists.decode(self._fields.get("output", _NO_PARTS)) or ()
            ]
        status = _INCOMPLETE if self._fields.get("status") == _INCOMPLETE else _COMPLETED
        told = [(index, each.whole(status), each.is_ended) for index, each in sorted(self._items.items())]
        if not output:
            output = [item for _, item, is_ended in told if is_ended or ("type" in item and _says(item))]
            if not output:
                return bytes(self._response)
        elif not _add_lacking(output, [(index, item) for index, item, _ in told if "type" in item]):
            return bytes(self._response)
        return msgspec.json.encode({**self._fields, "output": output})


def _add_lacking(output: list[RawObject], told: Sequence[tuple[int, RawObject]]) -> bool:
    """Add to the last event's ``output`` the items that are missing or without text; return whether any was missing.

    Servers may give an item another id there. So an item is missing only if the output has fewer items of its type.
    """
    lacks = False
    for kind in {_kind(item): None for _, item in told}:
        ours = [
            (index, item) for index, item in told if _kind(item) == kind and (_says(item) or kind in _ARGUMENT_EVENTS)
        ]
        theirs = [item for item in output if _kind(item) == kind and _says(item)]
        for index, item in ours if len(theirs) < len(ours) else ():
            if any(_is_same(item, other) for other in theirs):
                continue
            empty = [place for place, other in enumerate(output) if _kind(other) == kind and not _says(other)]
            if empty:
                output[min(empty, key=lambda place: not _is_same(item, output[place]))] = item
            else:
                output.insert(min(max(index, 0), len(output)), item)  # the index may be any number
            lacks = True
    return lacks


def _kind(item: RawObject) -> bytes:
    return bytes(item.get("type", _NULL))


def _is_same(item: RawObject, other: RawObject) -> bool:
    return any(name in item and item[name] == other.get(name) for name in ("call_id", "id"))


def _read(body: bytes, secrets: Sequence[str]) -> RawObject:
    """Read the top level of a response."""
    try:
        answer = _answers_objects.decode(body)
    except UNREADABLE:
        return read_answer(body, secrets)
    if answer.get("status") in _FAILED:
        told = lenient(msgspec.Raw(body), _Response).error
        if not isinstance(told, dict) or not told:
            told = {"message": "the provider did not finish the response"}
        raise upstream_error(told, secrets)
    return read_answer(body, secrets)
