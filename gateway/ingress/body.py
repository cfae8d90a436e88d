"""A request body, read once: its top level as raw JSON, and the fields every surface reads alike."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import InvalidRequest

CHARS_PER_TOKEN = 4  # of prompt, JSON included
CLASS_LIMITS = (4 * 1024, 32 * 1024)  # bytes; about 1k and 8k tokens (STEERING 1.1)
MAX_TAGS = 16
LONGEST_MODEL = 512  # characters, of a comma list too: names come back in headers
MAX_TAG_CHARS = 256

_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MODEL = msgspec.json.Decoder(str | None)  # made once: a type is dearer to prepare than a value to decode


def prompt_class(size: int) -> int:
    """Return the class of a prompt whose body has ``size`` bytes."""
    return bisect_left(CLASS_LIMITS, size)


def read_fields(body: bytes) -> dict[str, msgspec.Raw]:
    """Return the top level of a JSON object.

    Raises:
        InvalidRequest: not JSON, or not an object.

    """
    try:
        if not body.isascii():
            body.decode()  # msgspec does not look into the strings it leaves raw
        return _TOP.decode(body)
    except msgspec.ValidationError:
        raise InvalidRequest("the body must be a JSON object") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    except UnicodeDecodeError:
        raise InvalidRequest("the body is not valid UTF-8") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def read_model(fields: Mapping[str, msgspec.Raw]) -> str:
    """Return the field ``model``.

    Raises:
        InvalidRequest: it is missing, empty or no string.

    """
    raw = fields.get("model")
    model = None if raw is None else decoded("model", raw, _MODEL)
    if not model:
        raise InvalidRequest("'model' is missing: name one of GET /v1/models", param="model")
    if len(model) > LONGEST_MODEL or not model.isprintable():
        raise InvalidRequest(f"'model' must be printable and at most {LONGEST_MODEL} characters long", param="model")
    return str(model)


def read_tags(header: str | None) -> dict[str, str]:
    """Return the tags of ``x-holeshot-tags``: ``name=value, name=value``, or a JSON object of strings.

    Raises:
        InvalidRequest: neither, or too much.

    """
    if not header:
        return {}
    if header.lstrip().startswith("{"):
        try:
            tags = msgspec.json.decode(_header_bytes(header), type=dict[str, str])
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"x-holeshot-tags is no JSON object of strings: {error}") from None
    else:
        pairs = [part.partition("=") for part in header.split(",") if part.strip()]
        if any(not (name.strip() and equals) for name, equals, _ in pairs):
            raise InvalidRequest("x-holeshot-tags must read 'name=value, name=value', or be a JSON object of strings")
        tags = {name.strip(): value.strip() for name, _, value in pairs}
    if len(tags) > MAX_TAGS or any(len(name) + len(value) > MAX_TAG_CHARS for name, value in tags.items()):
        raise InvalidRequest(f"x-holeshot-tags takes at most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters")
    return tags


def decoded(name: str, raw: msgspec.Raw, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Return the field ``name`` as ``decoder`` reads it.

    Raises:
        InvalidRequest: it is of another type.

    """
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{name!r} is not what it should be: {error}", param=name) from None


def is_set(raw: msgspec.Raw | None) -> bool:
    """Tell whether a field says anything."""
    return raw is not None and bytes(raw) != b"null"


def least(*limits: float | None) -> int | None:
    """Return the smallest limit said; some servers take -1 for none."""
    return min([int(limit) for limit in limits if limit is not None and limit >= 1], default=None)


def _header_bytes(header: str) -> bytes:
    """Return a header's value in UTF-8; what was none in it (aiohttp escapes it as surrogates) as question marks."""
    return header.strip().encode(errors="replace")
