"""Reads requests for Anthropic's Messages."""

import msgspec

from gateway.ingress.asked import Asked, Decoders, begin, decoded_fields, needs_of, required, required_messages
from gateway.ingress.body import Contents, least
from gateway.ingress.openapi.operation import ref
from gateway.ingress.surfaces.description import Description
from gateway.ingress.surfaces.surface import Surface
from gateway.ingress.survey import Media
from providers.dialects.messages.dialect import MESSAGES

MEDIA = Media.of("image", "audio", "document")


_HOSTED = ("advisor", "code_execution", "mcp", "tool_search", "web_fetch", "web_search")  # a date follows


class _Tool(msgspec.Struct):
    type: str | None = None


class _OutputConfig(msgspec.Struct):
    format: dict[str, msgspec.Raw] | None = None


_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "max_tokens": msgspec.json.Decoder(float | None),
    "tools": msgspec.json.Decoder(list[_Tool] | None),
    "output_config": msgspec.json.Decoder(_OutputConfig | None),
    "mcp_servers": msgspec.json.Decoder(list[msgspec.Raw] | None),
}


def read_messages(contents: Contents, race_header: str | None) -> Asked:
    """Read the body of a Messages request.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    begun = begin(contents, race_header)
    fields = begun.fields
    required(fields, "max_tokens", "the maximum number of tokens in the answer")
    messages = required_messages(fields)
    found = decoded_fields(fields, _DECODERS).get
    tools = found("tools") or ()
    config = found("output_config")
    return Asked(
        dialect=MESSAGES,
        model=begun.model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=needs_of(
            messages,
            contents,
            MEDIA,
            max_tokens=least(found("max_tokens")),
            tools=bool(tools),
            json_schema=config is not None and config.format is not None,
        ),
        race=begun.race,
        preferences=begun.preferences,
        stream=bool(found("stream")),
        stateful=bool(found("mcp_servers")) or any(map(_is_hosted, tools)),
        for_program=bool(tools),
    )


def _is_hosted(tool: _Tool) -> bool:
    """Whether the provider runs a tool: those act, search or spend. Others, like bash, are run by the client."""
    return tool.type is not None and tool.type.startswith(_HOSTED)


_DESCRIPTION = Description(
    id="createMessage",
    summary="Anthropic's messages",
    prompt={"type": "array", "minItems": 1, "items": {"type": "object"}},
    example={"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 100},
    answer=ref("Message"),
    events="Anthropic's events, from `message_start` to `message_stop`.",
    required=("max_tokens",),
    error_schema="MessagesError",
)

MESSAGES_SURFACE = Surface(
    dialect=MESSAGES,
    read=lambda contents, race, _: read_messages(contents, race),
    fields=_DECODERS,
    description=_DESCRIPTION,
    media=MEDIA,
)
