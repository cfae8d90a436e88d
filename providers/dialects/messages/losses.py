"""The losses of one translated request, collected field by field, and readers of its raw values."""

from collections.abc import Container, Mapping
from typing import Any, TypeVar

import msgspec

from providers.dialects.wording import Loss, Malformed

Object = dict[str, Any]  # JSON to be encoded; values that are copied unchanged stay raw
RawObject = dict[str, msgspec.Raw]

_T = TypeVar("_T")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# Made once: a conversation has hundreds of blocks, and making a decoder costs more than using it.
_strings = msgspec.json.Decoder(str)
_objects = msgspec.json.Decoder(RawObject)
_lists = msgspec.json.Decoder(list[RawObject])

CACHE_REASON = "cache markers have no counterpart there"


class Losses:
    """The losses of one request, in the order of its fields."""

    def __init__(self) -> None:
        self._met: list[Loss] = []

    def add(self, field: str, reason: str, *, hint: bool = False) -> None:
        """Note that ``field``, the client's path of it, has no counterpart."""
        self._met.append(Loss(field, reason, hint))

    def rest(self, given: Mapping[str, msgspec.Raw], said: Container[str], path: str, reason: str) -> None:
        """Note every field of the object at ``path`` that is not null and not among the translated ones, ``said``."""
        for name, value in given.items():
            if name in said or is_null(value):
                continue
            if name in {"cache_control", "prompt_cache_breakpoint"}:
                self.add(f"{path}.{name}", CACHE_REASON, hint=True)
            else:
                self.add(f"{path}.{name}", reason)

    def met(self) -> tuple[Loss, ...]:
        """Return all losses."""
        return tuple(self._met)


def is_null(raw: msgspec.Raw) -> bool:
    """Whether a raw value is null."""
    return bytes(memoryview(raw)[:5]) == b"null"  # only the beginning: it may be a whole book


def is_string(raw: msgspec.Raw | None) -> bool:
    """Whether a raw value is a string, without decoding it."""
    return raw is not None and bytes(memoryview(raw)[:1]) == b'"'


def text_at(given: Mapping[str, msgspec.Raw], name: str, path: str) -> str:
    """Return the string ``name`` of the object at ``path``.

    Raises:
        Malformed: it is missing, or no string.

    """
    raw = given.get(name)
    if raw is not None and is_string(raw):
        try:
            return _strings.decode(raw)
        except _UNREADABLE:
            pass
    raise Malformed(f"'{path}.{name}' must be a string", f"{path}.{name}")


def raw_text_at(given: Mapping[str, msgspec.Raw], name: str, path: str) -> msgspec.Raw:
    """Return the string ``name`` of the object at ``path`` without decoding it: it may be a whole book.

    Raises:
        Malformed: it is missing, or no string.

    """
    raw = given.get(name)
    if raw is None or not is_string(raw):
        raise Malformed(f"'{path}.{name}' must be a string", f"{path}.{name}")
    return raw


def objects_at(raw: msgspec.Raw | None, path: str) -> list[RawObject]:
    """Return a list of objects, values still raw; an empty list where there is none.

    Raises:
        Malformed: it is something else.

    """
    return [] if raw is None or is_null(raw) else _read(_lists, raw, path)


def object_at(raw: msgspec.Raw | None, path: str) -> RawObject:
    """Return an object, values still raw; an empty object where there is none.

    Raises:
        Malformed: it is something else.

    """
    return {} if raw is None or is_null(raw) else _read(_objects, raw, path)


def _read(decoder: msgspec.json.Decoder[_T], raw: msgspec.Raw, path: str) -> _T:
    try:
        return decoder.decode(raw)
    except _UNREADABLE as error:
        raise Malformed(f"{path!r} is invalid: {error}", path) from None
