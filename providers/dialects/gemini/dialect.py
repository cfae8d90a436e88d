"""Gemini as one of the dialects."""

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from providers.bodies import encoded
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
    TokenCounting,
    ToolFields,
    VendorsDiffer,
    schema_in,
    with_own,
)
from providers.dialects.events import learned
from providers.dialects.gemini.events import (
    GeminiGathering,
    choices,
    error_body,
    events_of_answer,
    failure,
    read_event,
    texts,
)
from providers.dialects.gemini.fields import (
    CANDIDATES,
    IN_CONFIG,
    body_of,
    json_schema_of,
    spelt_at,
    without_blanks,
    without_effort,
    without_foreign,
    without_signatures,
)
from providers.dialects.gemini.own_tools import COMPUTERS_FUNCTIONS
from providers.dialects.gemini.request_from_chat import from_chat
from providers.dialects.gemini.request_to_chat import to_chat
from providers.dialects.gemini.streams import FromChat, ToChat
from providers.dialects.histories import SYSTEM_FIRST
from providers.dialects.history_rules import HistoryRules
from providers.dialects.plain_schemas import NOT_TAKEN, PlainSchema, with_plain
from providers.dialects.wording import GOOGLE, Fields, Loss, Malformed, Wording, as_users, decoded, raw_json
from providers.models import Traits
from providers.refusals import UNREADABLE

# How models differ.


class GeminiHabits(Habits, frozen=True):
    """How one model must be asked in Gemini."""

    levels: bool = True  # the model takes a level of thinking, and not a budget
    least: str = "low"  # the lowest effort at which the model can think
    penalties: bool = False  # the model takes frequency and presence penalties
    several: bool = True  # the model gives several answers
    logprobs: bool = False  # the model tells log probabilities


def habits_of(traits: Traits, max_output_tokens: int | None, known: Habits) -> GeminiHabits:
    """Return the habits of a model."""
    del max_output_tokens  # without a limit, an answer may be as long as the model allows
    return with_own(
        known,
        GeminiHabits,
        signs=traits.family == "gemini" and traits.takes_levels,
        takes_none=True,
        may_think=False,
        levels=traits.takes_levels,
        least=traits.least_effort,
        penalties=traits.penalties,
        several=traits.several,
        logprobs=traits.logprobs,
        # Gemini 3 sees pictures in a function's response (ai.google.dev/gemini-api/docs/function-calling#multimodal).
        beyond=frozenset({"choices", "thoughts", "top_k", "results" if traits.takes_levels else "thinking_budget"})
        | ({"addresses"} if traits.addresses else frozenset()),
    )


def _without_foreign(fields: Fields, habits: Habits) -> Wording:
    return without_foreign(fields, signs=habits.signs)


def _history(fields: Fields, history: HistoryRules) -> Wording:
    """Return a request as ``history`` says."""
    if history.blank_turns:  # nearly all requests
        return Wording(fields)
    try:
        return without_blanks(fields)
    except Malformed:  # Google reports the error
        return Wording(fields)


class _Text(msgspec.Struct):
    text: str = ""


class _Instructions(msgspec.Struct):
    parts: list[_Text]


_instructions = msgspec.json.Decoder(_Instructions)
_turns = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_parts = msgspec.json.Decoder(list[msgspec.Raw])


def _without_system(fields: Fields) -> Wording:
    """Return a request whose user says the system prompt first, for Gemma."""
    left = {name: value for name, value in fields.items() if name != "systemInstruction"}
    try:
        told = [part.text for part in _instructions.decode(fields["systemInstruction"]).parts if part.text]
        first, *later = _turns.decode(fields["contents"])
        is_users = bytes(first.get("role", b'"user"')) == b'"user"'
        parts = _parts.decode(first["parts"]) if is_users else []
    except (*UNREADABLE, KeyError, ValueError):  # Google reports the error
        return Wording(fields)
    said = {"role": "user", "parts": [{"text": as_users("\n\n".join(told))}, *parts]}
    contents = [said, *later] if is_users else [said, first, *later]
    return Wording({**left, "contents": raw_json(contents)}, (Loss("systemInstruction", SYSTEM_FIRST, hint=True),))


def _from_chat(fields: Fields, habits: Habits) -> Wording:
    own = habits if isinstance(habits, GeminiHabits) else GeminiHabits()
    return from_chat(
        fields,
        levels=own.levels,
        least=own.least,
        penalties=own.penalties,
        addresses="addresses" in own.beyond,
        several=own.several,
        logprobs=own.logprobs,
        searches=own.searches,
    )


_HOLDERS = dict.fromkeys(("parameters", "parametersJsonSchema", "parameters_json_schema"), "parameters")
_FORMATS = dict.fromkeys((IN_CONFIG + "responseJsonSchema", IN_CONFIG + "responseSchema"), IN_CONFIG + "responseSchema")


def _with_plain_schemas(fields: Fields) -> Wording:
    """Return a request with schemas of the older form, in words that Google's oldest servers know."""
    wording = with_plain(fields, ("tools",), made=_HOLDERS, written=_as_parameters)
    said, lost = dict(wording.fields), dict[str, None]()
    for name, older in _FORMATS.items():
        with suppress(Malformed):
            given = decoded(fields.get(name), dict[str, Any], name)
            if given is not None and not (schema := PlainSchema(given)).is_weaker:
                del said[name]
                said[older] = raw_json(_in_capitals(schema.plain))
                lost |= schema.lost
    losses = (Loss(f"{IN_CONFIG}responseSchema.{word}", NOT_TAKEN, nearly=True) for word in lost)
    return Wording(said, (*wording.losses, *losses))


def _as_parameters(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return a plain schema of parameters; None: there are no parameters.

    Older servers refuse an empty object: "parameters.properties: should be non-empty for OBJECT type".
    """
    is_empty = schema["type"] == "object" and not schema.get("properties")
    return None if is_empty else _in_capitals(schema)


def _in_capitals(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a plain schema as Google writes types."""
    made = {**schema, "type": schema["type"].upper()}
    if "properties" in schema:
        made["properties"] = {name: _in_capitals(each) for name, each in schema["properties"].items()}
    if "items" in schema:
        made["items"] = _in_capitals(schema["items"])
    return made


# What a request expects of its answer.

_NONE = frozenset({b"", b"null"})
_schemas = msgspec.json.Decoder(dict[str, Any] | None)


def _json_schema(raw: msgspec.Raw) -> JsonFormat | None:
    schema = bytes(raw)
    return None if schema in _NONE else JsonFormat(schema=schema)


def _older_schema(raw: msgspec.Raw) -> JsonFormat | None:
    try:
        schema = _schemas.decode(raw)
        return None if schema is None else JsonFormat(schema=encoded(json_schema_of(schema)))
    except UNREADABLE:
        return None


def _mime_type(raw: msgspec.Raw) -> JsonFormat | None:
    return JsonFormat() if bytes(raw) == b'"application/json"' else None


class _Function(msgspec.Struct, rename="camel"):
    name: str | None = None
    parameters: dict[str, Any] | None = None
    parameters_json_schema: msgspec.Raw = msgspec.Raw()


class _Tool(msgspec.Struct, rename="camel"):
    function_declarations: list[_Function] | None = None
    computer_use: Any = None


_tool_lists = msgspec.json.Decoder(list[_Tool] | None)


def _offered_tools(raw: msgspec.Raw) -> Iterator[OfferedTool]:
    for tool in _tool_lists.decode(raw) or ():
        if tool.computer_use is not None:
            yield from map(OfferedTool, COMPUTERS_FUNCTIONS)
        for each in tool.function_declarations or ():
            if each.name is not None:
                schema = schema_in(each.parameters_json_schema)
                if schema is None and each.parameters is not None:
                    schema = encoded(json_schema_of(each.parameters))
                yield OfferedTool(each.name, schema)


def _forced(fields: Fields) -> ForcedCall | None:
    """Return which call a request forces; None if its model may choose."""
    if b"ANY" not in bytes(fields.get("toolConfig", b"")).upper():
        return None
    try:
        calling = spelt_at(spelt_at(fields["toolConfig"], "toolConfig").get("functionCallingConfig"), "toolConfig")
        mode = decoded(calling.get("mode"), str, "mode") or ""
        names = decoded(calling.get("allowedFunctionNames"), list[str], "allowedFunctionNames") or ()
    except Malformed:  # the provider reports the error in its own words
        return None
    return ForcedCall(tuple(names)) if mode.upper() == "ANY" else None


def _asked_for_json(wording: Wording, forced: ForcedCall) -> Wording:
    """Return a request of Gemini that asks for JSON in place of a forced call, as the request of chat does."""
    said = dict(wording.fields)
    try:
        offered = [(tool.name, tool.schema) for tool in _offered_tools(said.get("tools", msgspec.Raw(b"[]")))]
        schemas = [
            (name, {"type": "object"} if schema is None else msgspec.json.decode(schema)) for name, schema in offered
        ]
    except (*UNREADABLE, Malformed):
        return wording  # the provider reports the error in its own words
    tools = forced_among(schemas, forced, "parameters")
    if tools and forced.as_json:
        schema, lost = schema_of(tools)
        lost += [Loss(name, NO_TEXT, hint=True) for name in sorted(_FORMS) if said.pop(name, None) is not None]
        said[IN_CONFIG + "responseMimeType"] = raw_json("application/json")
        said[IN_CONFIG + "responseJsonSchema"] = raw_json(schema)
        said["toolConfig"] = _NO_CALL
        return Wording(said, (*wording.losses, Loss("toolConfig", AS_CALL, hint=True), *lost))
    said["toolConfig"] = _FREE_CHOICE
    return Wording(said, (*wording.losses, Loss("toolConfig", AS_AUTO, hint=True)))


_FORMS = frozenset(IN_CONFIG + name for name in ("responseMimeType", "responseSchema", "responseJsonSchema"))
_NO_CALL, _FREE_CHOICE = (raw_json({"functionCallingConfig": {"mode": mode}}) for mode in ("NONE", "AUTO"))

_PARAMETERS = ("temperature", "topP", "topK", "candidateCount", "presencePenalty", "frequencyPenalty", "seed")

GEMINI = Dialect(
    name="gemini",
    path="models/{model}:streamGenerateContent",
    query={"alt": "sse"},  # without this parameter, the events are the elements of an array
    endpoint="generate_content",
    headers="x-goog-",
    error_body=error_body,
    told_as=meanings.GOOGLE,
    counting=TokenCounting("models/{model}:countTokens", "totalTokens", "generateContentRequest"),
    requests=RequestFormat(
        prompt="contents",
        reading_order=("tools", "systemInstruction", "contents"),
        parameters=ParameterNames(
            answer_limits=(IN_CONFIG + "maxOutputTokens",),
            known=frozenset({"safetySettings", "serviceTier", "labels"}),
            renamed={
                "temperature": IN_CONFIG + "temperature",
                "top_p": IN_CONFIG + "topP",
                "top_k": IN_CONFIG + "topK",
                "stop": IN_CONFIG + "stopSequences",
                "presence_penalty": IN_CONFIG + "presencePenalty",
                "frequency_penalty": IN_CONFIG + "frequencyPenalty",
                "seed": IN_CONFIG + "seed",
            },
            lists=frozenset({IN_CONFIG + "stopSequences"}),
        ),
        system=SystemPrompt("systemInstruction", lambda text: {"text": text}, within="parts"),
        choices=CANDIDATES,
        storing="store",
        decoded=frozenset({"generationConfig", "generation_config", "safetySettings", "toolConfig", "tools"}),
        essential=frozenset({"cachedContent"}),
        inline=frozenset(
            {
                *("contents", "systemInstruction", "toolConfig", "safetySettings"),
                *(IN_CONFIG + name for name in _PARAMETERS),
                *(IN_CONFIG + name for name in ("maxOutputTokens", "stopSequences", "thinkingConfig")),
                *(IN_CONFIG + name for name in ("responseMimeType", "responseSchema", "responseJsonSchema")),
            }
        ),
        json_formats={
            IN_CONFIG + "responseJsonSchema": _json_schema,
            IN_CONFIG + "responseSchema": _older_schema,
            IN_CONFIG + "responseMimeType": _mime_type,
        },
        body=body_of,
        thinking=ThinkingFields(
            effort=IN_CONFIG + "thinkingConfig",
            paths=frozenset({IN_CONFIG + "thinkingConfig"}),
            fields=frozenset({IN_CONFIG + "thinkingConfig"}),
            without_effort=without_effort,
        ),
        omissible=OmissibleFields(
            fields=frozenset({IN_CONFIG + "thinkingConfig", "labels", "serviceTier"}),
            # Gemini CLI's helpers send 0 whatever its user says (its defaultModelConfigs.ts, read on 2026-11-29).
            unchosen=frozenset({"temperature"}),
        ),
        tools=ToolFields(
            offered={"tools": _offered_tools},
            forced=_forced,
            unforced=_asked_for_json,
            choice="toolConfig",
        ),
        vendors=VendorsDiffer(
            with_history=_history, without_system=_without_system, with_plain_schemas=_with_plain_schemas
        ),
        thoughts=EarlierThoughts(
            without_foreign=_without_foreign,
            without_bound=without_signatures,
        ),
    ),
    answers=AnswerFormat(
        read_event=read_event,
        binds=True,
        texts=texts,
        choices=choices,
        events_of_answer=events_of_answer,
        gathering=GeminiGathering,
        learned=partial(learned, opening=re.compile(rb'"text": ?"')),
        ending=b"",  # answers end with the response's body
        keep_alive=b"\r\n\r\n",  # Google's SDK for Python reads every other line, even a comment, as JSON
        failure=failure,
    ),
    pivoting=Pivoting(
        names={
            "max_completion_tokens": IN_CONFIG + "maxOutputTokens",
            "logprobs": IN_CONFIG + "responseLogprobs",
            "n": CANDIDATES,
            "reasoning_effort": IN_CONFIG + "thinkingConfig",
            "response_format": IN_CONFIG + "responseMimeType",
            "service_tier": "serviceTier",
            "tool_choice": "toolConfig.functionCallingConfig",
            "top_logprobs": IN_CONFIG + "logprobs",
        },
        to_chat=to_chat,
        keeps=frozenset({"signed", "beyond"}),
        takes_signed=GOOGLE,
        from_chat=_from_chat,
        stream_to_chat=lambda secrets, answers: ToChat(secrets, answers=answers),
        takes_one_call=False,
        stream_from_chat=partial(FromChat, offered=_offered_tools),
        habits_of=habits_of,
    ),
)
