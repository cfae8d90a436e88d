"""Refusals of the API in which a model was asked: another API of the same provider takes the same request.

For example, 400 "This model is only supported in v1/responses and not in v1/chat/completions".
"""

import re
from collections.abc import Collection, Container, Mapping
from enum import StrEnum

from providers.refusals.errors import ErrorKind, UpstreamError, kinds
from providers.refusals.unknown_models import names_model

_NOT_OFFERED = frozenset({405, 501})  # llama.cpp and others, for an API that the server or the model does not have
_AT_LM_STUDIO = "Unexpected endpoint or method"  # with status 200 (lmstudio-ai/lmstudio-bug-tracker/issues/618)
_REFUSING = kinds(lambda facts: facts.may_refuse or facts.is_absence)
_CODES_OF_MODEL = frozenset({"unsupported_api_for_model", "OperationNotSupported"})  # GitHub Copilot, Azure


_LONGEST = 4096  # characters of a message that are searched


class MissingFeature(StrEnum):
    """What the API that was asked lacks."""

    PATH = "path"  # the whole server has no such API
    MODEL = "model"  # this model is not in the API
    TOOLS = "tools"  # this model gets no tools in the API
    TOOL = "tool"  # this model gets no tools of one type in the API


# OpenAI of models that only Responses, chat or completions have (github.com/n8n-io/n8n/issues/18352,
# diffbot/code-gpt-docs/issues/172, Laisky/one-api/issues/88), GitHub Copilot (decolua/9router/issues/1062,
# caozhiyuan/copilot-api/issues/102), Azure (langgenius/dify-official-plugins/issues/2359); read on 2026-11-27. Google
# (mlcommons/modelbench/issues/1655, read on 2026-11-29). Bedrock Mantle (mnfst/llm-gateway/issues/2657, read on
# 2026-12-01).
_OF_MODEL = re.compile(
    r"only (?:supported|available) (?:in|on|via|with|through) (?:the )?/?v1/\w+"
    r"|not (?:a chat model|supported in the /?v1/)|is a chat model and not supported"
    r"|(?:not supported (?:with|by|in)|does not support) the (?:Responses|Chat Completions|Messages) API"
    r"|does not support (?:the )?['`\"]?/?(?:v1/)?(?:responses|chat.?completions|completions|messages)['`\"]? API"
    r"|only supports (?:the )?Interactions API"
    r"|not accessible via the \S+ endpoint"
    r"|^The requested operation is (?:unsupported|not supported)\.?$"
    r"|The \w+ operation does not work with the specified model",
    re.IGNORECASE,
)
# OpenAI of models from gpt-5.4 on (openai/openai-openapi/issues/541, sandialabs/atlas-ui-3/issues/756, likewise).
_OF_TOOLS = re.compile(r"function tools .{0,80}not supported .{0,80}in /?v1/", re.IGNORECASE | re.DOTALL)
# How vendors name an API that takes the request, in words that offer it.
_OFFERED = re.compile(
    r"(?:only (?:supported|available) (?:in|on|via|with|through) (?:the )?|use |mean to use )[`'\"]?/?(?:v1/)?"
    r"(chat/completions|completions|responses|messages)\b"
    r"|(?:use the|only supports(?: the)?) (Responses|Chat Completions|Messages|Interactions) API",
    re.IGNORECASE,
)
_DIALECT = {
    "chat/completions": "chat",
    "chat completions": "chat",
    "completions": "completions",
    "interactions": "interactions",
    "responses": "responses",
    "messages": "messages",
}
# A type of tools that is not in the API: readers of Rust (openai/codex/issues/23186, of several servers; xAI), OpenAI
# of values and of models (cline/cline/issues/10423 and the like), servers that read with pydantic. Read on 2026-11-30.
_OF_TOOL_TYPE = re.compile(
    r"unknown variant \W?(?P<a>\w+)|invalid value: \W?(?P<b>\w+)|input tag \W?(?P<c>\w+)"
    r"|(?:unsupported|unknown|invalid|unrecognized)(?: \w+)? (?:tool )?types?:? \W?(?P<d>\w+)"
    r"|tool(?: of)?(?: type)?:? \W?(?P<e>\w+)\W? (?:is|are) (?:not|un)"
    r"|does not support (?:the )?(?:tool )?\W?(?P<f>\w+)"
    r"|type:? \W?(?P<g>\w+)\W? is (?:not|un)",
    re.IGNORECASE,
)
# The same of any type but functions, the only type that these words name.
_OF_FUNCTIONS_ALONE = re.compile(
    r"\btools?\b[^;!?\n]{0,40}\btype\b[^;!?\n]{0,60}input should be ['`]function['`]", re.IGNORECASE
)
# The same of any type but functions, where there are functions too: Google of models before Gemini 3
# (googleapis/go-genai/issues/323), and of those since, which take both only where each part of what runs at Google may
# be told (cloudwego/eino-ext/issues/761); Vertex AI (BerriAI/litellm/issues/26682). Read on 2026-12-01.
_NOT_BESIDE_FUNCTIONS = re.compile(
    r"\btool use with function calling is (?:unsupported|not supported)"
    r"|\bbuilt-?in tools\b[^;!?\n]{0,60}\b(?:with|and) function calling"
    r"|\bmultiple tools are supported only when they are all search tools",
    re.IGNORECASE,
)
_PLACE = re.compile(r"\btools\W{1,4}(\d{1,3})\b")
# The words of a 404 for an unknown path: web servers and frameworks, OpenAI, Groq, llama.cpp.
_OF_PATH = re.compile(
    r"^(?:404:?\s*)?(?:file|page|route|path|resource|url|endpoint)?\W*(?:404\W*)?(?:page )?not found\.?$"
    r"|^answered 404 without|^a web page|invalid url|unknown (?:request )?url|no (?:such )?(?:route|endpoint)"
    r"|cannot post",
    re.IGNORECASE,
)
# What a 404 says of something stored that the request names by its id: OpenAI of items, responses, conversations and
# files (openai/openai-agents-python/issues/2020, vercel/ai/issues/7543, likewise), vLLM's server of responses.
_THINGS = r"(?:file|item|response|conversation|container|vector.?store|prompt|batch|cached.?content)"
_OF_STORED = re.compile(
    rf"\bwith (?:the )?id\b.{{0,120}}(?:not found|not exist|n't exist|expired)|\bno such {_THINGS}"
    rf"|\b{_THINGS}s?\W{{1,3}}[a-z]+[-_/]\w{{6,}}.{{0,80}}not found|not found\W{{1,3}}[a-z]+[-_/]\w{{6,}}",
    re.IGNORECASE | re.DOTALL,
)


def lacking(error: UpstreamError) -> MissingFeature | None:
    """Return what the API lacks by the words of an error; None if the error says no such thing."""
    text = error.said
    if error.kind in _REFUSING:
        if _OF_TOOLS.search(text) is not None:
            return MissingFeature.TOOLS
        if _OF_MODEL.search(text) is not None or not _CODES_OF_MODEL.isdisjoint(error.names):
            return MissingFeature.MODEL
    is_path = error.kind is ErrorKind.NO_SUCH_API or text.startswith(_AT_LM_STUDIO)
    if error.kind is ErrorKind.NOT_FOUND:
        is_path = _OF_PATH.search(text) is not None
    elif error.kind is ErrorKind.SERVER_ERROR:
        is_path = is_path or error.status in _NOT_OFFERED
    return MissingFeature.PATH if is_path and not names_model(error) else None


def refused_tool(error: UpstreamError, types: Mapping[int, str], items: Collection[str]) -> str | None:
    """Return which type of a request's tools, or of items about tools, the API lacks by an error; None: none.

    ``types``: by the places of the tools, without functions. ``items``: the types of items. In any other words, the
    type of the tool whose place is named: 400 "Werkzeuge dieser Art gibt es nicht (tools[1].type)".
    """
    if error.kind not in _REFUSING or (b"tool" not in (error.body or b"").lower() and "tool" not in error.said.lower()):
        return None
    said = error.said[:_LONGEST]
    if _OF_FUNCTIONS_ALONE.search(said) is not None or _NOT_BESIDE_FUNCTIONS.search(said) is not None:
        return min(types.values(), default=None)
    words = [match[match.lastgroup] for match in _OF_TOOL_TYPE.finditer(said) if match.lastgroup]
    named = [str(word) for word in words if word in types.values() or word in items]
    named += [types[place] for place in map(int, _PLACE.findall(said)) if place in types]
    return named[0] if named else None


def lacks_path(error: UpstreamError) -> bool:
    """Whether an error says that the server lacks this API; never of chat, which all servers have."""
    if error.kind is ErrorKind.NOT_FOUND:
        return not names_model(error)
    return error.kind is ErrorKind.SERVER_ERROR and error.status in _NOT_OFFERED


def offered(message: str) -> str | None:
    """Return the dialect that a refusal recommends instead; None if the refusal names no dialect.

    For example "This model is only supported in v1/responses and not in v1/chat/completions": Responses.
    """
    match = _OFFERED.search(message)
    return None if match is None else _DIALECT[(match[1] or match[2]).lower()]


def kind_of_404(message: str, names: Container[str]) -> ErrorKind:
    """Return the kind of a 404 with this message, and with the code and type ``names``.

    A 404 may be about one request, which names something stored (an item, a response, a file), or has a field that the
    vendor does not know (Azure: 567-labs/instructor/issues/381, read on 2026-12-01).
    """
    is_of_stored = "previous_response_not_found" in names or _OF_STORED.search(message) is not None
    is_of_field = message.startswith("Unrecognized request argument")
    return ErrorKind.BAD_REQUEST if is_of_stored or is_of_field else ErrorKind.NOT_FOUND
