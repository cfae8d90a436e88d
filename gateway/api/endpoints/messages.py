"""Reads requests for Anthropic's Messages."""

from typing import Any

import msgspec

from gateway.api.endpoint import Description, Endpoint
from gateway.api.request import (
    Decoders,
    ParsedRequest,
    decoded_fields,
    needs_of,
    read_common,
    required,
    required_messages,
)
from gateway.api.resolved_model import THREAD
from gateway.http import Contents, Media, is_set, least
from providers import BY_CLIENTS_ANYWHERE, runs_among, runs_there
from providers.dialects import MESSAGES

MESSAGES_MEDIA = Media.of(
    "image", "audio", "document", text="text|tool_use|tool_result|thinking|redacted_thinking|ephemeral"
)


_STATE = ("container", "fallback_credit_token")  # stored by the provider, or paid once


class _Tool(msgspec.Struct):
    type: str | None = None
    name: str | None = None
    tools: Any = None  # within the tool


class _Thread(msgspec.Struct):
    previous_message_id: str | None = None


class _OutputConfig(msgspec.Struct):
    format: dict[str, msgspec.Raw] | None = None


_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "max_tokens": msgspec.json.Decoder(float | None),
    "tools": msgspec.json.Decoder(list[_Tool] | None),
    "output_config": msgspec.json.Decoder(_OutputConfig | None),
    "mcp_servers": msgspec.json.Decoder(list[msgspec.Raw] | None),
    "thread": msgspec.json.Decoder(_Thread | None),
}


def read_messages(contents: Contents, race_header: str | None, _: object = None) -> ParsedRequest:
    """Read the body of a Messages request.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    model, race, preferences = read_common(contents, race_header)
    fields = contents.fields
    required(fields, "max_tokens", "the maximum number of tokens in the answer")
    messages = required_messages(fields)
    value_of = decoded_fields(fields, _DECODERS).get
    tools = value_of("tools") or ()
    config, thread = value_of("output_config"), value_of(THREAD)
    # A request that begins a thread has the whole conversation, so any deployment may answer; a later request has only
    # new messages.
    continues = thread is not None and thread.previous_message_id is not None
    is_kept = (
        continues
        or bool(value_of("mcp_servers"))
        or (not fields.keys().isdisjoint(_STATE) and any(is_set(fields.get(name)) for name in _STATE))
    )
    is_run = (
        any(map(_is_hosted, tools))
        or (any(not tool.type and tool.name is None for tool in tools) and runs_among(fields["tools"]))
        or runs_there(fields)
    )
    return ParsedRequest(
        dialect=MESSAGES,
        model=model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=needs_of(
            messages,
            contents,
            MESSAGES_MEDIA,
            max_tokens=least(value_of("max_tokens")),
            tools=bool(tools),
            json_schema=config is not None and config.format is not None,
        ),
        race=race,
        preferences=preferences,
        stream=bool(value_of("stream")),
        stateful=is_kept or is_run,
        for_hosted=is_run and not is_kept,
        for_program=bool(tools),
        nests=bool(tools) and any(tool.tools for tool in tools),
        converses=THREAD if continues else None,
    )


def _is_hosted(tool: _Tool) -> bool:
    """Whether the provider runs a tool: one that acts, searches or spends. The client runs other tools (``bash``)."""
    # Go's programs send "" for no type.
    return tool.type not in {None, ""} and not str(tool.type).startswith(BY_CLIENTS_ANYWHERE)


_DESCRIPTION = Description(
    id="createMessage",
    summary="Anthropic's messages",
    prompt={"type": "array", "minItems": 1, "items": {"type": "object"}},
    example={"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 100},
    answer="Message",
    events="Anthropic's events, from `message_start` to `message_stop`.",
    required=("max_tokens",),
    error_schema="MessagesError",
)

MESSAGES_ENDPOINT = Endpoint(
    dialect=MESSAGES,
    read=read_messages,
    fields=_DECODERS,
    description=_DESCRIPTION,
    media=MESSAGES_MEDIA,
)
