"""The language in which a vendor's rules for a body are written: shapes as data, and the faults that a value has.

A shape says what may stand at a place; what it does not name is a fault. ``faults(shape, body)`` yields them in the
order of the body, each with the place, so that a vendor says the first in its own words (``words.py``).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

Kind = Literal[
    "unknown",  # a field that is not in the table
    "missing",  # a field that must be there
    "type",  # another type; ``bound`` names the wanted one
    "value",  # none of the values that are possible, which ``bound`` lists
    "tag",  # the same of the field that says which shape it has
    "low",
    "high",
    "short",
    "long",
    "few",  # entries of a list, or keys of a map
    "many",
    "pattern",
    "key",  # of a map: too long; ``bound`` is how long it may be
]


class Tag(str):
    """A step of a path that only some vendors write: which of several shapes was held against the value."""

    __slots__ = ()


Path = tuple[str | int, ...]


class Fault(Struct, frozen=True):
    """What is wrong with a value: where, in which way, and the bound that it breaks."""

    path: Path
    kind: Kind
    value: Any = None
    bound: Any = None
    page: str = ""

    @property
    def field(self) -> str:
        """The last name of the path."""
        return next((str(step) for step in reversed(self.path) if not isinstance(step, Tag)), "")


class Shape(Struct, frozen=True):
    """What may stand at a place. ``null`` is a value only where it is ``nullable``; ``page`` is where it is written."""

    nullable: bool = False
    page: str = ""


class Anything(Shape, frozen=True):
    """Any JSON."""


class Text(Shape, frozen=True):
    """A string; ``only`` lists what it may be."""

    shortest: int = 0
    longest: int | None = None
    pattern: str | None = None
    only: Sequence[str] | None = None


class Whole(Shape, frozen=True):
    """An integer."""

    least: int | None = None
    most: int | None = None
    only: Sequence[int] | None = None


class Decimal(Shape, frozen=True):
    """A number."""

    least: float | None = None
    most: float | None = None


class Flag(Shape, frozen=True):
    """True or false; ``only`` one of them."""

    only: bool | None = None


class ListOf(Shape, frozen=True):
    """A list."""

    of: Shape = Anything()
    fewest: int = 0
    most: int | None = None


class MapOf(Shape, frozen=True):
    """An object with any names."""

    of: Shape = Anything()
    most: int | None = None
    longest_key: int | None = None


class Record(Shape, frozen=True):
    """An object with these fields and no other, of which some are needed.

    ``open`` lets others through: only where the vendor itself does.
    """

    fields: Mapping[str, Shape] = {}
    needed: Sequence[str] = ()
    open: bool = False

    def also(self, needed: Sequence[str] = (), **fields: Shape) -> "Record":
        """Return the same shape with more fields."""
        return Record(
            fields={**self.fields, **fields},
            needed=(*self.needed, *needed),
            open=self.open,
            nullable=self.nullable,
            page=self.page,
        )

    def without(self, *names: str) -> "Record":
        """Return the same shape without some fields."""
        left = {name: shape for name, shape in self.fields.items() if name not in names}
        needed = [name for name in self.needed if name not in names]
        return Record(fields=left, needed=needed, open=self.open, nullable=self.nullable, page=self.page)


class ByTag(Shape, frozen=True):
    """An object whose field ``tag`` says which of the shapes it has; ``usual`` is meant where it is missing."""

    tag: str = "type"
    shapes: Mapping[str, Shape] = {}
    usual: str | None = None


class Either(Shape, frozen=True):
    """One of several shapes of different JSON types: a string or a list, say."""

    shapes: Sequence[Shape] = ()


def faults(shape: Shape, value: Any, path: Path = ()) -> Iterator[Fault]:
    """Yield what is wrong with ``value``."""
    if value is None:
        if not shape.nullable and not isinstance(shape, Anything):
            yield Fault(path, "type", value, _wanted(shape), shape.page)
        return
    match shape:
        case Anything():
            return
        case Either():
            chosen = next((each for each in shape.shapes if _is_type(each, value)), None)
            if chosen is None:
                yield Fault(path, "type", value, _wanted(shape), shape.page)
                return
            yield from faults(chosen, value, path)
            return
    if not _is_type(shape, value):
        yield Fault(path, "type", value, _wanted(shape), shape.page)
        return
    match shape:
        case Text():
            yield from _of_text(shape, value, path)
        case Whole() | Decimal():
            if shape.least is not None and value < shape.least:
                yield Fault(path, "low", value, shape.least, shape.page)
            if shape.most is not None and value > shape.most:
                yield Fault(path, "high", value, shape.most, shape.page)
            if isinstance(shape, Whole) and shape.only is not None and value not in shape.only:
                yield Fault(path, "value", value, shape.only, shape.page)
        case Flag():
            if shape.only is not None and value is not shape.only:
                yield Fault(path, "value", value, [shape.only], shape.page)
        case ListOf():
            if len(value) < shape.fewest:
                yield Fault(path, "few", value, shape.fewest, shape.page)
            if shape.most is not None and len(value) > shape.most:
                yield Fault(path, "many", value, shape.most, shape.page)
            for number, entry in enumerate(value):
                yield from faults(shape.of, entry, (*path, number))
        case MapOf():
            if shape.most is not None and len(value) > shape.most:
                yield Fault(path, "many", value, shape.most, shape.page)
            for name, entry in value.items():
                if shape.longest_key is not None and len(name) > shape.longest_key:
                    yield Fault((*path, name), "key", name, shape.longest_key, shape.page)
                yield from faults(shape.of, entry, (*path, name))
        case Record():
            yield from _of_record(shape, value, path)
        case ByTag():
            yield from _of_tagged(shape, value, path)


def _of_text(shape: Text, value: str, path: Path) -> Iterator[Fault]:
    if shape.only is not None and value not in shape.only:
        yield Fault(path, "value", value, shape.only, shape.page)
    elif len(value) < shape.shortest:
        yield Fault(path, "short", value, shape.shortest, shape.page)
    elif shape.longest is not None and len(value) > shape.longest:
        yield Fault(path, "long", value, shape.longest, shape.page)
    elif shape.pattern is not None and not re.search(shape.pattern, value):
        yield Fault(path, "pattern", value, shape.pattern, shape.page)


def _of_record(shape: Record, value: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    for name in shape.needed:
        if name not in value:
            yield Fault((*path, name), "missing", None, None, shape.page)
    for name, entry in value.items():
        if name in shape.fields:
            yield from faults(shape.fields[name], entry, (*path, name))
        elif not shape.open:
            yield Fault((*path, name), "unknown", entry, None, shape.page)


def _of_tagged(shape: ByTag, value: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    tag = value.get(shape.tag, shape.usual)
    if tag is None:
        yield Fault((*path, shape.tag), "missing", None, list(shape.shapes), shape.page)
    elif not isinstance(tag, str) or tag not in shape.shapes:
        yield Fault((*path, shape.tag), "tag", tag, list(shape.shapes), shape.page)
    else:
        yield from faults(shape.shapes[tag], value, (*path, Tag(tag)))


_TYPES: Mapping[type[Shape], tuple[tuple[type, ...], str]] = {
    Text: ((str,), "string"),
    Whole: ((int,), "integer"),
    Decimal: ((int, float), "decimal"),
    Flag: ((bool,), "boolean"),
    ListOf: ((list,), "array"),
    MapOf: ((dict,), "object"),
    Record: ((dict,), "object"),
    ByTag: ((dict,), "object"),
}


def _is_type(shape: Shape, value: Any) -> bool:
    if isinstance(shape, Anything):
        return True
    if isinstance(shape, Either):
        return any(_is_type(each, value) for each in shape.shapes)
    if isinstance(value, bool) and not isinstance(shape, Flag):
        return False
    return isinstance(value, _TYPES[type(shape)][0])


def _wanted(shape: Shape) -> str | list[str]:
    if isinstance(shape, Either):
        return [_TYPES[type(each)][1] for each in shape.shapes]
    return "anything" if isinstance(shape, Anything) else _TYPES[type(shape)][1]
