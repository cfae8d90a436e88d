"""Reads the objects of a client's request: fields by their type, each with its path, values still raw.

An object is not changed by reading. The reader names the fields that it knows, and ``Losses.rest`` notes the others.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from providers.dialects.wording import Malformed, is_null, is_string
from providers.refusals import UNREADABLE

Object = dict[str, Any]  # JSON to be encoded; values that are copied unchanged stay raw
RawObject = dict[str, msgspec.Raw]

_T = TypeVar("_T")
# Made once: a conversation has hundreds of blocks, and making a decoder costs more than using it.
_strings = msgspec.json.Decoder(str)
_objects = msgspec.json.Decoder(RawObject)
_lists = msgspec.json.Decoder(list[RawObject])


def present(fields: Mapping[str, msgspec.Raw]) -> RawObject:
    """Return the fields that are not null: a null means as much as a missing field."""
    return {name: value for name, value in fields.items() if not is_null(value)}


def said_of(given: Mapping[str, msgspec.Raw], *names: str) -> RawObject:
    """Return the fields of these names that the object has."""
    return {name: given[name] for name in names if name in given}


def needed_at(given: Mapping[str, msgspec.Raw], name: str, path: str) -> msgspec.Raw:
    """Return the field ``name``, of any type, of the object at ``path`` ("" for the request itself).

    Raises:
        Malformed: the field is missing.

    """
    raw = given.get(name)
    if raw is None:
        field = f"{path}.{name}" if path else name
        raise Malformed(f"Missing required parameter: '{field}'.", field)
    return raw


def text_at(given: Mapping[str, msgspec.Raw], name: str, path: str) -> str:
    """Return the string ``name`` of the object at ``path``.

    Raises:
        Malformed: the field is missing, or no string.

    """
    raw = given.get(name)
    if raw is not None and is_string(raw):
        try:
            return _strings.decode(raw)
        except UNREADABLE:
            pass
    raise Malformed(f"'{path}.{name}' must be a string", f"{path}.{name}")


def raw_text_at(given: Mapping[str, msgspec.Raw], name: str, path: str) -> msgspec.Raw:
    """Return the string ``name`` of the object at ``path`` without decoding it: some are as long as a book.

    Raises:
        Malformed: the field is missing, or no string.

    """
    raw = given.get(name)
    if raw is None or not is_string(raw):
        raise Malformed(f"'{path}.{name}' must be a string", f"{path}.{name}")
    return raw


def objects_at(raw: msgspec.Raw | None, path: str) -> list[RawObject]:
    """Return a list of objects, values still raw; an empty list if there is none.

    Raises:
        Malformed: this is something else.

    """
    return [] if raw is None or is_null(raw) else _read(_lists, raw, path)


def object_at(raw: msgspec.Raw | None, path: str) -> RawObject:
    """Return an object, values still raw; an empty object if there is none.

    Raises:
        Malformed: this is something else.

    """
    return {} if raw is None or is_null(raw) else _read(_objects, raw, path)


def inner_at(given: Mapping[str, msgspec.Raw], name: str, path: str) -> RawObject:
    """Return the fields of the object ``name`` in the object at ``path``, without null ones.

    Raises:
        Malformed: this is something else.

    """
    return present(object_at(given.get(name), f"{path}.{name}"))


def each_at(raw: msgspec.Raw | None, path: str) -> list[tuple[str, RawObject]]:
    """Return the path and the fields, without null ones, of each object in a list; nothing if there is no list.

    Raises:
        Malformed: this is something else.

    """
    return [(f"{path}[{number}]", present(each)) for number, each in enumerate(objects_at(raw, path))]


def _read(decoder: msgspec.json.Decoder[_T], raw: msgspec.Raw, path: str) -> _T:
    try:
        return decoder.decode(raw)
    except UNREADABLE as error:
        raise Malformed(f"{path!r} is invalid: {error}", path) from None
