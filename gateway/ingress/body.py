"""A request body, read once: its top level as raw JSON, and the fields every surface reads alike."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import InvalidRequest
from gateway.ingress.survey import Survey

CHARS_PER_TOKEN = 4  # of prompt, JSON included
CLASS_LIMITS = (4 * 1024, 32 * 1024)  # bytes; about 1k and 8k tokens; the published figures are told apart so
MAX_TAGS = 16
LONGEST_MODEL = 512  # characters, of a comma list too: names come back in headers
MAX_TAG_CHARS = 256
MOST_FIELDS = 256  # at the top level; no API has as many as fifty

NO_TEXT = "the body is not valid UTF-8"

_SHORTEST_FIELD = len('"":1,')
_COUNTED_BYTES = 64 * 1024  # up to this it is cheaper to count colons than to count fields
_NULL = msgspec.Raw(b"null")
_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MODEL = msgspec.json.Decoder(str | None)  # made once: preparing a type costs more than decoding a value


def size_class(size: int) -> int:
    """Return the size class of a prompt whose body has ``size`` bytes: 0, 1 or 2."""
    return bisect_left(CLASS_LIMITS, size)


class Contents(msgspec.Struct, frozen=True):
    """A body as far as it was understood: its top level, values still raw JSON."""

    fields: dict[str, msgspec.Raw]
    size: int  # bytes of the body
    values: int | None = None  # objects, arrays and what is in them, at all depths, and no fewer; None: not counted
    survey: Survey | None = None  # of the prompt; None: it is small enough to be surveyed when that is wanted

    @classmethod
    def of(cls, body: bytes) -> "Contents":
        """Return those of a ``body`` of at most a few megabytes.

        Raises:
            InvalidRequest: not JSON, not an object, or of far too many fields.

        """
        if not body.isascii():
            check_text(body)
        return cls(read_fields(body), len(body))


def check_text(body: bytes) -> None:
    """Check that all of ``body`` is text: msgspec does not look into the strings it leaves raw.

    Raises:
        InvalidRequest: it is not valid UTF-8.

    """
    try:
        body.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(NO_TEXT) from None


def read_fields(body: bytes) -> dict[str, msgspec.Raw]:
    """Return the top level of a JSON object, whose text was checked.

    Raises:
        InvalidRequest: not JSON, not an object, or of far too many fields: that is known before they are read.

    """
    size = len(body)
    few = size <= MOST_FIELDS * _SHORTEST_FIELD or (size <= _COUNTED_BYTES and body.count(b":") <= MOST_FIELDS)
    try:
        return _TOP.decode(body) if few else _counted_fields(body)
    except msgspec.ValidationError:
        raise InvalidRequest("the body must be a JSON object") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


class _Name(str):
    """A field's name: of a type of our own, so that the decoder hands over each one before it goes on to the next."""

    __slots__ = ()


def _counted_fields(body: bytes) -> dict[str, msgspec.Raw]:
    """Return the top level as the decoder reads it, which stops at the first field too many; repeated ones count."""
    left = MOST_FIELDS

    def name_of(kind: type[_Name], name: str) -> _Name:
        nonlocal left
        left -= 1
        if left < 0:
            raise InvalidRequest(f"the body has more than {MOST_FIELDS} fields at its top level")
        return kind(name)

    fields = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=name_of).decode(body)
    return {str(name): raw for name, raw in fields.items()}


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
            raise InvalidRequest(f"x-holeshot-tags is not a JSON object of strings: {error}") from None
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
        raise InvalidRequest(f"{name!r} is invalid: {error}", param=name) from None


def is_set(raw: msgspec.Raw | None) -> bool:
    """Tell whether a field says anything."""
    return raw is not None and raw != _NULL  # which copies nothing: it may be a whole book


def least(*limits: float | None) -> int | None:
    """Return the smallest limit said; some servers take -1 for none."""
    return min([int(limit) for limit in limits if limit is not None and limit >= 1], default=None)


def _header_bytes(header: str) -> bytes:
    """Return a header's value in UTF-8; what was none in it (aiohttp escapes it as surrogates) as question marks."""
    return header.strip().encode(errors="replace")
