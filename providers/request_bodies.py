"""The bodies of requests to providers: the client's fields in the vendor's shape, with the deployment's own."""

from collections.abc import Mapping

import msgspec

from providers.exchange import Request
from providers.quirks import Quirks, shape

_TRUE = msgspec.Raw(b"true")
_FALSE = msgspec.Raw(b"false")
_INCLUDE_USAGE = msgspec.Raw(b'{"include_usage":true}')

_options_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def streamed_body(request: Request, quirks: Quirks) -> bytes:
    """Return the body of a request for events. Only its top level is changed: messages are not parsed."""
    fields = _fields(request, quirks)
    streamed = request.upstream_stream
    fields["stream"] = _TRUE if streamed else _FALSE
    if request.dialect.requests.takes_quirks:
        if streamed and quirks.usage_option == "stream_options":
            fields["stream_options"] = _with_usage(fields.get("stream_options"))
        else:
            fields.pop("stream_options", None)
    return msgspec.json.encode(fields)


def _fields(request: Request, quirks: Quirks) -> dict[str, msgspec.Raw]:
    return with_own(request, shape(request.fields, quirks) if request.dialect.requests.takes_quirks else request.fields)


def with_own(request: Request, fields: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return ``fields`` with the deployment's own fields and model."""
    return {**fields, **request.extra_body, "model": msgspec.Raw(msgspec.json.encode(request.model))}


def _with_usage(options: msgspec.Raw | None) -> msgspec.Raw:
    if options is None:
        return _INCLUDE_USAGE
    try:
        merged = _options_decoder.decode(options)
    except msgspec.ValidationError:  # null, or an invalid value
        return _INCLUDE_USAGE
    return msgspec.Raw(msgspec.json.encode({**merged, "include_usage": _TRUE}))
