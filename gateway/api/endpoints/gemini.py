"""Reads requests for Google's generateContent; the URL has the model, and whether the answer streams."""

import re
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.api.endpoint import Description, Endpoint
from gateway.api.request import (
    Decoders,
    ParsedRequest,
    StreamFormat,
    decoded_fields,
    needs_of,
    read_common,
    required_turns,
)
from gateway.core.errors import InvalidRequest
from gateway.http import Contents, Media, decoded, is_set, least
from gateway.keys import GOOGLES
from providers import BY_GOOGLES_CLIENTS, runs_there
from providers.dialects import GEMINI, Malformed, camel, flattened, raw_json

if TYPE_CHECKING:
    from aiohttp import web

_STREAMED = ":streamGenerateContent"
_LIMIT = GEMINI.requests.parameters.answer_limits[0]
_TRUE, _FALSE = msgspec.Raw(b"true"), msgspec.Raw(b"false")
_ARRAY, _EVENTS = msgspec.Raw(b'"json"'), msgspec.Raw(b'"sse"')


def _of_kind(kinds: str) -> re.Pattern[bytes]:
    return re.compile(rb'"mime_?[tT]ype"\s*:\s*"(?:%b)/' % kinds.encode())


_DOCUMENTS = "application|text|video"
GEMINI_MEDIA = Media(
    odd=re.compile(rb'"(?:(?:inline|file)_?[dD]ata|executable_?[cC]ode|code_?[eE]xecution_?[rR]esult)"\s*:'),
    any=_of_kind(f"image|audio|{_DOCUMENTS}"),
    vision=_of_kind("image"),
    audio=_of_kind("audio"),
    documents=_of_kind(_DOCUMENTS),
)


class _GenerationConfig(msgspec.Struct, rename="camel"):
    max_output_tokens: float | None = None
    response_mime_type: str | None = None
    response_schema: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None


_DECODERS: Decoders = {
    "tools": msgspec.json.Decoder(list[dict[str, msgspec.Raw]] | dict[str, msgspec.Raw] | None),
    "generationConfig": msgspec.json.Decoder(
        _GenerationConfig | None
    ),  # for the documentation only; requests are read field by field
}
_numbers = msgspec.json.Decoder(float | None)


def _of_the_address(request: "web.Request", contents: Contents) -> Contents:
    """Add the URL's parts (the model, ``:streamGenerateContent``) to the body's fields."""
    streamed = request.path.endswith(_STREAMED)
    fields_of_address = {
        "model": raw_json(request.match_info["model"]),
        "stream": _TRUE if streamed else _FALSE,
        "alt": _EVENTS if request.query.get("alt") == "sse" else _ARRAY,
    }
    return msgspec.structs.replace(contents, fields={**contents.fields, **fields_of_address})


def read_gemini(contents: Contents, race_header: str | None, _: object = None) -> ParsedRequest:
    """Read the body of a request, with the fields from the URL.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    model, race, preferences = read_common(contents, race_header)
    try:
        fields = flattened(contents.fields)
    except Malformed as error:
        raise InvalidRequest(error.message, param=error.param) from None
    is_array, stream = fields.pop("alt", _EVENTS) == _ARRAY, fields["stream"] == _TRUE
    prompt = required_turns(fields, GEMINI.requests.prompt)
    tools = decoded_fields(fields, _DECODERS).get("tools") or ()
    kinds = {camel(kind) for tool in ((tools,) if isinstance(tools, dict) else tools) for kind in tool}
    limit = fields.get(_LIMIT)
    formats = [name for name in GEMINI.requests.json_formats if is_set(fields.get(name))]
    is_json = bool(formats) and any(GEMINI.requests.json_formats[name](fields[name]) is not None for name in formats)
    needs = needs_of(
        prompt,
        contents,
        GEMINI_MEDIA,
        max_tokens=None if limit is None else least(decoded(_LIMIT, limit, _numbers)),
        tools=not kinds.isdisjoint(BY_GOOGLES_CLIENTS),
        json_schema=is_json and any(name.endswith("chema") for name in formats),
    )
    # The provider runs all other tools: they search or spend, so such calls are never duplicated.
    is_run = bool(kinds - BY_GOOGLES_CLIENTS) or runs_there(contents.fields)
    return ParsedRequest(
        dialect=GEMINI,
        model=model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=msgspec.structs.replace(needs, inline=False) if is_set(fields.get("cachedContent")) else needs,
        race=race,
        preferences=preferences,
        stream=stream,
        written=StreamFormat.ARRAY if stream and is_array else StreamFormat.EVENTS,
        stateful=is_run,
        for_hosted=is_run,
        for_program=bool(tools) or is_json,
    )


_DESCRIPTION = Description(
    id="generateContent",
    summary="Google's generateContent",
    prompt={"type": ["array", "object"], "description": "The turns, each with a `role` and `parts`."},
    example={"contents": [{"role": "user", "parts": [{"text": "Say hello."}]}]},
    answer="GenerateContentResponse",
    events="At `:streamGenerateContent` events with `alt=sse`, else the elements of an array.",
    error_schema="GeminiError",
)

_MODELS = (f"{GOOGLES}models/{{model:.+}}", "/v1/models/{model:.+}")  # newer SDKs of Google use the second
GEMINI_ENDPOINT = Endpoint(
    dialect=GEMINI,
    read=read_gemini,
    fields=_DECODERS,
    description=_DESCRIPTION,
    media=GEMINI_MEDIA,
    routes=tuple(f"{path}:generateContent" for path in _MODELS),
    streamed=tuple(f"{path}{_STREAMED}" for path in _MODELS),
    below=GOOGLES,
    counted=tuple(f"{path}:countTokens" for path in _MODELS),
    addressed=_of_the_address,
)
