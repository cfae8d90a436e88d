"""Reads requests for OpenAI's older completions: a raw prompt that the model continues."""

import msgspec

from gateway.ingress.asked import Asked, Decoders, Needs, begin, decoded_fields, required
from gateway.ingress.body import CHARS_PER_TOKEN, Contents, least
from gateway.ingress.openapi.operation import ref
from gateway.ingress.surfaces.description import Description
from gateway.ingress.surfaces.surface import Surface
from providers.dialects.completions.dialect import COMPLETIONS


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "stream_options": msgspec.json.Decoder(_StreamOptions | None),
    "max_tokens": msgspec.json.Decoder(float | None),
}


def read_completion(contents: Contents, race_header: str | None) -> Asked:
    """Read the body of a completion.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    begun = begin(contents, race_header)
    fields = begun.fields
    required(fields, "prompt", "a string, or an array of strings or tokens")
    found = decoded_fields(fields, _DECODERS).get
    options = found("stream_options")
    return Asked(
        dialect=COMPLETIONS,
        model=begun.model,
        fields=fields,
        size=contents.size,
        values=contents.values,
        needs=Needs(contents.size // CHARS_PER_TOKEN, least(found("max_tokens"))),
        race=begun.race,
        preferences=begun.preferences,
        stream=bool(found("stream")),
        wants_usage=bool(options and options.include_usage),
    )


_DESCRIPTION = Description(
    id="createCompletion",
    summary="OpenAI's older completions of a raw prompt",
    prompt={"type": ["string", "array"], "description": "A string, or an array of strings or tokens."},
    example={"prompt": "Once upon a time", "max_tokens": 40},
    answer=ref("Completion"),
    events="Events of `text_completion`, then `data: [DONE]`.",
)

COMPLETIONS_SURFACE = Surface(
    dialect=COMPLETIONS,
    read=lambda contents, race, _: read_completion(contents, race),
    fields=_DECODERS,
    description=_DESCRIPTION,
)
