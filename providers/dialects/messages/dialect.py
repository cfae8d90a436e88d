"""Messages as one of the dialects."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from providers.dialects import meanings
from providers.dialects.cache_marks import with_marks
from providers.dialects.chat.forced_call import AS_AUTO, NO_TEXT, THINKS_NOT, forced_among, schema_of
from providers.dialects.dialect import (
    AS_CALL,
    AnswerFormat,
    CacheMarking,
    Dialect,
    EarlierThoughts,
    ForcedCall,
    Habits,
    OfferedTool,
    OmissibleFields,
    ParameterNames,
    Pivoting,
    RequestFormat,
    SystemPrompt,
    ThinkingFields,
    TokenCounting,
    ToolFields,
    VendorsDiffer,
    json_format,
    json_format_within,
)
from providers.dialects.events import learned
from providers.dialects.histories import messages_history
from providers.dialects.history_rules import HistoryRules
from providers.dialects.messages.answers import ENDING, MessageGathering, events_of_answer, failure
from providers.dialects.messages.continuing import MessageContinuing
from providers.dialects.messages.events import error_body, read_event
from providers.dialects.messages.fields import thinking_as
from providers.dialects.messages.request_from_chat import from_chat
from providers.dialects.messages.request_to_chat import to_chat
from providers.dialects.messages.stream_from_chat import FromChat
from providers.dialects.messages.stream_to_chat import ToChat
from providers.dialects.messages.thoughts import (
    dropping_unfit,
    forbids_thinking,
    habits_of,
    header_for,
    of_messages,
    place_of,
    with_effort,
    with_limit,
    without_bound_reasoning,
    without_effort,
    without_foreign,
    without_reasoning_of,
)
from providers.dialects.messages.toolsets import offered_tools
from providers.dialects.messages.turns_to_chat import found, with_tools_changed
from providers.dialects.messages.versions import for_newest_version
from providers.dialects.plain_schemas import with_plain
from providers.dialects.reading import RawObject, object_at, objects_at, text_at
from providers.dialects.unshown import unshown
from providers.dialects.wording import ANTHROPIC, Fields, Loss, Malformed, Wording, is_string, raw_json
from providers.refusals import UNREADABLE

# The text that one event of a Messages stream adds to the answer.


class _Delta(msgspec.Struct, gc=False):
    text: str | None = None


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    delta: _Delta | None = None
    index: int | None = None


_events = msgspec.json.Decoder(_Event)


def texts(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the text of a block's delta, with the block's index.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the event has another format.

    """
    event = _events.decode(data)
    if event.type == "content_block_delta" and event.delta is not None and event.delta.text:
        yield event.index or 0, event.delta.text


# Fields of tools that only Anthropic's server knows, and that other servers of Messages refuse.


def _without_in_tools(name: str, fields: Fields) -> Fields:
    """Return a request whose tools do not have the field ``name``; unchanged if no tool has the field.

    Raises:
        Malformed: the tools are not valid in Messages.

    """
    if name.encode() not in bytes(raw := fields.get("tools", msgspec.Raw())):
        return fields
    tools = objects_at(raw, "tools")
    if not any(name in tool for tool in tools):
        return fields
    kept = [{each: value for each, value in tool.items() if each != name} for tool in tools]
    return {**fields, "tools": raw_json(kept)}


def _without_default_type(fields: Fields) -> Fields:
    """Return a request whose own tools do not say ``"type": "custom"``, which is the default.

    Raises:
        Malformed: the tools are not valid in Messages.

    """
    if not _CUSTOM.search(raw := fields.get("tools", msgspec.Raw())):
        return fields
    tools = [dict(tool) for tool in objects_at(raw, "tools")]
    for tool in tools:
        if bytes(tool.get("type", b"")) == b'"custom"':
            del tool["type"]
    return {**fields, "tools": raw_json(tools)}


_CUSTOM = re.compile(rb'"type"\s*:\s*"custom"')


def _with_tools_loaded(fields: Fields) -> Fields:
    """Return a request whose tools are loaded at once; the tools that a search found are named in words.

    Raises:
        Malformed: the request is not valid in Messages.

    """
    fields = _without_in_tools("defer_loading", fields)
    if b'"tool_reference"' not in bytes(raw := fields.get("messages", msgspec.Raw())):
        return fields
    turns = [dict(turn) for turn in objects_at(raw, "messages")]
    for turn in turns:
        if "content" in turn and b'"tool_reference"' in bytes(turn["content"]):
            turn["content"] = raw_json([_with_found(block) for block in objects_at(turn["content"], "messages")])
    return {**fields, "messages": raw_json(turns)}


def _with_found(block: RawObject) -> RawObject:
    """Return a block in which a result of a search names the tools that were found in words."""
    content = block.get("content")
    if bytes(block.get("type", b"")) != b'"tool_result"' or content is None or is_string(content):
        return block
    said = [
        {name: value for name, value in each.items() if name != "tool_name"}
        | {"type": "text", "text": found(text_at(each, "tool_name", "messages"))}
        if bytes(each.get("type", b"")) == b'"tool_reference"'
        else each
        for each in objects_at(content, "messages")
    ]
    return {**block, "content": raw_json(said)}


class _Tool(msgspec.Struct):
    name: str | None = None
    input_schema: msgspec.Raw = msgspec.Raw()


_tools = msgspec.json.Decoder(list[_Tool] | None)


def _history(fields: Fields, history: HistoryRules) -> Wording:
    """Return a request as ``history`` says: without instructions in its conversation there are no changes of tools."""
    raw = bytes(fields.get("messages", b"")) if history.moves_system else b""
    if b'"tool_addition"' in raw or b'"tool_removal"' in raw:
        with suppress(Malformed):  # the provider reports the error in its own words
            fields = with_tools_changed(fields)
    return messages_history(fields, history)


def _offered_tools(raw: msgspec.Raw) -> Iterator[OfferedTool]:
    """Yield members of toolsets, and the tools with a name: their arguments must always match their schema."""
    own = {tool.name: tool for tool in _tools.decode(raw) or () if tool.name is not None}
    for name, tool in own.items():
        yield OfferedTool(name, bytes(tool.input_schema) or None, strict=True)
    yield from offered_tools(raw, own)


def _from_chat(fields: Fields, habits: Habits) -> Wording:
    own = of_messages(habits)
    return from_chat(
        fields,
        default_max_tokens=own.max_tokens,
        is_longest=own.is_longest,
        adaptive_thinking=own.adaptive_thinking,
        least_thinking=own.least_thinking,
        sampling=own.sampling,
        signs=own.signs,
        searches=own.searches,
    )


class _Choice(msgspec.Struct):
    disable_parallel_tool_use: bool | None = None


_choice = msgspec.json.Decoder(_Choice | None)


def _wants_one_call(fields: Fields) -> bool:
    """Whether a request says ``disable_parallel_tool_use`` in its choice of tools."""
    try:
        choice = _choice.decode(fields.get("tool_choice", b"null"))
    except UNREADABLE:
        return False
    return choice is not None and choice.disable_parallel_tool_use is True


class _Forcing(msgspec.Struct):
    type: str
    name: str | None = None


_forcing = msgspec.json.Decoder(_Forcing)
_FREE = frozenset({"auto", "none"})


def _forced(fields: Fields) -> ForcedCall | None:
    """Return which call a request forces; None if its model may choose."""
    if "tool_choice" not in fields:
        return None
    try:
        choice = _forcing.decode(fields["tool_choice"])
    except UNREADABLE:  # the provider reports the error in its own words
        return None
    if choice.type in _FREE:
        return None
    return ForcedCall() if choice.name is None else ForcedCall((choice.name,))


def _without_thinking(fields: Fields, _: Mapping[str, Any]) -> Wording:
    """Return a Messages request that forbids thinking; the thinking that it asked for is a loss."""
    asked = bytes(fields.get("thinking", b"")) not in {b"", b"null", bytes(_NOT_THINKING)}
    losses = (Loss("thinking", THINKS_NOT, hint=True),) if asked else ()
    return Wording({**fields, "thinking": _NOT_THINKING}, losses)


_NOT_THINKING = raw_json({"type": "disabled"})


class _Callable(msgspec.Struct):
    name: str = ""
    input_schema: dict[str, Any] | None = None


_callables = msgspec.json.Decoder(list[_Callable])
_NO_CALL, _FREE_CHOICE = raw_json({"type": "none"}), raw_json({"type": "auto"})


def _asked_for_json(wording: Wording, forced: ForcedCall) -> Wording:
    """Return a Messages request that asks for JSON in place of a forced call, as the request of chat does."""
    fields = wording.fields
    said = dict(fields)
    try:
        offered = _callables.decode(fields.get("tools", b"[]"))
        tools = forced_among([(each.name, each.input_schema) for each in offered], forced, "input_schema")
        config = object_at(fields.get("output_config"), "output_config")
        if tools and forced.as_json:
            schema, lost = schema_of(tools)
            moot = [name for name in ("output_format",) if said.pop(name, None) is not None]  # the older place
            moot += ["output_config.format"] if "format" in config else []
            said["output_config"] = raw_json({**config, "format": {"type": "json_schema", "schema": schema}})
            said["tool_choice"] = _NO_CALL
            lost += [Loss(name, NO_TEXT, hint=True) for name in moot]
            return Wording(said, (*wording.losses, Loss("tool_choice", AS_CALL, hint=True), *lost))
    except (*UNREADABLE, Malformed):
        return wording  # the provider reports the error in its own words
    said["tool_choice"] = _FREE_CHOICE
    return Wording(said, (*wording.losses, Loss("tool_choice", AS_AUTO, hint=True)))


MESSAGES = Dialect(
    name="messages",
    path="messages",
    endpoint="messages",
    headers="anthropic-",
    counting=TokenCounting("messages/count_tokens", "input_tokens"),
    error_body=error_body,
    told_as=meanings.ANTHROPIC,
    requests=RequestFormat(
        prompt="messages",
        reading_order=("tools", "system", "messages"),
        parameters=ParameterNames(
            answer_limits=("max_tokens",),
            # The field ``metadata`` is not the same as chat's.
            known=frozenset({"output_config", "stop_sequences", "temperature", "thinking", "top_k", "top_p"}),
            renamed={"stop": "stop_sequences"},
            lists=frozenset({"stop_sequences"}),
        ),
        system=SystemPrompt("system", lambda text: {"type": "text", "text": text}),
        with_limit=with_limit,
        essential=frozenset({"thread"}),
        decoded=(
            frozenset({"mcp_servers", "metadata", "output_config", "stop_sequences", "thinking"})
            | {"tool_choice", "tools"}
        ),
        json_formats={"output_format": json_format, "output_config": json_format_within},
        thinking=ThinkingFields(
            effort="thinking",
            paths=frozenset({"thinking", "output_config.effort"}),
            kind="thinking.type",
            as_kind=thinking_as,
            fields=frozenset({"thinking", "output_config", "context_management"}),
            without_effort=without_effort,
            with_effort=with_effort,
            forbids=forbids_thinking,
            forbidding=_without_thinking,
        ),
        omissible=OmissibleFields(
            fields=frozenset({"context_management", "metadata", "output_config.effort", "service_tier", "thinking"}),
            in_tools={
                "tools.defer_loading": _with_tools_loaded,
                "tools.eager_input_streaming": partial(_without_in_tools, "eager_input_streaming"),
                "tools.input_examples": partial(_without_in_tools, "input_examples"),
                "tools.type": _without_default_type,
            },
        ),
        vendors=VendorsDiffer(
            takes_rules=True,
            for_newest_version=for_newest_version,
            header_for=header_for,
            with_history=_history,
            with_plain_schemas=partial(with_plain, tools=("tools",), formats=("output_config", "output_format")),
        ),
        tools=ToolFields(
            offered={"tools": _offered_tools},
            one_call=_wants_one_call,
            forced=_forced,
            unforced=_asked_for_json,
        ),
        thoughts=EarlierThoughts(
            dropping_unfit=dropping_unfit,
            without_foreign=without_foreign,
            without_bound=without_bound_reasoning,
            without_since=without_bound_reasoning,
            without_those=without_reasoning_of,
        ),
        marks=CacheMarking(
            with_marks=with_marks,
        ),
    ),
    answers=AnswerFormat(
        read_event=read_event,
        binds=True,
        unshown=partial(unshown, place=place_of),
        texts=texts,
        events_of_answer=events_of_answer,
        gathering=MessageGathering,
        ending=ENDING,
        failure=failure,
        learned=partial(learned, opening=re.compile(rb'"text": ?"'), named=True),
        keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n',
    ),
    continuing=MessageContinuing(),
    pivoting=Pivoting(
        to_chat=to_chat,
        names={
            "max_completion_tokens": "max_tokens",
            "parallel_tool_calls": "tool_choice",
            "reasoning_effort": "output_config.effort",
            "response_format": "output_config.format",
            "user": "metadata.user_id",
        },
        keeps=frozenset({"marks", "signed", "beyond"}),
        takes_signed=ANTHROPIC,
        beyond=frozenset({"results", "thinking_budget", "thoughts", "top_k", "addresses"}),
        from_chat=_from_chat,
        stream_to_chat=lambda secrets, _: ToChat(secrets),
        stream_from_chat=partial(FromChat, offered=_offered_tools),
        habits_of=habits_of,
    ),
)
