"""Reads requests for OpenAI's Responses."""

import re
from typing import Any

import msgspec

from gateway.api.endpoint import Description, Endpoint
from gateway.api.endpoints.storing import STORE_HEADER, storing_of
from gateway.api.request import (
    Decoders,
    ParsedRequest,
    decoded_fields,
    needs_of,
    read_common,
    required,
)
from gateway.core.errors import InvalidRequest, ResponseNotFound
from gateway.http import Contents, Media, is_set, least
from providers import ALSO_BY_CLIENTS, BY_CLIENTS, BY_CLIENTS_IN, has_hosted, runs_there
from providers.dialects import RESPONSES, Malformed, tools_of_items

RESPONSES_MEDIA = Media.of(
    "input_image|computer_screenshot",
    "input_audio",
    "input_file",
    text="message|(input_|output_|summary_|reasoning_)?text|refusal|reasoning|(custom_tool|function)_call(_output)?",
)
_ITEM_ID = re.compile(rb'"id"\s*:')  # an item with only an id stands for a stored item, too

_CLIENT_TOOLS = BY_CLIENTS | ALSO_BY_CLIENTS


class _Format(msgspec.Struct):
    type: str = "text"


class _Tool(msgspec.Struct):
    type: str = "function"
    environment: Any = None
    tools: Any = None  # of a namespace

    @property
    def is_clients(self) -> bool:
        """Whether the client runs the tool."""
        if self.type in _CLIENT_TOOLS:
            return True
        place = self.environment.get("type") if isinstance(self.environment, dict) else None
        return (self.type, place) in BY_CLIENTS_IN


_tool = msgspec.json.Decoder(_Tool)


class _Text(msgspec.Struct):
    format: _Format | None = None


_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "store": msgspec.json.Decoder(bool | None),
    "background": msgspec.json.Decoder(bool | None),
    "max_output_tokens": msgspec.json.Decoder(float | None),
    "previous_response_id": msgspec.json.Decoder(str | None),
    "prompt_cache_key": msgspec.json.Decoder(str | None),
    "tools": msgspec.json.Decoder(list[_Tool] | None),
    "text": msgspec.json.Decoder(_Text | None),
}


def read_response(contents: Contents, race_header: str | None, *, store: bool) -> ParsedRequest:
    """Read the body of a Responses request.

    The API's default for ``store`` is true, which would forbid a race. The gateway's default, ``store``, is sent to the
    provider explicitly and reported in a response header; with ``background`` the provider's own default holds. An
    answer that continues something stored at a provider is stored there, too, as the next request may continue it.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    model, race, preferences = read_common(contents, race_header)
    fields = contents.fields
    continued = is_set(fields.get("previous_response_id")) or is_set(fields.get("conversation"))
    prompt = fields.get("input", msgspec.Raw(b"[]"))
    if not (continued or is_set(fields.get("prompt"))):
        prompt = required(fields, "input", "a string, or an array of items")
    value_of = decoded_fields(fields, _DECODERS).get
    runs_on = bool(value_of("background"))
    storing = storing_of(fields, default=store or continued, keeps_default=runs_on)
    added, within = _of_items(prompt)
    tools: tuple[_Tool, ...] = (*(value_of("tools") or ()), *added)
    is_clients = [tool.is_clients for tool in tools]
    within += [tool.tools for tool in tools if tool.tools]
    text = value_of("text")
    format_ = text.format.type if text is not None and text.format is not None else "text"
    needs = needs_of(
        prompt,
        contents,
        RESPONSES_MEDIA,
        max_tokens=least(value_of("max_output_tokens")),
        tools=any(is_clients),
        json_schema=format_ == "json_schema",
    )
    is_kept = storing.stores or continued or runs_on or (bool(within) and any(map(has_hosted, within)))
    is_run = not all(is_clients) or runs_there(fields)
    if "prompt" in fields:  # a reference to a prompt that the provider stores
        needs = msgspec.structs.replace(needs, inline=False)
    return ParsedRequest(
        dialect=RESPONSES,
        model=model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=needs,
        race=race,
        preferences=preferences,
        stream=bool(value_of("stream")),
        stateful=is_kept or is_run,
        for_hosted=is_run and not is_kept,
        for_program=bool(tools) or format_ != "text",
        continues=value_of("previous_response_id"),
        converses="conversation" if is_set(fields.get("conversation")) else None,
        runs_on=runs_on,
        has_ids=_ITEM_ID.search(prompt) is not None,
        nests=bool(within),
        stores=storing.stores,
        added=storing.added,
        cache_key=value_of("prompt_cache_key"),
        response_headers=storing.response_headers,
    )


def _of_items(prompt: msgspec.Raw) -> tuple[list[_Tool], list[Any]]:
    """Return the tools that the input adds, and the other lists of tools within its items."""
    try:
        added, searched = tools_of_items(prompt)
        return ([_tool.decode(tool) for tool in added] if added else []), [*map(msgspec.json.decode, searched)]
    except (Malformed, msgspec.ValidationError, RecursionError) as error:
        raise InvalidRequest(f"'input' is not understood: {error}", param="input") from None


_DESCRIPTION = Description(
    id="createResponse",
    summary="OpenAI's responses",
    prompt={"type": ["string", "array"], "description": "A string, or an array of items."},
    example={"input": "Say hello.", "store": False},
    answer="Response",
    events="OpenAI's events, from `response.created` to `response.completed`.",
    optional_prompt=True,  # optional if the request continues something
    errors=(ResponseNotFound,),
    headers={STORE_HEADER: "The value of `store` that was sent, as the request had none."},
)

RESPONSES_ENDPOINT = Endpoint(
    dialect=RESPONSES,
    read=lambda contents, race, settings: read_response(contents, race, store=settings.responses_store),
    fields=_DECODERS,
    description=_DESCRIPTION,
    media=RESPONSES_MEDIA,
    recalls=RESPONSES.recalling,
)
