"""OpenAI's older completions, as clients send them: a raw prompt to be continued."""

import msgspec

from gateway.ingress.asked import Asked, Decoders, Needs, demand, said
from gateway.ingress.body import CHARS_PER_TOKEN, least, read_fields, read_model
from gateway.ingress.wishes.override import read_override
from gateway.ingress.wishes.preferences import read_preferences
from providers.dialects.dialect import Dialect


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


_DECODERS: Decoders = {
    "stream": msgspec.json.Decoder(bool | None),
    "stream_options": msgspec.json.Decoder(_StreamOptions | None),
    "max_tokens": msgspec.json.Decoder(float | None),
}


def read_completion(body: bytes, race_header: str | None) -> Asked:
    """Understand the body of a completion.

    Raises:
        InvalidRequest: anything in it makes no sense; the message says what.

    """
    fields = read_fields(body)
    raw_race = fields.pop("race", None)
    preferences = read_preferences(fields)
    demand(fields, "prompt", "a string, or an array of strings or tokens")
    model = preferences.models[0] if preferences.models and "model" not in fields else read_model(fields)
    found = said(fields, _DECODERS).get
    options = found("stream_options")
    return Asked(
        dialect=Dialect.COMPLETIONS,
        model=model,
        fields=fields,
        size=len(body),
        needs=Needs(len(body) // CHARS_PER_TOKEN, least(found("max_tokens"))),
        race=read_override(raw_race, race_header),
        preferences=preferences,
        stream=bool(found("stream")),
        wants_usage=bool(options and options.include_usage),
    )
