"""Reads requests for OpenAI's chat completions."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gateway.api import other_shapes
from gateway.api.endpoint import Description, Endpoint
from gateway.api.nulls import SEARCHED_FOR_NULLS, leave_out_nulls
from gateway.api.request import (
    Decoders,
    ParsedRequest,
    decoded_fields,
    needs_of,
    read_common,
    required_messages,
)
from gateway.api.resolved_model import IGNORED
from gateway.http import Contents, Media, is_set, least
from providers import BY_CLIENTS, is_switched_off, runs_among, runs_there
from providers.dialects import CHAT, JSON_FORMATS

CHAT_MEDIA = Media.of("image_url", "input_audio", "file", text="text|refusal|function|ephemeral")


class StreamOptions(msgspec.Struct):
    """What OpenAI's older APIs may be told of a stream."""

    include_usage: bool | None = None


class _Tool(msgspec.Struct):
    type: str | None = None
    name: Any = None  # of a tool in the form of Responses or Messages
    web_search: Any = None  # Zhipu's; it may be switched off
    tools: Any = None  # within the tool


class _ResponseFormat(msgspec.Struct):
    type: str = "text"


_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "stream_options": msgspec.json.Decoder(StreamOptions | None),
    "tools": msgspec.json.Decoder(list[_Tool] | None),
    "response_format": msgspec.json.Decoder(_ResponseFormat | None),
    "store": msgspec.json.Decoder(bool | None),
    "background": msgspec.json.Decoder(bool | None),
    "max_tokens": msgspec.json.Decoder(float | None),
    "max_completion_tokens": msgspec.json.Decoder(float | None),
    "prompt_cache_key": msgspec.json.Decoder(str | None),
}


def read_chat(contents: Contents, race_header: str | None, _: object = None) -> ParsedRequest:
    """Read the body of a chat completion.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    model, race, preferences = read_common(contents, race_header)
    fields = contents.fields
    lost: list[str] = []
    if "messages" not in fields and is_set(fields.get("input")):
        lost += other_shapes.from_responses(fields, contents.values)
    messages = required_messages(fields)
    if contents.has_nulls and contents.size <= SEARCHED_FOR_NULLS:
        texts = bytes(messages) + bytes(fields.get("tools", b""))
        if b'":null' in texts or b'": null' in texts:
            leave_out_nulls(fields)
            messages = fields["messages"]
    value_of = decoded_fields(fields, _DECODERS).get
    tools = value_of("tools") or ()
    if tools and any(tool.name is not None and (tool.type is None or tool.type in BY_CLIENTS) for tool in tools):
        lost += other_shapes.with_chat_tools(fields, contents.values)
        messages = fields["messages"]
    options, answer = value_of("stream_options"), value_of("response_format")
    needs = needs_of(
        messages,
        contents,
        CHAT_MEDIA,
        max_tokens=least(value_of("max_tokens"), value_of("max_completion_tokens")),
        tools=bool(tools),
        json_schema=answer is not None and answer.type == "json_schema",
    )
    if needs.vision:
        other_shapes.with_chat_pictures(fields)
    is_kept = bool(value_of("store") or value_of("background"))
    if "previous_response_id" in fields:
        is_kept = is_kept or is_set(fields["previous_response_id"])
    is_run = _runs(fields, tools)
    return ParsedRequest(
        dialect=CHAT,
        model=model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=needs,
        race=race,
        preferences=preferences,
        stream=bool(value_of("stream")),
        wants_usage=bool(options and options.include_usage),
        stateful=is_kept or is_run,
        for_hosted=is_run and not is_kept,
        nests=bool(tools) and any(tool.tools for tool in tools),
        for_program=bool(tools) or (answer is not None and answer.type in JSON_FORMATS),
        cache_key=value_of("prompt_cache_key"),
        response_headers={IGNORED: ", ".join(lost)} if lost else {},
    )


def _runs(fields: Mapping[str, msgspec.Raw], tools: Iterable[_Tool]) -> bool:
    """Whether the provider is asked to run something."""
    if runs_there(fields):
        return True
    if not tools:
        return False
    if any(
        tool.type is not None
        and tool.type not in BY_CLIENTS
        and (tool.web_search is None or not is_switched_off(tool.web_search))
        for tool in tools
    ):
        return True
    # Programs that know Google's tools (``googleSearch``) send them unchanged, in any API.
    return any(tool.type is None for tool in tools) and runs_among(fields["tools"])


_DESCRIPTION = Description(
    id="createChatCompletion",
    summary="OpenAI's chat completions",
    prompt={"type": "array", "minItems": 1, "items": {"type": "object"}},
    example={"messages": [{"role": "user", "content": "Say hello."}], "stream": True},
    answer="ChatCompletion",
    events="Events of `chat.completion.chunk`, then `data: [DONE]`.",
)

CHAT_ENDPOINT = Endpoint(
    dialect=CHAT,
    read=read_chat,
    fields=_DECODERS,
    description=_DESCRIPTION,
    media=CHAT_MEDIA,
)
