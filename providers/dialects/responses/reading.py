"""Reads JSON objects leniently: fields of another type than expected are ignored."""

from typing import TypeVar

import msgspec

from providers.dialects.chunk import no_json_object
from providers.dialects.responses.fields import Object

_S = TypeVar("_S", bound=msgspec.Struct)

_objects = msgspec.json.Decoder(Object)


def read(data: bytes, struct: type[_S]) -> _S:
    """Read an event's data.

    Raises:
        UpstreamError: it is not a JSON object (invalid_response).

    """
    try:
        return _fitting(_objects.decode(data), struct)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise no_json_object() from None


def lenient(raw: msgspec.Raw, struct: type[_S]) -> _S:
    """Read an object inside an event; an empty one if it is not an object."""
    try:
        return msgspec.json.decode(raw, type=struct)
    except msgspec.ValidationError:
        pass
    try:
        return _fitting(_objects.decode(raw), struct)
    except msgspec.ValidationError:
        return struct()


def _fitting(value: Object, struct: type[_S]) -> _S:
    kept = {}
    for field in msgspec.structs.fields(struct):
        if (raw := value.get(field.name)) is None:
            continue
        try:
            kept[field.name] = msgspec.json.decode(raw, type=field.type)
        except msgspec.ValidationError:
            continue
    return struct(**kept)
