"""Reads requests for OpenAI's chat completions."""

from collections.abc import Iterable, Mapping

import msgspec

from gateway.ingress.asked import Asked, Decoders, begin, decoded_fields, needs_of, required_messages
from gateway.ingress.body import Contents, is_set, least
from gateway.ingress.openapi.operation import ref
from gateway.ingress.surfaces.description import Description
from gateway.ingress.surfaces.surface import Surface
from gateway.ingress.survey import Media
from providers.dialects.chat.dialect import CHAT

MEDIA = Media.of("image_url", "input_audio", "file")

# Tools that a provider runs itself: they act, search or spend, so such calls are never duplicated.
_CLIENT_TOOLS = frozenset({"function", "custom"})
_JSON_FORMATS = frozenset({"json_object", "json_schema"})


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Tool(msgspec.Struct):
    type: str = "function"


class _ResponseFormat(msgspec.Struct):
    type: str = "text"


_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "stream_options": msgspec.json.Decoder(_StreamOptions | None),
    "tools": msgspec.json.Decoder(list[_Tool] | None),
    "response_format": msgspec.json.Decoder(_ResponseFormat | None),
    "store": msgspec.json.Decoder(bool | None),
    "background": msgspec.json.Decoder(bool | None),
    "max_tokens": msgspec.json.Decoder(float | None),
    "max_completion_tokens": msgspec.json.Decoder(float | None),
    "prompt_cache_key": msgspec.json.Decoder(str | None),
}


def read_chat(contents: Contents, race_header: str | None) -> Asked:
    """Read the body of a chat completion.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    begun = begin(contents, race_header)
    fields = begun.fields
    messages = required_messages(fields)
    found = decoded_fields(fields, _DECODERS).get
    options, tools, answer = found("stream_options"), found("tools") or (), found("response_format")
    return Asked(
        dialect=CHAT,
        model=begun.model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=needs_of(
            messages,
            contents,
            MEDIA,
            max_tokens=least(found("max_tokens"), found("max_completion_tokens")),
            tools=bool(tools),
            json_schema=answer is not None and answer.type == "json_schema",
        ),
        race=begun.race,
        preferences=begun.preferences,
        stream=bool(found("stream")),
        wants_usage=bool(options and options.include_usage),
        stateful=bool(found("store") or found("background")) or _acts(fields, tools),
        for_program=bool(tools) or (answer is not None and answer.type in _JSON_FORMATS),
        cache_key=found("prompt_cache_key"),
    )


def _acts(fields: Mapping[str, msgspec.Raw], tools: Iterable[_Tool]) -> bool:
    """Whether the provider shall do more than answer, or continue something it has stored."""
    if is_set(fields.get("previous_response_id")) or is_set(fields.get("web_search_options")):
        return True
    return any(tool.type not in _CLIENT_TOOLS for tool in tools)


_DESCRIPTION = Description(
    id="createChatCompletion",
    summary="OpenAI's chat completions",
    prompt={"type": "array", "minItems": 1, "items": {"type": "object"}},
    example={"messages": [{"role": "user", "content": "Say hello."}], "stream": True},
    answer=ref("ChatCompletion"),
    events="Events of `chat.completion.chunk`, then `data: [DONE]`.",
)

CHAT_SURFACE = Surface(
    dialect=CHAT,
    read=lambda contents, race, _: read_chat(contents, race),
    fields=_DECODERS,
    description=_DESCRIPTION,
    media=MEDIA,
)
