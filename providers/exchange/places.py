"""The place of a field in a request, and the value there."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from providers.bodies import raw_json
from providers.refusals import UNREADABLE

_LARGEST_OBJECT = 64 * 1024  # bytes of a field in which names are looked for
_SNAKE = re.compile(r"(?<=[a-z0-9])_([a-z0-9])")
_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]")
Fields = Mapping[str, msgspec.Raw]
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


class FieldPlace(NamedTuple):
    """Where a field is: at the top level, or within the object there."""

    top: str
    inner: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The path, such as ``reasoning.effort``."""
        return ".".join((self.top, *self.inner))


def decoded(raw: bytes | msgspec.Raw) -> Any:
    """Return what JSON says; None: the text is no JSON."""
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        return None


def set_at(fields: dict[str, msgspec.Raw], place: FieldPlace, value: msgspec.Raw | None) -> None:
    """Set a field; None: leave out the field, and the objects around the field that become empty."""
    if not place.inner:
        if value is not None:
            fields[place.top] = value
        else:
            del fields[place.top]
        return
    holder = dict(object_of(bytes(fields[place.top])))
    set_at(holder, FieldPlace(place.inner[0], place.inner[1:]), value)
    if holder:
        fields[place.top] = raw_json(holder)
    else:
        del fields[place.top]


def value_at(fields: Fields, place: FieldPlace) -> msgspec.Raw | None:
    """Return the value of a field; None: this request has no such field."""
    value = fields.get(place.top)
    for name in place.inner:
        value = None if value is None else object_of(bytes(value)).get(name)
    return value


def place_of(fields: Fields, path: str) -> FieldPlace | None:
    """Return the place of a path, as ``FieldPlace.path`` has it; None if this request has no such field."""
    if path in fields:
        return FieldPlace(path)
    top, _, inner = path.partition(".")
    while inner and top not in fields:
        more, _, inner = inner.partition(".")
        top = f"{top}.{more}"
    place = FieldPlace(top, tuple(inner.split(".")) if inner else ())
    return place if value_at(fields, place) is not None else None


def within(value: msgspec.Raw, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names of a path within an object; None: no such path. Pydantic's paths also name union types."""
    names = list[str]()
    for number, name in enumerate(path):
        inner = object_of(bytes(value))
        own = next((each for each in inner if spelt(each) == name), None)
        if own is not None:
            names.append(own)
            value = inner[own]
        elif number == len(path) - 1:
            return None
    return tuple(names)


def spelt(name: str) -> str:
    """Return a field's name, or path, as refusals of Google's spell it: ``generation_config.top_k``."""
    return _HUMP.sub(lambda hump: f"_{hump[0]}", name).lower()


def with_humps(path: str) -> str:
    """Return a path in snake case as Google's API spells it: ``contents.parts.inlineData.displayName``."""
    return _SNAKE.sub(lambda letter: letter[1].upper(), path)


def object_of(value: bytes) -> Mapping[str, msgspec.Raw]:
    """Return the fields of an object; none if the value is no object, or one of more than 64 KiB."""
    if value[:1] != b"{" or len(value) > _LARGEST_OBJECT:
        return {}
    try:
        return _objects.decode(value)
    except UNREADABLE:
        return {}


def texts_of(value: msgspec.Raw) -> list[str]:
    """Return the texts in a list."""
    listed = decoded(value)
    return [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
