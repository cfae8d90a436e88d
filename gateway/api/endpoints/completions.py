"""Reads requests for OpenAI's older completions: a raw prompt that the model continues."""

import msgspec

from gateway.api.endpoint import Description, Endpoint
from gateway.api.endpoints.chat import StreamOptions
from gateway.api.request import (
    Decoders,
    Needs,
    ParsedRequest,
    decoded_fields,
    read_common,
    required,
)
from gateway.http import CHARS_PER_TOKEN, Contents, least
from providers import runs_there
from providers.dialects import COMPLETIONS

_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "stream_options": msgspec.json.Decoder(StreamOptions | None),
    "max_tokens": msgspec.json.Decoder(float | None),
}


def read_completion(contents: Contents, race_header: str | None, _: object = None) -> ParsedRequest:
    """Read the body of a completion.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    model, race, preferences = read_common(contents, race_header)
    fields = contents.fields
    required(fields, "prompt", "a string, or an array of strings or tokens")
    value_of = decoded_fields(fields, _DECODERS).get
    options = value_of("stream_options")
    return ParsedRequest(
        dialect=COMPLETIONS,
        model=model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=Needs(contents.size // CHARS_PER_TOKEN, least(value_of("max_tokens")), inline=True),
        race=race,
        preferences=preferences,
        stream=bool(value_of("stream")),
        wants_usage=bool(options and options.include_usage),
        stateful=runs_there(fields),
    )


_DESCRIPTION = Description(
    id="createCompletion",
    summary="OpenAI's older completions of a raw prompt",
    prompt={"type": ["string", "array"], "description": "A string, or an array of strings or tokens."},
    example={"prompt": "Once upon a time", "max_tokens": 40},
    answer="Completion",
    events="Events of `text_completion`, then `data: [DONE]`.",
)

COMPLETIONS_ENDPOINT = Endpoint(
    dialect=COMPLETIONS,
    read=read_completion,
    fields=_DECODERS,
    description=_DESCRIPTION,
)
