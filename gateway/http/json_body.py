"""A request body, read once: the top level as raw JSON, and the fields of all APIs."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from gateway.core.errors import InvalidRequest, TooManyValues
from providers import Steps, finished, redact_word, separators

JSON = "application/json"

# Searches a prompt's raw JSON, without parsing, for images, audio, documents and Base64 data.

# Base64 counts as bytes of the body, not as text. Backslashes, as some clients escape "/" and line ends in JSON.
_CODED = rb"[A-Za-z0-9+/=_\\-]"
_LEAST_RUN = 1024  # bytes; shorter runs may be words
_BLOCK = _LEAST_RUN // 2  # every run contains a whole block at a multiple of this
_CODED_BLOCK = re.compile(_CODED + rb"{%d}" % _BLOCK)
_CODED_REST = re.compile(_CODED + rb"{0,%d}" % 2**20)
_CODED_END = re.compile(rb"(?<!%b)%b*\Z" % (_CODED, _CODED))
_SLICE_BYTES = 2**17  # a slice takes half a millisecond, or three with many quotes
_STRADDLING_BYTES = 4096  # a match that begins in a slice ends within this length
ESCAPED_ASCII = b"\\u00"  # may hide the name of a field


class Media(msgspec.Struct, frozen=True):
    """Patterns that find images, audio or documents in a prompt, in a dialect's raw JSON.

    In a text that quotes JSON, quotes are escaped, so such a text does not match.
    """

    odd: re.Pattern[bytes]  # parts that may not be text; most prompts have none, and are searched only once
    any: re.Pattern[bytes]  # images, audio or documents
    vision: re.Pattern[bytes]
    audio: re.Pattern[bytes]
    documents: re.Pattern[bytes]

    @classmethod
    def of(cls, vision: str, audio: str, documents: str, *, text: str) -> "Media":
        """Return the patterns for objects with these values of ``type`` (alternatives of a regular expression).

        ``text``: types of objects in which all content is text.
        """
        # audio: {"id": …} is stored, as are objects named by the ids of files and tools
        odd = re.compile(rb'"(?:type"\s*:\s*"(?!(?:%b)")|(?:audio|file_ids?|tools)"\s*:)' % text.encode())
        return cls(odd, *map(_object_of, (f"{vision}|{audio}|{documents}", vision, audio, documents)))


class MediaScan(msgspec.Struct):
    """The result of a scan of a prompt."""

    escapes: int = 0  # letters written as \\uXXXX
    odd: bool = False  # the prompt may have parts that are not text
    vision: bool = False
    audio: bool = False
    documents: bool = False
    payloads: int = 0  # runs of Base64
    payload_bytes: int = 0  # of all runs together


def scan_media(prompt: msgspec.Raw, media: Media) -> MediaScan:
    """Scan a ``prompt`` of at most a few megabytes."""
    return finished(scan_steps(prompt, media))


def scan_steps(prompt: msgspec.Raw, media: Media) -> Steps[MediaScan]:
    """Scan a ``prompt`` of any size, in slices."""
    scan = MediaScan()
    view = memoryview(prompt)
    size = len(view)
    searched = {"vision": media.vision, "audio": media.audio, "documents": media.documents}
    for at in range(0, size, _SLICE_BYTES):
        # One byte more, for an escape across the end of the slice; none is counted twice.
        part = bytes(view[at : at + _SLICE_BYTES + len(ESCAPED_ASCII) - 1])
        scan.escapes += part[: _SLICE_BYTES + 1].count(b"\\u")
        end = min(size, at + _SLICE_BYTES + _STRADDLING_BYTES)
        is_odd = media.odd.search(prompt, at, end) is not None
        scan.odd = scan.odd or is_odd or ESCAPED_ASCII in part
        if is_odd and media.any.search(prompt, at, end) is not None:
            for name, pattern in [*searched.items()]:
                if pattern.search(prompt, at, end) is not None:
                    setattr(scan, name, True)
                    del searched[name]
        yield
    if len(searched) < len(("vision", "audio", "documents")):
        yield from _payload_steps(prompt, scan)
    return scan


def _payload_steps(prompt: msgspec.Raw, scan: MediaScan) -> Steps[None]:
    """Find the runs of Base64 by checking only blocks at multiples of the block size.

    A search byte by byte takes a hundred times as long.
    """
    size = len(memoryview(prompt))
    at = done = paused_at = 0
    while at + _BLOCK <= size:
        if at - paused_at >= _SLICE_BYTES:
            paused_at = at
            yield
        if _CODED_BLOCK.match(prompt, at) is None:
            at += _BLOCK
            continue
        begin = _begin_of_run(prompt, at, done)
        end = at + _BLOCK
        while (more := _CODED_REST.match(prompt, end)) is not None and more.end() > end:
            end = more.end()
            yield
        if end - begin >= _LEAST_RUN:
            scan.payloads += 1
            scan.payload_bytes += end - begin
        done = end
        at = end - end % _BLOCK + _BLOCK  # the byte at ``end`` is not Base64


def _begin_of_run(prompt: msgspec.Raw, at: int, after: int) -> int:
    """Return the beginning of the run that reaches ``at``; it is within the block before ``at``."""
    end_before = _CODED_END.search(prompt, max(after, at - _BLOCK), at)
    return at if end_before is None else end_before.start()


def _object_of(types: str) -> re.Pattern[bytes]:
    return re.compile(rb'"type"\s*:\s*"(?:%b)"' % types.encode())


# Counts JSON values without building any: one more than the commas, plus the values of each object or array.

STRUCTURE_BYTES = 2**16  # of JSON per step that removes strings: a millisecond, in which no other thread can work


def values_of(fields: Iterable[msgspec.Raw], most: int) -> Steps[int]:
    """Count the values of ``fields``, raw JSON: an upper bound up to ``most``, and exact above."""
    view, values, exact = [memoryview(raw) for raw in fields], 0, 0
    for each in view:
        for at in range(0, len(each), _SLICE_BYTES):
            values += separators(bytes(each[at : at + _SLICE_BYTES]))
            yield
    if values <= most:
        return values
    for each in view:
        exact += yield from values_outside_strings(each, most)
        if exact > most:
            break
    return exact


def values_outside_strings(body: bytes | memoryview | msgspec.Raw, most: int) -> Steps[int]:
    """Count the objects, arrays and separated values in JSON; exact up to ``most``, then any number above."""
    values = 0
    for structure in structures(body):
        values += separators(structure)
        if values > most:
            break
        yield
    return values


def structures(body: bytes | memoryview | msgspec.Raw) -> Iterator[bytes]:
    """Yield JSON without strings, slice by slice."""
    view = memoryview(body)
    at, inside = 0, False  # whether ``at`` is in a string
    while at < len(view):
        piece = bytes(view[at : at + STRUCTURE_BYTES])
        at += len(piece)
        if b"\\" in piece:
            piece = piece.replace(rb"\\", b"").replace(rb"\"", b"")
            at += piece.endswith(b"\\")  # the escaped character begins the next slice
        parts = piece.split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= len(parts) % 2 == 0


def too_many_values(most: int, which: str, param: str | None = None) -> TooManyValues:
    """Return the error for a request with more than ``most`` values; ``which``: the values, or why they are built."""
    message = f"the request has more than {most} JSON values, the most {which} (limits.max_values)"
    return TooManyValues(message, param=param)


CHARS_PER_TOKEN = 4  # of prompt, including JSON syntax
CLASS_LIMITS = (4 * 1024, 32 * 1024)  # bytes; about 1k and 8k tokens; figures are published for each class
MAX_TAGS = 16
LONGEST_MODEL = 512  # characters, also of a comma list, as names are returned in headers
LONGEST_MODEL_BYTES = 1024  # in UTF-8: a key of the ledger's sums has two such names, and Postgres takes 2,704 bytes
MAX_TAG_CHARS = 256
MOST_FIELDS = 256  # at the top level; no API has even fifty

NO_TEXT = "the body is not valid UTF-8"
TOO_DEEP = "the body is nested too deeply"

_SHORTEST_FIELD = len('"":1,')
_COUNTED_BYTES = 64 * 1024  # for smaller bodies, counting colons is cheaper than counting fields
_NULL_BYTES = b"null"  # searched with ``find``: ``in`` first treats bytes on its left as a number, and raises
_NULL = msgspec.Raw(_NULL_BYTES)
# Elsewhere a null means the same as no field, and vendors refuse nulls (OpenAI ``tools``, Groq ``function_call``). By
# Mistral's description this field may be null, for no system prompt of Mistral's own: docs.mistral.ai/api, as in
# docs.rs/crate/mistral-openapi-client 0.1.0, read on 2026-11-30.
_SAID_BY_NULL = frozenset({"prompt_mode"})
_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MODEL = msgspec.json.Decoder(str | None)  # made once, as making a decoder costs more than decoding a value


def size_class(size: int) -> int:
    """Return the size class of a prompt with a body of ``size`` bytes: 0, 1 or 2."""
    return bisect_left(CLASS_LIMITS, size)


class Contents(msgspec.Struct, frozen=True):
    """A body, parsed only at the top level: the values are raw JSON."""

    fields: dict[str, msgspec.Raw]
    size: int  # bytes of the body
    values: int | None = None  # upper bound of the JSON values at all depths; None: not counted
    scan_media: MediaScan | None = None  # of the prompt; None: the prompt is small, and is scanned when needed
    has_nulls: bool = True  # False: there is no null at any depth

    @classmethod
    def of(cls, body: bytes, *, nulls: bool = False) -> "Contents":
        """Parse a ``body`` of at most a few megabytes. ``nulls``: as for ``read_fields``.

        Raises:
            InvalidRequest: the body is not JSON, not an object, or has too many fields.

        """
        if not body.isascii():
            check_text(body)
        has_nulls = body.find(_NULL_BYTES) >= 0
        return cls(read_fields(body, nulls=nulls or not has_nulls), len(body), has_nulls=has_nulls)


def check_text(body: bytes) -> None:
    """Check that ``body`` is UTF-8, as msgspec does not check the strings that it leaves raw.

    Raises:
        InvalidRequest: the body is not valid UTF-8.

    """
    try:
        body.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(NO_TEXT) from None


def read_fields(body: bytes, *, nulls: bool = False) -> dict[str, msgspec.Raw]:
    """Return the top level of a JSON object, without nulls, unless ``nulls`` have a meaning in it.

    The body must have passed ``check_text``.

    Raises:
        InvalidRequest: the body is not JSON, not an object, or has too many fields (counted before all are read).

    """
    size = len(body)
    few = size <= MOST_FIELDS * _SHORTEST_FIELD or (size <= _COUNTED_BYTES and body.count(b":") <= MOST_FIELDS)
    try:
        fields = _TOP.decode(body) if few else _counted_fields(body)
    except msgspec.ValidationError:
        raise InvalidRequest("the body must be a JSON object") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidRequest(TOO_DEEP) from None
    if nulls or body.find(_NULL_BYTES) < 0:  # few bodies have one, and comparing all values costs more
        return fields
    return {name: raw for name, raw in fields.items() if raw != _NULL or name in _SAID_BY_NULL}


class _Name(str):
    """A field's name; because of the custom type, msgspec calls ``dec_hook`` for each name."""

    __slots__ = ()


def _counted_fields(body: bytes) -> dict[str, msgspec.Raw]:
    """Decode the top level, and stop at the first field too many; repeated names count each time."""
    fields_left = MOST_FIELDS

    def name_of(kind: type[_Name], name: str) -> _Name:
        nonlocal fields_left
        fields_left -= 1
        if fields_left < 0:
            raise InvalidRequest(f"the body has more than {MOST_FIELDS} fields at its top level")
        return kind(name)

    fields = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=name_of).decode(body)
    return {str(name): raw for name, raw in fields.items()}


def read_model(fields: Mapping[str, msgspec.Raw]) -> str:
    """Return the field ``model``.

    Raises:
        InvalidRequest: the field is missing, empty, not a string, too long or not printable.

    """
    raw = fields.get("model")
    model = None if raw is None else decoded("model", raw, _MODEL)
    if not model:
        raise InvalidRequest("'model' is missing: name one of GET /v1/models", param="model")
    if not model.isprintable() or len(model) > LONGEST_MODEL or len(model.encode()) > LONGEST_MODEL_BYTES:
        raise InvalidRequest(
            f"'model' must be printable, and have at most {LONGEST_MODEL} characters and {LONGEST_MODEL_BYTES} bytes",
            param="model",
        )
    return str(model)


def read_tags(header: str | None) -> dict[str, str]:
    """Return the tags of ``x-holeshot-tags``: ``name=value, name=value``, or a JSON object of strings. Keys are masked.

    Raises:
        InvalidRequest: the header has neither form, or too many or too long tags.

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
    return {redact_word(name): redact_word(value) for name, value in tags.items()}


def tags_of_metadata(metadata: msgspec.Raw, names: Sequence[str]) -> dict[str, str]:
    """Return the texts in ``metadata`` that have one of ``names``, as tags; values that cannot be tags are left out."""
    try:
        values = _metadata.decode(metadata)
    except msgspec.DecodeError:
        return {}  # the provider reports the error
    return {
        redact_word(name): redact_word(value)
        for name in names
        if isinstance(value := values.get(name), str) and len(name) + len(value) <= MAX_TAG_CHARS
    }


_metadata = msgspec.json.Decoder(dict[str, Any])


def decoded(name: str, raw: msgspec.Raw, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Decode the field ``name``.

    Raises:
        InvalidRequest: the field has the wrong type.

    """
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{name!r} is invalid: {error}", param=name) from None
    except RecursionError:  # nested objects of a struct, or the earlier check had a few more frames for its recursion
        raise InvalidRequest(f"{name!r} is nested too deeply", param=name) from None


def is_set(raw: msgspec.Raw | None) -> bool:
    """Whether a field is present and not null."""
    return raw is not None and raw != _NULL  # compares without a copy, as the value may be large


def least(*limits: float | None) -> int | None:
    """Return the smallest limit; None and values below 1 (some clients send -1) mean no limit."""
    fewest: int | None = None
    for limit in limits:
        if limit is not None and limit >= 1 and (fewest is None or limit < fewest):
            fewest = int(limit)
    return fewest


def _header_bytes(header: str) -> bytes:
    """Return a header's value as UTF-8; question marks replace invalid bytes (surrogates in aiohttp)."""
    return header.strip().encode(errors="replace")
