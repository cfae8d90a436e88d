"""Gemini as one of the dialects."""

from collections.abc import Iterator
from typing import Any

import msgspec

from providers.dialects.dialect import (
    AnswerFormat,
    Dialect,
    Habits,
    JsonFormat,
    OfferedTool,
    ParameterNames,
    Pivoting,
    RequestFormat,
    SystemPrompt,
    TokenCounting,
    schema_in,
)
from providers.dialects.gemini.events import (
    GeminiGathering,
    error_body,
    events_of_answer,
    failure,
    read_event,
    texts,
)
from providers.dialects.gemini.fields import IN_CONFIG, body_of, json_schema_of, takes_levels
from providers.dialects.gemini.request_from_chat import from_chat
from providers.dialects.gemini.request_to_chat import to_chat
from providers.dialects.gemini.streams import FromChat, ToChat
from providers.dialects.wording import Fields, Wording


class GeminiHabits(Habits, frozen=True):
    """How one model must be asked in Gemini."""

    levels: bool = True  # it takes a level of thinking, and not a budget


def habits_of(model: str, max_output_tokens: int | None, known: Habits) -> GeminiHabits:
    """Return the habits of ``model``."""
    del max_output_tokens  # without a limit, an answer may be as long as the model allows
    return GeminiHabits(thinks=known.thinks, levels=takes_levels(model))


def _from_chat(fields: Fields, habits: Habits) -> Wording:
    return from_chat(fields, levels=not isinstance(habits, GeminiHabits) or habits.levels)


# What a request expects of its answer.

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NONE = frozenset({b"", b"null"})
_schemas = msgspec.json.Decoder(dict[str, Any] | None)


def _json_schema(raw: msgspec.Raw) -> JsonFormat | None:
    schema = bytes(raw)
    return None if schema in _NONE else JsonFormat(schema=schema)


def _older_schema(raw: msgspec.Raw) -> JsonFormat | None:
    try:
        schema = _schemas.decode(raw)
        return None if schema is None else JsonFormat(schema=msgspec.json.encode(json_schema_of(schema)))
    except _UNREADABLE:
        return None


def _mime_type(raw: msgspec.Raw) -> JsonFormat | None:
    return JsonFormat() if bytes(raw) == b'"application/json"' else None


class _Function(msgspec.Struct, rename="camel"):
    name: str | None = None
    parameters: dict[str, Any] | None = None
    parameters_json_schema: msgspec.Raw = msgspec.Raw()


class _Tool(msgspec.Struct, rename="camel"):
    function_declarations: list[_Function] | None = None


_tools = msgspec.json.Decoder(list[_Tool] | None)


def _offered_tools(raw: msgspec.Raw) -> Iterator[OfferedTool]:
    for tool in _tools.decode(raw) or ():
        for each in tool.function_declarations or ():
            if each.name is not None:
                schema = schema_in(each.parameters_json_schema)
                if schema is None and each.parameters is not None:
                    schema = msgspec.json.encode(json_schema_of(each.parameters))
                yield OfferedTool(each.name, schema)


_PARAMETERS = ("temperature", "topP", "topK", "candidateCount", "presencePenalty", "frequencyPenalty", "seed")

GEMINI = Dialect(
    name="gemini",
    path="models/{model}:streamGenerateContent",
    query={"alt": "sse"},  # without it, the events are the elements of an array
    endpoint="generate_content",
    error_body=error_body,
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
        effort=IN_CONFIG + "thinkingConfig",
        choices=IN_CONFIG + "candidateCount",
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
        tools={"tools": _offered_tools},
        body=body_of,
    ),
    answers=AnswerFormat(
        read_event=read_event,
        texts=texts,
        events_of_answer=events_of_answer,
        gathering=GeminiGathering,
        ending=b"",  # its answers end with their response
        failure=failure,
        cut_short=frozenset({"MAX_TOKENS"}),
        refusals=frozenset(
            {
                *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "MODEL_ARMOR"),
                *("IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "JAILBREAK"),
            }
        ),
    ),
    pivoting=Pivoting(
        to_chat=to_chat,
        from_chat=_from_chat,
        stream_to_chat=ToChat,
        stream_from_chat=FromChat,
        habits_of=habits_of,
    ),
)
