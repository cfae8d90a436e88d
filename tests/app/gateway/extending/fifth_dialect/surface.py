"""The made-up dialect's requests. It becomes ``gateway/api/endpoints/echo.py``."""

import msgspec

from gateway.api import Endpoint, Needs, ParsedRequest
from gateway.api.endpoint import Description
from gateway.api.request import Decoders, decoded_fields, read_common, required
from gateway.http import CHARS_PER_TOKEN, Contents, least
from tests.app.gateway.extending.fifth_dialect.dialect import ECHO

_DECODERS: Decoders = {"stream": msgspec.json.Decoder(bool | None), "bits": msgspec.json.Decoder(float | None)}


def read_line(contents: Contents, race_header: str | None) -> ParsedRequest:
    model, race, preferences = read_common(contents, race_header)
    required(contents.fields, "line", "the line to be echoed")
    found = decoded_fields(contents.fields, _DECODERS).get
    return ParsedRequest(
        dialect=ECHO,
        model=model,
        fields=contents.fields,
        size=contents.size,
        needs=Needs(contents.size // CHARS_PER_TOKEN, least(found("bits"))),
        race=race,
        preferences=preferences,
        stream=bool(found("stream")),
    )


_DESCRIPTION = Description(
    id="createEcho",
    summary="A line, echoed",
    prompt={"type": "string"},
    example={"line": "Hello."},
    events="Bits of the line.",
)
ECHO_SURFACE = Endpoint(
    dialect=ECHO, read=lambda contents, race, _: read_line(contents, race), description=_DESCRIPTION, fields=_DECODERS
)
