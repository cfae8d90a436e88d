"""Reads requests for OpenAI's Responses."""

from typing import Any

import msgspec

from gateway.errors import ResponseNotFound
from gateway.ingress.asked import Asked, Decoders, begin, decoded_fields, needs_of, required
from gateway.ingress.body import Contents, is_set, least
from gateway.ingress.openapi.operation import ref
from gateway.ingress.openapi.operation import text as text_schema
from gateway.ingress.surfaces.description import Description
from gateway.ingress.surfaces.surface import Surface
from gateway.ingress.survey import Media
from providers.dialects.responses.dialect import RESPONSES

MEDIA = Media.of("input_image", "input_audio", "input_file")
STORE_HEADER = "x-holeshot-store"

# Tools that the client runs; all others act, search or spend at the provider, so such calls are never duplicated.
_CLIENT_TOOLS = frozenset({"function", "custom", "local_shell", "apply_patch", "namespace"})
_TRUE, _FALSE = msgspec.Raw(b"true"), msgspec.Raw(b"false")


class _Tool(msgspec.Struct):
    type: str = "function"


class _Format(msgspec.Struct):
    type: str = "text"


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


def read_response(contents: Contents, race_header: str | None, *, store: bool) -> Asked:
    """Read the body of a Responses request.

    The API's default for ``store`` is true, which would forbid a race. The gateway's default, ``store``, is sent to the
    provider explicitly and reported in a response header; with ``background`` the provider's own default holds.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    begun = begin(contents, race_header)
    fields = begun.fields
    continued = is_set(fields.get("previous_response_id")) or is_set(fields.get("conversation"))
    prompt = fields.get("input", msgspec.Raw(b"[]"))
    if not (continued or is_set(fields.get("prompt"))):
        prompt = required(fields, "input", "a string, or an array of items")
    response_headers = {}
    runs_on = is_set(fields.get("background")) and bytes(fields["background"]).strip() == b"true"
    if not is_set(fields.get("store")) and not runs_on:  # in the background it must be stored: the API's default
        fields["store"] = _TRUE if store else _FALSE
        response_headers[STORE_HEADER] = "true" if store else "false"
    found = decoded_fields(fields, _DECODERS).get
    tools: tuple[Any, ...] = tuple(found("tools") or ())
    text = found("text")
    format_ = text.format.type if text is not None and text.format is not None else "text"
    stores = bool(found("store")) or (runs_on and found("store") is None)
    return Asked(
        dialect=RESPONSES,
        model=begun.model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=needs_of(
            prompt,
            contents,
            MEDIA,
            max_tokens=least(found("max_output_tokens")),
            tools=any(tool.type in _CLIENT_TOOLS for tool in tools),
            json_schema=format_ == "json_schema",
        ),
        race=begun.race,
        preferences=begun.preferences,
        stream=bool(found("stream")),
        stateful=stores
        or continued
        or bool(found("background"))
        or any(tool.type not in _CLIENT_TOOLS for tool in tools),
        for_program=bool(tools) or format_ != "text",
        continues=found("previous_response_id"),
        converses=is_set(fields.get("conversation")),
        stores=stores,
        cache_key=found("prompt_cache_key"),
        response_headers=response_headers,
    )


_DESCRIPTION = Description(
    id="createResponse",
    summary="OpenAI's responses",
    prompt={"type": ["string", "array"], "description": "A string, or an array of items."},
    example={"input": "Say hello.", "store": False},
    answer=ref("Response"),
    events="OpenAI's events, from `response.created` to `response.completed`.",
    optional_prompt=True,  # where it continues something
    errors=(ResponseNotFound,),
    headers={STORE_HEADER: text_schema("The value of `store` that was sent, as the request had none.")},
)

RESPONSES_SURFACE = Surface(
    dialect=RESPONSES,
    read=lambda contents, race, settings: read_response(contents, race, store=settings.responses_store),
    fields=_DECODERS,
    description=_DESCRIPTION,
    media=MEDIA,
)
