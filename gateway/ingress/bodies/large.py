"""Parses bodies of megabytes in slices, so that they never block the event loop for long.

Only one step cannot be sliced: the JSON decoder's, which leaves values raw. It takes 10 to 50 ms for 64 MiB of
texts, and one nanosecond for each value, so values are counted before.
"""

import codecs
import re
from collections.abc import Mapping

import msgspec

from gateway.errors import InvalidRequest
from gateway.ingress.bodies.work import BodyWork
from gateway.ingress.body import NO_TEXT, Contents, read_fields
from gateway.ingress.survey import Media, Steps, survey_steps
from providers.dialects.index import DIALECTS

LARGE_BYTES = 2**20  # up to this size, parsing in one go takes a few milliseconds
MOST_VALUES = (
    8_000_000  # decoded in well under 0.1 s; the longest list of tokens that is embedded at once has 0.3 million
)
LONGEST_DECODED_BYTES = 2 * 2**20  # of a field that becomes Python objects: they can need many times as much

_DECODED = frozenset(
    {"fastest_response", "model", "models", "provider", "race", "route", "transforms"}  # of any dialect
).union(*(dialect.requests.decoded for dialect in DIALECTS.values()))
_SLICE_BYTES = 2**20
STRUCTURE_BYTES = 2**18  # of JSON per step that removes the strings
_INSIDE = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'  # of a string; possessive, so without backtracking
_QUOTE = ord('"')
_STRING = re.compile(rb'"%b"' % _INSIDE, re.DOTALL)
# Not `)*+`: Python before 3.11.5 handles it wrongly if the group can fail.
_WHOLE_STRINGS = re.compile(rb'(?:[^"]*+"%b")*[^"]*+' % _INSIDE, re.DOTALL)
_REST_OF_STRING = re.compile(_INSIDE, re.DOTALL)


async def read_contents(body: bytes, work: BodyWork, prompt: str = "", media: Media | None = None) -> Contents:
    """Parse ``body``. If it is large and ``media`` is given, its field ``prompt`` is surveyed as well.

    Raises:
        InvalidRequest: it is not JSON, not an object, or has too many fields or values.

    """
    if len(body) <= LARGE_BYTES:
        return Contents.of(body)
    return await work.run(contents_steps(body, prompt, media))


def contents_steps(body: bytes, prompt: str, media: Media | None) -> Steps[Contents]:
    """Parse a large ``body``, step by step.

    Raises:
        InvalidRequest: as for ``read_contents``.

    """
    yield from _text_steps(body)
    values = yield from _values_steps(body)
    if values > MOST_VALUES:
        raise InvalidRequest(f"the body has more than {MOST_VALUES} values")
    yield
    fields = read_fields(body)
    _check_lengths(fields)
    yield
    raw = fields.get(prompt)
    survey = None if media is None or raw is None else (yield from survey_steps(raw, media))
    return Contents(fields, len(body), values, survey)


def values_outside_strings(body: bytes) -> Steps[int]:
    """Count the objects, arrays and separated values in JSON; exact up to the limit, then at least the limit."""
    view, size = memoryview(body), len(body)
    at = values = 0
    inside = False  # whether ``at`` is in a string
    while at < size and values <= MOST_VALUES:
        end = min(size, at + STRUCTURE_BYTES)
        if inside:
            rest = _REST_OF_STRING.match(body, at, end)
            after = end if rest is None else rest.end()
            inside = after == end or view[after] != _QUOTE
            # If the slice ends with a backslash, the character it escapes begins the next one.
            at = after if after > at and inside else after + 1
        else:
            whole = _WHOLE_STRINGS.match(body, at, end)
            after = end if whole is None else whole.end()
            values += _separators(_STRING.sub(b"", view[at:after]))
            inside, at = after < end, after + (after < end)
        yield
    return values


def _text_steps(body: bytes) -> Steps[None]:
    if body.isascii():
        return
    decode, view = codecs.getincrementaldecoder("utf-8")().decode, memoryview(body)
    try:
        for at in range(0, len(body), _SLICE_BYTES):
            decode(view[at : at + _SLICE_BYTES])
            yield
        decode(b"", True)  # noqa: FBT003 - the codec has no keyword for ``final``
    except UnicodeDecodeError:
        raise InvalidRequest(NO_TEXT) from None


def _values_steps(body: bytes) -> Steps[int]:
    """Return an upper bound for the number of values; strings are left out only if they would exceed the limit."""
    view = memoryview(body)
    values = 0
    for at in range(0, len(body), _SLICE_BYTES):
        values += _separators(bytes(view[at : at + _SLICE_BYTES]))
        yield
    return values if values <= MOST_VALUES else (yield from values_outside_strings(body))


def _separators(json: bytes) -> int:
    return json.count(b",") + json.count(b"[") + json.count(b"{")


def _check_lengths(fields: Mapping[str, msgspec.Raw]) -> None:
    for name in _DECODED & fields.keys():
        if len(memoryview(fields[name])) > LONGEST_DECODED_BYTES:
            raise InvalidRequest(f"{name!r} is longer than {LONGEST_DECODED_BYTES // 2**20} MiB", param=name)
