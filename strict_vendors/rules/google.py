"""Gemini's rules for generateContent: the fields of its messages, which are protocol buffers, and of its models.

Read on 2026-11-27. A field that no message has is a 400, ``Cannot find field.``; the names are those of JSON, the
paths of its errors those of the buffers (``function_declarations[0].parameters.properties[1].value``).
"""

from typing import Any

from msgspec import Struct, structs

from strict_vendors.shapes import Anything, Decimal, Flag, ListOf, MapOf, Record, Shape, Text, Whole

# What stands in a request, in a part, in generationConfig; which of it is of the other platform only.
FIELDS = "https://ai.google.dev/api/generate-content"
SDK = "https://github.com/googleapis/python-genai/blob/main/google/genai/types.py"
SCHEMA = "https://ai.google.dev/api/caching#Schema"
UNKNOWN = "https://github.com/glowingjade/obsidian-smart-composer/issues/455"
NOT_REPEATING = "https://github.com/zed-industries/zed/issues/53919"
NO_PROPERTIES = "https://github.com/agno-agi/agno/issues/2112"
NAMES = "https://github.com/kaitranntt/ccs/issues/25"
ROLES = "https://github.com/BerriAI/litellm/pull/22046"
NO_DATA = "https://github.com/router-for-me/CLIProxyAPI/issues/1292"
CALL_AFTER_USER = "https://github.com/google-gemini/gemini-cli/issues/26956"
RESPONSE_AFTER_CALL = "https://github.com/BerriAI/litellm/issues/26755"
SAME_NUMBER = "https://github.com/google-gemini/gemini-cli/issues/7705"
ENDS = "https://github.com/LibreChat-AI/agents/pull/323"  # tried there: older models go on from their own turn
SINGLE = "https://github.com/microsoft/semantic-kernel/pull/13288"
SIGNATURES = "https://ai.google.dev/gemini-api/docs/thought-signatures"
CORRUPTED = "https://github.com/google-gemini/gemini-cli/issues/13467"
TOO_LONG = "https://github.com/google-gemini/gemini-cli/issues/6678"
LONGEST = "https://github.com/stackblitz-labs/bolt.diy/issues/955"
PENALTIES = "https://github.com/google-gemini/cookbook/issues/1290"
LEVELS = "https://github.com/RooCodeInc/Roo-Code/issues/10700"
THINKING = "https://ai.google.dev/gemini-api/docs/thinking"
LEVEL_OR_BUDGET = "https://github.com/dhyansraj/mcp-mesh/issues/1346"
JSON_AND_TOOLS = "https://github.com/googleapis/python-genai/issues/867"
SEVERAL = "https://github.com/googleapis/js-genai/issues/1609"
LOGPROBS = "https://github.com/mscraftsman/generative-ai/issues/135"
ALLOWED = "https://ai.google.dev/api/caching#FunctionCallingConfig"
ADDRESSES = "https://ai.google.dev/gemini-api/docs/file-input-methods"
# What it reads at an address of others (``ADDRESSES``), but for videos.
AT_ADDRESSES = frozenset(
    {*(f"text/{each}" for each in ("html", "css", "plain", "xml", "csv", "rtf", "javascript")), "application/json"}
    | {"application/pdf", "image/bmp", "image/jpeg", "image/png", "image/webp"}
)
MODELS = "https://ai.google.dev/gemini-api/docs/models"
KEYS = "https://ai.google.dev/gemini-api/docs/troubleshooting"
# "Stores requests by default for projects created on or after October 26, 2026", by both of its APIs, for 55 days at
# most; read on 2026-11-29. The stand-in's project is such a one.
STORING = "https://ai.google.dev/gemini-api/docs/logs-datasets"
STORED_DAYS = 55
# LOW, MEDIUM and HIGH; no explicit caching; sampling is ignored; read on 2026-11-29.
ARGON = "https://docs.cloud.google.com/gemini-enterprise-agent-platform/models/guides/gemini-4-argon"

NAME = r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"
# Google's words for a call that it did not sign: signatures that are not looked at.
UNSIGNED = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")

_TYPES = ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
_schema: dict[str, Shape] = {}
SCHEMA_OF_OPENAPI = Record(fields=_schema, page=SCHEMA)
_schema |= {
    "type": Text(only=[*_TYPES, *map(str.lower, _TYPES), "TYPE_UNSPECIFIED"]),
    "format": Text(),
    "title": Text(),
    "description": Text(),
    "nullable": Flag(),
    "enum": ListOf(of=Text()),
    "maxItems": Anything(),
    "minItems": Anything(),
    "properties": MapOf(of=SCHEMA_OF_OPENAPI),
    "required": ListOf(of=Text()),
    "minProperties": Anything(),
    "maxProperties": Anything(),
    "minLength": Anything(),
    "maxLength": Anything(),
    "pattern": Text(),
    "example": Anything(),
    "anyOf": ListOf(of=SCHEMA_OF_OPENAPI),
    "propertyOrdering": ListOf(of=Text()),
    "default": Anything(),
    "items": SCHEMA_OF_OPENAPI,
    "minimum": Decimal(),
    "maximum": Decimal(),
}
_file = Record(fields={"mimeType": Text(), "fileUri": Text(), "displayName": Text()}, needed=["fileUri"])
_blob = Record(fields={"mimeType": Text(), "data": Text(), "displayName": Text()})
_PART = Record(
    page=FIELDS,
    fields={
        "text": Text(),
        "inlineData": _blob,
        "fileData": _file,
        "functionCall": Record(
            fields={
                "id": Text(),
                "name": Text(),
                "args": MapOf(),
                "partialArgs": ListOf(of=MapOf()),
                "willContinue": Flag(),
            },
            needed=["name"],
        ),
        "functionResponse": Record(
            fields={
                "id": Text(),
                "name": Text(),
                "response": MapOf(),
                "parts": ListOf(
                    of=Record(
                        fields={
                            "inlineData": _blob,
                            "fileData": _file,
                            **dict.fromkeys(("mediaProcessing", "mediaResolution", "videoMetadata"), MapOf()),
                            **dict.fromkeys(("documentMetadata", "spreadsheetMetadata", "audioMetadata"), MapOf()),
                        }
                    )
                ),
                "willContinue": Flag(),
                "scheduling": Text(),
            },
            needed=["name", "response"],
        ),
        "executableCode": Record(fields={"id": Text(), "language": Text(), "code": Text()}),
        "codeExecutionResult": Record(fields={"id": Text(), "outcome": Text(), "output": Text()}),
        "toolCall": MapOf(),
        "toolResponse": MapOf(),
        "thought": Flag(),
        "thoughtSignature": Text(),
        "partMetadata": MapOf(),
        "mediaResolution": MapOf(),
        "mediaProcessing": MapOf(),
        "audioTranscription": MapOf(),
        "videoMetadata": MapOf(),
        # https://github.com/googleapis/python-genai, 3.6, types.py, read on 2026-11-29
        "speechMetadata": MapOf(),
        "documentMetadata": MapOf(),
        "spreadsheetMetadata": MapOf(),
        "audioMetadata": MapOf(),
    },
)
_CONTENT = Record(fields={"role": Text(), "parts": ListOf(of=_PART)}, page=FIELDS)
_FUNCTION = Record(
    page=FIELDS,
    fields={
        "name": Text(),
        "description": Text(),
        "behavior": Text(),
        "parameters": SCHEMA_OF_OPENAPI,
        "parametersJsonSchema": Anything(),
        "response": SCHEMA_OF_OPENAPI,
        "responseJsonSchema": Anything(),
    },
)
_TOOL = Record(
    page=FIELDS,
    fields={
        "functionDeclarations": ListOf(of=_FUNCTION),
        **{
            name: MapOf()
            for name in (
                "googleSearchRetrieval",
                "codeExecution",
                "googleSearch",
                "computerUse",
                "urlContext",
                "fileSearch",
                "googleMaps",
            )
        },
        "mcpServers": ListOf(),
    },
)
_CONFIG = Record(
    page=FIELDS,
    fields={
        "stopSequences": ListOf(of=Text()),
        "responseMimeType": Text(),
        "responseSchema": SCHEMA_OF_OPENAPI,
        "responseJsonSchema": Anything(),
        "responseModalities": ListOf(of=Text()),
        "candidateCount": Whole(),
        "maxOutputTokens": Whole(),
        "temperature": Decimal(),
        "topP": Decimal(),
        "topK": Decimal(),
        "seed": Whole(least=-(2**31), most=2**31 - 1),
        "presencePenalty": Decimal(),
        "frequencyPenalty": Decimal(),
        "responseLogprobs": Flag(),
        "logprobs": Whole(),
        "enableEnhancedCivicAnswers": Flag(),
        "speechConfig": MapOf(),
        "thinkingConfig": Record(
            fields={
                "includeThoughts": Flag(),
                "thinkingBudget": Whole(),
                "thinkingLevel": Text(only=["minimal", "low", "medium", "high", "MINIMAL", "LOW", "MEDIUM", "HIGH"]),
            }
        ),
        "imageConfig": MapOf(),
        "mediaResolution": Text(),
        "audioTranscriptionConfig": MapOf(),
    },
)
GENERATE = Record(
    page=FIELDS,
    fields={
        "model": Text(),
        "contents": ListOf(of=_CONTENT),
        "tools": ListOf(of=_TOOL),
        "toolConfig": Record(
            fields={
                "functionCallingConfig": Record(
                    fields={
                        "mode": Text(
                            only=["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED", "auto", "any", "none"]
                        ),
                        "allowedFunctionNames": ListOf(of=Text()),
                    }
                ),
                "retrievalConfig": MapOf(),
                "includeServerSideToolInvocations": Flag(),
            }
        ),
        "safetySettings": ListOf(
            of=Record(fields={"category": Text(), "threshold": Text()}, needed=["category", "threshold"])
        ),
        "systemInstruction": _CONTENT,
        "generationConfig": _CONFIG,
        "cachedContent": Text(),
        "serviceTier": Text(),
        "store": Flag(),
    },
)
COUNT = Record(fields={"contents": ListOf(of=_CONTENT), "generateContentRequest": MapOf()})
# Names below these keys are the user's, not fields.
FREE = frozenset(
    {"args", "response", "parametersJsonSchema", "responseJsonSchema", "default", "example", "partMetadata"}
)


def _spelt(shape: Shape, found: set[str]) -> set[str]:
    """Collect the names of all fields within a shape."""
    match shape:
        case Record():
            fresh = {name: each for name, each in shape.fields.items() if name not in found}
            found.update(fresh)  # not |=, which would make another set of it and the keys
            for each in fresh.values():
                _spelt(each, found)
        case ListOf() | MapOf():
            _spelt(shape.of, found)
    return found


SPELT = frozenset(_spelt(GENERATE, set()) | _spelt(COUNT, set()))


class GoogleModel(Struct, frozen=True):
    """What one model takes: budgets of thoughts (least, most), or levels; and whether it signs its calls."""

    context: int = 1_048_576
    longest: int = 65_536
    budgets: tuple[int, int] | None = None
    can_stop_thinking: bool = True
    levels: bool = False
    signs: bool = False
    json_with_tools: bool = False
    thinks: bool = True
    continues: bool = True  # from a turn of its own at the end
    least_level: str = "MINIMAL"
    caches: bool = True  # what a request names as cached


_of_3 = GoogleModel(budgets=(0, 32_768), levels=True, signs=True, json_with_tools=True)
_newest = GoogleModel(budgets=(0, 32_768), levels=True, signs=True, json_with_tools=True, continues=False)
KNOWN: dict[str, GoogleModel] = {
    "gemini-2.5-pro": GoogleModel(budgets=(128, 32_768), can_stop_thinking=False),
    "gemini-2.5-flash": GoogleModel(budgets=(1, 24_576)),
    "gemini-2.5-flash-lite": GoogleModel(budgets=(512, 24_576), thinks=False),  # it thinks if it is asked to
    "gemini-3-flash-preview": _of_3,
    "gemini-3.1-pro-preview": _of_3,
    "gemini-3.1-flash-lite": _of_3,
    "gemini-3.5-flash": _of_3,
    "gemini-3.5-flash-lite": _newest,
    "gemini-3.6-flash": _newest,
    "gemini-3.7-flash": _newest,
    "gemini-3.8-flash": _newest,  # Gemini CLI's default
    "gemini-3.9-flash": _newest,  # not out yet
    "gemini-4-argon": structs.replace(_newest, least_level="LOW", caches=False),
}


def of(name: str) -> GoogleModel:
    """Return what a model takes; one that only a stand-in of one's own has is as usual."""
    return KNOWN.get(name) or GoogleModel()


def listed(name: str) -> dict[str, Any]:
    """Return a model as the list of models has it."""
    model = KNOWN[name]
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name,
        "inputTokenLimit": model.context,
        "outputTokenLimit": model.longest,
        "supportedGenerationMethods": ["generateContent", "countTokens", "batchGenerateContent"],
        "thinking": model.budgets is not None,
    }
