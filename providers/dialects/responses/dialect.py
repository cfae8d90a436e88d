"""Responses as one of the dialects."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from providers.dialects.cache_marks import with_breakpoints
from providers.dialects.chat.forced_call import AS_AUTO, NO_TEXT, forced_among, schema_of
from providers.dialects.chat.one_call import wants_one_call
from providers.dialects.dialect import (
    AS_CALL,
    AnswerFormat,
    CacheMarking,
    Dialect,
    EarlierThoughts,
    EventNumbers,
    ForcedCall,
    Habits,
    OmissibleFields,
    ParameterNames,
    Pivoting,
    RequestFormat,
    SystemPrompt,
    ThinkingFields,
    TokenCounting,
    ToolFields,
    VendorsDiffer,
    json_format_within,
    openai_tools,
)
from providers.dialects.plain_schemas import with_plain
from providers.dialects.reading import object_at
from providers.dialects.recalling import Recalling
from providers.dialects.responses.compacting import compacts
from providers.dialects.responses.continuing import ResponseContinuing
from providers.dialects.responses.events import (
    ENDING,
    ENDS,
    ResponseGathering,
    events_of_answer,
    lenient,
    output_of_last,
    read_begun,
    read_event,
    with_answer,
)
from providers.dialects.responses.fields import (
    LEAST_TOKENS,
    custom_names,
    failure,
    has_other_tools,
    numbered,
    with_added_tools,
)
from providers.dialects.responses.request_from_chat import (
    from_chat,
    responses_history,
    without_bound_reasoning,
    without_effort,
)
from providers.dialects.responses.request_to_chat import to_chat
from providers.dialects.responses.stream_from_chat import FromChat
from providers.dialects.responses.stream_to_chat import ToChat
from providers.dialects.responses.turns import (
    Heard,
    answered_again,
    ended,
    id_of_response,
    items_of,
    place_of,
    state_of,
    with_thoughts,
    without_lost_thoughts,
)
from providers.dialects.unshown import unshown
from providers.dialects.wording import SEALED, Fields, Loss, Malformed, Wording, raw_json
from providers.models import Traits
from providers.refusals import UNREADABLE

# The text that one event of a Responses stream adds to the answer.


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    delta: Any = None
    output_index: int | None = None


class _Part(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None


class _Item(msgspec.Struct, gc=False):
    content: list[_Part] | None = None


_events = msgspec.json.Decoder(_Event)


def texts(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the text of a delta, with the index of its item; of the last event, all texts of the answer.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the event has another format.

    """
    event = _events.decode(data)
    if event.type == "response.output_text.delta" and isinstance(event.delta, str) and event.delta:
        yield event.output_index or 0, event.delta
    elif event.type in ENDS:
        for index, raw in enumerate(output_of_last(data)):
            for part in lenient(raw, _Item).content or ():
                if part.type == "output_text" and part.text:
                    yield index, part.text


def _habits_of(traits: Traits, _: int | None, habits: Habits) -> Habits:
    """Return the habits of a model: OpenAI's models give no thoughts in words, and refuse other models' thoughts."""
    return msgspec.structs.replace(
        habits,
        signs=traits.family == "gpt",
        instructions_last=habits.instructions_last or traits.instructions_last,
    )


class _Tool(msgspec.Struct):
    type: str
    name: str | None = None


class _ToolChoice(msgspec.Struct):
    type: str
    name: str | None = None
    mode: str = "auto"
    tools: list[_Tool] = []


_choices = msgspec.json.Decoder(_ToolChoice)
_CHOOSES = frozenset({b"", b"null", b'"auto"', b'"none"'})


def _forced(fields: Fields) -> ForcedCall | None:
    """Return which call a request forces; None if its model may choose, or the tool runs at the provider."""
    raw = bytes(fields.get("tool_choice", b""))
    if raw in _CHOOSES:
        return None
    if raw == b'"required"':
        return ForcedCall()
    try:
        choice = _choices.decode(raw)
    except UNREADABLE:  # the provider reports the error in its own words
        return None
    if choice.type == "allowed_tools":
        named = tuple(tool.name for tool in choice.tools if tool.name is not None)
        return ForcedCall(named) if choice.mode == "required" and named else None
    return ForcedCall((choice.name,)) if choice.name is not None else None


class _Offered(msgspec.Struct):
    type: str
    name: str | None = None
    parameters: dict[str, Any] | None = None


_offered = msgspec.json.Decoder(list[_Offered])
_NO_CALL, _FREE_CHOICE = raw_json("none"), raw_json("auto")


def _asked_for_json(wording: Wording, forced: ForcedCall) -> Wording:
    """Return a request of Responses that asks for JSON in place of a forced call, as the request of chat does."""
    said = dict(wording.fields)
    try:
        offered = _offered.decode(said.get("tools", b"[]"))
        schemas = [(each.name or "", each.parameters if each.type == "function" else None) for each in offered]
        tools, text = forced_among(schemas, forced, "parameters"), object_at(said.get("text"), "text")
        if tools and forced.as_json:
            name = tools[0].name if len(tools) == 1 else "call"
            schema, lost = schema_of(tools)
            if bytes(text.get("format", b"null")) not in _PLAIN_TEXT:
                lost.append(Loss("text.format", NO_TEXT, hint=True))
            # ``strict: false`` is best effort, as in chat: without the field, Responses is strict.
            form = {"type": "json_schema", "name": name, "schema": schema, "strict": False}
            said["text"], said["tool_choice"] = raw_json({**text, "format": form}), _NO_CALL
            return Wording(said, (*wording.losses, Loss("tool_choice", AS_CALL, hint=True), *lost))
    except (*UNREADABLE, Malformed):
        return wording  # the provider reports the error in its own words
    said["tool_choice"] = _FREE_CHOICE
    return Wording(said, (*wording.losses, Loss("tool_choice", AS_AUTO, hint=True)))


_PLAIN_TEXT = frozenset({b"null", b'{"type":"text"}', b'{"type": "text"}'})

RESPONSES = Dialect(
    name="responses",
    path="responses",
    endpoint="responses",
    counting=TokenCounting("responses/input_tokens", "input_tokens", also=(("object", "response.input_tokens"),)),
    requests=RequestFormat(
        prompt="input",
        reading_order=("tools", "instructions", "input", "prompt"),
        parameters=ParameterNames(
            answer_limits=("max_output_tokens",),
            least_limit=LEAST_TOKENS,
            known=frozenset(
                {"metadata", "parallel_tool_calls", "reasoning", "service_tier", "temperature", "text"}
                | {"top_logprobs", "top_p", "user"}
            ),
        ),
        system=SystemPrompt("instructions", lambda text: {"type": "text", "text": text}),
        stores_unasked=True,
        decoded=frozenset({"include", "metadata", "reasoning", "text", "tool_choice", "tools"}),
        essential=frozenset({"conversation", "previous_response_id", "prompt"}),
        json_formats={"text": json_format_within},
        asks_for_summary=compacts,
        thinking=ThinkingFields(
            effort="reasoning.effort",
            paths=frozenset({"reasoning.effort", "reasoning.generate_summary", "reasoning.summary"}),
            fields=frozenset({"reasoning", "include"}),
            without_effort=without_effort,
        ),
        omissible=OmissibleFields(
            fields=(
                frozenset({"client_metadata", "metadata", "prompt_cache_key", "prompt_cache_options"})
                | {"prompt_cache_retention", "reasoning.effort", "reasoning.generate_summary", "reasoning.summary"}
                | {"stream_options", "text.verbosity", "user"}
            ),
            items={"include": frozenset({"reasoning.encrypted_content"})},
        ),
        tools=ToolFields(
            offered={"tools": openai_tools},
            with_all=with_added_tools,
            one_call=wants_one_call,
            custom_names=custom_names,
            has_others=has_other_tools,
            forced=_forced,
            unforced=_asked_for_json,
        ),
        vendors=VendorsDiffer(
            takes_rules=True,
            with_history=responses_history,
            with_plain_schemas=partial(with_plain, tools=("tools",), formats=("text",)),
        ),
        thoughts=EarlierThoughts(
            without_foreign=without_lost_thoughts,
            asking=with_thoughts,
            without_bound=without_bound_reasoning,
            without_those=without_bound_reasoning,
        ),
        marks=CacheMarking(
            with_breakpoints=with_breakpoints,
        ),
    ),
    answers=AnswerFormat(
        read_event=read_event,
        read_begun=read_begun,
        numbers=EventNumbers(re.compile(rb'"sequence_number":(\d+)'), numbered),
        binds=True,
        unshown=partial(unshown, place=place_of),
        with_answer=with_answer,
        texts=texts,
        events_of_answer=events_of_answer,
        gathering=ResponseGathering,
        ending=ENDING,
        failure=failure,
    ),
    continuing=ResponseContinuing(),
    recalling=Recalling(
        noun="response",
        path="responses",
        previous="previous_response_id",
        items_of=items_of,
        heard=Heard,
        answered_again=answered_again,
        id_of=id_of_response,
        ended=ended,
        state_of=state_of,
        deleted=lambda response_id: {"id": response_id, "object": "response", "deleted": True},
        names_items=True,
    ),
    pivoting=Pivoting(
        takes_signed=SEALED,
        names={
            "logprobs": "include",
            "max_completion_tokens": "max_output_tokens",
            "reasoning_effort": "reasoning.effort",
            "response_format": "text.format",
            "verbosity": "text.verbosity",
        },
        to_chat=to_chat,
        keeps=frozenset({"signed", "beyond"}),
        beyond=frozenset({"addresses", "custom_tools", "thoughts"}),
        from_chat=from_chat,
        stream_to_chat=lambda *_: ToChat(),  # passes errors on, and raises none
        stream_sealed=ToChat,
        stream_from_chat=FromChat,
        habits_of=_habits_of,
    ),
)
