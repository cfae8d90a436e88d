"""Google's Interactions API as one of the dialects."""

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from providers.dialects import meanings
from providers.dialects.chat.forced_call import AS_AUTO, NO_TEXT, forced_among, schema_of
from providers.dialects.dialect import (
    AS_CALL,
    AnswerFormat,
    Dialect,
    EarlierThoughts,
    ForcedCall,
    Habits,
    JsonFormat,
    OfferedTool,
    OmissibleFields,
    ParameterNames,
    Pivoting,
    RequestFormat,
    SystemPrompt,
    ThinkingFields,
    ToolFields,
    VendorsDiffer,
    schema_in,
)
from providers.dialects.events import CUT_SHORT, learned
from providers.dialects.gemini.dialect import GeminiHabits, habits_of
from providers.dialects.gemini.fields import UNSIGNED, is_said
from providers.dialects.histories import SYSTEM_FIRST
from providers.dialects.interactions.continuing import InteractionContinuing
from providers.dialects.interactions.events import (
    CUT,
    InteractionGathering,
    events_of_answer,
    read_begun,
    read_event,
    texts,
)
from providers.dialects.interactions.fields import (
    ENDING,
    IN_CONFIG,
    body_of,
    error_body,
    failure,
    items_of,
    step_objects,
    with_signed_calls,
)
from providers.dialects.interactions.request_from_chat import from_chat
from providers.dialects.interactions.request_to_chat import choice_of, to_chat
from providers.dialects.interactions.request_to_chat import schema_of as schema_of_format
from providers.dialects.interactions.streams import FromChat, ToChat
from providers.dialects.interactions.turns import (
    HeardInteraction,
    answered_again,
    ended,
    id_of_answer,
    state_of,
)
from providers.dialects.plain_schemas import with_plain
from providers.dialects.recalling import Recalling
from providers.dialects.wording import (
    BOUND_REASON,
    GOOGLE,
    OURS,
    PLAIN,
    Fields,
    Loss,
    Malformed,
    Wording,
    as_users,
    decoded,
    raw_json,
)
from providers.refusals import UNREADABLE

if TYPE_CHECKING:
    from providers.dialects.reading import RawObject


class _Tool(msgspec.Struct):
    type: str | None = None
    name: str | None = None
    parameters: msgspec.Raw = msgspec.Raw()


_tools = msgspec.json.Decoder(list[_Tool] | None)
_LEVEL, _SUMMARIES, _CHOICE = (IN_CONFIG + name for name in ("thinking_level", "thinking_summaries", "tool_choice"))
_FORMAT = "response_format"


def _offered_tools(raw: msgspec.Raw) -> Iterator[OfferedTool]:
    for tool in _tools.decode(raw) or ():
        if tool.type == "function" and tool.name is not None:
            yield OfferedTool(tool.name, schema_in(tool.parameters))


def _json_format(raw: msgspec.Raw) -> JsonFormat | None:
    """Read ``response_format``; None if the format is not JSON."""
    try:
        is_json, schema = schema_of_format(raw, None)
    except Malformed:
        return None
    return JsonFormat(any_object=schema is None, schema=None if schema is None else bytes(schema)) if is_json else None


def _forced(fields: Fields) -> ForcedCall | None:
    """Return which call a request forces; None if its model may choose."""
    if b'"any"' not in bytes(fields.get(_CHOICE, b"")):
        return None
    try:
        mode, names = choice_of(fields[_CHOICE])
    except Malformed:  # the provider reports the error in its own words
        return None
    return ForcedCall(tuple(names)) if mode == "any" else None


_NO_CALL, _FREE_CHOICE = raw_json("none"), raw_json("auto")


def _asked_for_json(wording: Wording, forced: ForcedCall) -> Wording:
    """Return a request that asks for JSON in place of a forced call, as the request of chat does."""
    said = dict(wording.fields)
    try:
        offered = [(tool.name, tool.schema) for tool in _offered_tools(said.get("tools", msgspec.Raw(b"[]")))]
        schemas = [
            (name, {"type": "object"} if schema is None else msgspec.json.decode(schema)) for name, schema in offered
        ]
    except UNREADABLE:
        return wording  # the provider reports the error in its own words
    tools = forced_among(schemas, forced, "parameters")
    if tools and forced.as_json:
        schema, lost = schema_of(tools)
        if said.pop(_FORMAT, None) is not None:
            lost.append(Loss(_FORMAT, NO_TEXT, hint=True))
        said[_FORMAT] = raw_json({"type": "text", "mime_type": "application/json", "schema": schema})
        said[_CHOICE] = _NO_CALL
        return Wording(said, (*wording.losses, Loss(_CHOICE, AS_CALL, hint=True), *lost))
    said[_CHOICE] = _FREE_CHOICE
    return Wording(said, (*wording.losses, Loss(_CHOICE, AS_AUTO, hint=True)))


def _from_chat(fields: Fields, habits: Habits) -> Wording:
    return from_chat(fields, habits if isinstance(habits, GeminiHabits) else GeminiHabits())


_OF_OTHERS = "Google refuses the signatures of other models' thoughts"
_UNSIGNED = f'"{UNSIGNED}"'.encode()
_SIGNATURE = re.compile(rb'"signature"\s*:')


def _without_foreign(fields: Fields, habits: Habits) -> Wording:
    """Return a request without thoughts that Anthropic's models have signed; unchanged if there are none.

    If the model signs its calls, calls of other models get Google's word for an unsigned call.

    Raises:
        Malformed: the conversation is not valid in interactions.

    """
    raw = bytes(fields.get("input", b""))
    wording = _without(fields, _OF_OTHERS, OURS) if OURS in raw else Wording(fields)
    return _signed(wording) if habits.signs and b'"function_call"' in raw else wording


def _signed(wording: Wording) -> Wording:
    """Return a request in which each turn of the model with a call has a signature; unchanged if all turns have one."""
    steps = step_objects(wording.fields)
    signed = with_signed_calls(steps)
    if len(signed) == len(steps):
        return wording
    return Wording({**wording.fields, "input": raw_json(signed)}, wording.losses)


def _without_signatures(fields: Fields) -> Wording:
    """Return a request without the signatures of thoughts.

    Raises:
        Malformed: the conversation is not valid in interactions.

    """
    wording = _without(fields, BOUND_REASON, b"")
    return _signed(wording) if wording.losses else wording


def _without(fields: Fields, reason: str, begin: bytes) -> Wording:
    """Return a request without thoughts whose signature begins with ``begin``; their summaries tell a model nothing."""
    if _SIGNATURE.search(bytes(fields.get("input", b""))) is None:
        return Wording(fields)
    kept: list[RawObject] = []
    losses: list[Loss] = []
    for number, step in enumerate(step_objects(fields)):
        signature = step.get("signature")
        own = bytes(signature or b"")
        if not is_said(signature) or own == _UNSIGNED or not own.startswith(b'"' + begin):
            kept.append(step)
            continue
        losses.append(Loss(f"input[{number}].signature", reason, hint=True))
        if bytes(step.get("type", b"")) != b'"thought"':
            kept.append({name: value for name, value in step.items() if name != "signature"})
    return Wording({**fields, "input": raw_json(kept)}, tuple(losses)) if losses else Wording(fields)


def _without_effort(fields: Fields) -> Wording:
    """Return a request that asks for no thinking, for a model that refuses to be asked."""
    asks = [name for name in (_LEVEL, _SUMMARIES) if is_said(fields.get(name))]
    losses = tuple(Loss(name, PLAIN, hint=True) for name in asks)
    return Wording({name: value for name, value in fields.items() if name not in {_LEVEL, _SUMMARIES}}, losses)


def _without_system(fields: Fields) -> Wording:
    """Return a request whose user says the system prompt first, for models that take no system prompt."""
    try:
        told = decoded(fields["system_instruction"], str, "system_instruction")
        steps = step_objects(fields)
    except (KeyError, Malformed):  # Google reports the error
        return Wording(fields)
    said = {"type": "user_input", "content": [{"type": "text", "text": as_users(told or "")}]}
    left = {name: value for name, value in fields.items() if name != "system_instruction"}
    return Wording({**left, "input": raw_json([said, *steps])}, (Loss("system_instruction", SYSTEM_FIRST, hint=True),))


INTERACTIONS = Dialect(
    name="interactions",
    path="interactions",
    endpoint="interactions",
    headers="x-goog-",
    error_body=error_body,
    told_as=meanings.GOOGLE,
    requests=RequestFormat(
        prompt="input",
        reading_order=("tools", "system_instruction", "input"),
        parameters=ParameterNames(
            answer_limits=(IN_CONFIG + "max_output_tokens",),
            known=frozenset({"safety_settings", "service_tier", "labels"}),
            renamed={
                "temperature": IN_CONFIG + "temperature",
                "top_p": IN_CONFIG + "top_p",
                "stop": IN_CONFIG + "stop_sequences",
                "seed": IN_CONFIG + "seed",
            },
            lists=frozenset({IN_CONFIG + "stop_sequences"}),
        ),
        system=SystemPrompt("system_instruction", lambda text: {"text": text}),
        storing="store",
        stores_unasked=True,
        decoded=frozenset({"generation_config", "safety_settings", "tools", _FORMAT, _CHOICE}),
        essential=frozenset(
            {"agent", "cached_content", "continuation_token", "environment", "previous_interaction_id"}
        ),
        inline=frozenset(
            {
                *("input", "system_instruction", "safety_settings", "labels", "response_format", "response_mime_type"),
                *(IN_CONFIG + name for name in ("temperature", "top_p", "seed", "max_output_tokens", "stop_sequences")),
                *(_LEVEL, _SUMMARIES, _CHOICE),
            }
        ),
        json_formats={_FORMAT: _json_format},
        body=body_of,
        thinking=ThinkingFields(
            effort=_LEVEL,
            paths=frozenset({_LEVEL, _SUMMARIES}),
            fields=frozenset({_LEVEL, _SUMMARIES}),
            without_effort=_without_effort,
        ),
        omissible=OmissibleFields(
            fields=frozenset({_LEVEL, _SUMMARIES, "labels", "service_tier"}),
        ),
        tools=ToolFields(
            offered={"tools": _offered_tools},
            forced=_forced,
            unforced=_asked_for_json,
            choice=_CHOICE,
        ),
        vendors=VendorsDiffer(
            without_system=_without_system,
            with_plain_schemas=partial(with_plain, tools=("tools",), formats=(_FORMAT,)),
        ),
        thoughts=EarlierThoughts(
            without_foreign=_without_foreign,
            without_bound=_without_signatures,
        ),
    ),
    answers=AnswerFormat(
        read_event=read_event,
        read_begun=read_begun,
        binds=True,
        texts=texts,
        events_of_answer=events_of_answer,
        gathering=InteractionGathering,
        learned=partial(learned, opening=re.compile(rb'"text": ?"'), named=True),
        ending=ENDING,
        cut_short=CUT_SHORT | CUT,
        failure=failure,
    ),
    continuing=InteractionContinuing(),
    recalling=Recalling(
        noun="interaction",
        path="interactions",
        kept_as="interactions",
        previous="previous_interaction_id",
        items_of=items_of,
        heard=HeardInteraction,
        answered_again=answered_again,
        id_of=id_of_answer,
        ended=ended,
        state_of=state_of,
        deleted=lambda _: {},
    ),
    pivoting=Pivoting(
        names={
            "max_completion_tokens": IN_CONFIG + "max_output_tokens",
            "reasoning_effort": _LEVEL,
            "response_format": _FORMAT,
            "tool_choice": _CHOICE,
        },
        to_chat=to_chat,
        keeps=frozenset({"signed", "beyond"}),
        takes_signed=GOOGLE,
        beyond=frozenset({"addresses"}),
        from_chat=_from_chat,
        stream_to_chat=lambda secrets, _: ToChat(secrets),
        takes_one_call=False,
        stream_from_chat=partial(FromChat, offered=_offered_tools),
        habits_of=habits_of,
    ),
)
