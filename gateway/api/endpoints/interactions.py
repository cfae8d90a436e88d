"""Reads requests for Google's interactions."""

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
from gateway.http import Contents, Media, decoded, is_set, least
from gateway.keys import GOOGLES
from providers import runs_there
from providers.dialects import AGENT, INTERACTIONS, Malformed, flattened_interaction

INTERACTIONS_MEDIA = Media.of(
    "image",
    "audio",
    "document|video",
    text="user_input|model_output|thought|text|function_call|function_result|object|string",
)
_LIMIT = INTERACTIONS.requests.parameters.answer_limits[0]
_FORMAT = "response_format"
_numbers = msgspec.json.Decoder(float | None)


class _Tool(msgspec.Struct):
    type: str | None = None


_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "store": msgspec.json.Decoder(bool | None),
    "background": msgspec.json.Decoder(bool | None),
    "previous_interaction_id": msgspec.json.Decoder(str | None),
    "agent": msgspec.json.Decoder(str | None),
    "tools": msgspec.json.Decoder(list[_Tool] | None),
}


def read_interaction(contents: Contents, race_header: str | None, *, store: bool) -> ParsedRequest:
    """Read the body of a request for an interaction.

    The API's default for ``store`` is true, which would forbid a race. As with Responses, the gateway's default,
    ``store``, is sent to the provider explicitly and reported in a response header; in the background and with agents
    the provider's own default holds.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    fields = contents.fields
    is_agent = is_set(fields.get(AGENT))
    if is_agent and not is_set(fields.get("model")):
        fields["model"] = fields[AGENT]
    model, race, preferences = read_common(contents, race_header)
    try:
        fields = flattened_interaction(fields)
    except Malformed as error:
        raise InvalidRequest(error.message, param=error.param) from None
    continued = is_set(fields.get("previous_interaction_id"))
    prompt = fields.get("input", msgspec.Raw(b"[]"))
    if not continued:
        prompt = required(fields, "input", "a text, a content, or an array of contents or steps")
    value_of = decoded_fields(fields, _DECODERS).get
    runs_on = bool(value_of("background"))
    storing = storing_of(fields, default=store or continued, keeps_default=runs_on or is_agent)
    tools = value_of("tools") or ()
    is_json = _FORMAT in fields and INTERACTIONS.requests.json_formats[_FORMAT](fields[_FORMAT]) is not None
    limit = fields.get(_LIMIT)
    needs = needs_of(
        prompt,
        contents,
        INTERACTIONS_MEDIA,
        max_tokens=None if limit is None else least(decoded(_LIMIT, limit, _numbers)),
        tools=any(tool.type == "function" for tool in tools),
        json_schema=is_json and b'"schema"' in bytes(fields[_FORMAT]),
    )
    is_kept = storing.stores or continued or runs_on or is_agent or any(is_set(fields.get(name)) for name in _HOLDS)
    is_run = not all(tool.type == "function" for tool in tools) or runs_there(fields)
    return ParsedRequest(
        dialect=INTERACTIONS,
        model=model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=msgspec.structs.replace(needs, inline=False) if is_set(fields.get("cached_content")) else needs,
        race=race,
        preferences=preferences,
        stream=bool(value_of("stream")),
        stateful=is_kept or is_run,
        for_hosted=is_run and not is_kept,
        for_program=bool(tools) or is_json,
        continues=value_of("previous_interaction_id"),
        runs_on=runs_on,
        stores=storing.stores,
        added=storing.added,
        response_headers=storing.response_headers,
    )


_HOLDS = ("continuation_token", "environment", "webhook_config")  # of one provider, or called once

_DESCRIPTION = Description(
    id="createInteraction",
    summary="Google's interactions",
    prompt={
        "type": ["string", "array", "object"],
        "description": "A text, a content, or an array of contents or of steps.",
    },
    example={"input": "Say hello.", "store": False},
    answer="Interaction",
    events="Google's events, from `interaction.created` to `interaction.completed`, then `data: [DONE]`.",
    optional_prompt=True,  # optional if the request continues something
    errors=(ResponseNotFound,),
    headers={STORE_HEADER: "The value of `store` that was sent, as the request had none."},
    error_schema="InteractionError",
)

INTERACTIONS_ENDPOINT = Endpoint(
    dialect=INTERACTIONS,
    read=lambda contents, race, settings: read_interaction(contents, race, store=settings.responses_store),
    fields=_DECODERS,
    description=_DESCRIPTION,
    media=INTERACTIONS_MEDIA,
    routes=(f"{GOOGLES}interactions", "/v1/interactions"),  # newer SDKs of Google use the second
    recalls=INTERACTIONS.recalling,
)
